//! Values of 1 to 100 kB: unsynced puts, random gets, an ordered scan.

use crate::harness::context::{MapBench, TableLine};
use crate::harness::progress::SectionProgress;
use crate::harness::records;
use crate::harness::store::{OpenStore, SyncMode};
use crate::report::report::FigureUnit;
use anyhow::ensure;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Instant;

pub(crate) const SECTION: &str = "values";
const SIZES: [(usize, &str); 3] = [(1_000, "1 kB"), (10_000, "10 kB"), (100_000, "100 kB")];

/// Puts, gets and scanned records per second.
fn rates(store: &dyn OpenStore, count: u64, bytes: usize) -> anyhow::Result<[f64; 3]> {
    let mut value: Vec<u8> = (0..bytes).map(|at| (at as u64).wrapping_mul(0x9e37_79b9) as u8).collect();
    let start = Instant::now();
    for number in 0..count {
        value[..8].copy_from_slice(&number.to_le_bytes());
        store.put(&records::key(number), &value)?;
    }
    let put = count as f64 / start.elapsed().as_secs_f64();
    store.sync()?;
    let mut rng = SmallRng::seed_from_u64(3);
    let (gets, mut wrong) = (2 * count, 0u64);
    let mut found = Vec::with_capacity(bytes);
    let start = Instant::now();
    for _ in 0..gets {
        let number = rng.random_range(0..count);
        let is_there = store.get(&records::key(number), &mut found)?;
        let right = is_there && found.len() == bytes && found[..8] == number.to_le_bytes();
        wrong += u64::from(!right);
    }
    let get = gets as f64 / start.elapsed().as_secs_f64();
    ensure!(wrong == 0, "{wrong} wrong values of {bytes} bytes");
    let mut scanned = 0;
    let start = Instant::now();
    let seen = store.scan(&mut |_, value| scanned += value.len())?;
    let scan = seen as f64 / start.elapsed().as_secs_f64();
    ensure!(seen == count && scanned == bytes * count as usize, "the scan saw {seen} of {count} records");
    Ok([put, get, scan])
}

pub(super) fn run(c: &mut MapBench<'_>) -> anyhow::Result<()> {
    // As many bytes of values for each size as the other sections load.
    let total = c.records() * records::VALUE_BYTES;
    let stores = c.stores.clone();
    let progress = SectionProgress::new(SECTION, SIZES.len() * stores.len() * c.args.run.rounds);
    for (bytes, size) in SIZES {
        for _ in 0..c.args.run.rounds {
            for kind in &stores {
                progress.step(format!("{} {size}", kind.name()));
                let dir = c.fresh_dir(kind.name())?;
                let store = kind.open(&dir, SyncMode::Async)?;
                let rates = rates(&*store, (total / bytes).max(4) as u64, bytes)?;
                store.close()?;
                for (operation, rate) in
                    ["unsynced put", "random get", "record of an ordered scan"].iter().zip(rates)
                {
                    let line =
                        TableLine { section: SECTION, medium: "file", workload: size, operation, threads: 1 };
                    c.add(&line, kind.name(), FigureUnit::PerSecond, rate);
                }
                std::fs::remove_dir_all(&dir)?;
                progress.done();
            }
        }
    }
    Ok(())
}
