//! The protocol that suits a heap's medium, as one type: executors are compiled once for both.

use super::group::{Group, GroupSink};
use super::one_fence::{OneFence, OneFenceSink};
use super::read_only::{ReadOnly, ReadOnlySink};
use crate::sink::{RedoLog, RedoSink, UnitSize, Writes};
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
    ReadOnly(ReadOnly),
}

impl HeapLog {
    /// The log of a shadow, by its medium.
    #[must_use]
    pub fn new(shadow: Arc<Shadow>) -> Self {
        if shadow.is_read_only() {
            return Self::ReadOnly(ReadOnly::new(shadow.path().unwrap_or(Path::new("")).to_owned()));
        }
        if shadow.medium() == MediumKind::File {
            return Self::Group(Box::new(Group::new(shadow)));
        }
        Self::OneFence(OneFence::new(shadow))
    }
}

impl HeapLog {
    /// What a heap on this medium does at a commit, for users to read.
    pub(crate) fn protocol_of(medium: MediumKind, order: Order) -> &'static str {
        match (medium, order) {
            (MediumKind::File, _) => Self::GROUP,
            (_, Order::Gaps) => Self::NO_FENCE,
            _ => Self::ONE_FENCE,
        }
    }

    /// What this log does at a commit.
    pub(crate) fn protocol(&self) -> &'static str {
        match self {
            Self::OneFence(log) if log.order() == Order::Gaps => Self::NO_FENCE,
            Self::OneFence(_) => Self::ONE_FENCE,
            Self::Group(_) => Self::GROUP,
            Self::ReadOnly(_) => "no commits: it is open read-only",
        }
    }

    const GROUP: &'static str = "group commit: one device write for all threads that wait";
    const ONE_FENCE: &'static str = "dense numbers: one fence a commit";
    const NO_FENCE: &'static str = "gaps allowed: a commit without flush, fence or wait";
}

impl RedoLog for HeapLog {
    type Sink<'log> = HeapSink<'log>;
    const KEEPS: bool = true;
    const DENSE: bool = true;

    fn sink(&self) -> HeapSink<'_> {
        match self {
            Self::OneFence(log) => HeapSink::OneFence(log.sink()),
            Self::Group(log) => HeapSink::Group(log.sink()),
            Self::ReadOnly(log) => HeapSink::ReadOnly(log.sink()),
        }
    }

    #[inline(always)]
    fn newest(&self) -> u64 {
        match self {
            Self::OneFence(log) => log.newest(),
            Self::Group(log) => log.newest(),
            Self::ReadOnly(log) => log.newest(),
        }
    }
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
}

macro_rules! either {
    ($self:ident, $sink:ident => $call:expr) => {
        match $self {
            Self::OneFence($sink) => $call,
            Self::Group($sink) => $call,
            Self::ReadOnly($sink) => $call,
        }
    };
}

impl RedoSink for HeapSink<'_> {
    type Error = Error;

    #[inline(always)]
    fn announce(&mut self) {
        either!(self, sink => sink.announce());
    }

    #[inline(always)]
    fn withdraw(&mut self) {
        either!(self, sink => sink.withdraw());
    }

    fn prepare(&mut self, size: UnitSize) -> Result<(), Error> {
        either!(self, sink => sink.prepare(size))
    }

    #[inline(always)]
    fn put(&mut self, writes: &impl Writes) -> Result<(), Error> {
        either!(self, sink => sink.put(writes))
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        either!(self, sink => sink.number())
    }

    #[inline(always)]
    fn number_alone(&mut self) -> u64 {
        either!(self, sink => sink.number_alone())
    }

    #[inline(always)]
    fn seal(&mut self) -> Result<(), Error> {
        either!(self, sink => sink.seal())
    }

    fn void(&mut self) {
        either!(self, sink => sink.void());
    }

    fn number_void(&mut self) -> u64 {
        either!(self, sink => sink.number_void())
    }

    #[inline(always)]
    fn finish(&mut self) -> Result<(), Error> {
        either!(self, sink => sink.finish())
    }

    #[inline(always)]
    fn settle(&mut self, number: u64) -> Result<(), Error> {
        either!(self, sink => sink.settle(number))
    }
}
