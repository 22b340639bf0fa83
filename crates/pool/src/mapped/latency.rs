//! Injected latencies: the additional cost of persistent memory over the DRAM that is used in its place.
//!
//! Writes: each flushed cache line costs `write_ns` more. The thread spins on the time stamp counter right after
//! the flush instruction (the paper, section IV, adds the latency once to each call of `persistent`).
//!
//! Reads: DRAM that is read through the cache costs nothing extra on a hit, so a model of the last-level cache
//! decides. It has the geometry of the paper's machine (Xeon E5-2640 v3: 20 MiB, 20 ways, 64-byte lines), holds
//! tags only, replaces round-robin within a set, and is shared by all threads. A load that the code reports with
//! `Region::reading` looks up each of its lines; a miss enters the line and costs `read_ns` more. A line that is
//! flushed stays in the model with clwb and leaves it with clflush and clflushopt, as in the CPU. (The paper
//! measures stall cycles and adds the difference off-line.)

use crate::ReadObserver;
use mangrove_sys::{CACHE_LINE_BYTES, FlushInstruction, Reservation, spin_ticks, ticks_per_microsecond};
use std::sync::atomic::{AtomicU32, Ordering};

/// Injected latencies in nanoseconds, in addition to DRAM's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Added to each flushed cache line.
    pub write_ns: u32,
    /// Added to each line read that misses a model of the CPU's last-level cache.
    pub read_ns: u32,
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
    /// Tags are line numbers plus one; 0 is an empty way. `None` without read latency.
    sets: Option<Reservation>,
}

impl LatencyModel {
    pub(crate) fn new(latency: Latency) -> std::io::Result<Self> {
        let rate = if latency == Latency::default() { 0 } else { ticks_per_microsecond() };
        let of = |ns: u32| u64::from(ns) * rate / 1000;
        let sets =
            if latency.read_ns > 0 { Some(Reservation::anonymous(SETS * SET_WORDS * 4)?) } else { None };
        Ok(Self { write_ticks: of(latency.write_ns), read_ticks: of(latency.read_ns), sets })
    }

    pub(crate) fn models_reads(&self) -> bool {
        self.sets.is_some()
    }

    /// `len` bytes at `offset` have just been flushed.
    #[inline]
    pub(crate) fn flushed(&self, offset: u64, len: usize, instruction: FlushInstruction) {
        if self.write_ticks > 0 && len > 0 {
            let lines = last_line(offset, len) - first_line(offset) + 1;
            spin_ticks(self.write_ticks * lines);
        }
        if self.sets.is_some()
            && matches!(instruction, FlushInstruction::Clflush | FlushInstruction::Clflushopt)
        {
            for line in first_line(offset)..=last_line(offset, len.max(1)) {
                self.evict(line);
            }
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
        let model = LatencyModel::new(Latency { write_ns: 0, read_ns: 1 }).unwrap();
        assert!(model.misses(5));
        assert!(!model.misses(5));
        for way in 1..=WAYS as u64 {
            assert!(model.misses(5 + way * SETS as u64));
        }
        assert!(model.misses(5), "twenty other lines of the set came after it");
    }

    #[test]
    fn clflush_takes_the_line_out_and_clwb_does_not() {
        let model = LatencyModel::new(Latency { write_ns: 0, read_ns: 1 }).unwrap();
        assert!(model.misses(1));
        model.flushed(64, 8, FlushInstruction::Clwb);
        assert!(!model.misses(1));
        model.flushed(64, 8, FlushInstruction::Clflush);
        assert!(model.misses(1));
    }

    #[test]
    fn latencies_are_spent_by_line() {
        let model = LatencyModel::new(Latency { write_ns: 20_000, read_ns: 20_000 }).unwrap();
        let begun = std::time::Instant::now();
        model.flushed(60, 8, FlushInstruction::Clwb);
        assert!(begun.elapsed().as_micros() >= 36, "two lines");
        let begun = std::time::Instant::now();
        model.reading(1 << 20, 64);
        assert!(begun.elapsed().as_micros() >= 18, "one line");
    }
}
