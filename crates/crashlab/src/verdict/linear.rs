//! Is there an order of the operations on one key that explains every answer, and what a crash left?
//!
//! Durable linearizability of a register (Izraelevitz et al., DISC'16). Every operation that returned takes effect
//! at one instant between its begin and its end. Every other one takes effect at most once, between its begin and
//! the crash. After the crash the key holds what the last effect left.
//!
//! The search goes through the instants in order (Lowe, "Testing for linearizability", CCPE 2017, section 4,
//! just-in-time linearization). It keeps every configuration that the answers so far allow: the value, and which of
//! the running operations have had their effect. It gives an operation its effect only when its own end demands it,
//! or when another one's end needs it first. O(operations * 2^(operations at a time)) for each key.

use std::collections::HashSet;

/// What a key holds, by a number of the caller's choice.
pub type Value = u32;

/// An operation on one key.
#[derive(Clone, Debug)]
pub struct KeyOperation {
    /// The instant before the call.
    pub begin: u64,
    /// The instant after the return; `None`: the crash came first.
    pub end: Option<u64>,
    /// What it did.
    pub what: What,
}

/// What an operation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The key holds this from then on.
    Write(Value),
    /// The key held this.
    Read(Value),
}

/// What no order explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unexplained {
    /// The answer of this operation.
    Answer(usize),
    /// What was found after the crash, though some order explains every answer before it.
    Found,
}

/// One possibility: what the key holds, and which running operations have had their effect (a bit each).
type Configuration = (Value, u64);

/// The most operations at a time on one key.
const PLACES: usize = 64;

/// Looks for an order, from `first` on to what was `found` after the crash.
///
/// # Errors
/// Where there is none.
///
/// # Panics
/// With more than 64 operations at a time.
pub fn explain(first: Value, accesses: &[KeyOperation], found: Value) -> Result<(), Unexplained> {
    let mut instants: Vec<(u64, bool, usize)> = Vec::new();
    for (n, access) in accesses.iter().enumerate() {
        instants.push((access.begin, false, n));
        instants.extend(access.end.map(|end| (end, true, n)));
    }
    // Begins before ends of the same instant: the two overlap.
    instants.sort_unstable();
    let mut open: [Option<usize>; PLACES] = [None; PLACES];
    let mut all: HashSet<Configuration> = HashSet::from([(first, 0)]);
    for (_, is_end, n) in instants {
        if !is_end {
            let place = open.iter().position(Option::is_none).expect("at most 64 operations at a time");
            open[place] = Some(n);
            continue;
        }
        let place = open.iter().position(|&o| o == Some(n)).expect("what ends has begun");
        let bit = 1u64 << place;
        all = reach(accesses, &open, &all, Some(bit));
        all = all.into_iter().map(|(value, had)| (value, had & !bit)).collect();
        open[place] = None;
        if all.is_empty() {
            return Err(Unexplained::Answer(n));
        }
    }
    let left = reach(accesses, &open, &all, None);
    if left.iter().any(|&(value, _)| value == found) { Ok(()) } else { Err(Unexplained::Found) }
}

/// What the configurations can become by effects of running operations: all of it, or, if `bit` must have had its
/// effect, the configurations in which it came last.
fn reach(
    accesses: &[KeyOperation],
    open: &[Option<usize>; PLACES],
    all: &HashSet<Configuration>,
    bit: Option<u64>,
) -> HashSet<Configuration> {
    let mut seen = all.clone();
    let mut work: Vec<Configuration> = all.iter().copied().collect();
    let mut out = HashSet::new();
    while let Some((value, had)) = work.pop() {
        if bit.is_none_or(|bit| had & bit != 0) {
            out.insert((value, had));
            if bit.is_some() {
                continue;
            }
        }
        for (place, &n) in open.iter().enumerate() {
            let Some(n) = n.filter(|_| had & 1 << place == 0) else { continue };
            let next = match accesses[n].what {
                What::Write(new) => new,
                What::Read(saw) if saw == value => value,
                What::Read(_) => continue,
            };
            let next = (next, had | 1 << place);
            if seen.insert(next) {
                work.push(next);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::What::{Read, Write};
    use super::*;

    /// Begin, end (0: the crash came first), and what.
    fn accesses(list: &[(u64, u64, What)]) -> Vec<KeyOperation> {
        let access = |&(begin, end, what)| KeyOperation { begin, end: (end > 0).then_some(end), what };
        list.iter().map(access).collect()
    }

    #[track_caller]
    fn explained(list: &[(u64, u64, What)], found: Value) {
        assert_eq!(explain(0, &accesses(list), found), Ok(()));
    }

    #[track_caller]
    fn not(list: &[(u64, u64, What)], found: Value, why: Unexplained) {
        assert_eq!(explain(0, &accesses(list), found), Err(why));
    }

    #[test]
    fn overlapping_operations_take_effect_in_either_order() {
        explained(&[], 0);
        explained(&[(1, 9, Write(5)), (2, 3, Read(0)), (4, 5, Read(5))], 5);
        explained(&[(1, 9, Write(5)), (2, 8, Write(6))], 5);
        explained(&[(1, 9, Write(5)), (2, 8, Write(6))], 6);
        explained(&[(1, 9, Write(5)), (1, 9, Write(6)), (2, 3, Read(6)), (4, 5, Read(5))], 5);
    }

    #[test]
    fn what_was_under_way_at_the_crash_took_effect_or_did_not() {
        explained(&[(1, 0, Write(5))], 0);
        explained(&[(1, 0, Write(5))], 5);
        explained(&[(1, 0, Write(5)), (2, 3, Read(5)), (4, 0, Write(0))], 0);
        not(&[(1, 0, Write(5))], 7, Unexplained::Found);
        // Much later, or never.
        explained(&[(1, 0, Write(5)), (2, 3, Read(0)), (8, 9, Read(5))], 5);
        explained(&[(1, 0, Write(5)), (2, 3, Read(0)), (8, 9, Read(0))], 0);
        not(&[(1, 0, Write(5)), (2, 3, Read(5)), (8, 9, Read(0))], 0, Unexplained::Answer(2));
    }

    #[test]
    fn a_read_that_goes_back_in_time_is_found() {
        not(&[(1, 9, Write(5)), (2, 3, Read(5)), (4, 5, Read(0))], 5, Unexplained::Answer(2));
        not(&[(1, 2, Write(5)), (3, 4, Read(0))], 5, Unexplained::Answer(1));
        not(&[(1, 2, Read(5))], 0, Unexplained::Answer(0));
        // Both orders of two writes are seen, one after the other.
        let writes = [(1, 2, Write(5)), (3, 9, Write(6)), (4, 5, Read(6)), (6, 7, Read(5))];
        not(&writes, 6, Unexplained::Answer(3));
    }

    #[test]
    fn what_was_read_or_acknowledged_before_the_crash_is_there_after_it() {
        not(&[(1, 2, Write(5))], 0, Unexplained::Found);
        not(&[(1, 0, Write(5)), (2, 3, Read(5))], 0, Unexplained::Found);
        explained(&[(1, 0, Write(5)), (2, 3, Read(5)), (4, 0, Write(6))], 6);
    }
}
