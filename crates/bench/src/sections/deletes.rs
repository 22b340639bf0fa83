//! Nine of ten records are deleted at random: how fast, and what the rest takes on the disk and in memory. Then the
//! rest too: what is left on the disk of a store without records.

use super::batches::load;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::machine::resident_bytes;
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{StoreKind, SyncMode};
use crate::report::report::FigureUnit;
use anyhow::ensure;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

pub(crate) const SECTION: &str = "deletes";

/// Bytes that the files below `dir` occupy.
fn disk_bytes(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// Opens a store of which every record was deleted, and closes it; bytes on the disk then.
fn reopened(kind: &dyn StoreKind, dir: &Path) -> anyhow::Result<u64> {
    let store = kind.open(dir, SyncMode::Async)?;
    let kept = store.scan(&mut |_, _| {})?;
    ensure!(kept == 0, "{} kept {kept} records that were deleted", kind.name());
    store.close()?;
    disk_bytes(dir)
}

/// Deletes the records that are left. Bytes on the disk after opening the store again, and, if it has a call for
/// compaction, after that and opening it once more.
fn empty(kind: &dyn StoreKind, dir: &Path, left: &[u64]) -> anyhow::Result<(u64, Option<u64>)> {
    let store = kind.open(dir, SyncMode::Async)?;
    for number in left {
        store.delete(&records::key(*number))?;
    }
    store.sync()?;
    store.close()?;
    let emptied = reopened(kind, dir)?;
    let store = kind.open(dir, SyncMode::Async)?;
    let compacts = store.compact()?;
    store.close()?;
    let compacted = if compacts { Some(reopened(kind, dir)?) } else { None };
    Ok((emptied, compacted))
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let loaded = c.records();
    let mut order: Vec<u64> = (0..loaded as u64).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(c.args.seed));
    let deleted = loaded / 10 * 9;
    let stores = c.stores.clone();
    let progress = SectionProgress::new(SECTION, stores.len() * c.args.run.rounds);
    for _ in 0..c.args.run.rounds {
        for kind in &stores {
            progress.step(kind.name());
            let dir = c.fresh_dir(kind.name())?;
            let before = resident_bytes();
            let store = kind.open(&dir, SyncMode::Async)?;
            load(&*store, loaded)?;
            let full = disk_bytes(&dir)?;
            let start = Instant::now();
            for number in &order[..deleted] {
                store.delete(&records::key(*number))?;
            }
            let rate = deleted as f64 / start.elapsed().as_secs_f64();
            store.sync()?;
            store.close()?;
            let store = kind.open(&dir, SyncMode::Async)?;
            let kept = store.scan(&mut |_, _| {})?;
            ensure!(kept == (loaded - deleted) as u64, "{} kept {kept} records", kind.name());
            let memory = resident_bytes().saturating_sub(before);
            store.close()?;
            let left = disk_bytes(&dir)?;
            let (emptied, compacted) = empty(*kind, &dir, &order[deleted..])?;
            let mut lines = vec![
                ("random unsynced delete", FigureUnit::PerSecond, rate),
                ("disk a record, full", FigureUnit::Bytes, full as f64 / loaded as f64),
                ("disk a record that is left, after closing", FigureUnit::Bytes, left as f64 / kept as f64),
                (
                    "memory a record that is left, opened again",
                    FigureUnit::Bytes,
                    memory as f64 / kept as f64,
                ),
                ("disk, all deleted, opened again", FigureUnit::Bytes, emptied as f64),
            ];
            if let Some(bytes) = compacted {
                lines.push((
                    "disk, all deleted, compacted and opened again",
                    FigureUnit::Bytes,
                    bytes as f64,
                ));
            }
            for (operation, unit, value) in lines {
                let line =
                    TableLine { section: SECTION, medium: "file", workload: "", operation, threads: 1 };
                c.add(&line, kind.name(), unit, value);
            }
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
    }
    c.report.note("Deletes: the last row is of the stores that have a command to compact.");
    Ok(())
}
