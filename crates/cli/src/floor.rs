//! The floor of a disk: how often it makes 512 bytes durable, one after the other.

use anyhow::Context;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a disk was measured to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// Write and fdatasync, a second.
    pub(crate) per_second: f64,
    /// The middle of all times, in microseconds.
    pub(crate) median_us: f64,
    /// The time that one in a hundred exceeds, in microseconds.
    pub(crate) p99_us: f64,
}

/// Bytes of the file that is written round and round.
const FILE_BYTES: u64 = 4 << 20;

/// Writes 512 bytes and fdatasync, again and again for `time`, in a preallocated and zeroed file in
/// `dir` that is removed afterwards.
pub(crate) fn measure(dir: &Path, time: Duration) -> anyhow::Result<Floor> {
    let path = dir.join(format!(".mangrove-floor-{}", std::process::id()));
    let result =
        measure_in(&path, time).with_context(|| format!("cannot measure fdatasync in {}", dir.display()));
    let _ = std::fs::remove_file(&path);
    result
}

fn measure_in(path: &Path, time: Duration) -> anyhow::Result<Floor> {
    let file = OpenOptions::new().create_new(true).write(true).open(path)?;
    // Some file systems cannot reserve space; the zeros below do it as well.
    let _ = fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES);
    file.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        let at = times.len() as u64 * 512 % FILE_BYTES;
        let one = Instant::now();
        file.write_all_at(&[times.len() as u8; 512], at)?;
        fdatasync(&file)?;
        times.push(one.elapsed());
    }
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    Ok(Floor {
        per_second: times.len() as f64 / total.as_secs_f64(),
        median_us: us(times[times.len() / 2]),
        p99_us: us(times[times.len() * 99 / 100]),
    })
}
