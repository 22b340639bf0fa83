//! A help for porting: reports where the durable state points to memory that will not be there in the next run.
//!
//! On with MANGROVE_AUDIT in the environment. Every word that a batch wrote into the state, or into a variable that
//! belongs to it, is compared with the process's own memory: its heap, stacks and anonymous mappings. A hit is
//! reported on standard error, once for each address. It may be harmless: a pointer that the program does not follow
//! after a restart, or that `on_recover` sets anew.

use crate::alloc::stderr_line::StderrLine;
use mangrove_sys::own_mappings;
use std::collections::HashSet;
use std::ops::Range;

/// The most findings that are reported.
const REPORT_COUNT_MAX: usize = 50;

pub(crate) struct Audit {
    is_on: bool,
    reported: HashSet<usize>,
}

impl Audit {
    pub(crate) fn new() -> Self {
        Self { is_on: std::env::var_os("MANGROVE_AUDIT").is_some(), reported: HashSet::new() }
    }

    /// Looks at what a batch wrote: variables, and memory of the state, which lies at `region`.
    #[inline]
    pub(crate) fn look(
        &mut self,
        variables: &[(usize, usize)],
        written: &[(usize, usize)],
        region: &Range<usize>,
    ) {
        if self.is_on {
            self.look_closely(variables, written, region);
        }
    }

    #[cold]
    fn look_closely(
        &mut self,
        variables: &[(usize, usize)],
        written: &[(usize, usize)],
        region: &Range<usize>,
    ) {
        let Ok(own) = own_mappings() else { return };
        for (what, ranges) in [("variable", variables), ("memory", written)] {
            for &(from, len) in ranges {
                let words = from.next_multiple_of(8)..from + len;
                for at in words.step_by(8).filter(|at| at + 8 <= from + len) {
                    // SAFETY: a commit takes these bytes now; they are mapped, and no thread writes them.
                    let word = unsafe { (at as *const usize).read() };
                    if !region.contains(&word) && own.iter().any(|m| m.contains(&word)) {
                        self.report(what, at, word);
                    }
                }
            }
        }
    }

    fn report(&mut self, what: &str, at: usize, word: usize) {
        if self.reported.len() >= REPORT_COUNT_MAX || !self.reported.insert(word) {
            return;
        }
        let mut line = StderrLine::new();
        line.push("the durable ");
        line.push(what);
        line.push(" at ");
        line.push_hex(at);
        line.push(" points to ");
        line.push_hex(word);
        line.push(", memory of this run only; make what it points to in init_state or in a command");
        line.print();
    }
}
