//! A process with a full store is killed, or closes it: how long until the next process has its first answer?

use super::child;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, StoreKind, SyncMode};
use crate::report::report::Unit;
use anyhow::ensure;
use std::path::Path;
use std::time::Instant;

pub(crate) const SECTION: &str = "open";
pub(crate) const OPEN: &str = "open after SIGKILL and first get";
const OPEN_CLEAN: &str = "open after a clean close and first get";

/// Opens the store and reads one record; milliseconds until it is there, and the store.
fn first_get(kind: &dyn StoreKind, dir: &Path) -> anyhow::Result<(f64, Box<dyn OpenStore>)> {
    let start = Instant::now();
    let store = kind.open(dir, SyncMode::Sync)?;
    let mut value = Vec::new();
    let found = store.get(&records::key(0), &mut value)?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    ensure!(found, "{} lost a record that was synced", kind.name());
    Ok((time, store))
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let stores = c.stores.clone();
    let count = c.records();
    let progress = SectionProgress::new(SECTION, stores.len() * c.args.run.rounds);
    for _ in 0..c.args.run.rounds {
        for kind in &stores {
            progress.step(format!("{} fill", kind.name()));
            let dir = c.fresh_dir(kind.name())?;
            let Some(child) = child::start(c, "fill", kind.name(), count, &dir)? else {
                c.report.note(
                    "Open after SIGKILL was left out: this program cannot start itself as a child here.",
                );
                return Ok(());
            };
            child::kill_when_ready(child)?;
            progress.step(format!("{} open", kind.name()));
            let (killed, store) = first_get(*kind, &dir)?;
            let kept = store.scan(&mut |_, _| {})?;
            ensure!(kept == count as u64, "{} kept {kept} of {count} synced records", kind.name());
            store.close()?;
            let (closed, store) = first_get(*kind, &dir)?;
            store.close()?;
            for (operation, time) in [(OPEN, killed), (OPEN_CLEAN, closed)] {
                let line =
                    TableLine { section: SECTION, medium: "file", workload: "", operation, threads: 0 };
                c.add(&line, kind.name(), Unit::Milliseconds, time);
            }
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
    }
    Ok(())
}
