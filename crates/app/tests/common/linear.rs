//! Is this history of a register linearizable? (Wing and Gong's search, with the memory of Lowe.)
//!
//! An operation whose answer never came (its server was killed) may have taken effect at any time after it
//! began, or never. A write that nobody ever read can be left out: if the history is linearizable with it, it
//! is without it.

use std::collections::HashSet;

/// What a client did, and when: from just before it asked to just after it was answered.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Operations of one client follow one another.
    pub(crate) client: usize,
    pub(crate) begin: u64,
    /// `None`: no answer came. The client does nothing after it.
    pub(crate) end: Option<u64>,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Writes a value that no other operation writes, not 0.
    Put(u64),
    /// Read this; 0: nothing was ever written.
    Get(u64),
}

/// True when some order of the operations explains every answer and keeps every "ended before the other began".
pub(crate) fn is_linearizable(history: &[Operation]) -> bool {
    let seen: HashSet<u64> = history
        .iter()
        .filter_map(|op| match (op.what, op.end) {
            (What::Get(value), Some(_)) => Some(value),
            _ => None,
        })
        .collect();
    let clients = history.iter().map(|op| op.client + 1).max().unwrap_or(0);
    let mut lines = vec![Vec::new(); clients];
    for op in history {
        let counts = op.end.is_some() || matches!(op.what, What::Put(value) if seen.contains(&value));
        if counts {
            lines[op.client].push(op.clone());
        }
    }
    let mut visited = HashSet::new();
    let mut open = vec![(vec![0usize; clients], 0u64)];
    while let Some((places, value)) = open.pop() {
        let next = |client: usize| lines[client].get(places[client]);
        // Nothing may go before an operation that had ended before it began.
        let Some(bound) = (0..clients).filter_map(next).map(|op| op.end.unwrap_or(u64::MAX)).min() else {
            return true;
        };
        for client in 0..clients {
            let Some(op) = next(client).filter(|op| op.begin <= bound) else { continue };
            let after = match op.what {
                What::Put(new) => new,
                What::Get(found) if found == value => value,
                What::Get(_) => continue,
            };
            let mut places = places.clone();
            places[client] += 1;
            if visited.insert((places.clone(), after)) {
                open.push((places, after));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(client: usize, begin: u64, end: u64, what: What) -> Operation {
        Operation { client, begin, end: (end > 0).then_some(end), what }
    }

    #[test]
    fn what_can_be_explained_is_accepted() {
        use What::{Get, Put};
        assert!(is_linearizable(&[]));
        assert!(is_linearizable(&[op(0, 1, 2, Put(5)), op(1, 3, 4, Get(5))]));
        // Overlapping: either order.
        assert!(is_linearizable(&[op(0, 1, 9, Put(5)), op(1, 2, 3, Get(0)), op(1, 4, 5, Get(5))]));
        // A write whose answer never came shows much later, or never.
        assert!(is_linearizable(&[op(0, 1, 0, Put(5)), op(1, 2, 3, Get(0)), op(1, 8, 9, Get(5))]));
        assert!(is_linearizable(&[op(0, 1, 0, Put(5)), op(1, 2, 3, Get(0)), op(1, 8, 9, Get(0))]));
    }

    #[test]
    fn what_cannot_is_not() {
        use What::{Get, Put};
        // An acknowledged write is lost.
        assert!(!is_linearizable(&[op(0, 1, 2, Put(5)), op(1, 3, 4, Get(0))]));
        // A read goes back in time.
        assert!(!is_linearizable(&[op(0, 1, 9, Put(5)), op(1, 2, 3, Get(5)), op(1, 4, 5, Get(0))]));
        // What was read before the crash is gone after it.
        assert!(!is_linearizable(&[op(0, 1, 0, Put(5)), op(1, 2, 3, Get(5)), op(2, 8, 9, Get(0))]));
        // Out of nowhere.
        assert!(!is_linearizable(&[op(0, 1, 2, Get(5))]));
        // Two writes, then both orders are seen.
        let writes = [op(0, 1, 9, Put(5)), op(1, 1, 9, Put(6))];
        let reads = [op(2, 10, 11, Get(5)), op(2, 12, 13, Get(6))];
        assert!(!is_linearizable(&[&writes[..], &reads[..]].concat()));
    }
}
