//! Floors, measured in the same run: what no store on this machine can beat.

use crate::Workload;
use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::report::report::FigureUnit;
use anyhow::Context as _;
use mangrove_pool::{Emulated, FlushInstruction};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const SECTION: &str = "floors";
pub(super) const FDATASYNC: &str = "write 128 B + fdatasync";
pub(super) const ODSYNC: &str = "O_DIRECT|O_DSYNC write 512 B";
/// The subject of these figures.
pub(crate) const FLOOR: &str = "floor";

/// A preallocated, zero-filled file: without it each fdatasync also writes metadata.
const FILE_BYTES: u64 = 16 << 20;

fn preallocated(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let file = file.with_context(|| format!("cannot create {}", path.display()))?;
    let zeros = vec![0u8; 1 << 20];
    for at in (0..FILE_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, at).with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.sync_all()?;
    Ok(file)
}

/// fdatasyncs per second, each after an appended 128 bytes.
fn fdatasync_rate(path: &Path, time: Duration) -> anyhow::Result<f64> {
    let file = preallocated(path)?;
    let record = [0x5Au8; 128];
    let (mut count, start) = (0u64, Instant::now());
    while start.elapsed() < time {
        file.write_all_at(&record, count * 128 % FILE_BYTES)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

#[repr(align(4096))]
struct Sectors([u8; 4096]);

/// Synchronous direct writes of `bytes` (at most 4,096) per second; `None` where the file system has no O_DIRECT.
pub(crate) fn odsync_rate(path: &Path, bytes: usize, time: Duration) -> anyhow::Result<Option<f64>> {
    drop(preallocated(path)?);
    let flags = libc::O_DIRECT | libc::O_DSYNC;
    let Ok(file) = OpenOptions::new().write(true).custom_flags(flags).open(path) else { return Ok(None) };
    let sectors = Sectors([0x5A; 4096]);
    let (mut count, start) = (0u64, Instant::now());
    while start.elapsed() < time {
        file.write_all_at(&sectors.0[..bytes], count * bytes as u64 % FILE_BYTES)?;
        count += 1;
    }
    Ok(Some(count as f64 / start.elapsed().as_secs_f64()))
}

/// Small durable writes per second, by the faster of both ways, each for `time`. `dir` is empty.
pub(super) fn durable_write_rate(dir: &Path, time: Duration) -> anyhow::Result<f64> {
    let buffered = fdatasync_rate(&dir.join("fdatasync"), time)?;
    let direct = odsync_rate(&dir.join("odsync"), 512, time)?;
    Ok(direct.map_or(buffered, |direct| direct.max(buffered)))
}

/// Nanoseconds of a store, a write-back and a fence, to lines in order and to lines far apart.
pub(crate) fn persist_cost(repeats: u64) -> anyhow::Result<[f64; 2]> {
    let region = Emulated::region(64 << 20)?;
    region.zero(0, region.len() as usize);
    Ok([64, 64 * 4099].map(|stride| {
        super::operations::per_record(repeats as usize, || {
            for i in 0..repeats {
                let at = (i * stride % region.len()) & !63;
                region.store(at, i, std::sync::atomic::Ordering::Relaxed);
                region.flush(at, 8);
                region.fence();
            }
        })
    }))
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(c.seconds());
    let repeats: u64 = if c.args.run.quick { 1_000 } else { 1_000_000 };
    let keys = c.keys(Workload::Random, c.records())?;
    let progress = SectionProgress::new(SECTION, c.args.run.rounds);
    let dir = c.fresh_dir("floors")?;
    let flush = FlushInstruction::detect();
    let on_disk = c.measures_disk();
    for _ in 0..c.args.run.rounds {
        let mut put = |medium: &str, operation: &str, unit: FigureUnit, value: f64| {
            let line = TableLine { section: SECTION, medium, workload: "", operation, threads: 1 };
            c.add(&line, FLOOR, unit, value);
        };
        progress.step("cache lines");
        let [near, far] = persist_cost(repeats)?;
        put("zero", &format!("store + {flush} + sfence, lines in order"), FigureUnit::Nanoseconds, near);
        put("zero", &format!("store + {flush} + sfence, lines far apart"), FigureUnit::Nanoseconds, far);
        let (from, mut to) = (vec![1u8; 116], vec![0u8; 1 << 20]);
        let copy = super::operations::per_record(repeats as usize, || {
            for i in 0..repeats as usize {
                let at = i * 128 % ((1 << 20) - 128);
                to[at..at + from.len()].copy_from_slice(black_box(&from));
            }
            black_box(&to);
        });
        put("zero", "memcpy of 116 bytes (16-byte key, 100-byte value)", FigureUnit::Nanoseconds, copy);
        let mut map: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (i, k) in keys.iter().enumerate() {
            map.insert(k, i as u64);
        }
        let get = super::operations::per_record(keys.len(), || {
            for k in keys.iter() {
                black_box(map.get(k));
            }
        });
        put("zero", "get of a native BTreeMap, Random", FigureUnit::Nanoseconds, get);
        if !on_disk {
            progress.done();
            continue;
        }
        progress.step("the disk");
        put("file", FDATASYNC, FigureUnit::PerSecond, fdatasync_rate(&dir.join("fdatasync"), time)?);
        if let Some(rate) = odsync_rate(&dir.join("odsync"), 512, time)? {
            put("file", ODSYNC, FigureUnit::PerSecond, rate);
        }
        progress.done();
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
