//! The replayer's threads. The thread that runs a step lists its atomic groups in their order; then each thread applies
//! the list within its own stripes of the durable copy.
//!
//! The threads stay for as long as the shadow is open: handing a step to 1, 3 or 7 of them takes 3, 12 or 22 us, and
//! starting them 13, 54 or 131 us; applying 2 MiB of log takes one thread less than 1 ms. A short step is not worth
//! either, and the thread that runs it does the part of each.
//!
//! Invariants:
//! 1. A byte is stored by the part whose stripe it lies in, and no two threads have one part at a time: so all versions
//!    of a byte are stored in their order.
//! 2. When `run` returns, every part has ended the step: its flushes are fenced, by the thread that did them.
//! 3. After a panic in a part nothing is freed: `run` panics too, now and at every later call.

use crate::homes::Homes;
use crate::layout::ShadowLayout;
use crate::replay::apply::read_unit;
use crate::replay::part::{Done, Frees, ReplayPart, StepEnd};
use crate::replay::rounds::ReplayRounds;
use crate::replay::stripes::SomeStripes;
use crate::sync::give_way;
use mangrove_pool::Region;
use mangrove_sys::without_signals;
use parking_lot::{Mutex, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// A step with fewer bytes of log is for one thread.
const BYTES_MIN: u64 = 256 << 10;

/// An atomic group of a step.
#[derive(Clone, Copy, Debug)]
struct Listed {
    position: u64,
    log: usize,
}

/// A step.
#[derive(Default)]
struct Job {
    units: Vec<Listed>,
    end: StepEnd,
}

/// What the threads share.
struct Shared {
    region: Region,
    layout: ShadowLayout,
    parts: Box<[Mutex<ReplayPart<SomeStripes>>]>,
    job: RwLock<Job>,
    rounds: ReplayRounds,
    has_panicked: AtomicBool,
}

impl Shared {
    fn run_part(&self, number: usize) {
        let job = self.job.read();
        let mut part = self.parts[number].lock();
        for &Listed { position, log } in &job.units {
            let unit = read_unit(&self.region, &self.layout, log, position).expect("it was read when listed");
            part.apply(&self.region, &self.layout, (log, position), &unit);
        }
        part.end(&self.region, &self.layout, job.end);
    }

    /// The loop of the thread for a part.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        while self.rounds.next(number, &mut seen) {
            if catch_unwind(AssertUnwindSafe(|| self.run_part(number))).is_err() {
                // Relaxed: the end of the round orders it.
                self.has_panicked.store(true, Ordering::Relaxed);
            }
            self.rounds.end();
        }
    }
}

/// The threads, for one thread at a time that runs steps.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    /// By number, from 1 on; where the system started none, and after `stop`: `None`, and the caller of `run` does it.
    threads: Vec<Option<JoinHandle<()>>>,
    listed: Vec<Listed>,
    /// Bytes of log that are listed.
    listed_bytes: u64,
    in_turn: bool,
    /// A step has begun, and ended in a panic unless it runs.
    has_begun: bool,
}

impl Crew {
    /// `count` parts, a power of two; part 0 is that of the thread which calls `run`. `in_turn`: the threads run one
    /// after the other, however short the step: every run does the same, for tests.
    pub(crate) fn new(
        region: &Region,
        layout: &ShadowLayout,
        homes: &Homes,
        count: usize,
        in_turn: bool,
    ) -> Self {
        let part = |number| Mutex::new(ReplayPart::new(SomeStripes::of(number, count, layout.capacity)));
        let shared = Arc::new(Shared {
            region: region.clone(),
            layout: *layout,
            parts: (0..count).map(part).collect(),
            job: RwLock::default(),
            rounds: ReplayRounds::new(count),
            has_panicked: AtomicBool::new(false),
        });
        let start = |number| {
            let (shared, homes) = (Arc::clone(&shared), homes.clone());
            let serve = move || {
                homes.settle_replayer(number, count);
                shared.serve(number);
            };
            Builder::new().name(format!("mangrove-repl-{number}")).spawn(serve).ok()
        };
        let threads = without_signals(|| (1..count).map(start).collect());
        Self { shared, threads, listed: Vec::new(), listed_bytes: 0, in_turn, has_begun: false }
    }

    /// Adds an atomic group to the step.
    #[inline]
    pub(crate) fn list(&mut self, log: usize, position: u64, bytes: u64) {
        self.listed.push(Listed { position, log });
        self.listed_bytes += bytes;
    }

    /// Runs the step. `freed_bytes`: of log that is freed after it.
    pub(crate) fn run(&mut self, end: StepEnd, freed_bytes: u64) -> Done {
        assert!(!self.has_begun, "a thread of the replayer has panicked");
        let listed_bytes = std::mem::take(&mut self.listed_bytes);
        if self.listed.is_empty() && !end.closes && end.frees == Frees::None {
            return Done::default();
        }
        self.has_begun = true;
        {
            let mut job = self.shared.job.write();
            job.end = end;
            std::mem::swap(&mut job.units, &mut self.listed);
        }
        let shared = &*self.shared;
        if self.in_turn {
            self.run_in_turn();
        } else if listed_bytes + freed_bytes < BYTES_MIN {
            (0..shared.parts.len()).for_each(|number| shared.run_part(number));
        } else {
            self.run_at_once();
        }
        // Relaxed: the end of the round has ordered it.
        assert!(!shared.has_panicked.load(Ordering::Relaxed), "a thread of the replayer panicked");
        std::mem::swap(&mut shared.job.write().units, &mut self.listed);
        self.listed.clear();
        self.has_begun = false;
        let done = shared.parts.iter().map(|part| part.lock().done);
        // Each part counts the bytes of all.
        done.reduce(|sum, done| Done { flushed: sum.flushed + done.flushed, ..sum }).unwrap_or_default()
    }

    /// The parts that have a thread, or those that have none.
    fn parts_with(&self, has_thread: bool) -> impl Iterator<Item = usize> + Clone {
        let number =
            move |(n, thread): (usize, &Option<_>)| (thread.is_some() == has_thread).then_some(n + 1);
        self.threads.iter().enumerate().filter_map(number)
    }

    fn run_at_once(&self) {
        let shared = &*self.shared;
        shared.rounds.begin(self.parts_with(true));
        let own = catch_unwind(AssertUnwindSafe(|| {
            shared.run_part(0);
            self.parts_with(false).for_each(|number| shared.run_part(number));
        }));
        // After a panic too: the others may still be at work.
        shared.rounds.wait();
        own.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    /// Waits without sleeping: the crash simulator takes a thread that sleeps for one that waits for another operation.
    fn run_in_turn(&self) {
        let shared = &*self.shared;
        shared.run_part(0);
        self.parts_with(false).for_each(|number| shared.run_part(number));
        for number in self.parts_with(true) {
            shared.rounds.begin(std::iter::once(number));
            while !shared.rounds.has_ended() {
                give_way();
            }
        }
    }

    /// Ends the threads. Later steps are run by their callers.
    pub(crate) fn stop(&mut self) {
        self.shared.rounds.stop();
        for thread in self.threads.iter_mut().filter_map(Option::take) {
            // A panic was noted.
            let _ = thread.join();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop();
    }
}
