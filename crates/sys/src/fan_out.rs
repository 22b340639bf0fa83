//! One piece of work on several threads.

use crate::without_signals;
use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// Runs `work` once for each number below `threads`: 0 on the calling thread, each other number on a thread of its
/// own, which takes no signals. Returns the results by number. Where the system starts no further thread, the calling
/// thread does the missing numbers after its own, so no call of `work` may wait for another.
///
/// # Panics
/// As `work` panicked.
pub fn fan_out<T: Send>(threads: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if threads <= 1 {
        return vec![work(0)];
    }
    scope(|scope| {
        let work = &work;
        let start = |number| Builder::new().spawn_scoped(scope, move || work(number)).ok();
        let helpers: Vec<_> = without_signals(|| (1..threads).map(start).collect());
        let mut results = vec![work(0)];
        for (number, helper) in (1..).zip(helpers) {
            results.push(match helper {
                Some(helper) => helper.join().unwrap_or_else(|panic| resume_unwind(panic)),
                None => work(number),
            });
        }
        results
    })
}

#[cfg(test)]
mod tests {
    use super::fan_out;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread::current;

    #[test]
    fn every_number_is_worked_on_once_and_the_first_one_here() {
        let me = current().id();
        let all = fan_out(4, |number| (number, current().id() == me));
        assert_eq!(all, [(0, true), (1, false), (2, false), (3, false)]);
        assert_eq!(fan_out(0, |number| number), [0]);
        assert_eq!(fan_out(1, |number| number), [0]);
    }

    #[test]
    fn a_panic_of_a_helper_is_the_callers() {
        let run = || fan_out(3, |number| assert_ne!(number, 2, "planted"));
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("planted")));
    }
}
