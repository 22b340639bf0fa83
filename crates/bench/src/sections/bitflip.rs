//! Flips one bit of a cleanly closed store, anywhere in its files, then opens the store again and reads it through.
//! An error is an answer; a wrong or missing record without an error is not.

use super::child;
use super::loaded::copy;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const SECTION: &str = "bitflip";
pub(crate) const SILENT: &str = "flips with silently wrong or missing records";
/// Records of the store: enough for several pages and tables, few enough to read in a moment.
const RECORDS: usize = 20_000;
/// A reader that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The files below `dir` that have bytes.
fn files(dir: &Path) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_dir() {
            found.extend(files(&entry.path())?);
        } else if meta.len() > 0 {
            found.push((entry.path(), meta.len()));
        }
    }
    found.sort();
    Ok(found)
}

/// True when the whole 4 KiB block around `at` is zero: unused space of a preallocated file.
fn is_blank(path: &Path, at: u64) -> anyhow::Result<bool> {
    let file = std::fs::File::open(path)?;
    let mut block = [0u8; 4096];
    let n = file.read_at(&mut block, at & !4095)?;
    Ok(block[..n].iter().all(|b| *b == 0))
}

/// A random bit of the used bytes below `dir`.
fn pick(dir: &Path, rng: &mut SmallRng) -> anyhow::Result<(PathBuf, u64, u8)> {
    let files = files(dir)?;
    let total: u64 = files.iter().map(|f| f.1).sum();
    ensure!(total > 0, "the closed store has no bytes");
    // Blank blocks are drawn again a few times, so that the empty part of preallocated files does not hide the
    // data.
    let mut last = None;
    for _ in 0..1000 {
        let mut at = rng.random_range(0..total);
        for (path, len) in &files {
            if at < *len {
                let bit = rng.random_range(0..8);
                last = Some((path.clone(), at, bit));
                break;
            }
            at -= len;
        }
        if let Some((path, at, _)) = &last
            && !is_blank(path, *at)?
        {
            break;
        }
    }
    last.ok_or_else(|| anyhow::anyhow!("no byte to flip"))
}

fn flip(path: &Path, at: u64, bit: u8) -> anyhow::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, at)?;
    Ok(())
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let stores = c.stores.clone();
    let (flips, records) = if c.args.run.quick { (2, 500) } else { (c.args.flips, RECORDS) };
    let progress = SectionProgress::new(SECTION, stores.len() * flips);
    for kind in &stores {
        progress.step(format!("{} load", kind.name()));
        let pristine = c.fresh_dir(&format!("{}-closed", kind.name()))?;
        let Some(child) = child::start(c, "close", kind.name(), records, &pristine)? else {
            c.report
                .note("The bit-flip study was left out: this program cannot start itself as a child here.");
            return Ok(());
        };
        let loaded = child.wait_with_output()?;
        ensure!(loaded.status.success(), "loading {} failed ({})", kind.name(), loaded.status);
        let mut rng = SmallRng::seed_from_u64(c.args.seed);
        let (mut silent, mut detected, mut harmless) = (0u32, 0u32, 0u32);
        for n in 0..flips {
            progress.step(format!("{} flip {}", kind.name(), n + 1));
            let dir = c.fresh_dir(kind.name())?;
            copy(&pristine, &dir)?;
            let (path, at, bit) = pick(&dir, &mut rng)?;
            flip(&path, at, bit)?;
            let Some(child) = child::start(c, "read", kind.name(), records, &dir)? else { return Ok(()) };
            match child::verdict(child, LIMIT)? {
                Err(_) => detected += 1,
                Ok(v) if v == child::ReadVerdict::default() => harmless += 1,
                Ok(_) => silent += 1,
            }
            std::fs::remove_dir_all(&dir)?;
            progress.done();
        }
        std::fs::remove_dir_all(&pristine)?;
        for (operation, count) in [
            (SILENT, silent),
            ("flips detected (an error or a crash)", detected),
            ("flips without effect", harmless),
        ] {
            let line = TableLine { section: SECTION, medium: "file", workload: "", operation, threads: 0 };
            c.add(&line, kind.name(), FigureUnit::Count, f64::from(count));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flip_changes_one_used_bit() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-flip-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("sub"))?;
        std::fs::write(dir.join("blank"), vec![0; 1 << 20])?;
        std::fs::write(dir.join("sub/data"), vec![0x55; 8192])?;
        let (path, at, bit) = pick(&dir, &mut SmallRng::seed_from_u64(3))?;
        assert!(path.ends_with("sub/data"));
        flip(&path, at, bit)?;
        let now = std::fs::read(&path)?;
        let changed: u32 = now.iter().map(|b| (b ^ 0x55).count_ones()).sum();
        std::fs::remove_dir_all(&dir)?;
        assert_eq!(changed, 1);
        Ok(())
    }
}
