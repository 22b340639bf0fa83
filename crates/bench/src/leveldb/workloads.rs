//! The workloads of LevelDB's benchmark: 16-byte keys, values of 100 bytes, 1 KB or 100 KB that do not
//! compress; every write synced, or none.

use super::api::Database;
use crate::harness::records;
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Records of a batch while a database is loaded.
const BATCH_RECORDS: u64 = 1_000;
const VALUE_BYTES: usize = 100;
const VALUE_BYTES_1KB: usize = 1_024;
const VALUE_BYTES_100KB: usize = 100_000;

/// What a writing workload writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteWorkload {
    pub(super) name: &'static str,
    /// Each thread counts up; otherwise keys come in no order.
    in_order: bool,
    /// The keys are those that the database was loaded with.
    pub(super) overwrites: bool,
    /// It removes those keys, each once.
    pub(super) deletes: bool,
    value_bytes: usize,
    /// Each write is durable when it returns.
    pub(super) sync: bool,
    /// Threads that get those keys meanwhile.
    readers: u64,
}

impl WriteWorkload {
    const fn named(name: &'static str) -> Self {
        Self {
            name,
            in_order: false,
            overwrites: false,
            deletes: false,
            value_bytes: VALUE_BYTES,
            sync: true,
            readers: 0,
        }
    }

    const fn unsynced(name: &'static str) -> Self {
        Self { sync: false, ..Self::named(name) }
    }
}

/// Fig. 8.
pub(super) const WRITES: [WriteWorkload; 4] = [
    WriteWorkload { in_order: true, ..WriteWorkload::named("fillseq") },
    WriteWorkload::named("fillrandom"),
    WriteWorkload { overwrites: true, ..WriteWorkload::named("overwrite") },
    WriteWorkload { value_bytes: VALUE_BYTES_100KB, ..WriteWorkload::named("fill100K") },
];

/// By one thread.
pub(super) const UNSYNCED_WRITES: [WriteWorkload; 5] = [
    WriteWorkload { in_order: true, ..WriteWorkload::unsynced("fillseq-nosync") },
    WriteWorkload::unsynced("fillrandom-nosync"),
    WriteWorkload { overwrites: true, ..WriteWorkload::unsynced("overwrite-nosync") },
    WriteWorkload { overwrites: true, readers: 2, ..WriteWorkload::unsynced("overwrite-nosync-2readers") },
    WriteWorkload { deletes: true, ..WriteWorkload::unsynced("delete-nosync") },
];

/// How a reading workload reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Forwards,
    Backwards,
    Randomly,
}

/// Fig. 9, and random gets: the name, how, and the value bytes of what is read.
pub(super) const READS: [(&str, How, usize); 5] = [
    ("readseq", How::Forwards, VALUE_BYTES),
    ("readreverse", How::Backwards, VALUE_BYTES),
    ("readrandom", How::Randomly, VALUE_BYTES),
    ("readseq1KB", How::Forwards, VALUE_BYTES_1KB),
    ("readreverse1KB", How::Backwards, VALUE_BYTES_1KB),
];

/// The number-th key in order.
fn key_in_order(number: u64) -> [u8; records::KEY_BYTES] {
    std::array::from_fn(|i| b"0123456789abcdef"[(number >> (60 - 4 * i) & 15) as usize])
}

fn value(bytes: usize, seed: u64) -> Vec<u8> {
    let mut value = vec![0; bytes];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut value);
    value
}

/// Loads the records `0..count`, whose keys come in no order.
pub(super) fn load(db: &Database, count: u64, value_bytes: usize) -> anyhow::Result<()> {
    // Values differ only in their first bytes: that is cheap, and no two are equal.
    let mut values = vec![value(value_bytes, 1); BATCH_RECORDS as usize];
    for from in (0..count).step_by(BATCH_RECORDS as usize) {
        let numbers = from..count.min(from + BATCH_RECORDS);
        let keys: Vec<_> = numbers.clone().map(records::key).collect();
        for (number, value) in numbers.zip(&mut values) {
            value[..8].copy_from_slice(&records::key(number ^ 1 << 50)[..8]);
        }
        let last = from + BATCH_RECORDS >= count;
        db.batch(keys.iter().map(|k| &k[..]).zip(values.iter().map(|v| &v[..])), last)?;
    }
    Ok(())
}

/// Writes per second of `threads` threads in `time`. `loaded` records exist for overwriting and for reading; one thread
/// that deletes ends when it has deleted them.
pub(super) fn write_rate(
    db: &Database,
    workload: WriteWorkload,
    threads: usize,
    time: Duration,
    loaded: u64,
) -> anyhow::Result<f64> {
    let stop = AtomicBool::new(false);
    let ending = Mutex::new(Ended::default());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for t in 0..workload.readers {
            let (stop, ending) = (&stop, &ending);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(t);
                while !stop.load(Ordering::Relaxed) {
                    if let Err(e) = db.get(&records::key(rng.random_range(0..loaded))) {
                        ending.lock().unwrap_or_else(|p| p.into_inner()).error = Some(e);
                        break;
                    }
                }
            });
        }
        let writers: Vec<_> = (0..threads as u64)
            .map(|t| {
                let (stop, ending) = (&stop, &ending);
                scope.spawn(move || {
                    let (done, error) = write_until(db, workload, t, loaded, stop);
                    let mut ending = ending.lock().unwrap_or_else(|p| p.into_inner());
                    ending.writes += done;
                    ending.seconds = ending.seconds.max(start.elapsed().as_secs_f64());
                    ending.error = ending.error.take().or(error);
                })
            })
            .collect();
        while start.elapsed() < time && !writers.iter().all(|writer| writer.is_finished()) {
            std::thread::sleep(time / 200);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let ended = ending.into_inner().unwrap_or_else(|p| p.into_inner());
    if let Some(e) = ended.error {
        return Err(e);
    }
    let key = if workload.in_order { key_in_order(0) } else { records::key(0) };
    let value_bytes = if workload.overwrites { VALUE_BYTES } else { workload.value_bytes };
    let expected = (!workload.deletes).then_some(value_bytes);
    ensure!(db.get(&key)? == expected, "{}: the first record is not as it was written", workload.name);
    Ok(ended.writes as f64 / ended.seconds)
}

/// What the threads of a writing workload did.
#[derive(Default)]
struct Ended {
    writes: u64,
    /// Until the last writer ended.
    seconds: f64,
    error: Option<anyhow::Error>,
}

/// Writes at least once, and until `stop` is set or every record is deleted. Returns the number of writes, and the
/// error that ended them.
fn write_until(
    db: &Database,
    workload: WriteWorkload,
    t: u64,
    loaded: u64,
    stop: &AtomicBool,
) -> (u64, Option<anyhow::Error>) {
    let value = value(workload.value_bytes, t);
    let mut rng = SmallRng::seed_from_u64(t);
    let mut done = 0u64;
    let enough = if workload.deletes { loaded } else { u64::MAX };
    loop {
        let key = match workload {
            WriteWorkload { overwrites: true, .. } => records::key(rng.random_range(0..loaded)),
            WriteWorkload { in_order: true, .. } => key_in_order(t << 40 | done),
            _ => records::key(t << 40 | done),
        };
        let written = if workload.deletes {
            db.delete(&key, workload.sync)
        } else {
            db.put(&key, &value, workload.sync)
        };
        if let Err(e) = written {
            return (done, Some(e));
        }
        done += 1;
        if done >= enough || stop.load(Ordering::Relaxed) {
            return (done, None);
        }
    }
}

/// Records per second that `threads` threads read. Each reads all of them, or as many at random.
pub(super) fn read_rate(
    db: &Database,
    how: How,
    threads: usize,
    loaded: u64,
    value_bytes: usize,
) -> anyhow::Result<f64> {
    let expected = (loaded, loaded * (records::KEY_BYTES + value_bytes) as u64);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|t| {
                scope.spawn(move || -> anyhow::Result<()> {
                    if how != How::Randomly {
                        let found = db.scan(how == How::Backwards)?;
                        ensure!(
                            found == expected,
                            "a scan found {found:?} of {expected:?} records and bytes"
                        );
                        return Ok(());
                    }
                    let mut rng = SmallRng::seed_from_u64(t);
                    for _ in 0..loaded {
                        let found = db.get(&records::key(rng.random_range(0..loaded)))?;
                        ensure!(found == Some(value_bytes), "a get found {found:?}");
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    Ok((threads as u64 * loaded) as f64 / start.elapsed().as_secs_f64())
}
