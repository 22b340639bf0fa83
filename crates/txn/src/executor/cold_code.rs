//! Pages of code that only hardware attempts execute.
//!
//! The CPU aborts a transaction, without a reason, that executes a page of code whose accessed bit is clear, or that is
//! not mapped. The lock path executes other code: the compiler makes a copy of its own for hardware attempts. The
//! kernel clears accessed bits to find unused pages (when memory is short; MGLRU and DAMON at any time). Once it has
//! cleared that of a page of the hardware attempts' code, none of them commits any more. (Seen: from 100 % of commits
//! in hardware to 0 % for good, after `echo 1 >/proc/PID/clear_refs`.)
//!
//! So a thread that keeps taking the lock after such aborts reads all pages of the module's code, outside of
//! transactions, which sets the bits. Where that does not help, it does so less and less often.

use crate::sync::touch_module;

/// Transactions in vain until code is touched for the first time.
const FIRST: u64 = 32;

/// Transactions in vain between two times at most.
const LAST: u64 = 1 << 20;

/// In vain is one of so many, or more; a new page of data costs some, too.
const SHARE: u64 = 5;

/// How one thread's transactions fare since it last looked.
#[derive(Debug)]
pub(super) struct ColdCode {
    in_vain: u64,
    /// Commits in hardware of the thread until then.
    hardware: u64,
    /// How many in vain make it look again.
    enough: u64,
}

impl ColdCode {
    pub(super) fn new() -> Self {
        Self { in_vain: 0, hardware: 0, enough: FIRST }
    }

    /// A transaction takes the lock because its attempts aborted without a reason; `hardware` others have committed in
    /// hardware. `code` is an address in the module of its code.
    #[cold]
    pub(super) fn takes_lock(&mut self, hardware: u64, code: usize) {
        if self.is_stuck(hardware) {
            touch_module(code);
        }
    }

    fn is_stuck(&mut self, hardware: u64) -> bool {
        self.in_vain += 1;
        if self.in_vain < self.enough {
            return false;
        }
        let is_stuck = self.in_vain * SHARE >= self.in_vain + hardware - self.hardware;
        self.enough = if is_stuck { (self.enough * 2).min(LAST) } else { FIRST };
        (self.in_vain, self.hardware) = (0, hardware);
        is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_never_commits_in_hardware_looks_less_and_less_often() {
        let mut code = ColdCode::new();
        let looks: Vec<_> = (1..=1_000).filter(|_| code.is_stuck(0)).collect();
        assert_eq!(looks, [32, 96, 224, 480, 992]);
        let looks = (0..100 << 20).filter(|_| code.is_stuck(0)).count();
        assert!((100..120).contains(&looks), "{looks}");
    }

    #[test]
    fn some_locks_among_many_commits_are_no_sign() {
        let mut code = ColdCode::new();
        assert!(!(1..100_000).any(|number| code.is_stuck(number * 10)));
    }

    #[test]
    fn a_thread_that_commits_for_a_while_looks_soon_the_next_time() {
        let mut code = ColdCode::new();
        for _ in 0..10_000 {
            code.is_stuck(0);
        }
        let commits = 2_000_000;
        for number in 0..20_000 {
            code.is_stuck(number * commits / 20_000);
        }
        assert!((0..2 * FIRST).any(|_| code.is_stuck(commits)), "stuck again, and not seen");
    }
}
