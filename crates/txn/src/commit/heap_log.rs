//! The protocol that was chosen for a heap, as one type: executors are compiled once for all.

use super::group::{Group, GroupSink};
use super::one_fence::{OneFence, OneFenceSink};
use super::read_only::{ReadOnlyLog, ReadOnlySink};
use super::spht::{Spht, SphtSink};
use super::spht_eadr::{SphtEadr, SphtEadrSink};
use super::spht_eadr_flush::{SphtEadrFlush, SphtEadrFlushSink};
use crate::sink::{RedoLog, RedoSink, Taken, TxWrites, UnitSize};
use mangrove_shadow::{Error, MediumKind, Order, Shadow};
use std::path::Path;
use std::sync::Arc;

/// The redo log of a heap.
#[derive(Debug)]
pub enum HeapLog {
    /// On persistent memory.
    OneFence(OneFence),
    /// On the file medium.
    Group(Box<Group>),
    /// Of a heap opened read-only.
    ReadOnly(ReadOnlyLog),
    /// On persistent memory, ordered by time stamps.
    Stamped(StampedLog),
}

/// The protocols with time stamps.
#[derive(Debug)]
pub enum StampedLog {
    /// Algorithm 2.
    Spht(Box<Spht>),
    /// Algorithm 3.
    SphtEadr(SphtEadr),
    /// Algorithm 4.
    SphtEadrFlush(SphtEadrFlush),
}

/// One thread's way into a heap's log.
#[derive(Debug)]
pub enum HeapSink<'log> {
    /// On persistent memory.
    OneFence(OneFenceSink<'log>),
    /// On the file medium.
    Group(GroupSink<'log>),
    /// Of a heap opened read-only.
    ReadOnly(ReadOnlySink<'log>),
    /// On persistent memory, ordered by time stamps.
    Stamped(StampedSink<'log>),
}

/// One thread's way into a log with time stamps.
#[derive(Debug)]
pub enum StampedSink<'log> {
    /// Algorithm 2.
    Spht(SphtSink<'log>),
    /// Algorithm 3.
    SphtEadr(SphtEadrSink<'log>),
    /// Algorithm 4.
    SphtEadrFlush(SphtEadrFlushSink<'log>),
}

impl HeapLog {
    /// The log of a shadow that was not opened for time stamps, by its medium.
    #[must_use]
    pub fn new(shadow: Arc<Shadow>) -> Self {
        if shadow.is_read_only() {
            return Self::ReadOnly(ReadOnlyLog::new(shadow.path().unwrap_or(Path::new("")).to_owned()));
        }
        if shadow.medium() == MediumKind::File {
            return Self::Group(Box::new(Group::new(shadow)));
        }
        Self::OneFence(OneFence::new(shadow))
    }

    /// What this log does at a commit.
    pub(crate) fn protocol(&self) -> &'static str {
        match self {
            Self::OneFence(log) if log.order() == Order::Gaps => Self::NO_FENCE,
            Self::OneFence(_) => Self::ONE_FENCE,
            Self::Group(_) => Self::GROUP,
            Self::ReadOnly(_) => "no commits: it is open read-only",
            Self::Stamped(StampedLog::Spht(_)) => Self::MARKER,
            Self::Stamped(StampedLog::SphtEadr(_)) => Self::STAMPS,
            Self::Stamped(StampedLog::SphtEadrFlush(_)) => Self::STAMPS_FLUSHED,
        }
    }

    pub(super) const GROUP: &'static str = "group commit: one device write for all threads that wait";
    pub(super) const ONE_FENCE: &'static str = "dense numbers: one fence a commit";
    pub(super) const NO_FENCE: &'static str = "gaps allowed: a commit without flush, fence or wait";
    pub(super) const MARKER: &'static str = "SPHT: time stamps and a durable marker";
    pub(super) const STAMPS: &'static str = "SPHT-eADR: time stamps, without flush, fence or wait";
    pub(super) const STAMPS_FLUSHED: &'static str =
        "SPHT-eADR: time stamps, and a flush that nobody waits for";
}

macro_rules! one_of {
    ($log:ident, $sink:ident, $dense:expr, common: $common:ident, $($variant:ident),*) => {
        impl RedoLog for $log {
            type Sink<'log> = $sink<'log>;
            const KEEPS: bool = true;
            const DENSE: bool = $dense;

            fn is_stamped(&self) -> bool {
                match self { $(Self::$variant(log) => log.is_stamped(),)* }
            }

            fn sink(&self) -> $sink<'_> {
                match self { $(Self::$variant(log) => $sink::$variant(log.sink()),)* }
            }

            #[inline(always)]
            fn newest(&self) -> u64 {
                match self {
                    Self::$common(log) => log.newest(),
                    other => other.newest_of_other(),
                }
            }
        }

        impl RedoSink for $sink<'_> {
            type Error = Error;

            fn refuse_child(&self) -> Result<(), Error> {
                match self { $(Self::$variant(sink) => sink.refuse_child(),)* }
            }

            #[inline(always)]
            fn announce(&mut self) {
                match self { $(Self::$variant(sink) => sink.announce(),)* }
            }

            #[inline(always)]
            fn withdraw(&mut self) {
                match self { $(Self::$variant(sink) => sink.withdraw(),)* }
            }

            fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
                match self { $(Self::$variant(sink) => sink.prepare(size),)* }
            }

            fn has_room(&self, size: UnitSize) -> bool {
                match self { $(Self::$variant(sink) => sink.has_room(size),)* }
            }

            #[inline(always)]
            fn put(&mut self, writes: &impl TxWrites) -> Result<(), Error> {
                match self { $(Self::$variant(sink) => sink.put(writes),)* }
            }

            #[inline(always)]
            fn number(&mut self) -> u64 {
                match self { $(Self::$variant(sink) => sink.number(),)* }
            }

            #[inline(always)]
            fn number_alone(&mut self) -> u64 {
                match self { $(Self::$variant(sink) => sink.number_alone(),)* }
            }

            #[inline(always)]
            fn seal(&mut self) -> Result<(), Error> {
                match self { $(Self::$variant(sink) => sink.seal(),)* }
            }

            #[inline(always)]
            fn seals_after_hardware(&self) -> bool {
                match self { $(Self::$variant(sink) => sink.seals_after_hardware(),)* }
            }

            #[inline(always)]
            fn take(
                &mut self,
                writes: &impl TxWrites,
                alone: bool,
                may_commit: impl Fn(u64) -> bool,
            ) -> Result<Taken, Error> {
                match self {
                    Self::$common(sink) => sink.take(writes, alone, may_commit),
                    other => other.take_by_other(writes, alone, may_commit),
                }
            }

            fn void(&mut self) {
                match self { $(Self::$variant(sink) => sink.void(),)* }
            }

            fn number_void(&mut self) -> u64 {
                match self { $(Self::$variant(sink) => sink.number_void(),)* }
            }

            #[inline(always)]
            fn finish(&mut self) -> Result<(), Error> {
                match self {
                    Self::$common(sink) => sink.finish(),
                    other => other.finish_by_other(),
                }
            }

            #[inline(always)]
            fn defer(&mut self) -> Result<u64, Error> {
                match self { $(Self::$variant(sink) => sink.defer(),)* }
            }

            #[inline(always)]
            fn settle_later(&mut self, number: u64) -> Result<u64, Error> {
                match self { $(Self::$variant(sink) => sink.settle_later(number),)* }
            }

            #[inline(always)]
            fn settle(&mut self, number: u64) -> Result<(), Error> {
                match self {
                    Self::$common(sink) => sink.settle(number),
                    other => other.settle_by_other(number),
                }
            }
        }

        // Calls, so that the common way is short wherever it is compiled into a transaction.
        impl $log {
            #[inline(never)]
            fn newest_of_other(&self) -> u64 {
                match self { $(Self::$variant(log) => log.newest(),)* }
            }
        }

        impl $sink<'_> {
            #[inline(never)]
            fn take_by_other(
                &mut self,
                writes: &impl TxWrites,
                alone: bool,
                may_commit: impl Fn(u64) -> bool,
            ) -> Result<Taken, Error> {
                match self { $(Self::$variant(sink) => sink.take(writes, alone, may_commit),)* }
            }

            #[inline(never)]
            fn finish_by_other(&mut self) -> Result<(), Error> {
                match self { $(Self::$variant(sink) => sink.finish(),)* }
            }

            #[inline(never)]
            fn settle_by_other(&mut self, number: u64) -> Result<(), Error> {
                match self { $(Self::$variant(sink) => sink.settle(number),)* }
            }
        }
    };
}

// Dense only where an executor asks: ownership records, which never get a log with time stamps.
one_of!(HeapLog, HeapSink, true, common: OneFence, OneFence, Group, ReadOnly, Stamped);
one_of!(StampedLog, StampedSink, false, common: SphtEadr, Spht, SphtEadr, SphtEadrFlush);
