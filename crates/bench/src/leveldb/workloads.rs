//! The workloads of LevelDB's benchmark: 16-byte keys, values of 100 bytes, 1 KB or 100 KB that do not
//! compress; every write synced.

use super::api::Database;
use crate::harness::records;
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    value_bytes: usize,
}

/// Fig. 8.
pub(super) const WRITES: [WriteWorkload; 4] = [
    WriteWorkload { name: "fillseq", in_order: true, overwrites: false, value_bytes: VALUE_BYTES },
    WriteWorkload { name: "fillrandom", in_order: false, overwrites: false, value_bytes: VALUE_BYTES },
    WriteWorkload { name: "overwrite", in_order: false, overwrites: true, value_bytes: VALUE_BYTES },
    WriteWorkload { name: "fill100K", in_order: false, overwrites: false, value_bytes: VALUE_BYTES_100KB },
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

/// Writes per second of `threads` threads in `time`. `loaded` records exist for overwriting.
pub(super) fn write_rate(
    db: &Database,
    workload: WriteWorkload,
    threads: usize,
    time: Duration,
    loaded: u64,
) -> anyhow::Result<f64> {
    let stop = AtomicBool::new(false);
    let writes = AtomicU64::new(0);
    let first_error = Mutex::new(None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for t in 0..threads as u64 {
            let (stop, writes, first_error) = (&stop, &writes, &first_error);
            scope.spawn(move || {
                let value = value(workload.value_bytes, t);
                let mut rng = SmallRng::seed_from_u64(t);
                let mut done = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let key = match workload {
                        WriteWorkload { overwrites: true, .. } => records::key(rng.random_range(0..loaded)),
                        WriteWorkload { in_order: true, .. } => key_in_order(t << 40 | done),
                        _ => records::key(t << 40 | done),
                    };
                    if let Err(e) = db.put(&key, &value) {
                        *first_error.lock().unwrap_or_else(|p| p.into_inner()) = Some(e);
                        break;
                    }
                    done += 1;
                }
                writes.fetch_add(done, Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = start.elapsed().as_secs_f64();
    if let Some(e) = first_error.into_inner().unwrap_or_else(|p| p.into_inner()) {
        return Err(e);
    }
    let key = if workload.in_order { key_in_order(0) } else { records::key(0) };
    let expected = if workload.overwrites { VALUE_BYTES } else { workload.value_bytes };
    ensure!(db.get(&key)? == Some(expected), "{}: the first record is not there", workload.name);
    Ok(writes.into_inner() as f64 / seconds)
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
