//! The floor of a disk: how often it makes 512 bytes durable, one after the other.

use crate::terminal::interrupt;
use anyhow::Context;
use rustix::fs::{OFlags, fdatasync};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// What one way of making bytes durable was measured to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Durable writes a second.
    pub(crate) per_second: f64,
    /// The middle of all times, in microseconds.
    pub(crate) median_us: f64,
    /// The time that one in a hundred exceeds, in microseconds.
    pub(crate) p99_us: f64,
}

/// What a disk was measured to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// A write through the page cache, then fdatasync.
    pub(crate) fdatasync: Rate,
    /// One write past the page cache that is durable on return (`O_DIRECT|O_DSYNC`), where there is such.
    pub(crate) direct: Option<Rate>,
}

impl Floor {
    /// The faster of the two ways.
    pub(crate) fn best(&self) -> Rate {
        match self.direct {
            Some(direct) if direct.per_second > self.fdatasync.per_second => direct,
            _ => self.fdatasync,
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per_second = crate::terminal::size::count(self.per_second as u64);
        write!(
            f,
            "{per_second} a second; median {:.0} us, 99th percentile {:.0} us",
            self.median_us, self.p99_us
        )
    }
}

/// Bytes of the file that is written round and round.
const FILE_BYTES: u64 = 4 << 20;

/// A sector, aligned as direct writes want it.
#[repr(align(4096))]
struct Sector([u8; 512]);

/// Makes 512 bytes durable, again and again for `time` in all, in a preallocated and zeroed file in
/// `dir` that is removed afterwards. `None` when it was interrupted: the caller has signals caught.
///
/// The file has a name until then: a file system (btrfs) need not make a file durable that no name leads to.
pub(crate) fn measure(dir: &Path, time: Duration) -> anyhow::Result<Option<Floor>> {
    let file = tempfile::Builder::new().prefix(".mangrove-floor-").tempfile_in(dir);
    let floor = file
        .and_then(|file| measure_in(file.path(), file.as_file(), time / 2))
        .with_context(|| format!("cannot measure durable writes in {}", dir.display()))?;
    Ok((!interrupt::asked()).then_some(floor))
}

fn measure_in(path: &Path, file: &File, time: Duration) -> io::Result<Floor> {
    file.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    let fdatasync = rate(time, |at, sector| {
        file.write_all_at(sector, at)?;
        Ok(fdatasync(file)?)
    })?;
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let open = || -> io::Result<File> { OpenOptions::new().write(true).custom_flags(flags).open(path) };
    // Not every file system writes past its cache.
    let direct = open().and_then(|file| rate(time, |at, sector| file.write_all_at(sector, at))).ok();
    Ok(Floor { fdatasync, direct })
}

fn rate(time: Duration, mut write: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<Rate> {
    let mut times = Vec::new();
    let start = Instant::now();
    while times.is_empty() || (start.elapsed() < time && !interrupt::asked()) {
        let sector = Sector([times.len() as u8; 512]);
        let one = Instant::now();
        write(times.len() as u64 * 512 % FILE_BYTES, &sector.0)?;
        times.push(one.elapsed());
    }
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    Ok(Rate {
        per_second: times.len() as f64 / total.as_secs_f64(),
        median_us: us(times[times.len() / 2]),
        p99_us: us(times[times.len() * 99 / 100]),
    })
}
