//! Stores that hold the records already. Each kind is loaded once a run and closed; every measurement opens a copy, so
//! that all begin with the same bytes, and loading, which takes most of the time of a disk section, is paid once.

use super::batches::load;
use crate::harness::context::MapBench;
use crate::harness::records;
use crate::harness::store::{OpenStore, StoreKind, SyncMode};
use anyhow::{Context as _, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};

/// Which keys a loaded store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadedKeys {
    /// [`records::key`]: in no order.
    Scattered,
    /// [`records::prefixed_key`]: all under one prefix, put one by one.
    Prefixed,
}

/// Gets before the first measurement, at most.
const WARMING_GETS_MAX: usize = 1_000_000;

/// An open store that holds the first `count` records, in a directory of its own. Its data lie in the page cache, and
/// in the store's own cache as far as one scan and as many random gets bring them there.
pub(super) fn open_loaded(
    c: &MapBench<'_>,
    kind: &dyn StoreKind,
    keys: LoadedKeys,
    count: usize,
) -> anyhow::Result<(PathBuf, Box<dyn OpenStore>)> {
    let pristine = pristine(c, kind, keys, count)?;
    let dir = c.fresh_dir(kind.name())?;
    copy(&pristine, &dir)?;
    // What copying leaves to be written must not count for what is measured.
    rustix::fs::sync();
    let store = kind.open(&dir, SyncMode::Async)?;
    let seen = store.scan(&mut |_, _| {})?;
    ensure!(seen == count as u64, "{} has {seen} of {count} records that were loaded", kind.name());
    let mut rng = SmallRng::seed_from_u64(1);
    let mut value = Vec::with_capacity(records::VALUE_BYTES);
    let key_of = match keys {
        LoadedKeys::Scattered => records::key,
        LoadedKeys::Prefixed => records::prefixed_key,
    };
    for _ in 0..count.min(WARMING_GETS_MAX) {
        let number = rng.random_range(0..count as u64);
        ensure!(store.get(&key_of(number), &mut value)?, "{} does not find record {number}", kind.name());
    }
    Ok((dir, store))
}

/// The directory of the closed store, loaded at the first call. It goes when the bench ends.
fn pristine(
    c: &MapBench<'_>,
    kind: &dyn StoreKind,
    keys: LoadedKeys,
    count: usize,
) -> anyhow::Result<PathBuf> {
    let name = format!("{}, {count} {keys:?}", kind.name());
    let place = c.loaded_dir()?.join(&name);
    if place.exists() {
        return Ok(place);
    }
    let dir = c.fresh_dir(&name)?;
    let store = kind.open(&dir, SyncMode::Async)?;
    match keys {
        LoadedKeys::Scattered => load(&*store, count)?,
        LoadedKeys::Prefixed => {
            for number in 0..count as u64 {
                let key = records::prefixed_key(number);
                store.put(&key, &records::value(&key))?;
            }
            store.sync()?;
        }
    }
    // Or each copy would begin with what LevelDB and RocksDB have put off.
    store.compact()?;
    store.close()?;
    std::fs::rename(&dir, &place).with_context(|| format!("cannot rename {}", dir.display()))?;
    Ok(place)
}

/// Copies the files below `from`, holes as holes.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let done = std::process::Command::new("cp")
        .args(["--archive", "--sparse=auto", "--reflink=auto", "--no-target-directory"])
        .args([from, to])
        .status()
        .context("cannot run cp")?;
    ensure!(done.success(), "cannot copy {} to {} ({done})", from.display(), to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_copy_has_the_same_files_and_holes() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-copy-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("from/sub"))?;
        std::fs::write(dir.join("from/sub/data"), [7; 5000])?;
        std::fs::File::create(dir.join("from/hole"))?.set_len(64 << 20)?;
        std::fs::create_dir(dir.join("to"))?;
        copy(&dir.join("from"), &dir.join("to"))?;
        let data = std::fs::read(dir.join("to/sub/data"))?;
        let hole = std::fs::metadata(dir.join("to/hole"))?;
        std::fs::remove_dir_all(&dir)?;
        assert_eq!(data, [7; 5000]);
        assert!(hole.len() == 64 << 20 && hole.blocks() == 0, "{} blocks", hole.blocks());
        Ok(())
    }
}
