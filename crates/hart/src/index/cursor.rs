//! Ordered walks in both directions, robust against writers, with leaves prefetched.
//!
//! A cursor works in two halves. The *explorer* walks nodes in key order and puts the leaves it meets into a ring,
//! each with the lock that guards it and the version under which it was found; it prefetches their cache lines and
//! those of the nodes to come. The *consumer* takes leaves out of the ring, when they have arrived in the cache,
//! reads them and validates the version: if it has not changed, the leaf was in its place, unchanged, at that moment.
//! If validation fails, the cursor drops the ring, and the explorer starts again after the last key returned.
//!
//! Why every key that stays is returned exactly once, in order: the leaves in the ring were neighbours when they were
//! found, and a key that stays can only move (to another node) in ways that change the version of the node that held
//! it. The explorer continues in a node only while the node is in the same life, in which the node's path is fixed,
//! and it continues from the byte of the last child that it passed.

use std::ops::Bound;

use super::directory::{ENTRY_COUNT, entry_of};
use super::keys::{self, Parting};
use super::leaf::{KeySource, Leaf};
use super::lock::{NodeVersion, Retry, VersionLock};
use super::node::Node;
use super::sync::relax;
use super::tree::{Index, PathMatch, place_in};
use super::word::{Child, NodeKind, Word};

/// The most leaves that the explorer finds ahead of the consumer.
const RING_LEN: usize = 64;
/// Leaves that the explorer finds at first, so that a short walk prefetches few leaves that it does not read.
const RING_FIRST_FILL: usize = 16;
/// The explorer's runs that find so many; each further one finds twice as many as the one before it.
const FIRST_FILLS: usize = 16;
/// Records that a stream asks for before their turn; more overflow the processor's buffers of cache misses.
const RECORDS_ASKED: usize = 12;
/// Child nodes whose headers are prefetched.
const NODES_AHEAD: usize = 4;
/// Failed reads after which the explorer finds only one leaf ahead.
const FAILURES_BEFORE_CAUTION: u32 = 3;
/// Failed reads after which the cursor reads under the lock.
const FAILURES_BEFORE_LOCK: u32 = 16;
/// The last place of a node; places are its end and 256 bytes.
pub(super) const LAST_PLACE: i32 = 256;

/// The order in which a cursor walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

impl Direction {
    #[inline]
    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }

    /// True when a walk comes to `a` before it comes to `b`.
    #[inline]
    pub(crate) fn is_before(self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Self::Forward => a < b,
            Self::Backward => a > b,
        }
    }
}

/// A leaf in the ring, and what guards it.
#[derive(Clone, Copy, Debug)]
struct FoundLeaf<'a> {
    leaf: Leaf,
    lock: &'a VersionLock,
    version: NodeVersion,
}

/// Consecutive leaves of the ring that were found in one node.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    lock: &'a VersionLock,
    version: NodeVersion,
    /// How many of them are still in the ring.
    len: usize,
}

/// What [`IndexCursor::stream`]'s caller did with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VisitOutcome {
    /// Took it, and wants the next one.
    Next,
    /// Took it, and wants no more.
    Last,
    /// Did not take it.
    Refused,
}

/// How [`IndexCursor::stream`] ended, each with the index of the last record taken, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// There are no more keys.
    Complete(Option<usize>),
    /// The caller took its last record.
    Stopped(usize),
    /// The caller refused a record, or writers invalidated too many reads.
    Interrupted(Option<usize>),
}

/// The explorer's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Must be sought: after the last key returned, once the ring is empty.
    Lost,
    /// In the stack and the next entry.
    Known,
    /// After the last key.
    Done,
}

/// A node being walked; `place` is the next child to visit (see `Node::walk_up`).
#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    node: Node<'a>,
    version: NodeVersion,
    place: i32,
}

/// A place between two keys that moves in one direction.
///
/// The cursor returns every key that is in the index as long as the cursor lives exactly once, in order; it may or
/// may not return one that is inserted or removed meanwhile. It holds no lock, and may live as long as the index.
pub(crate) struct IndexCursor<'a, K> {
    index: &'a Index<K>,
    direction: Direction,
    /// Where to begin, until a key has been returned.
    start: Bound<Vec<u8>>,
    /// The last key returned.
    key: Vec<u8>,
    returned: bool,
    /// The key being read, not yet validated.
    scratch: Vec<u8>,
    way: Way,
    stack: Vec<Frame<'a>>,
    /// The next directory entry to visit; after the last one, an index outside the directory.
    entry: usize,
    ring: [Option<Leaf>; RING_LEN],
    ring_first: usize,
    ring_len: usize,
    /// Leaves of the ring, counted from its first, that were passed to `ask`.
    asked: usize,
    /// How many leaves the explorer was to find when it ran last; it runs again when half of them have been taken.
    filled: usize,
    /// The explorer's runs so far.
    fills: usize,
    /// What guards the leaves in the ring, in their order: never more runs than leaves.
    runs: [Option<Run<'a>>; RING_LEN],
    runs_first: usize,
    runs_len: usize,
    /// Consecutive reads that a writer invalidated.
    failures: u32,
}

impl<K: KeySource> Index<K> {
    /// A cursor that walks from `start` (lower bound forward, upper bound backward).
    pub(crate) fn cursor(&self, start: Bound<&[u8]>, direction: Direction) -> IndexCursor<'_, K> {
        IndexCursor {
            index: self,
            direction,
            start: start.map(<[u8]>::to_vec),
            key: Vec::new(),
            returned: false,
            scratch: Vec::new(),
            way: Way::Lost,
            stack: Vec::new(),
            entry: 0,
            ring: [None; RING_LEN],
            ring_first: 0,
            ring_len: 0,
            asked: 0,
            filled: 0,
            fills: 0,
            runs: [None; RING_LEN],
            runs_first: 0,
            runs_len: 0,
            failures: 0,
        }
    }
}

impl<'a, K: KeySource> IndexCursor<'a, K> {
    /// Moves to the next key, runs `read` on its leaf (as [`Index::get`] does) and returns the result; `None` after
    /// the last key.
    #[inline]
    pub(crate) fn advance<R>(&mut self, mut read: impl FnMut(Leaf) -> R) -> Option<R> {
        loop {
            if self.is_low() {
                self.explore();
            }
            let found = self.pop()?;
            if self.failures > FAILURES_BEFORE_LOCK {
                if let Some(result) = self.read_locked(found, &mut read) {
                    return Some(result);
                }
                continue;
            }
            keys::copy(&self.index.keys, found.leaf, &mut self.scratch);
            let result = read(found.leaf);
            if found.lock.is_still(found.version) {
                self.commit();
                return Some(result);
            }
            self.spoilt();
        }
    }

    /// Moves over up to `count` keys, as that many calls of [`IndexCursor::advance`] would. Each key is appended to
    /// `bytes`, and `read` may append what it reads of its leaf; then `take` gets where the key lies and the result of
    /// `read`, and returns whether to continue. `ask` gets each leaf some records before its turn, to prefetch more
    /// than its first line. Returns true when there are no more keys.
    #[inline]
    pub(crate) fn advance_many<R>(
        &mut self,
        count: usize,
        bytes: &mut Vec<u8>,
        ask: impl Fn(Leaf),
        mut read: impl FnMut(Leaf, &mut Vec<u8>) -> R,
        mut take: impl FnMut(&mut Vec<u8>, std::ops::Range<usize>, R) -> bool,
    ) -> bool {
        // The last key lies in `bytes`; it is copied only when the explorer must seek from it.
        let mut last: Option<std::ops::Range<usize>> = None;
        for number in 0..count {
            let (key, result) = loop {
                if self.is_low() {
                    self.remember(last.clone().map(|key| &bytes[key]));
                    self.explore();
                }
                while self.asked < RECORDS_ASKED.min(self.ring_len).min(count - number) {
                    if let Some(leaf) = self.ring[(self.ring_first + self.asked) % RING_LEN] {
                        ask(leaf);
                    }
                    self.asked += 1;
                }
                let Some(found) = self.pop() else {
                    self.remember(last.map(|key| &bytes[key]));
                    return true;
                };
                let start = bytes.len();
                if self.failures > FAILURES_BEFORE_LOCK {
                    self.remember(last.clone().map(|key| &bytes[key]));
                    let keys = &self.index.keys;
                    let mut read_whole = |leaf| {
                        keys::append(keys, leaf, bytes);
                        read(leaf, bytes)
                    };
                    let Some(result) = self.read_locked(found, &mut read_whole) else { continue };
                    break (start..start + self.key.len(), result);
                }
                keys::append(&self.index.keys, found.leaf, bytes);
                let key = start..bytes.len();
                let result = read(found.leaf, bytes);
                if found.lock.is_still(found.version) {
                    self.failures = 0;
                    break (key, result);
                }
                bytes.truncate(start);
                self.remember(last.clone().map(|key| &bytes[key]));
                self.spoilt();
            };
            last = Some(key.clone());
            if !take(bytes, key, result) {
                break;
            }
        }
        self.remember(last.map(|key| &bytes[key]));
        false
    }

    /// Moves on as long as `visit` takes the records. `load` reads each leaf into one of the two records, in turn,
    /// and `visit` gets it once validation has shown that it did not change meanwhile; `key` returns a record's key.
    /// `ask` gets each leaf some records before its turn, once it is in the cache, to prefetch what it leads to.
    #[inline]
    pub(crate) fn stream<R>(
        &mut self,
        records: &mut [R; 2],
        ask: impl Fn(Leaf),
        load: impl Fn(Leaf, &mut R),
        key: impl Fn(&R) -> &[u8],
        mut visit: impl FnMut(&R) -> VisitOutcome,
    ) -> Streamed {
        let mut last: Option<usize> = None;
        let mut at = 0;
        let mut outcome = VisitOutcome::Next;
        while outcome == VisitOutcome::Next {
            if self.is_low() {
                self.remember(last.map(|last| key(&records[last])));
                self.explore();
            }
            let place = self.runs_first % RING_LEN;
            let Some(run) = self.runs[place].filter(|_| self.ring_len > 0) else {
                self.remember(last.map(|last| key(&records[last])));
                return Streamed::Complete(last);
            };
            // As many leaves of one node as there are before the ring is low.
            let ahead = if self.way == Way::Done { 0 } else { self.filled / 2 };
            let count = run.len.min(self.ring_len.saturating_sub(ahead) + 1);
            let mut taken = 0;
            let mut asked = self.asked;
            while taken < count && outcome == VisitOutcome::Next {
                while asked < (taken + RECORDS_ASKED).min(self.ring_len) {
                    if let Some(leaf) = self.ring[(self.ring_first + asked) % RING_LEN] {
                        ask(leaf);
                    }
                    asked += 1;
                }
                let Some(leaf) = self.ring[(self.ring_first + taken) % RING_LEN] else { break };
                load(leaf, &mut records[at]);
                if !run.lock.is_still(run.version) {
                    break;
                }
                taken += 1;
                outcome = visit(&records[at]);
                if outcome != VisitOutcome::Refused {
                    last = Some(at);
                    at ^= 1;
                }
            }
            self.ring_first += taken;
            self.ring_len -= taken;
            self.asked = asked.saturating_sub(taken);
            if taken == run.len {
                self.runs_first += 1;
                self.runs_len -= 1;
            } else {
                self.runs[place] = Some(Run { len: run.len - taken, ..run });
            }
            if taken > 0 {
                self.failures = 0;
            }
            if taken < count && outcome == VisitOutcome::Next {
                self.remember(last.map(|last| key(&records[last])));
                self.spoilt();
                if self.failures > FAILURES_BEFORE_LOCK {
                    outcome = VisitOutcome::Refused;
                }
            }
        }
        self.remember(last.map(|last| key(&records[last])));
        match (outcome, last) {
            (VisitOutcome::Last, Some(last)) => Streamed::Stopped(last),
            _ => Streamed::Interrupted(last),
        }
    }

    /// Remembers the last key returned.
    #[inline]
    fn remember(&mut self, last: Option<&[u8]>) {
        if let Some(key) = last {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.returned = true;
        }
    }

    /// The key that the last [`IndexCursor::advance`] moved to.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn commit(&mut self) {
        std::mem::swap(&mut self.key, &mut self.scratch);
        self.returned = true;
        self.failures = 0;
    }

    /// A writer changed a node: the leaves in the ring are no longer valid.
    #[cold]
    fn spoilt(&mut self) {
        self.failures += 1;
        self.clear_ring();
        self.way = Way::Lost;
    }

    /// Reads a leaf under its lock, as a writer would, after optimistic reads have failed too often.
    #[cold]
    fn read_locked<R>(&mut self, found: FoundLeaf<'a>, read: &mut impl FnMut(Leaf) -> R) -> Option<R> {
        let Ok(locked) = found.lock.try_lock(found.version) else {
            self.spoilt();
            return None;
        };
        keys::copy(&self.index.keys, found.leaf, &mut self.scratch);
        let result = read(found.leaf);
        locked.unlock_unchanged();
        self.commit();
        Some(result)
    }

    #[inline]
    fn pop(&mut self) -> Option<FoundLeaf<'a>> {
        if self.ring_len == 0 {
            return None;
        }
        let run = self.runs[self.runs_first % RING_LEN].as_mut()?;
        let found =
            FoundLeaf { leaf: self.ring[self.ring_first % RING_LEN]?, lock: run.lock, version: run.version };
        run.len -= 1;
        if run.len == 0 {
            self.runs_first += 1;
            self.runs_len -= 1;
        }
        self.ring_first += 1;
        self.ring_len -= 1;
        self.asked = self.asked.saturating_sub(1);
        Some(found)
    }

    /// Appends a leaf to the ring.
    fn push(&mut self, leaf: Leaf, lock: &'a VersionLock, version: NodeVersion) {
        self.ring[(self.ring_first + self.ring_len) % RING_LEN] = Some(leaf);
        self.index.keys.prefetch(leaf);
        self.push_run(1, lock, version);
    }

    /// Counts `len` leaves that were stored after those in the ring as leaves of the ring.
    #[inline]
    fn push_run(&mut self, len: usize, lock: &'a VersionLock, version: NodeVersion) {
        if len > 0 {
            self.runs[(self.runs_first + self.runs_len) % RING_LEN] = Some(Run { lock, version, len });
            self.runs_len += 1;
            self.ring_len += len;
        }
    }

    fn clear_ring(&mut self) {
        self.ring_len = 0;
        self.runs_len = 0;
        self.asked = 0;
    }

    /// True when the explorer should run.
    #[inline]
    fn is_low(&self) -> bool {
        self.ring_len <= self.filled / 2 && self.way != Way::Done
    }

    /// Fills the ring.
    #[inline(never)]
    fn explore(&mut self) {
        let factor = if self.fills < FIRST_FILLS { 1 } else { 2 };
        let more = (factor * self.filled).clamp(RING_FIRST_FILL, RING_LEN);
        self.fills += 1;
        let target = if self.failures > FAILURES_BEFORE_CAUTION { 1 } else { more };
        self.filled = target;
        let mut rounds = self.failures;
        while self.ring_len < target {
            let progress = match self.way {
                // The leaves in the ring come first: the explorer seeks after the last of them.
                Way::Lost if self.ring_len > 0 => return,
                Way::Lost => self.seek(),
                Way::Known => self.step(target),
                Way::Done => return,
            };
            if progress.is_err() {
                self.way = Way::Lost;
                relax(&mut rounds);
            }
        }
    }

    /// Visits some children of the node on top of the stack, or the next directory entry. An error means that the
    /// node has left the tree.
    #[inline]
    fn step(&mut self, target: usize) -> Result<(), Retry> {
        let Some(mut frame) = self.stack.last().copied() else {
            self.step_entry();
            return Ok(());
        };
        let step = self.place_step();
        let keys = &self.index.keys;
        // Leaves are stored after those in the ring, and count only once the node has been validated.
        let (ring, behind, room) = (&mut self.ring, self.ring_first + self.ring_len, target - self.ring_len);
        let mut len = 0;
        let mut below = None;
        let mut stopped = false;
        let mut ahead = 0;
        let mut place_after = frame.place;
        let visit = |place: i32, word: Word| {
            match word.child() {
                _ if below.is_some() => {
                    prefetch(keys, word);
                    ahead += 1;
                    stopped = ahead == NODES_AHEAD;
                }
                Child::Leaf(leaf) if len < room => {
                    ring[(behind + len) % RING_LEN] = Some(leaf);
                    keys.prefetch(leaf);
                    len += 1;
                    place_after = place + step;
                }
                Child::Leaf(_) => stopped = true,
                Child::Node => {
                    below = Some(word);
                    place_after = place + step;
                }
                Child::Empty => {}
            }
            !stopped
        };
        if step > 0 {
            frame.node.walk_up(frame.place, visit)
        } else {
            frame.node.walk_down(frame.place, visit)
        }

        let below = match below.map(|word| self.index.node(word)) {
            Some(node) => node.lock().read().map(|version| Some((node, version))),
            None => Ok(None),
        };
        let top = self.stack.len() - 1;
        match below {
            Ok(below) if frame.node.lock().is_still(frame.version) => {
                self.push_run(len, frame.node.lock(), frame.version);
                frame.place = place_after;
                self.stack[top] = frame;
                if let Some((node, version)) = below {
                    let place = if step > 0 { 0 } else { LAST_PLACE };
                    self.stack.push(Frame { node, version, place });
                } else if !stopped {
                    self.stack.pop();
                }
                Ok(())
            }
            _ => {
                // What was read may be wrong. But as long as the node lives its path is the same, and the children
                // after the last one passed are still to be visited.
                let version = frame.node.lock().read()?;
                if !version.same_life(frame.version) {
                    return Err(Retry);
                }
                self.stack[top].version = version;
                Ok(())
            }
        }
    }

    #[inline]
    fn place_step(&self) -> i32 {
        match self.direction {
            Direction::Forward => 1,
            Direction::Backward => -1,
        }
    }

    fn next_entry(&self, entry: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.index.directory.next_up(entry),
            Direction::Backward if entry >= ENTRY_COUNT => None,
            Direction::Backward => self.index.directory.next_down(entry),
        }
    }

    /// The entry after `entry`. Below zero it wraps to an index outside the directory, where there is no entry
    /// either.
    fn entry_after(&self, entry: usize) -> usize {
        match self.direction {
            Direction::Forward => entry + 1,
            Direction::Backward => entry.wrapping_sub(1),
        }
    }

    /// Visits the next directory entry that is not empty.
    fn step_entry(&mut self) {
        let Some(entry) = self.next_entry(self.entry) else {
            self.way = Way::Done;
            return;
        };
        let after = self.entry_after(entry);
        if let Some(next) = self.next_entry(after) {
            prefetch(&self.index.keys, super::layouts::load(&self.index.directory.entry(next).root));
        }
        // An error is a writer in this entry: the next step visits it again.
        if self.enter(entry).is_ok() {
            self.entry = after;
        }
    }

    fn enter(&mut self, entry: usize) -> Result<(), Retry> {
        let index = self.index;
        let root = index.root(entry)?;
        let word = root.word();
        match word.child() {
            Child::Empty => root.lock.validate(root.version),
            Child::Leaf(leaf) => {
                root.lock.validate(root.version)?;
                self.push(leaf, root.lock, root.version);
                Ok(())
            }
            Child::Node => {
                let node = index.node(word);
                let version = node.lock().read()?;
                root.lock.validate(root.version)?;
                self.push_whole(node, version);
                Ok(())
            }
        }
    }

    fn push_whole(&mut self, node: Node<'a>, version: NodeVersion) {
        let place = if self.direction == Direction::Forward { 0 } else { LAST_PLACE };
        self.stack.push(Frame { node, version, place });
    }

    /// Seeks the first key after the last one returned, or the start.
    fn seek(&mut self) -> Result<(), Retry> {
        self.stack.clear();
        self.clear_ring();
        if self.returned {
            let key = std::mem::take(&mut self.key);
            let sought = self.seek_key(&key, false);
            self.key = key;
            sought?;
        } else {
            let start = std::mem::replace(&mut self.start, Bound::Unbounded);
            let sought = match &start {
                Bound::Included(key) => self.seek_key(key, true),
                Bound::Excluded(key) => self.seek_key(key, false),
                Bound::Unbounded => {
                    self.entry = if self.direction == Direction::Forward { 0 } else { ENTRY_COUNT - 1 };
                    Ok(())
                }
            };
            self.start = start;
            sought?;
        }
        self.way = Way::Known;
        Ok(())
    }

    /// Puts what lies after `key` (and, if `included`, the key itself) on the stack and into the ring.
    fn seek_key(&mut self, key: &[u8], included: bool) -> Result<(), Retry> {
        let index = self.index;
        let forward = self.direction == Direction::Forward;
        let entry = entry_of(key);
        self.entry = self.entry_after(entry);
        let mut place = index.root(entry)?;
        let mut depth = key.len().min(2);
        loop {
            let word = place.word();
            match word.child() {
                Child::Empty => return place.lock.validate(place.version),
                Child::Leaf(leaf) => {
                    let wanted = match keys::parting(&index.keys, leaf, key, depth) {
                        Parting::Never => included,
                        Parting::At(at, byte) => (byte > key.get(at).copied()) == forward,
                    };
                    place.lock.validate(place.version)?;
                    if wanted {
                        self.push(leaf, place.lock, place.version);
                    }
                    return Ok(());
                }
                Child::Node => {
                    let node = index.node(word);
                    let version = node.lock().read()?;
                    place.lock.validate(place.version)?;
                    if let PathMatch::Parts(at, byte) = index.compare_path(key, depth, node, version)? {
                        if (Some(byte) > key.get(at).copied()) == forward {
                            self.push_whole(node, version);
                        }
                        return Ok(());
                    }
                    let Some(byte) = key.get(node.position()) else {
                        // The key ends here: forward all bytes follow it, backward nothing does.
                        match (forward, included) {
                            (true, _) => {
                                let place = i32::from(!included);
                                self.stack.push(Frame { node, version, place });
                            }
                            (false, true) => self.stack.push(Frame { node, version, place: 0 }),
                            (false, false) => {}
                        }
                        return Ok(());
                    };
                    let behind = 1 + i32::from(*byte) + self.place_step();
                    self.stack.push(Frame { node, version, place: behind });
                    depth = node.position() + 1;
                    match place_in(node, version, key) {
                        Some(below) => place = below,
                        None => return node.lock().validate(version),
                    }
                }
            }
        }
    }
}

/// Prefetches the first lines of a child.
#[inline]
fn prefetch(keys: &impl KeySource, word: Word) {
    match word.child() {
        Child::Leaf(leaf) => keys.prefetch(leaf),
        Child::Node => {
            let address = word.address() as *const u8;
            mangrove_sys::prefetch_read(address);
            if word.kind() != NodeKind::N4 {
                mangrove_sys::prefetch_read(address.wrapping_add(64));
            }
        }
        Child::Empty => {}
    }
}
