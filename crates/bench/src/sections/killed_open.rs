//! A process with a full store is killed, or closes it: how long until the next process has its first answer?

use super::child;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, StoreKind, SyncMode};
use crate::report::report::FigureUnit;
use anyhow::ensure;
use std::path::Path;
use std::time::Instant;

pub(crate) const SECTION: &str = "open";
pub(crate) const OPEN: &str = "open after SIGKILL and first get";
pub(crate) const OPEN_CLEAN: &str = "open after a clean close and first get";
/// What of [`OPEN_CLEAN`] is the get: a map may leave work of its opening to that.
pub(crate) const FIRST_GET: &str = "first get after a clean close";

/// A store that was opened and has read one record.
struct Opened {
    store: Box<dyn OpenStore>,
    /// Milliseconds until the record was there.
    ms: f64,
    /// Those of them that passed after opening.
    get_ms: f64,
}

fn first_get(kind: &dyn StoreKind, dir: &Path) -> anyhow::Result<Opened> {
    let start = Instant::now();
    let store = kind.open(dir, SyncMode::Sync)?;
    let opened = Instant::now();
    let mut value = Vec::new();
    let found = store.get(&records::key(0), &mut value)?;
    let end = Instant::now();
    ensure!(found, "{} lost a record that was synced", kind.name());
    let ms = |from: Instant| end.duration_since(from).as_secs_f64() * 1e3;
    Ok(Opened { store, ms: ms(start), get_ms: ms(opened) })
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
            let killed = first_get(*kind, &dir)?;
            let kept = killed.store.scan(&mut |_, _| {})?;
            ensure!(kept == count as u64, "{} kept {kept} of {count} synced records", kind.name());
            killed.store.close()?;
            let closed = first_get(*kind, &dir)?;
            closed.store.close()?;
            let times = [(OPEN, killed.ms), (OPEN_CLEAN, closed.ms), (FIRST_GET, closed.get_ms)];
            for (operation, time) in times {
                let line =
                    TableLine { section: SECTION, medium: "file", workload: "", operation, threads: 0 };
                c.add(&line, kind.name(), FigureUnit::Milliseconds, time);
            }
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
    }
    Ok(())
}
