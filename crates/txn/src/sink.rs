//! Where executors and commit protocols meet: a redo log as an executor sees it.
//!
//! An executor calls, for a transaction that wrote, in this order:
//!
//! 1. [`RedoSink::put`], while it holds every lock that makes the writes invisible: what was written, by value. The
//!    sink makes space for it in the log. No number is drawn yet, so waiting here delays no other commit.
//! 2. [`RedoSink::announce`], then [`RedoSink::number`], with the same locks held. A protocol that orders commits
//!    by time stamps shows others a lower bound of the stamp before it reads the stamp (Algorithm 2 of the SPHT
//!    paper). From here on this thread waits for no other before `finish`: others may be waiting for it.
//! 3. [`RedoSink::seal`], still before the locks are released: the atomic group is whole, checksum included, before
//!    another transaction can see the first of its writes (needed on eADR, where nothing later is waited for).
//!    Instead [`RedoSink::void`], if the transaction ends without effect after all: a number that was drawn is never
//!    missing.
//! 4. [`RedoSink::finish`], after the locks are released: flush, publish, and wait as the protocol demands. Or
//!    [`RedoSink::defer`], which waits for nothing.
//!
//! Steps 1 to 3 are one call, [`RedoSink::take`], for an executor that does nothing between them but to look whether
//! the transaction may commit.
//!
//! An executor whose attempts run in hardware can neither wait nor show anything while it commits. It asks for
//! space and announces itself before the attempt begins: [`RedoSink::prepare`], `announce`, the attempt with `put`
//! to `seal`.
//!
//! Before an attempt that may wait for other threads, an executor asks [`RedoSink::refuse_child`].
//!
//! An attempt that ends without a number after one of these calls calls [`RedoSink::withdraw`]. A transaction that only
//! read calls [`RedoSink::settle`].

/// What an atomic group must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitSize {
    /// Aligned words of 8 bytes.
    pub words: usize,
    /// Ranges of other lengths or alignments.
    pub ranges: usize,
    /// The bytes of all those ranges together.
    pub range_bytes: usize,
}

/// What a transaction wrote.
pub trait TxWrites {
    /// What [`as_words`](Self::as_words) lists.
    type Entry;

    /// The bytes that it takes, or more.
    fn size(&self) -> UnitSize;

    /// Passes each write to `unit`, as memory holds it now. Words and ranges may overlap; they agree.
    fn each(&self, unit: &mut impl Unit);

    /// The entries of what was written, if it is words that stand in one list.
    fn as_words(&self) -> Option<&[Self::Entry]>;

    /// Address and present value of an entry that `as_words` gave.
    fn word(&self, entry: &Self::Entry) -> (usize, u64);
}

/// Takes what an atomic group shall hold.
pub trait Unit {
    /// An aligned word of 8 bytes, read from memory as a little-endian number.
    fn word(&mut self, address: usize, value: u64);

    /// Many words, each as address and value.
    #[inline(always)]
    fn words(&mut self, words: impl ExactSizeIterator<Item = (usize, u64)>) {
        words.for_each(|(address, value)| self.word(address, value));
    }

    /// A range of any length.
    fn range(&mut self, address: usize, bytes: &[u8]);
}

/// The order of commits, and the threads' ways into the log; shared by all threads.
pub trait RedoLog: Sync {
    /// One thread's way into the log.
    type Sink<'log>: RedoSink
    where
        Self: 'log;

    /// Whether the log keeps anything. Otherwise executors pass no words, and readers wait for nothing.
    const KEEPS: bool;

    /// Whether each number is the one before plus 1 (dense numbers). Otherwise (time stamps) gaps are allowed, and
    /// executors do not conclude from two adjacent numbers that nothing happened between them.
    const DENSE: bool;

    /// Whether its numbers are read from a clock. Then [`newest`](Self::newest) does not tell which locks are held, as
    /// ownership records need it.
    fn is_stamped(&self) -> bool {
        false
    }

    /// A way into the log for the calling thread. May wait for a log that is free.
    fn sink(&self) -> Self::Sink<'_>;

    /// The largest number drawn: a number drawn later is larger. A thread that sees a number here also sees the
    /// locks that were held when it was drawn (Acquire, with the Release of [`RedoSink::number`]). Less than 2^56.
    fn newest(&self) -> u64;
}

/// How far [`RedoSink::take`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The atomic group with this number is sealed; [`RedoSink::finish`] follows.
    Sealed(u64),
    /// This number was drawn, and the transaction may not commit: [`RedoSink::void`] and `finish` follow.
    Numbered(u64),
}

/// One thread's way into a redo log. The module's page states the order of the calls.
pub trait RedoSink {
    /// Why the log does not take an atomic group.
    type Error: std::fmt::Debug;

    /// Asked before an attempt that may wait for other threads. A child of fork(2) has none of its parent's threads,
    /// and what the log writes to is the parent's.
    ///
    /// # Errors
    /// In a child of the process that made the log, if the log writes outside of the process.
    #[inline(always)]
    fn refuse_child(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The next number that this thread draws is larger than every number drawn so far. Follows `prepare` or `put`.
    #[inline(always)]
    fn announce(&mut self) {}

    /// The attempt ended without a number; what was put is forgotten.
    #[inline(always)]
    fn withdraw(&mut self) {}

    /// Makes space for an atomic group of this size, or for the longest that the log has space for: a `put` for which
    /// there is room ([`has_room`](Self::has_room)) then neither waits nor fails. May wait for the replayer. Nothing
    /// has to be given back if no atomic group follows.
    ///
    /// # Errors
    /// When the atomic group can never fit, or the medium has failed.
    fn prepare(&mut self, size: UnitSize) -> Result<(), Self::Error>;

    /// Whether the `put` of an atomic group of this size, after `prepare`, neither waits nor fails. Where not, an
    /// executor whose attempts run in hardware does not commit there: `put` may wait for other commits, which may wait
    /// for what this attempt has announced.
    #[inline(always)]
    fn has_room(&self, _size: UnitSize) -> bool {
        true
    }

    /// Why this log refused a write of the transaction that has the lock, if it did: a log that keeps undo entries for
    /// memory that is itself durable. The executor undoes the transaction.
    #[inline(always)]
    fn refusal(&mut self) -> Option<Self::Error> {
        None
    }

    /// Takes what was written, and makes space for it in the log; may wait for the replayer.
    ///
    /// # Errors
    /// When the atomic group can never fit, or the medium has failed: nothing was taken, and the executor undoes
    /// the transaction.
    fn put(&mut self, writes: &impl TxWrites) -> Result<(), Self::Error>;

    /// Draws the number of what was put; the caller holds its locks.
    fn number(&mut self) -> u64;

    /// As `number`, where the caller knows that no other thread draws a number meanwhile.
    #[inline(always)]
    fn number_alone(&mut self) -> u64 {
        self.number()
    }

    /// The atomic group is complete.
    ///
    /// # Errors
    /// When the log did not take it: the number counts for nothing, the executor undoes the transaction, and
    /// `finish` does not follow.
    fn seal(&mut self) -> Result<(), Self::Error>;

    /// Whether `seal` comes after a commit in hardware, since it writes lines back, which aborts a hardware
    /// transaction. Others may then see what was written before its atomic group is complete: a transaction that is
    /// acknowledged waits for every smaller number.
    fn seals_after_hardware(&self) -> bool {
        false
    }

    /// `put`, `announce`, `number` (`number_alone` if `alone`) and `seal`; between the last two asks whether the
    /// transaction may commit under this number. What was written stays as it is until `take` returns, so a log may
    /// take the values as late as it seals them.
    ///
    /// # Errors
    /// Those of `put` and `seal`.
    #[inline(always)]
    fn take(
        &mut self,
        writes: &impl TxWrites,
        alone: bool,
        may_commit: impl Fn(u64) -> bool,
    ) -> Result<Taken, Self::Error> {
        self.put(writes)?;
        self.announce();
        let number = if alone { self.number_alone() } else { self.number() };
        if !may_commit(number) {
            return Ok(Taken::Numbered(number));
        }
        self.seal()?;
        Ok(Taken::Sealed(number))
    }

    /// The number that was drawn has no atomic group; whatever the log has of it counts as nothing. Never fails: a
    /// log that has failed acknowledges nothing any more.
    fn void(&mut self);

    /// Draws a number that has no atomic group, for an undone transaction; the caller holds its locks. `finish`
    /// follows. Never fails, as `void`.
    fn number_void(&mut self) -> u64;

    /// Flushes and publishes the sealed or empty atomic group, and waits until it may be acknowledged.
    ///
    /// # Errors
    /// When the medium has failed. The writes are visible by then, and whether they are durable is not known.
    fn finish(&mut self) -> Result<(), Self::Error>;

    /// As `finish`, but may return before the atomic group is durable: returns the ticket to wait for
    /// ([`Shadow::sync_to`](mangrove_shadow::Shadow::sync_to)), 0 for one that is durable. A protocol that cannot
    /// defer finishes.
    ///
    /// # Errors
    /// As `finish`.
    #[inline(always)]
    fn defer(&mut self) -> Result<u64, Self::Error> {
        self.finish().map(|()| 0)
    }

    /// As `settle`, but may return before that: returns the ticket to wait for, as `defer`.
    ///
    /// # Errors
    /// As `settle`.
    #[inline(always)]
    fn settle_later(&mut self, number: u64) -> Result<u64, Self::Error> {
        self.settle(number).map(|()| 0)
    }

    /// Waits until everything up to `number` is durable: what a transaction that wrote nothing has seen.
    ///
    /// # Errors
    /// When the medium has failed.
    fn settle(&mut self, number: u64) -> Result<(), Self::Error>;
}
