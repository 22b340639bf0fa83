//! A model of the part of a CPU that runs transactions: which core holds which cache line, and who loses.
//!
//! After what real RTM was measured to do: the requester wins in all four combinations of reads and writes; written
//! lines must fit the ways of their cache set, read lines a number; an attempt may abort for no reason. A core's
//! writes stay with the core until it commits, and become visible all at once.
//!
//! 1. A line has at most one core that wrote it, and then no other core that read it, of those that run or commit.
//! 2. A core that is committing cannot be aborted; who wants one of its lines waits until it has ended.
//! 3. A core gives up its lines before it runs again. So a line never names an attempt of the past.

use crate::sync::{AtomicU64, Mutex, Ordering, pause};

/// Cores of the model.
pub(crate) const CORES: usize = 64;

/// Locks for the lines.
const BUCKETS: usize = 256;

/// What a core does.
const IDLE: u64 = 0;
const RUNNING: u64 = 1;
const COMMITTING: u64 = 2;
const ABORTED: u64 = 3;

/// A line that some core holds.
#[derive(Debug)]
struct Line {
    number: usize,
    /// The cores that read it, a bit each.
    readers: u64,
    /// The core that wrote it, as a bit.
    writer: u64,
}

#[derive(Debug)]
#[repr(align(128))]
struct Core(AtomicU64);

/// The lines and the cores.
#[derive(Debug)]
pub(crate) struct Hardware {
    buckets: Vec<Mutex<Vec<Line>>>,
    cores: Vec<Core>,
    /// Cores that threads have, a bit each.
    taken: Mutex<u64>,
}

impl Hardware {
    pub(crate) fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Mutex::new(Vec::new())).collect(),
            cores: (0..CORES).map(|_| Core(AtomicU64::new(IDLE))).collect(),
            taken: Mutex::new(0),
        }
    }

    /// A core for a thread; none if all are taken.
    pub(crate) fn take_core(&self) -> Option<usize> {
        let mut taken = self.taken.lock();
        let core = taken.trailing_ones() as usize;
        if core == CORES {
            return None;
        }
        *taken |= 1 << core;
        Some(core)
    }

    pub(crate) fn give_core(&self, core: usize) {
        *self.taken.lock() &= !(1 << core);
    }

    /// The core begins an attempt.
    pub(crate) fn begin(&self, core: usize) {
        // Relaxed: other cores learn of it by way of a line, whose lock orders it.
        self.cores[core].0.store(RUNNING, Ordering::Relaxed);
    }

    /// Whether the attempt has not been aborted. What the core loaded before this, while it held the lines, is one
    /// state of memory if so.
    pub(crate) fn is_running(&self, core: usize) -> bool {
        // Acquire, so that the loads before stay before: pairs with the exchange in `expel`, which comes before the
        // stores of the thread that aborted us.
        crate::sync::fence(Ordering::Acquire);
        self.cores[core].0.load(Ordering::Acquire) == RUNNING
    }

    /// The core aborts its own attempt, if no other core has yet.
    pub(crate) fn abort(&self, core: usize) {
        // Relaxed: the attempt changed nothing.
        let _ = self.cores[core].0.compare_exchange(RUNNING, ABORTED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The core commits: from here on it cannot be aborted. False if it has been.
    pub(crate) fn commit(&self, core: usize) -> bool {
        // AcqRel orders the attempt's loads before and its stores after.
        let state = &self.cores[core].0;
        state.compare_exchange(RUNNING, COMMITTING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The core's attempt has ended; gives its lines up.
    pub(crate) fn end(&self, core: usize, lines: impl Iterator<Item = usize>) {
        for number in lines {
            let mut bucket = self.buckets[number % BUCKETS].lock();
            if let Some(at) = bucket.iter().position(|line| line.number == number) {
                let line = &mut bucket[at];
                line.readers &= !(1 << core);
                line.writer &= !(1 << core);
                if line.readers | line.writer == 0 {
                    bucket.swap_remove(at);
                }
            }
        }
        // Release pairs with the loads of the state: the attempt's stores come before.
        self.cores[core].0.store(IDLE, Ordering::Release);
    }

    /// The core reads or writes a line from now on; cores that are in the way are aborted. False if the core itself
    /// has been.
    pub(crate) fn request(&self, core: usize, number: usize, writes: bool) -> bool {
        let mut round = 0;
        loop {
            let mut bucket = self.buckets[number % BUCKETS].lock();
            let at = bucket.iter().position(|line| line.number == number).unwrap_or_else(|| {
                bucket.push(Line { number, readers: 0, writer: 0 });
                bucket.len() - 1
            });
            if self.expel(&mut bucket[at], 1 << core, writes) {
                if writes {
                    bucket[at].writer |= 1 << core;
                } else {
                    bucket[at].readers |= 1 << core;
                }
                return self.is_running(core);
            }
            drop(bucket);
            pause(round);
            round = round.saturating_add(1);
        }
    }

    /// A store outside of transactions: aborts every core that read or wrote the line.
    pub(crate) fn store_outside(&self, number: usize) {
        let mut round = 0;
        loop {
            let mut bucket = self.buckets[number % BUCKETS].lock();
            if bucket.iter_mut().filter(|line| line.number == number).all(|line| self.expel(line, 0, true)) {
                return;
            }
            drop(bucket);
            pause(round);
            round = round.saturating_add(1);
        }
    }

    /// Aborts the cores that hold a line in the way of a read or write; false if one of them is committing.
    fn expel(&self, line: &mut Line, but: u64, writes: bool) -> bool {
        let mut rivals = (line.writer | if writes { line.readers } else { 0 }) & !but;
        let mut done = true;
        while rivals != 0 {
            let rival = rivals.trailing_zeros();
            rivals &= rivals - 1;
            // AcqRel: pairs with `is_running`, and with the Release in `end`.
            let state = &self.cores[rival as usize].0;
            match state.compare_exchange(RUNNING, ABORTED, Ordering::AcqRel, Ordering::Acquire) {
                Err(COMMITTING) => done = false,
                _ => {
                    line.readers &= !(1 << rival);
                    line.writer &= !(1 << rival);
                }
            }
        }
        done
    }
}
