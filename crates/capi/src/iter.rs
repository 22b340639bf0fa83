//! Ranges and iterators.
//!
//! The facade walks a range from both ends, and C needs one cursor that seeks and turns round. It consists of a
//! snapshot, the range's bounds, the record that it stands on, and a walk in one direction that is made anew when
//! the cursor seeks or turns.

use crate::map::mangrove_map;
use crate::snapshot::mangrove_snapshot;
use crate::status::mangrove_status::*;
use crate::status::{Answer, Failure, guard, guard_look_up, mangrove_status};
use mangrove::{Range, Snapshot};
use mangrove_cabi::{give, handle, handle_mut, out, put_out, slice, take_back};
use std::ffi::c_void;
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::Arc;

/// Both ends of a range of keys, owned.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Both ends of a range of keys, of someone else's.
type BorrowedBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Flags that change the meaning of a mangrove_range; add them up.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_range_flags {
    /// The key `start` itself is not in the range.
    MANGROVE_RANGE_START_EXCLUDED = 1,
    /// The key `end` itself is in the range.
    MANGROVE_RANGE_END_INCLUDED = 2,
    /// The range is all keys that begin with `start`; `end` must be NULL.
    MANGROVE_RANGE_PREFIX = 4,
    /// The range is every key; `start` and `end` must be NULL. Only mangrove_map_delete_range needs it.
    MANGROVE_RANGE_EVERYTHING = 8,
}

use mangrove_range_flags::*;

/// A range of keys, from `start` (included) to `end` (excluded). NULL is no bound on that side, so a range of
/// all zeros is everything. An end that comes before the start is an empty range. Initialise with { 0 } or by
/// field name: later versions may append fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_range {
    /// First key, or NULL.
    pub start: *const c_void,
    /// Bytes of `start`.
    pub start_len: usize,
    /// The first key after the range, or NULL.
    pub end: *const c_void,
    /// Bytes of `end`.
    pub end_len: usize,
    /// Sum of mangrove_range_flags; 0 as described.
    pub flags: u32,
}

/// The bounds that a caller's range means.
pub(crate) unsafe fn range_bounds(range: *const mangrove_range) -> Result<Bounds, Failure> {
    // SAFETY: the header's contract: NULL or a live struct.
    let Some(range) = (unsafe { range.as_ref() }) else { return Ok((Bound::Unbounded, Bound::Unbounded)) };
    // SAFETY: the header's contract for bytes.
    let (start, end) =
        unsafe { (slice(range.start, range.start_len, "start")?, slice(range.end, range.end_len, "end")?) };
    let has = |flag: mangrove_range_flags| range.flags & flag as u32 != 0;
    if range.flags > 15 {
        return Err(Failure::invalid(format!("{} is no sum of mangrove_range_flags", range.flags)));
    }
    if has(MANGROVE_RANGE_EVERYTHING) {
        let is_it =
            range.start.is_null() && range.end.is_null() && range.flags == MANGROVE_RANGE_EVERYTHING as u32;
        return match is_it {
            true => Ok((Bound::Unbounded, Bound::Unbounded)),
            false => Err(Failure::invalid("a range of everything has no start, no end and no other flag")),
        };
    }
    if has(MANGROVE_RANGE_PREFIX) {
        if !range.end.is_null() || range.flags != MANGROVE_RANGE_PREFIX as u32 {
            return Err(Failure::invalid("a prefix range has no end and no other flag"));
        }
        return Ok((Bound::Included(start.to_vec()), after_prefix(start)));
    }
    let lower = match start {
        _ if range.start.is_null() => Bound::Unbounded,
        key if has(MANGROVE_RANGE_START_EXCLUDED) => Bound::Excluded(key.to_vec()),
        key => Bound::Included(key.to_vec()),
    };
    let upper = match end {
        _ if range.end.is_null() => Bound::Unbounded,
        key if has(MANGROVE_RANGE_END_INCLUDED) => Bound::Included(key.to_vec()),
        key => Bound::Excluded(key.to_vec()),
    };
    Ok((lower, upper))
}

/// The bounds of a range to be removed. A pointer that was forgotten, or text that is empty, must not stand for every
/// key.
pub(crate) unsafe fn removal_bounds(range: *const mangrove_range) -> Result<Bounds, Failure> {
    // SAFETY: the header's contract: NULL or a live struct.
    let everything =
        unsafe { range.as_ref() }.is_some_and(|range| range.flags & MANGROVE_RANGE_EVERYTHING as u32 != 0);
    // SAFETY: as above.
    let bounds = unsafe { range_bounds(range) }?;
    let has_start = match &bounds.0 {
        Bound::Included(key) | Bound::Excluded(key) => !key.is_empty(),
        Bound::Unbounded => false,
    };
    if has_start || bounds.1 != Bound::Unbounded || everything {
        return Ok(bounds);
    }
    Err(Failure::invalid(
        "the range to remove has neither start nor end, or an empty start: to remove every key, give a range with the flag MANGROVE_RANGE_EVERYTHING",
    ))
}

/// The bound after all keys that begin with `prefix`.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    mangrove::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded)
}

/// True when no key can lie between the bounds. Such ranges end here: some maps, as BTreeMap, panic on
/// them.
fn is_empty(bounds: &BorrowedBounds<'_>) -> bool {
    match (bounds.0, bounds.1) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        (_, Bound::Excluded(b)) => b.is_empty(),
        _ => false,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    BeforeFirst,
    OnRecord,
    AfterLast,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A cursor over the records of one range at one instant. Writes after it was made do not show.
/// Threads: one at a time.
pub struct mangrove_iter {
    /// The walk that continues from the present record, if there is one.
    walk: Option<(Range<'static>, Direction)>,
    snapshot: Arc<Snapshot<'static>>,
    bounds: Bounds,
    position: Position,
    /// Why the last move failed. A step from there fails in the same way: it must not look like the end of the range.
    failed: Option<mangrove::Error>,
    /// Key and value of the record that the iterator stands on, in the memory of `walk`; otherwise empty.
    record: (NonNull<[u8]>, NonNull<[u8]>),
}

/// The record where there is none.
const NO_RECORD: (NonNull<[u8]>, NonNull<[u8]>) = {
    let nothing = NonNull::slice_from_raw_parts(NonNull::dangling(), 0);
    (nothing, nothing)
};

impl mangrove_iter {
    fn new(snapshot: Arc<Snapshot<'static>>, bounds: Bounds) -> Self {
        let position = Position::BeforeFirst;
        Self { walk: None, snapshot, bounds, position, failed: None, record: NO_RECORD }
    }

    /// The key under the iterator; empty where there is none.
    fn key(&self) -> &[u8] {
        // SAFETY: the walk lends it until its next step. What takes a step or drops the walk replaces `record` first.
        unsafe { self.record.0.as_ref() }
    }

    /// The value under the iterator.
    fn value(&self) -> &[u8] {
        // SAFETY: as for the key.
        unsafe { self.record.1.as_ref() }
    }

    /// Starts a walk over the part of the range that lies within `part`, and stands on its first
    /// record in that direction.
    fn start(&mut self, part: BorrowedBounds<'_>, direction: Direction) -> Answer {
        let (lower, upper) =
            (self.bounds.0.as_ref().map(Vec::as_slice), self.bounds.1.as_ref().map(Vec::as_slice));
        let bounds = (tighter_lower(lower, part.0), tighter_upper(upper, part.1));
        if is_empty(&bounds) {
            return Ok(self.run_out(direction));
        }
        match self.snapshot.range::<&[u8]>(bounds) {
            Ok(walk) => {
                // Not before: `part` may be the bytes of the record that the old walk lends.
                self.record = NO_RECORD;
                self.walk = Some((walk, direction));
            }
            Err(error) => return self.fail(direction, error),
        }
        self.step(direction)
    }

    /// Takes the next record of the walk that `start` made.
    #[inline]
    fn step(&mut self, direction: Direction) -> Answer {
        self.record = NO_RECORD;
        let Some((walk, _)) = &mut self.walk else { return Ok(self.run_out(direction)) };
        let record = match direction {
            Direction::Forward => walk.next_borrowed(),
            Direction::Backward => walk.next_back_borrowed(),
        };
        match record {
            Some(Ok((key, value))) => {
                self.record = (NonNull::from(key), NonNull::from(value));
                self.position = Position::OnRecord;
                self.failed = None;
                Ok(MANGROVE_OK)
            }
            Some(Err(error)) => self.fail(direction, error),
            None => Ok(self.run_out(direction)),
        }
    }

    fn fail(&mut self, direction: Direction, error: mangrove::Error) -> Answer {
        self.run_out(direction);
        self.failed = Some(error.clone());
        Err(error.into())
    }

    fn run_out(&mut self, direction: Direction) -> mangrove_status {
        self.record = NO_RECORD;
        self.walk = None;
        self.failed = None;
        self.position = match direction {
            Direction::Forward => Position::AfterLast,
            Direction::Backward => Position::BeforeFirst,
        };
        MANGROVE_NOT_FOUND
    }

    fn go(&mut self, direction: Direction) -> Answer {
        if let Some(error) = &self.failed {
            return Err(error.clone().into());
        }
        let (entry, exit) = match direction {
            Direction::Forward => (Position::BeforeFirst, Position::AfterLast),
            Direction::Backward => (Position::AfterLast, Position::BeforeFirst),
        };
        if self.position == exit {
            return Ok(MANGROVE_NOT_FOUND);
        }
        if self.position == entry {
            return self.start((Bound::Unbounded, Bound::Unbounded), direction);
        }
        if self.walk.as_ref().is_some_and(|(_, d)| *d == direction) {
            return self.step(direction);
        }
        // A copy: the walk that lends the key goes.
        let here = self.key().to_vec();
        match direction {
            Direction::Forward => self.start((Bound::Excluded(&here), Bound::Unbounded), direction),
            Direction::Backward => self.start((Bound::Unbounded, Bound::Excluded(&here)), direction),
        }
    }
}

fn tighter_lower<'k>(range: Bound<&'k [u8]>, part: Bound<&'k [u8]>) -> Bound<&'k [u8]> {
    let part_is_tighter = match (range, part) {
        (_, Bound::Unbounded) => false,
        (Bound::Unbounded, _) => true,
        (Bound::Excluded(r), Bound::Included(p)) => p > r,
        (Bound::Included(r) | Bound::Excluded(r), Bound::Included(p) | Bound::Excluded(p)) => p >= r,
    };
    if part_is_tighter { part } else { range }
}

fn tighter_upper<'k>(range: Bound<&'k [u8]>, part: Bound<&'k [u8]>) -> Bound<&'k [u8]> {
    let part_is_tighter = match (range, part) {
        (_, Bound::Unbounded) => false,
        (Bound::Unbounded, _) => true,
        (Bound::Excluded(r), Bound::Included(p)) => p < r,
        (Bound::Included(r) | Bound::Excluded(r), Bound::Included(p) | Bound::Excluded(p)) => p <= r,
    };
    if part_is_tighter { part } else { range }
}

/// An iterator over `range` (NULL: everything) of the map as it is now; holds a snapshot until it is
/// freed. It stands before the first record:
///
///     for (s = mangrove_iter_next(it); s == MANGROVE_OK; s = mangrove_iter_next(it)) ...
///
/// Errors: MANGROVE_ERR_POISONED. Give back with mangrove_iter_free, before the map is closed.
/// Threads: any for the map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_iter(
    map: *const mangrove_map,
    range: *const mangrove_range,
    iter: *mut *mut mangrove_iter,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters, handles and ranges.
        let (iter, map, bounds) =
            unsafe { (out(iter, std::ptr::null_mut(), "iter")?, handle(map, "map")?, range_bounds(range)?) };
        let snapshot = Arc::new(map.map.snapshot_owned()?);
        *iter = give(mangrove_iter::new(snapshot, bounds));
        Ok(MANGROVE_OK)
    })
}

/// As mangrove_map_iter, over a snapshot, which may be freed before the iterator.
/// Give back with mangrove_iter_free. Threads: any for the snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_snapshot_iter(
    snapshot: *const mangrove_snapshot,
    range: *const mangrove_range,
    iter: *mut *mut mangrove_iter,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters, handles and ranges.
        let (iter, snapshot, bounds) = unsafe {
            (out(iter, std::ptr::null_mut(), "iter")?, handle(snapshot, "snapshot")?, range_bounds(range)?)
        };
        snapshot.0.must_be_here()?;
        *iter = give(mangrove_iter::new(Arc::clone(&snapshot.0), bounds));
        Ok(MANGROVE_OK)
    })
}

/// Frees an iterator, and with it the bytes that mangrove_iter_key and _value pointed at. NULL is
/// fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_free(iter: *mut mangrove_iter) {
    guard(|| {
        // SAFETY: NULL, or from one of the two functions above and, by contract, not freed before.
        unsafe { take_back(iter) };
        Ok(MANGROVE_OK)
    });
}

/// Runs a move of the iterator.
unsafe fn moving(iter: *mut mangrove_iter, go: impl FnOnce(&mut mangrove_iter) -> Answer) -> mangrove_status {
    // SAFETY: passed on from the caller.
    guard_look_up(|| go(unsafe { handle_mut(iter, "iter") }?))
}

/// Moves to the first record of the range. Returns MANGROVE_NOT_FOUND when the range is empty.
/// Errors, of this and the other moves: MANGROVE_ERR_CORRUPT, _SNAPSHOT_EXPIRED; the iterator then
/// stands on no record, and mangrove_iter_next and _prev return the same error until another move succeeds. Of an
/// expired snapshot none does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_first(iter: *mut mangrove_iter) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { moving(iter, |i| i.start((Bound::Unbounded, Bound::Unbounded), Direction::Forward)) }
}

/// Moves to the last record of the range. Returns MANGROVE_NOT_FOUND when the range is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_last(iter: *mut mangrove_iter) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { moving(iter, |i| i.start((Bound::Unbounded, Bound::Unbounded), Direction::Backward)) }
}

/// Moves to the first record of the range whose key is `key` or comes after it. Returns
/// MANGROVE_NOT_FOUND when there is none; the iterator then stands after the last record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_seek(
    iter: *mut mangrove_iter,
    key: *const c_void,
    key_len: usize,
) -> mangrove_status {
    let go = |i: &mut mangrove_iter| {
        // SAFETY: the header's contract for bytes.
        let key = unsafe { slice(key, key_len, "key") }?;
        i.start((Bound::Included(key), Bound::Unbounded), Direction::Forward)
    };
    // SAFETY: passed on from the caller.
    unsafe { moving(iter, go) }
}

/// Moves to the last record of the range whose key is `key` or comes before it. Returns
/// MANGROVE_NOT_FOUND when there is none; the iterator then stands before the first record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_seek_back(
    iter: *mut mangrove_iter,
    key: *const c_void,
    key_len: usize,
) -> mangrove_status {
    let go = |i: &mut mangrove_iter| {
        // SAFETY: the header's contract for bytes.
        let key = unsafe { slice(key, key_len, "key") }?;
        i.start((Bound::Unbounded, Bound::Included(key)), Direction::Backward)
    };
    // SAFETY: passed on from the caller.
    unsafe { moving(iter, go) }
}

/// Moves to the next record: from before the first to the first, from the last to after it, where it returns
/// MANGROVE_NOT_FOUND and stays. A change of direction costs a seek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_next(iter: *mut mangrove_iter) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { moving(iter, |i| i.go(Direction::Forward)) }
}

/// Moves to the previous record: from after the last to the last, from the first to before it, where it
/// returns MANGROVE_NOT_FOUND and stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_prev(iter: *mut mangrove_iter) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { moving(iter, |i| i.go(Direction::Backward)) }
}

/// True when the iterator stands on a record; false for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_valid(iter: *const mangrove_iter) -> bool {
    // SAFETY: the header's contract for handles. Nothing here can panic.
    unsafe { iter.as_ref() }.is_some_and(|i| i.position == Position::OnRecord)
}

/// The key under the iterator; *key_len, which may be NULL, is its length. Never NULL while the
/// iterator stands on a record, NULL otherwise. Valid until the iterator moves or is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_key(iter: *const mangrove_iter, key_len: *mut usize) -> *const c_void {
    // SAFETY: passed on from the caller. Nothing here can panic.
    unsafe { part(iter, key_len, mangrove_iter::key) }
}

/// The value under the iterator, in the same way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_iter_value(
    iter: *const mangrove_iter,
    value_len: *mut usize,
) -> *const c_void {
    // SAFETY: passed on from the caller. Nothing here can panic.
    unsafe { part(iter, value_len, mangrove_iter::value) }
}

unsafe fn part(
    iter: *const mangrove_iter,
    len: *mut usize,
    which: impl FnOnce(&mangrove_iter) -> &[u8],
) -> *const c_void {
    // SAFETY: the header's contract for handles.
    let bytes = unsafe { iter.as_ref() }.filter(|i| i.position == Position::OnRecord).map(which);
    // SAFETY: the header's contract for out-parameters.
    unsafe { put_out(len, bytes.map_or(0, <[u8]>::len)) };
    // An empty slice's pointer may be dangling but is not null, which is all that a length of 0 allows.
    bytes.map_or(std::ptr::null(), |b| b.as_ptr().cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_behind_a_prefix() {
        let excluded = |b: &[u8]| Bound::Excluded(b.to_vec());
        assert_eq!(after_prefix(b"ab"), excluded(b"ac"));
        assert_eq!(after_prefix(b"a\xff\xff"), excluded(b"b"));
        assert_eq!(after_prefix(b"\xff"), Bound::Unbounded);
        assert_eq!(after_prefix(b""), Bound::Unbounded);
    }

    #[test]
    fn the_tighter_bound_wins() {
        let keys = [&b"a"[..], b"b"];
        let mut all = vec![Bound::Unbounded];
        all.extend(keys.map(Bound::Included));
        all.extend(keys.map(Bound::Excluded));
        let above = |b: Bound<&[u8]>, k: &[u8]| match b {
            Bound::Included(b) => k >= b,
            Bound::Excluded(b) => k > b,
            Bound::Unbounded => true,
        };
        let below = |b: Bound<&[u8]>, k: &[u8]| match b {
            Bound::Included(b) => k <= b,
            Bound::Excluded(b) => k < b,
            Bound::Unbounded => true,
        };
        for &x in &all {
            for &y in &all {
                for key in [&b""[..], b"a", b"aa", b"b", b"c"] {
                    assert_eq!(
                        above(tighter_lower(x, y), key),
                        above(x, key) && above(y, key),
                        "{x:?} {y:?} {key:?}"
                    );
                    assert_eq!(
                        below(tighter_upper(x, y), key),
                        below(x, key) && below(y, key),
                        "{x:?} {y:?} {key:?}"
                    );
                    if is_empty(&(x, y)) {
                        assert!(!(above(x, key) && below(y, key)), "{x:?} {y:?} {key:?}");
                    }
                }
            }
        }
    }
}
