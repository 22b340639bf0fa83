//! What one run did to its region, in order. Every crash image is made from it.

/// One step of a recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceEvent {
    /// `len` bytes of `Trace::bytes` from `at` were stored at `offset`.
    Store {
        /// Where in the region.
        offset: u64,
        /// How many bytes.
        len: u32,
        /// Where the stored bytes lie in [`Trace::bytes`].
        at: usize,
    },
    /// Several stores became visible in one step: `count` of `Trace::parts` from `first`. With persistent caches a
    /// crash leaves all of them or none; with volatile ones each line is for itself.
    Step {
        /// The first of them.
        first: usize,
        /// How many.
        count: u32,
    },
    /// A thread asked for a range to reach the persistence domain.
    Flush {
        /// First byte of the range.
        offset: u64,
        /// Its length.
        len: u32,
        /// The thread that asked.
        thread: u32,
    },
    /// A thread ordered its earlier flushes.
    Fence {
        /// The thread that fenced.
        thread: u32,
    },
    /// The history advanced.
    Mark(Mark),
}

/// Where the history of operations stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The pool was created: from here on there is a pool to open, if only an empty one.
    Opened,
    /// Closing began.
    Closing,
    /// The pool was closed in order: it must report that when it is opened again.
    Closed,
    /// Creation (or a first recovery) returned: from here on the structure must be recoverable.
    Ready,
    /// Operation `n` (from 0) was called.
    Begin(u32),
    /// An operation that ran inside another one returned.
    Inner,
    /// An operation inside which another one still runs was acknowledged: it is durable.
    Outer,
    /// An operation returned, and promised that the first `durable` operations are durable.
    End {
        /// How many operations of the history a crash may no longer undo.
        durable: u32,
    },
}

/// A recorded run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// The steps.
    pub events: Vec<TraceEvent>,
    /// The bytes of all stores, one after the other.
    pub bytes: Vec<u8>,
    /// The stores of steps.
    parts: Vec<StorePart>,
}

/// One of several stores: offset, length, and where its bytes lie in [`Trace::bytes`].
type StorePart = (u64, u32, usize);

impl Trace {
    /// Appends several stores that became visible in one step.
    pub(crate) fn step<'a>(&mut self, stores: impl Iterator<Item = (u64, &'a [u8])>) {
        let first = self.parts.len();
        for (offset, bytes) in stores {
            self.parts.push((offset, bytes.len() as u32, self.bytes.len()));
            self.bytes.extend_from_slice(bytes);
        }
        self.events.push(TraceEvent::Step { first, count: (self.parts.len() - first) as u32 });
    }

    /// The stores of an event: offset and bytes.
    pub(crate) fn stores(&self, event: &TraceEvent) -> impl Iterator<Item = (u64, &[u8])> {
        let (single, several) = match *event {
            TraceEvent::Store { offset, len, at } => (Some((offset, len, at)), &[][..]),
            TraceEvent::Step { first, count } => (None, &self.parts[first..first + count as usize]),
            _ => (None, &[][..]),
        };
        single
            .into_iter()
            .chain(several.iter().copied())
            .map(|(offset, len, at)| (offset, self.stored(at, len)))
    }

    /// Appends a store.
    pub(crate) fn store(&mut self, offset: u64, bytes: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.events.push(TraceEvent::Store { offset, len: bytes.len() as u32, at });
    }

    /// The bytes of a store event.
    #[must_use]
    pub(crate) fn stored(&self, at: usize, len: u32) -> &[u8] {
        &self.bytes[at..at + len as usize]
    }
}

/// What a crash at some point of a history may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promise {
    /// The pool had been created: it must open.
    pub opened: bool,
    /// Closing had begun, and nothing after it.
    pub closing: bool,
    /// The pool had been closed in order.
    pub closed: bool,
    /// The operation inside the one in flight had returned.
    pub inner: bool,
    /// The operation in flight was acknowledged, and the one inside it had not returned.
    pub outer: bool,
    /// An operation is in flight.
    pub busy: bool,
    /// Creation had returned: the structure must be there.
    pub ready: bool,
    /// At least the effects of this many operations.
    pub low: u32,
    /// At most the effects of this many operations.
    pub high: u32,
    /// The first opening after the crash must find the effects of all operations that had returned. Until it has
    /// returned, a further crash may undo more.
    pub keeps_returned: bool,
}

impl Promise {
    /// What the first opening after the crash must find.
    pub(crate) fn at_first(self) -> Self {
        if self.keeps_returned { Self { low: self.high - u32::from(self.busy), ..self } } else { self }
    }

    /// The promise after one more mark.
    pub(crate) fn advance(&mut self, mark: Mark) {
        match mark {
            Mark::Opened => self.opened = true,
            Mark::Closing => self.closing = true,
            Mark::Closed => {
                self.closed = true;
                self.low = self.high;
            }
            Mark::Ready => self.ready = true,
            Mark::Begin(n) => {
                self.high = n + 1;
                self.busy = true;
                (self.inner, self.outer) = (false, false);
                (self.closing, self.closed) = (false, false);
            }
            Mark::Inner => self.inner = true,
            Mark::Outer => self.outer = true,
            Mark::End { durable } => {
                self.low = self.low.max(durable);
                self.busy = false;
                (self.inner, self.outer) = (false, false);
            }
        }
    }
}
