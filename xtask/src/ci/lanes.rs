//! Lanes of steps, side by side: few steps keep two CPUs busy. The steps of a lane run one after the other; a lane that
//! has none left takes what the steps of all lanes have found.

use super::step::{Ran, Step};
use anyhow::Result;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

/// What the steps have counted.
#[derive(Default)]
pub(super) struct Total {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// The steps in which something failed.
    pub(super) failures: Vec<String>,
}

/// What the lanes share.
struct Shared {
    /// Steps that other steps have found: each may run at any time, in any lane.
    found: VecDeque<Step>,
    /// Lanes that may still find some.
    finding: usize,
    total: Total,
}

struct Lanes {
    shared: Mutex<Shared>,
    changed: Condvar,
}

/// Runs all steps. An error means that a step could not be run; a step that fails is counted.
pub(super) fn run<const LANES: usize>(steps: [Vec<Step>; LANES]) -> Result<Total> {
    let shared = Shared { found: VecDeque::new(), finding: LANES, total: Total::default() };
    let lanes = Lanes { shared: Mutex::new(shared), changed: Condvar::new() };
    std::thread::scope(|scope| {
        let lanes = &lanes;
        let threads: Vec<_> = steps.into_iter().map(|steps| scope.spawn(move || lanes.work(steps))).collect();
        threads.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })?;
    Ok(lanes.shared.into_inner().expect("no lane panicked").total)
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no lane panicked")
    }

    /// Runs `steps`, and then steps that were found.
    fn work(&self, steps: Vec<Step>) -> Result<()> {
        let result = steps.into_iter().try_for_each(|step| self.step(step));
        self.lock().finding -= 1;
        self.changed.notify_all();
        result?;
        while let Some(step) = self.next() {
            self.step(step)?;
        }
        Ok(())
    }

    /// A step that was found. Waits while a lane may find one.
    fn next(&self) -> Option<Step> {
        let mut shared = self.lock();
        loop {
            if let Some(step) = shared.found.pop_front() {
                return Some(step);
            }
            if shared.finding == 0 {
                return None;
            }
            shared = self.changed.wait(shared).expect("no lane panicked");
        }
    }

    fn step(&self, step: Step) -> Result<()> {
        let name = step.name.clone();
        let begin = Instant::now();
        let Ran { good, bad, cpu, found } = step.run()?;
        let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu.as_secs_f64());
        println!("== {name}: {good} passed, {bad} failed, {wall:.0} s, {cpu:.0} s of processor time");
        let mut shared = self.lock();
        shared.found.extend(found);
        shared.total.passed += good;
        shared.total.failed += bad;
        if bad > 0 {
            shared.total.failures.push(name);
        }
        drop(shared);
        self.changed.notify_all();
        Ok(())
    }
}
