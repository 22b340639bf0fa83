//! Injected latencies: the additional cost of persistent memory over the DRAM that is used in its place.
//!
//! Writes: each flushed cache line costs `write_ns` more. By default the thread spins on the time stamp counter right
//! after the flush instruction (the HART paper, section IV, adds the latency once to each call of `persistent`). With
//! [`FlushCost::Queued`] the lines queue, and the thread spins at the fence.
//!
//! Reads: DRAM that is read through the cache costs nothing extra on a hit, so a model of the last-level cache
//! decides. It has the geometry of that paper's machine (Xeon E5-2640 v3: 20 MiB, 20 ways, 64-byte lines), holds
//! tags only, replaces round-robin within a set, and is shared by all threads. A load that the code reports with
//! `Region::reading` looks up each of its lines; a miss enters the line and costs `read_ns` more. A line that is
//! flushed stays in the model with clwb and leaves it with clflush and clflushopt, as in the CPU. (The paper
//! measures stall cycles and adds the difference off-line.)
//!
//! Spinning executes nothing that aborts a hardware transaction, and touches no memory. The cache model does: in a
//! hardware transaction its tags belong to the transaction's reads and writes.

use crate::ReadObserver;
use crate::mapped::flush_queue;
use mangrove_sys::{CACHE_LINE_BYTES, FlushInstruction, Reservation, spin_ticks, ticks_per_microsecond};
use std::sync::atomic::{AtomicU32, Ordering};

/// Injected latencies in nanoseconds, in addition to DRAM's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Added to each flushed cache line.
    pub write_ns: u32,
    /// Added to each line read that misses a model of the CPU's last-level cache.
    pub read_ns: u32,
    /// Which call of the thread spends `write_ns`.
    pub flushes: FlushCost,
}

impl Latency {
    /// Latencies of writes and reads, each spent where it arises.
    #[must_use]
    pub const fn new(write_ns: u32, read_ns: u32) -> Self {
        Self { write_ns, read_ns, flushes: FlushCost::Waited }
    }
}

/// How the latency of flushed lines is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushCost {
    /// The flush waits, `write_ns` for each line. It also charges flushes that no fence waits for.
    #[default]
    Waited,
    /// The flush returns, and its thread's next fence waits. Each thread has a medium that takes one line after the
    /// other, `line_ns` each, and makes a line durable `write_ns` after it was taken. When 64 lines of the thread
    /// wait, the next flush waits for the first of them.
    ///
    /// The CPU writes the lines back to DRAM during that time, so a fence takes as long as the slower of the queue and
    /// the CPU. Lines that clflush writes back are waited for at once, because that instruction does not overlap with
    /// the next. Where the caches are persistent and nothing is written back, nothing is spent.
    Queued {
        /// Nanoseconds that the medium takes for one line: 64 divided by this is its bandwidth in GB/s, for one
        /// thread.
        line_ns: u32,
    },
}

const WAYS: usize = 20;
const SETS: usize = 20 * 1024 * 1024 / CACHE_LINE_BYTES / WAYS;
const _: () = assert!(SETS == 16384);
/// Words of one set: the tags, then the way to be replaced next.
const SET_WORDS: usize = 32;
const NEXT: usize = WAYS;

/// The latencies in ticks, and the tags of the modelled cache.
pub(crate) struct LatencyModel {
    write_ticks: u64,
    read_ticks: u64,
    /// Ticks for a line, of a medium with a queue.
    line_ticks: Option<u64>,
    /// Tags are line numbers plus one; 0 is an empty way. `None` without read latency.
    sets: Option<Reservation>,
}

impl LatencyModel {
    pub(crate) fn new(latency: Latency) -> std::io::Result<Self> {
        let rate = if latency == Latency::default() { 0 } else { ticks_per_microsecond() };
        let of = |ns: u32| u64::from(ns) * rate / 1000;
        let sets =
            if latency.read_ns > 0 { Some(Reservation::anonymous(SETS * SET_WORDS * 4)?) } else { None };
        if let Some(sets) = &sets {
            // The pages are there before the first look-up: a page fault aborts a hardware transaction.
            // SAFETY: the whole reservation, which no other thread has yet.
            unsafe { sets.base().as_ptr().write_bytes(0, sets.len()) };
        }
        let line_ticks = match latency.flushes {
            FlushCost::Waited => None,
            FlushCost::Queued { line_ns } => Some(of(line_ns)),
        };
        Ok(Self { write_ticks: of(latency.write_ns), read_ticks: of(latency.read_ns), line_ticks, sets })
    }

    pub(crate) fn models_reads(&self) -> bool {
        self.sets.is_some()
    }

    /// `len` bytes at `offset` have just been flushed.
    #[inline]
    pub(crate) fn flushed(&self, offset: u64, len: usize, instruction: FlushInstruction) {
        if len > 0 {
            self.spend(last_line(offset, len) - first_line(offset) + 1, instruction);
        }
        if self.sets.is_some()
            && matches!(instruction, FlushInstruction::Clflush | FlushInstruction::Clflushopt)
        {
            for line in first_line(offset)..=last_line(offset, len.max(1)) {
                self.evict(line);
            }
        }
    }

    /// Waits for `lines` flushed lines, or leaves them to the next fence.
    #[inline]
    fn spend(&self, lines: u64, instruction: FlushInstruction) {
        match (self.line_ticks, instruction) {
            (None, _) if self.write_ticks > 0 => spin_ticks(self.write_ticks * lines),
            (None, _) | (Some(_), FlushInstruction::None) => {}
            (Some(line_ticks), FlushInstruction::Clflush) => {
                spin_ticks((line_ticks + self.write_ticks) * lines)
            }
            (Some(line_ticks), _) => flush_queue::flushed(lines, line_ticks, self.write_ticks),
        }
    }

    /// The calling thread has just executed a fence.
    #[inline]
    pub(crate) fn fenced(&self) {
        if self.line_ticks.is_some() {
            flush_queue::fenced();
        }
    }

    fn set(&self, line: u64) -> Option<&[AtomicU32; SET_WORDS]> {
        let sets = self.sets.as_ref()?;
        let set = line as usize % SETS;
        // SAFETY: inside the reservation, aligned, and only ever accessed as these atomics.
        Some(unsafe { &*sets.base().as_ptr().add(set * SET_WORDS * 4).cast::<[AtomicU32; SET_WORDS]>() })
    }

    /// True when the line was not in the modelled cache; it is now. Relaxed throughout: a race may cost the model
    /// an entry, as any other line may.
    fn misses(&self, line: u64) -> bool {
        let Some(set) = self.set(line) else { return false };
        let tag = tag_of(line);
        if set[..WAYS].iter().any(|way| way.load(Ordering::Relaxed) == tag) {
            return false;
        }
        let way = set[NEXT].load(Ordering::Relaxed) as usize % WAYS;
        set[way].store(tag, Ordering::Relaxed);
        set[NEXT].store((way + 1) as u32, Ordering::Relaxed);
        true
    }

    fn evict(&self, line: u64) {
        let Some(set) = self.set(line) else { return };
        if let Some(way) = set[..WAYS].iter().find(|way| way.load(Ordering::Relaxed) == tag_of(line)) {
            way.store(0, Ordering::Relaxed);
        }
    }
}

impl ReadObserver for LatencyModel {
    #[inline]
    fn reading(&self, offset: u64, len: usize) {
        if len == 0 {
            return;
        }
        let misses = (first_line(offset)..=last_line(offset, len)).filter(|&line| self.misses(line)).count();
        if misses > 0 {
            spin_ticks(self.read_ticks * misses as u64);
        }
    }
}

fn first_line(offset: u64) -> u64 {
    offset / CACHE_LINE_BYTES as u64
}

fn last_line(offset: u64, len: usize) -> u64 {
    (offset + len as u64 - 1) / CACHE_LINE_BYTES as u64
}

/// Lines of one set differ in these bits; 2^32 of them are 64 PiB.
fn tag_of(line: u64) -> u32 {
    (line / SETS as u64) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_misses_once_and_again_after_its_set_was_overrun() {
        let model = LatencyModel::new(Latency { read_ns: 1, ..Latency::default() }).unwrap();
        assert!(model.misses(5));
        assert!(!model.misses(5));
        for way in 1..=WAYS as u64 {
            assert!(model.misses(5 + way * SETS as u64));
        }
        assert!(model.misses(5), "twenty other lines of the set came after it");
    }

    #[test]
    fn clflush_takes_the_line_out_and_clwb_does_not() {
        let model = LatencyModel::new(Latency { read_ns: 1, ..Latency::default() }).unwrap();
        assert!(model.misses(1));
        model.flushed(64, 8, FlushInstruction::Clwb);
        assert!(!model.misses(1));
        model.flushed(64, 8, FlushInstruction::Clflush);
        assert!(model.misses(1));
    }

    #[test]
    fn latencies_are_spent_by_line() {
        let model = LatencyModel::new(Latency::new(20_000, 20_000)).unwrap();
        let begun = std::time::Instant::now();
        model.flushed(60, 8, FlushInstruction::Clwb);
        assert!(begun.elapsed().as_micros() >= 36, "two lines");
        let begun = std::time::Instant::now();
        model.reading(1 << 20, 64);
        assert!(begun.elapsed().as_micros() >= 18, "one line");
    }

    fn queued(write_ns: u32, line_ns: u32) -> LatencyModel {
        let flushes = FlushCost::Queued { line_ns };
        LatencyModel::new(Latency { write_ns, read_ns: 0, flushes }).unwrap()
    }

    /// The queue is of the thread: no other test may run on it.
    fn on_a_thread_of_its_own(test: impl FnOnce() + Send) {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap());
    }

    #[test]
    fn queued_flushes_wait_at_the_fence() {
        on_a_thread_of_its_own(|| {
            let model = queued(1_000_000, 20_000);
            let begun = std::time::Instant::now();
            model.flushed(60, 8, FlushInstruction::Clwb);
            model.flushed(0, 192, FlushInstruction::Clflushopt);
            model.fenced();
            assert!(begun.elapsed().as_micros() >= 1_090, "five lines, and one latency");
            assert_eq!(flush_queue::ticks_left(), 0);
        });
    }

    #[test]
    fn a_flush_without_a_fence_costs_nothing_and_what_is_not_written_back_neither() {
        on_a_thread_of_its_own(|| {
            // Four seconds a line: what would wait for 64 of them would need more than four minutes.
            let model = queued(4_000_000_000, 4_000_000_000);
            model.flushed(0, 64 << 10, FlushInstruction::None);
            model.fenced();
            assert_eq!(flush_queue::ticks_left(), 0, "persistent caches");
            for line in 0..flush_queue::QUEUE_LINES_MAX {
                model.flushed(line * 64, 64, FlushInstruction::Clwb);
            }
            let left = flush_queue::ticks_left() / ticks_per_microsecond();
            assert!(left > 100_000_000, "{left} us are left of 260 s: the flushes have waited");
            // A medium that waits at each flush, or has no latency, does not look at the queue.
            LatencyModel::new(Latency { write_ns: 1, ..Latency::default() }).unwrap().fenced();
        });
    }

    #[test]
    fn clflush_waits_itself() {
        on_a_thread_of_its_own(|| {
            let model = queued(30_000, 20_000);
            let begun = std::time::Instant::now();
            model.flushed(0, 128, FlushInstruction::Clflush);
            assert!(begun.elapsed().as_micros() >= 90, "two lines, one after the other");
            assert_eq!(flush_queue::ticks_left(), 0);
        });
    }

    #[test]
    fn the_fence_can_wait_in_a_hardware_transaction() {
        use mangrove_sys::{rtm, xbegin, xend};
        eprintln!("RTM of this machine: {}", rtm());
        if !rtm().commits() {
            return;
        }
        on_a_thread_of_its_own(|| {
            let model = queued(300, 20);
            let committed = (0..10_000).any(|_| {
                model.flushed(0, 64, FlushInstruction::Clwb);
                // SAFETY: the instructions are there, and XEND ends what XBEGIN began.
                unsafe {
                    xbegin().is_ok_and(|()| {
                        model.fenced();
                        xend();
                        true
                    })
                }
            });
            assert!(committed, "a fence that waits aborts every transaction");
        });
    }
}
