//! The shadow as a subject: atomic groups of ranges of a small working copy, with an array as reference.
//!
//! Every operation writes garbage over bytes that it does not commit, and restores them when it is done. If
//! something copies them from the working copy into the data file, the simulator sees it.

use crate::engines::subject::{Promised, Subject};
use crate::machine::interrupt::during;
use crate::rng::Rng;
use mangrove_pool::Region;
use mangrove_shadow::{AddressChoice, Options, Order, Shadow, Ticket};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the working copy.
const LEN: u64 = 32 << 10;
const RING_BYTES: u64 = 4096;
const LOGS: usize = 2;

/// A stored and committed range: where, how long, and the seed of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    at: u32,
    len: u32,
    seed: u8,
}

impl Fill {
    fn byte(&self, n: u32) -> u8 {
        (self.seed as u32).wrapping_add(n.wrapping_mul(7)) as u8 | 1
    }

    fn put(&self, bytes: &mut [u8]) {
        for n in 0..self.len {
            bytes[(self.at + n) as usize] = self.byte(n);
        }
    }
}

/// What another thread does in the middle of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShadowInner {
    /// It commits to the other log. (Groups of both logs are ordered by their beginnings.)
    Group(Vec<Fill>),
    /// It applies what is durable to the data file, as the replayer does.
    Replay,
}

/// One operation on a shadow.
#[derive(Clone, PartialEq, Eq)]
pub enum ShadowOp {
    /// Commits an atomic group to a log, and waits for it or does not.
    Group(usize, Vec<Fill>, bool),
    /// Applies everything to the data file.
    Checkpoint,
    /// Applies one batch to the data file.
    Replay,
    /// Makes more of the working copy usable.
    Grow(u64),
    /// Commits an atomic group to the first log; at its n-th step on the medium another thread does something.
    During(Vec<Fill>, u32, ShadowInner),
}

impl fmt::Debug for ShadowOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fills = |fills: &[Fill]| -> Vec<_> { fills.iter().map(|f| (f.at, f.len, f.seed)).collect() };
        match self {
            Self::Group(log, group, wait) => {
                write!(
                    f,
                    "unit {:?} in log {log}{}",
                    fills(group),
                    if *wait { "" } else { ", not waited for" }
                )
            }
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Replay => f.write_str("replay"),
            Self::Grow(bytes) => write!(f, "grow to {bytes}"),
            Self::During(group, at, inner) => {
                write!(f, "unit {:?} and at step {at} of it {inner:?}", fills(group))
            }
        }
    }
}

/// What the working copy holds.
#[derive(Clone)]
pub struct ShadowModel(Arc<Vec<u8>>);

impl Default for ShadowModel {
    fn default() -> Self {
        Self(Arc::new(vec![0; LEN as usize]))
    }
}

impl ShadowModel {
    fn put(&mut self, group: &[Fill]) {
        let bytes = Arc::make_mut(&mut self.0);
        group.iter().for_each(|fill| fill.put(bytes));
    }
}

/// The shadow under test. `OTHER`: longer rings; on disks durability by interval, elsewhere two threads that replay, in
/// turn, numbers of the caller and a durable marker.
pub struct ShadowSubject<const OTHER: bool> {
    shadow: Arc<Shadow>,
    log: bool,
    /// The last number that the caller gave, with a marker.
    stamps: Option<Arc<AtomicU64>>,
}

impl<const OTHER: bool> ShadowSubject<OTHER> {
    fn open(region: Region) -> Result<Self, String> {
        let log = region.medium().capabilities().has_units;
        let ring_bytes = if OTHER { 2 * RING_BYTES } else { RING_BYTES };
        let options = Options::new().address(AddressChoice::Anywhere).capacity(LEN).log_bytes(ring_bytes);
        let options = options.log_count(LOGS).background(false).replayers(if OTHER { 2 } else { 1 });
        let has_marker = OTHER && !log;
        let options = if has_marker { options.order(Order::Marker) } else { options };
        // On a thread of its own: a fence orders only what its own thread flushed, and opening must not fence for
        // others.
        let opening = std::thread::scope(|scope| scope.spawn(|| Shadow::on_region(region, &options)).join());
        let shadow = opening.map_err(|_| "opening panicked")?.map_err(|e| e.to_string())?;
        let stamps = has_marker.then(|| Arc::new(AtomicU64::new(shadow.committed().0)));
        Ok(Self { shadow: Arc::new(shadow), log, stamps })
    }

    /// Marks everything that was committed: no commit is under way.
    fn mark(&self) -> Result<(), String> {
        let Some(stamps) = &self.stamps else { return Ok(()) };
        self.shadow.mark(stamps.load(Ordering::Relaxed)).map_err(|e| format!("mark: {e}"))
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "the working copy is plain memory, and one thread at a time stores"
    )]
    fn bytes(&self) -> &mut [u8] {
        let len = self.shadow.len().min(LEN) as usize;
        // SAFETY: the usable part; the simulator runs one operation at a time, and an operation inside another
        // stores nothing.
        unsafe { std::slice::from_raw_parts_mut(self.shadow.base(), len) }
    }

    fn ranges(&self, group: &[Fill]) -> Vec<(usize, usize)> {
        let base = self.shadow.base() as usize;
        group.iter().map(|f| (base + f.at as usize, f.len as usize)).collect()
    }

    fn reach(&self, group: &[Fill]) -> Result<(), String> {
        let end = group.iter().map(|f| u64::from(f.at + f.len)).max().unwrap_or(0);
        if end > self.shadow.len() { self.shadow.grow(end).map_err(|e| format!("grow: {e}")) } else { Ok(()) }
    }

    /// Overwrites a few bytes outside the group with garbage, or restores them.
    fn scribble(&self, before: &ShadowModel, groups: &[&[Fill]], on: bool) {
        let bytes = self.bytes();
        for at in (0..bytes.len()).step_by(61) {
            let inside = |f: &Fill| (f.at..f.at + f.len).contains(&(at as u32));
            if !groups.iter().any(|group| group.iter().any(inside)) {
                bytes[at] = if on { before.0[at] ^ 0xff } else { before.0[at] };
            }
        }
    }

    fn commit(&self, log: usize, group: &[Fill]) -> Result<Ticket, String> {
        let stamps = self.stamps.as_deref();
        let done = commit(&self.shadow, log, &self.ranges(group), by_value(group), stamps);
        done.map_err(|e| format!("commit: {e}"))
    }

    /// Once waited for, a group is durable; by interval only `sync` waits.
    fn promised(&self) -> Promised {
        if OTHER && self.log { Promised::Nothing } else { Promised::All }
    }
}

impl<const OTHER: bool> Subject for ShadowSubject<OTHER> {
    type Op = ShadowOp;
    type Model = ShadowModel;

    const NAME: &'static str = if OTHER { "shadow-other" } else { "shadow" };
    const REGION_BYTES: u64 = 128 << 10;

    fn create(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn recover(region: Region) -> Result<Self, String> {
        let subject = Self::open(region)?;
        if subject.log {
            // The pool may have recovered more than it had grown to; the file medium makes it usable on request.
            subject.shadow.grow(LEN).map_err(|e| e.to_string())?;
        }
        Ok(subject)
    }

    fn apply(&mut self, _index: u32, op: &ShadowOp, before: &ShadowModel) -> Result<Promised, String> {
        let words = |e: mangrove_shadow::Error| e.to_string();
        // What waits for space, or for the replayer, waits for the marker.
        self.mark()?;
        match op {
            ShadowOp::Group(log, group, wait) => {
                self.reach(group)?;
                self.scribble(before, &[group], true);
                group.iter().for_each(|fill| fill.put(self.bytes()));
                let ticket = self.commit(*log, group)?;
                // A group that is not waited for is there, too, unless a crash comes.
                self.mark()?;
                if *wait {
                    self.shadow.wait(ticket).map_err(words)?;
                }
                self.scribble(before, &[group], false);
                Ok(if *wait { self.promised() } else { Promised::Nothing })
            }
            ShadowOp::Checkpoint => {
                self.shadow.checkpoint().map_err(words)?;
                Ok(Promised::All)
            }
            ShadowOp::Replay => {
                self.shadow.replay();
                Ok(Promised::Nothing)
            }
            ShadowOp::Grow(bytes) => {
                // On another thread, whose fences order only its own flushes.
                let grown = std::thread::scope(|scope| scope.spawn(|| self.shadow.grow(*bytes)).join());
                grown.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(words)?;
                Ok(Promised::Nothing)
            }
            ShadowOp::During(group, at, inner) => {
                let other: &[Fill] = if let ShadowInner::Group(other) = inner { other } else { &[] };
                self.reach(group)?;
                self.reach(other)?;
                // So that the first step of the commit belongs to the group itself, and the group is first in the
                // order.
                self.shadow.checkpoint().map_err(words)?;
                self.scribble(before, &[group, other], true);
                group.iter().chain(other).for_each(|fill| fill.put(self.bytes()));
                let (shadow, ranges, stamps) = (self.shadow.clone(), self.ranges(other), self.stamps.clone());
                let (replay, by_value) = (*inner == ShadowInner::Replay, by_value(other));
                let (first, second) = during(
                    *at,
                    || self.commit(0, group),
                    move || {
                        if replay {
                            shadow.replay();
                            Ok(Ticket(0))
                        } else {
                            commit(&shadow, 1, &ranges, by_value, stamps.as_deref())
                        }
                    },
                );
                let last = first?.max(second.map_err(words)?);
                self.mark()?;
                self.shadow.wait(last).map_err(words)?;
                self.scribble(before, &[group, other], false);
                Ok(self.promised())
            }
        }
    }

    fn advance(model: &mut ShadowModel, _index: u32, op: &ShadowOp) {
        match op {
            ShadowOp::Group(_, group, _) => model.put(group),
            ShadowOp::During(group, _, inner) => {
                model.put(group);
                if let ShadowInner::Group(other) = inner {
                    model.put(other);
                }
            }
            ShadowOp::Checkpoint | ShadowOp::Replay | ShadowOp::Grow(_) => {}
        }
    }

    fn between(before: &ShadowModel, _index: u32, op: &ShadowOp, inner: bool) -> Vec<ShadowModel> {
        let ShadowOp::During(group, _, ShadowInner::Group(other)) = op else {
            if let (ShadowOp::During(group, ..), true) = (op, inner) {
                let mut after = before.clone();
                after.put(group);
                return vec![before.clone(), after];
            }
            return Vec::new();
        };
        let mut first = before.clone();
        first.put(group);
        if !inner {
            return vec![first];
        }
        // The other commit has returned, but it was not waited for. A crash may lose it alone or together with the
        // first one, but not keep it alone.
        let mut both = first.clone();
        both.put(other);
        vec![before.clone(), first, both]
    }

    fn rebase(_model: &mut ShadowModel) {}

    fn holds(&self, model: &ShadowModel) -> Result<bool, String> {
        let bytes = self.bytes();
        let (usable, beyond) = model.0.split_at(bytes.len());
        Ok(*bytes == *usable && beyond.iter().all(|&b| b == 0))
    }

    fn difference(&self, model: &ShadowModel) -> String {
        let bytes = self.bytes();
        let at = (0..LEN as usize).find(|&at| bytes.get(at).copied().unwrap_or(0) != model.0[at]);
        match at {
            Some(at) => {
                let found = bytes.get(at).copied().unwrap_or(0);
                format!("byte {at} is {found:#x} where {:#x} was expected", model.0[at])
            }
            None => "the same".to_owned(),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.shadow.poisoned().map_or(Ok(()), |e| Err(e.to_string()))
    }

    fn scenario_count() -> u32 {
        6
    }

    fn scenario_name(scenario: u32) -> &'static str {
        ["small units", "units not waited for", "long units", "two logs at once", "growth", "a mixture"]
            [scenario as usize]
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<ShadowOp> {
        let count = 10 + rng.below(6);
        (0..count).map(|_| operation(scenario, rng)).collect()
    }

    fn follow_up(rng: &mut Rng, _recovered: &ShadowModel) -> Vec<ShadowOp> {
        let scenario = rng.below(6) as u32;
        (0..3).map(|_| operation(scenario, rng)).collect()
    }
}

/// How a group is committed: every other one by value, as a transaction does it.
fn by_value(group: &[Fill]) -> bool {
    group.first().is_some_and(|fill| fill.seed.is_multiple_of(2))
}

/// Commits `ranges` (address, length) to a log, or by value to a leased one: each aligned word as a word, what is left
/// as ranges. With `stamps`, always by value, and with the next of them as its number.
fn commit(
    shadow: &Shadow,
    log: usize,
    ranges: &[(usize, usize)],
    by_value: bool,
    stamps: Option<&AtomicU64>,
) -> mangrove_shadow::Result<Ticket> {
    if !by_value && stamps.is_none() {
        return shadow.commit(log, ranges);
    }
    let mut lease = shadow.lease();
    for &(from, len) in ranges {
        let words = from.next_multiple_of(8)..(from + len) / 8 * 8;
        // SAFETY: the range lies in the usable part of the working copy, and no thread stores to it during the commit.
        let bytes = |from: usize, to: usize| unsafe {
            std::slice::from_raw_parts(from as *const u8, to.saturating_sub(from))
        };
        if words.is_empty() {
            lease.range(from, bytes(from, from + len));
            continue;
        }
        lease.range(from, bytes(from, words.start));
        lease.range(words.end, bytes(words.end, from + len));
        for at in words.step_by(8) {
            let value = bytes(at, at + 8).first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
            lease.word(at, value.expect("8 bytes"));
        }
    }
    let Some(stamps) = stamps else { return lease.commit() };
    lease.reserve()?;
    let ticket = lease.number_as(stamps.fetch_add(1, Ordering::Relaxed) + 1);
    lease.seal();
    let flushed = lease.flush();
    lease.publish();
    flushed.map(|()| ticket)
}

fn fills(rng: &mut Rng, from: u64, to: u64, count: u64, longest: u64) -> Vec<Fill> {
    let fill = |rng: &mut Rng| {
        let len = 1 + rng.below(longest);
        let at = from + rng.below(to - from - len);
        Fill { at: at as u32, len: len as u32, seed: rng.next() as u8 }
    };
    (0..count).map(|_| fill(rng)).collect()
}

fn operation(scenario: u32, rng: &mut Rng) -> ShadowOp {
    let log = rng.below(LOGS as u64) as usize;
    // Most of the working copy stays untouched: lines that several groups share find more bugs.
    let near = 2048 + if rng.one_in(4) { LEN - 2048 } else { 0 };
    match scenario {
        0 => match rng.below(8) {
            0 => ShadowOp::Checkpoint,
            1 => ShadowOp::Replay,
            _ => {
                let count = rng.below(5);
                ShadowOp::Group(log, fills(rng, 0, near, count, 120), true)
            }
        },
        1 => match rng.below(10) {
            0 => ShadowOp::Replay,
            n => {
                let count = 1 + rng.below(3);
                ShadowOp::Group(log, fills(rng, 0, near, count, 300), n == 1)
            }
        },
        2 => match rng.below(4) {
            0 => ShadowOp::Group(log, fills(rng, 0, near, 2, 64), true),
            1 => ShadowOp::Group(log, fills(rng, 0, LEN, 1, 1900), rng.one_in(2)),
            _ => {
                let longest = 1800 + rng.below(3000);
                ShadowOp::Group(log, fills(rng, 0, LEN, 3, longest), rng.one_in(2))
            }
        },
        3 => match rng.below(3) {
            0 => ShadowOp::Group(log, fills(rng, 0, near, 2, 100), true),
            _ => {
                let group = fills(rng, 0, 1024, 1 + log as u64, 100);
                let inner = if rng.one_in(3) {
                    ShadowInner::Replay
                } else {
                    ShadowInner::Group(fills(rng, 1024, 2048, 1, 100))
                };
                ShadowOp::During(group, 1 + rng.below(10) as u32, inner)
            }
        },
        4 => match rng.below(4) {
            0 => ShadowOp::Grow(4096 * (1 + rng.below(LEN / 4096))),
            1 => ShadowOp::Group(log, fills(rng, 0, 4096, 1, 4000), rng.one_in(2)),
            _ => {
                let to = 4096 * (1 + rng.below(LEN / 4096));
                ShadowOp::Group(log, fills(rng, to - 4096, to, 1, 1000), rng.one_in(2))
            }
        },
        _ => operation(rng.below(5) as u32, rng),
    }
}
