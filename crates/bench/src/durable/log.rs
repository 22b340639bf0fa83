//! What a batch writes into the log: deduplication on and off (Fig. 7), block sizes, flushes and fences.

use super::context::DurableBench;
use super::kv::{Dice, KvCall, SLOT_COUNT, VALUE_BYTES, process};
use crate::harness::counting::{RegionCounter, counting};
use crate::report::report::FigureUnit;
use mangrove_pool::{Domain, Emulated, Latency};
use mangrove_shadow::{Options, Shadow};
use mangrove_tracker::{Recompiler, Tracker, WriteSet};
use std::ffi::c_void;
use std::time::Instant;

pub(super) const LOG: &str = "log";
pub(super) const FENCES_COMMIT: &str = "fences of the commit, a batch";

/// Commands of one batch.
const BATCH: usize = 32;
const REGION_BYTES: u64 = 256 << 20;
const LOG_BYTES: u64 = 32 << 20;

/// Zipf's distribution over the slots, with exponent 0.99 as in YCSB.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new() -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=SLOT_COUNT)
            .map(|rank| {
                sum += (rank as f64).powf(-0.99);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|c| *c /= sum);
        Self(cumulative)
    }

    fn draw(&self, dice: &mut Dice) -> u32 {
        let point = (dice.next() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = self.0.partition_point(|&c| c < point);
        // Popular slots lie anywhere in the array, as popular keys do.
        (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as u32 % SLOT_COUNT as u32
    }
}

/// A shadow over counted memory, and the store in it that commands write.
struct CountedShadow {
    shadow: Shadow,
    counter: RegionCounter,
    tracker: Recompiler,
    store: *mut u8,
}

impl CountedShadow {
    fn new() -> anyhow::Result<Self> {
        let region = Emulated::region_with(REGION_BYTES, Latency::default(), Domain::Adr)?;
        let (region, counter) = counting(region);
        let options = Options::new().capacity(64 << 20).log_bytes(LOG_BYTES).background(false);
        let shadow = Shadow::on_region(region, &options)?;
        shadow.grow((SLOT_COUNT * VALUE_BYTES) as u64)?;
        let store = shadow.base();
        Ok(Self { shadow, counter, tracker: Recompiler::new()?, store })
    }

    fn mine(&self, ranges: &[(usize, usize)], to: &mut Vec<(usize, usize)>) {
        let base = self.store as usize;
        to.extend(ranges.iter().filter(|r| r.0 >= base && r.0 < base + SLOT_COUNT * VALUE_BYTES));
    }

    /// Runs `batches` batches of writes to the slots that `slot` draws; returns puts a second, log bytes a put.
    fn batches(
        &self,
        batches: usize,
        block_bytes: usize,
        dedup: bool,
        mut slot: impl FnMut(&mut Dice) -> u32,
    ) -> anyhow::Result<(f64, f64)> {
        let mut writes = Box::new(WriteSet::new(block_bytes)?);
        let (mut call, mut dice) = (KvCall::new(self.store), Dice::new(7));
        let mut ranges = Vec::new();
        let before = self.shadow.stat().log_written;
        let begin = Instant::now();
        for _ in 0..batches {
            ranges.clear();
            for _ in 0..BATCH {
                call.draw(&mut dice, 100);
                call.request.slot = slot(&mut dice);
                let arg = std::ptr::from_mut(&mut call).cast::<c_void>();
                // SAFETY: one thread; the store has all slots.
                unsafe { self.tracker.call(&mut writes, process, arg) }?;
                if !dedup {
                    self.mine(writes.ranges(), &mut ranges);
                    writes.clear();
                }
            }
            if dedup {
                self.mine(writes.ranges(), &mut ranges);
                writes.clear();
            }
            let ticket = self.shadow.commit(0, &ranges)?;
            self.shadow.wait(ticket)?;
        }
        let puts = (batches * BATCH) as f64;
        let rate = puts / begin.elapsed().as_secs_f64();
        Ok((rate, (self.shadow.stat().log_written - before) as f64 / puts))
    }
}

pub(super) fn run(b: &mut DurableBench) -> anyhow::Result<()> {
    let zipf = Zipf::new();
    let batches = b.size(20_000, 20);
    for (workload, skewed) in [("Zipf 0.99", true), ("uniform", false)] {
        let draw = |dice: &mut Dice| if skewed { zipf.draw(dice) } else { dice.next() as u32 };
        for (what, dedup) in [("deduplicated", true), ("every store", false)] {
            let (rate, bytes) = CountedShadow::new()?.batches(batches, 32, dedup, draw)?;
            b.add(LOG, "zero", workload, &format!("puts, {what}"), 1, FigureUnit::PerSecond, rate);
            b.add(LOG, "zero", workload, &format!("log bytes a put, {what}"), 1, FigureUnit::Bytes, bytes);
        }
        for block_bytes in [16, 32, 64, 128] {
            let (rate, bytes) = CountedShadow::new()?.batches(batches, block_bytes, true, draw)?;
            let what = format!("blocks of {block_bytes} bytes");
            b.add(LOG, "zero", workload, &format!("puts, {what}"), 1, FigureUnit::PerSecond, rate);
            b.add(LOG, "zero", workload, &format!("log bytes a put, {what}"), 1, FigureUnit::Bytes, bytes);
        }
    }
    fences(b)
}

/// Section 4.3: the commit has two fences, and the replayer two for each batch that it applies.
fn fences(b: &mut DurableBench) -> anyhow::Result<()> {
    let subject = CountedShadow::new()?;
    let batches = 1_000;
    subject.batches(10, 32, true, |dice| dice.next() as u32)?;
    subject.shadow.checkpoint()?;
    let before = subject.counter.now();
    subject.batches(batches, 32, true, |dice| dice.next() as u32)?;
    let commits = subject.counter.now() - before;
    let applied = subject.shadow.stat();
    subject.shadow.checkpoint()?;
    let replayed = subject.counter.now() - before - commits;
    let replays = (subject.shadow.stat().batches - applied.batches).max(1) as f64;
    let per_batch = |count: u64| count as f64 / batches as f64;
    b.add(LOG, "zero", "uniform", FENCES_COMMIT, 1, FigureUnit::Count, per_batch(commits.fences));
    b.add(
        LOG,
        "zero",
        "uniform",
        "lines flushed by the commit, a batch",
        1,
        FigureUnit::Count,
        per_batch(commits.lines),
    );
    b.add(
        LOG,
        "zero",
        "uniform",
        "fences behind it, a replayed batch",
        1,
        FigureUnit::Count,
        replayed.fences as f64 / replays,
    );
    b.add(
        LOG,
        "zero",
        "uniform",
        "lines flushed behind it, a batch",
        1,
        FigureUnit::Count,
        per_batch(replayed.lines),
    );
    Ok(())
}
