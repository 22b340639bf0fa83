//! A lease of a log: commits by value, in steps, so that a transaction can do each where it costs least.

use crate::Result;
use crate::log::log_writer::{LogWriter, NOT_A_WORD};
use crate::log::stamps::refused;
use crate::log_backing::LogBacking;
use crate::ring::Rings;
use crate::ticket::Ticket;
use mangrove_pool::ByteRange;
use std::sync::Arc;

/// How far the atomic group under way has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Adding,
    Reserved,
    Numbered,
    Sealed,
    Flushed,
}

const NOT_SEALED: &str = "an atomic group is sealed, then flushed";

enum Log {
    /// The one log of a medium that has one.
    Shared { log: Arc<LogBacking>, base: usize, ranges: Vec<ByteRange> },
    /// A ring. The writer is there until the lease is dropped.
    Own { rings: Arc<Rings>, writer: Option<Box<LogWriter>> },
}

/// The right of its owner to append to one log of a [`Shadow`](crate::Shadow) (on the file medium, to the log that
/// all share).
///
/// A commit of a transaction, with where each step belongs:
///
/// 1. [`word`](Self::word) and [`range`](Self::range) add what it wrote, by value;
/// 2. [`reserve`](Self::reserve) waits for space. It may block: without a number, no other thread waits for this
///    transaction;
/// 3. [`number`](Self::number), while the transaction still keeps others from what it wrote: numbers have the order
///    of the transactions. From here to `publish` the caller must not block: the replayer, and every thread that
///    waits for durability, waits for it;
/// 4. [`seal`](Self::seal) puts the bytes and their checksum into the log. Where caches are persistent, this is
///    done before other threads can read what was written. Elsewhere it may follow: a transaction that read it has
///    a larger number, and is acknowledged only when all smaller numbers are durable;
/// 5. [`flush`](Self::flush) makes them durable: one fence;
///    ([`defer`](Self::defer) instead of this step and the next returns before it is durable;)
/// 6. [`publish`](Self::publish); then [`Shadow::wait`](crate::Shadow::wait) returns when every smaller number is
///    durable too.
///
/// A crash keeps the atomic group whole, with all that have smaller numbers, or loses it.
///
/// With [`Order::Gaps`](crate::Order::Gaps) a crash keeps every atomic group that was sealed. The commit is durable
/// then: `flush` has no fence, and `Shadow::wait` returns at once. `seal` must come before other threads can read what
/// was written. `publish` is called all the same, for the replayer.
///
/// # Time stamps
///
/// With [`Options::stamped`](crate::Options::stamped) the caller numbers the atomic group
/// ([`number_as`](Self::number_as) instead of `number`), and no thread waits for a lease, nor does the replayer.
/// Both follow what the caller says to be complete.
///
/// - [`Order::Marker`](crate::Order::Marker): [`Shadow::mark`](crate::Shadow::mark), by a caller who knows that every
///   atomic group up to a number was published. `Shadow::wait` returns when the marker covers the number.
/// - [`Order::Gaps`](crate::Order::Gaps): a commit is durable when it was sealed. The replayer asks the function of
///   [`Shadow::set_watermark`](crate::Shadow::set_watermark) how far it may go.
///
/// `reserve` may wait for space, which comes when other commits are complete: a caller whose lower bound holds up the
/// watermark reserves before it shows the bound. With `Order::Gaps` the steps from `number_as` to `seal` only store to
/// memory, and may stand inside a hardware transaction, unless the atomic group is too long for a ring.
///
/// # Dropping a lease
///
/// The lease may be dropped at any time, by a panic too. What was not numbered is forgotten; a number that was
/// drawn gets an empty atomic group, so that no thread waits for it. A number that the caller gave, and did not
/// seal, is forgotten. In a child of fork(2) all of it is forgotten: the log is the parent's, who has the lease, too.
///
/// On the file medium, `number` appends the present bytes to the log, and the steps after it do nothing.
///
/// A lease may pass to another thread between two commits, also while something is deferred.
///
/// # Panics
/// Each step, when the one before it has not been done.
pub struct LogLease {
    log: Log,
    step: Step,
}

impl std::fmt::Debug for LogLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogLease").field("step", &self.step).finish_non_exhaustive()
    }
}

impl LogLease {
    pub(crate) fn of_log(log: Arc<LogBacking>, base: *mut u8) -> Self {
        Self { log: Log::Shared { log, base: base as usize, ranges: Vec::new() }, step: Step::Adding }
    }

    pub(crate) fn of_rings(rings: Arc<Rings>, writer: Box<LogWriter>) -> Self {
        Self { log: Log::Own { rings, writer: Some(writer) }, step: Step::Adding }
    }

    /// Adds the word at `address`, which is a multiple of 8. On return from [`number`](Self::number) the working
    /// copy must hold `value` there, and no other thread may have stored to the word since this call.
    ///
    /// # Panics
    /// When the word is not aligned, or not in the usable part of the working copy.
    #[inline]
    pub fn word(&mut self, address: usize, value: u64) {
        assert!(self.step == Step::Adding && address.is_multiple_of(8), "{NOT_A_WORD}");
        let range = self.place(address, 8);
        match &mut self.log {
            Log::Shared { ranges, .. } => ranges.push(range),
            Log::Own { writer, .. } => own(writer).word(range.offset, value),
        }
    }

    /// As [`word`](Self::word), for many words, each as address and value.
    ///
    /// # Panics
    /// As there. What was added before stays.
    #[inline]
    pub fn words(&mut self, words: impl ExactSizeIterator<Item = (usize, u64)>) {
        assert!(self.step == Step::Adding, "the atomic group is complete");
        match &mut self.log {
            Log::Shared { .. } => words.for_each(|(address, value)| self.word(address, value)),
            Log::Own { rings, writer } => {
                let (base, len) = (rings.working.base() as usize, rings.len());
                assert!(len >= 8, "{NOT_A_WORD}");
                let words = words.map(|(address, value)| [address.wrapping_sub(base) as u64, value]);
                own(writer).words(len - 8, words);
            }
        }
    }

    /// Adds `bytes`, which belong at `address`. Words and ranges of one atomic group do not overlap; otherwise as
    /// [`word`](Self::word).
    ///
    /// # Panics
    /// When they do not lie in the usable part of the working copy.
    pub fn range(&mut self, address: usize, bytes: &[u8]) {
        assert!(self.step == Step::Adding, "the atomic group is complete");
        let range = self.place(address, bytes.len() as u64);
        match &mut self.log {
            _ if bytes.is_empty() => {}
            Log::Shared { ranges, .. } => ranges.push(range),
            Log::Own { writer, .. } => own(writer).range(range.offset, bytes),
        }
    }

    #[inline]
    fn place(&self, address: usize, count: u64) -> ByteRange {
        let (base, len) = match &self.log {
            Log::Shared { log, base, .. } => (*base, log.len()),
            Log::Own { rings, .. } => (rings.working.base() as usize, rings.len()),
        };
        let offset = address.wrapping_sub(base) as u64;
        assert!(offset <= len && count <= len - offset, "a range outside the working copy");
        ByteRange { offset, len: count }
    }

    /// True when nothing was added yet.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.log {
            Log::Shared { ranges, .. } => ranges.is_empty(),
            Log::Own { writer, .. } => writer.as_ref().is_none_or(|writer| writer.is_empty()),
        }
    }

    /// Forgets what was added: the transaction aborts.
    ///
    /// # Panics
    /// After `number`.
    pub fn clear(&mut self) {
        assert!(matches!(self.step, Step::Adding | Step::Reserved), "the atomic group has its number");
        match &mut self.log {
            Log::Shared { ranges, .. } => ranges.clear(),
            Log::Own { rings, writer } => {
                let writer = own(writer);
                rings.unreserve(writer);
                writer.clear();
            }
        }
        self.step = Step::Adding;
    }

    /// Waits for space in the log for what was added.
    ///
    /// # Errors
    /// `NoSpace` for an atomic group that is too long for the log and finds no space to be spilled; `Poisoned`, or
    /// the first error, after the medium failed. What was added stays; the caller clears it.
    #[inline]
    pub fn reserve(&mut self) -> Result<()> {
        assert!(self.step == Step::Adding, "space is reserved once");
        if let Log::Own { rings, writer } = &mut self.log {
            let writer = own(writer);
            if !writer.has_space() {
                rings.reserve(writer)?;
            }
        }
        self.step = Step::Reserved;
        Ok(())
    }

    /// Draws the number of the atomic group, which orders it among those of all logs.
    ///
    /// # Errors
    /// On the file medium those of [`Shadow::commit`](crate::Shadow::commit): nothing was committed, and the caller
    /// clears the lease. Elsewhere `Unsupported` with [`Options::stamped`](crate::Options::stamped), or none.
    #[inline]
    pub fn number(&mut self) -> Result<Ticket> {
        assert!(self.step == Step::Reserved, "space is reserved before the number is drawn");
        let number = match &mut self.log {
            Log::Shared { log, ranges, .. } => log.append(ranges)?,
            Log::Own { rings, .. } if rings.stamps.is_some() => return refused(),
            Log::Own { rings, writer } => rings.number(own(writer)),
        };
        self.step = Step::Numbered;
        Ok(Ticket(number))
    }

    /// In place of [`number`](Self::number), with [`Options::stamped`](crate::Options::stamped): the caller's number.
    /// It is greater than those of all openings before ([`Shadow::committed`](crate::Shadow::committed) at first), and
    /// not smaller than any in this log. Equal numbers of two logs are ordered by log. A number that the replayer was
    /// told to be complete must not be given any more: it would poison the shadow.
    ///
    /// No system call, no locked instruction, no fence: it stores to lines of this log, and loads none that others
    /// store to.
    ///
    /// # Panics
    /// Before `reserve`; when the number is too small, or greater than 2^62; without `Options::stamped`.
    #[inline]
    pub fn number_as(&mut self, number: u64) -> Ticket {
        assert!(self.step == Step::Reserved, "space is reserved before the number is given");
        let Log::Own { rings, writer } = &mut self.log else {
            panic!("the file medium draws its numbers when it appends");
        };
        rings.number_as(own(writer), number);
        self.step = Step::Numbered;
        Ticket(number)
    }

    /// Which log it is: 0 to [`Options::log_count`](crate::Options::log_count) - 1.
    #[inline]
    #[must_use]
    pub fn log(&self) -> usize {
        match &self.log {
            Log::Own { writer: Some(writer), .. } => writer.log,
            _ => 0,
        }
    }

    /// As [`number`](Self::number), for a caller who knows that no other thread draws a number of this shadow
    /// meanwhile, neither by a lease nor by [`Shadow::commit`](crate::Shadow::commit). (Otherwise two atomic groups get
    /// one number, and a crash loses one of them.) No locked instruction: that would wait for the write-backs of this
    /// thread's last fence.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn number_alone(&mut self) -> Result<Ticket> {
        let Log::Own { rings, writer } = &mut self.log else { return self.number() };
        assert!(self.step == Step::Reserved, "space is reserved before the number is drawn");
        self.step = Step::Numbered;
        Ok(Ticket(rings.number_alone(own(writer))))
    }

    /// Asks for the lines of the sealed atomic group to be written back, and waits for nothing: for
    /// [`Order::Gaps`](crate::Order::Gaps), where it is durable already, so that its lines leave the caches early.
    ///
    /// # Panics
    /// Unless it is sealed and not flushed.
    #[inline]
    pub fn write_back(&self) {
        assert!(self.step == Step::Sealed, "a sealed atomic group is written back");
        if let Log::Own { rings, writer } = &self.log {
            rings.write_back(writer.as_ref().expect("a lease has its writer until it is dropped"));
        }
    }

    /// Waits for space for `bytes` bytes of atomic group, or for half of the log if that is less: then
    /// [`reserve`](Self::reserve) of at most so much, of this lease, does not wait.
    ///
    /// # Errors
    /// `Poisoned`, or the first error, after the medium failed.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        match &self.log {
            Log::Shared { .. } => Ok(()),
            Log::Own { rings, writer } => {
                let writer = writer.as_ref().expect("a lease has its writer until it is dropped");
                rings.make_room(writer, bytes)
            }
        }
    }

    /// The longest atomic group that [`make_room`](Self::make_room) makes room for, in bytes. A longer one is spilled:
    /// its [`reserve`](Self::reserve) may wait for other commits.
    #[must_use]
    pub fn room_max(&self) -> u64 {
        match &self.log {
            Log::Shared { .. } => u64::MAX,
            Log::Own { rings, .. } => rings.layout.ring_bytes / 2,
        }
    }

    /// The steps from [`words`](Self::words) to [`seal`](Self::seal) in one pass, from where the words are to the log:
    /// `word` gives address and value of each entry. They must hold still until this returns. Between number and seal
    /// it asks whether the atomic group `may_commit`; the answer comes back with the number, and after a no
    /// [`void`](Self::void) follows. `alone` is the promise of [`number_alone`](Self::number_alone).
    ///
    /// `None`, and nothing was done, where this way is not open: the file medium, time stamps, a long atomic group,
    /// space that has to be waited for, or a lease to which something was added. The single steps do the same there.
    ///
    /// # Panics
    /// As `words`; the number has an empty atomic group then, once the lease is dropped.
    #[inline(always)]
    pub fn seal_words<T>(
        &mut self,
        entries: &[T],
        word: impl Fn(&T) -> (usize, u64),
        alone: bool,
        may_commit: impl Fn(Ticket) -> bool,
    ) -> Option<(Ticket, bool)> {
        let Log::Own { rings, writer: Some(writer) } = &mut self.log else { return None };
        if self.step != Step::Adding {
            return None;
        }
        let crc = writer.take_one_pass(entries.len())?;
        self.step = Step::Numbered;
        let ticket = Ticket(if alone { rings.number_alone(writer) } else { rings.number(writer) });
        if !may_commit(ticket) {
            return Some((ticket, false));
        }
        let base = rings.working.base() as usize;
        rings.seal_one_pass(writer, crc, entries, |entry| {
            let (address, value) = word(entry);
            [address.wrapping_sub(base) as u64, value]
        });
        self.step = Step::Sealed;
        Some((ticket, true))
    }

    /// In place of [`seal`](Self::seal): the number that was drawn gets an empty atomic group.
    ///
    /// # Panics
    /// On the file medium, where `number` has appended the atomic group.
    pub fn void(&mut self) {
        assert!(self.step == Step::Numbered, "an atomic group is numbered before it is void");
        let Log::Own { rings, writer } = &mut self.log else {
            panic!("the file medium has the atomic group already");
        };
        rings.seal_void(own(writer));
        self.step = Step::Sealed;
    }

    /// Draws a number that has no atomic group, for a caller whose `reserve` failed although it added nothing: the
    /// medium has failed, and nothing is acknowledged any more.
    ///
    /// # Panics
    /// On the file medium, and with [`Options::stamped`](crate::Options::stamped).
    pub fn skip(&mut self) -> Ticket {
        assert!(self.step == Step::Adding, "a number is skipped before anything is reserved");
        let Log::Own { rings, writer } = &mut self.log else {
            panic!("the file medium draws its numbers when it appends");
        };
        assert!(rings.stamps.is_none(), "a number that the caller gives needs no atomic group");
        Ticket(rings.skip(own(writer)))
    }

    /// Puts the atomic group into the log.
    #[inline]
    pub fn seal(&mut self) {
        assert!(self.step == Step::Numbered, "an atomic group is numbered, then sealed");
        if let Log::Own { rings, writer } = &mut self.log {
            rings.seal(own(writer));
        }
        self.step = Step::Sealed;
    }

    /// Makes the atomic group durable, if all before it in its log are.
    ///
    /// # Errors
    /// `Poisoned`, or the first error: nothing may be acknowledged. `publish` is called all the same.
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        assert!(self.step == Step::Sealed, "{NOT_SEALED}");
        self.step = Step::Flushed;
        match &mut self.log {
            Log::Shared { .. } => Ok(()),
            Log::Own { rings, writer } => rings.flush(own(writer)),
        }
    }

    /// Reports the atomic group to the replayer and to those who wait, and begins the next one.
    #[inline]
    pub fn publish(&mut self) {
        assert!(self.step == Step::Flushed, "an atomic group is flushed, then published");
        self.step = Step::Adding;
        match &mut self.log {
            Log::Shared { ranges, .. } => ranges.clear(),
            Log::Own { rings, writer } => {
                let writer = own(writer);
                rings.publish(writer);
                writer.clear();
            }
        }
    }

    /// [`flush`](Self::flush) and [`publish`](Self::publish). True if every smaller number is known to be durable as
    /// well: then [`Shadow::wait`](crate::Shadow::wait) has nothing left to do.
    ///
    /// # Errors
    /// Those of `flush`.
    #[inline(always)]
    pub fn finish(&mut self) -> Result<bool> {
        let Log::Own { rings, writer: Some(writer) } = &mut self.log else { return self.finish_shared() };
        assert!(self.step == Step::Sealed, "{NOT_SEALED}");
        let (is_durable, covers_it) = rings.finish(writer);
        self.step = Step::Adding;
        if is_durable { Ok(covers_it) } else { rings.failure() }
    }

    #[cold]
    #[inline(never)]
    fn finish_shared(&mut self) -> Result<bool> {
        let flushed = self.flush();
        self.publish();
        flushed.map(|()| false)
    }

    /// In place of [`flush`](Self::flush) and [`publish`](Self::publish): the atomic group is durable later, and one
    /// fence may serve many. [`Shadow::wait`](crate::Shadow::wait), [`Shadow::sync`](crate::Shadow::sync) and whatever
    /// waits for a greater number make it so, in any thread, also when this one sleeps or has ended; so does a commit
    /// of this lease that is flushed, and soon the replayer's thread. A crash before that loses it, and every greater
    /// number. (A long atomic group, one of ranges, and any with `Order::Gaps` is durable on return.)
    ///
    /// # Errors
    /// `Poisoned`, or the first error.
    ///
    /// # Panics
    /// With [`Options::stamped`](crate::Options::stamped).
    #[inline]
    pub fn defer(&mut self) -> Result<()> {
        assert!(self.step == Step::Sealed, "an atomic group is sealed, then deferred");
        self.step = Step::Adding;
        match &mut self.log {
            Log::Shared { log, ranges, .. } => {
                ranges.clear();
                let medium = log.region.medium();
                medium.leave_unawaited();
                // A medium with a file of recent writes may have failed at this one.
                if medium.refuses() { medium.poisoned().map_or(Ok(()), Err) } else { Ok(()) }
            }
            Log::Own { rings, writer } => {
                assert!(rings.stamps.is_none(), "the caller says when a time stamp is complete");
                let writer = own(writer);
                let deferred = rings.defer(writer);
                writer.clear();
                deferred
            }
        }
    }

    /// The steps from `reserve` to `publish`; returns the number. See there for the errors.
    ///
    /// # Errors
    /// Those of the steps. If `reserve` or `number` failed, what was added has been cleared.
    pub fn commit(&mut self) -> Result<Ticket> {
        let ticket = self.reserve().and_then(|()| self.number()).inspect_err(|_| self.clear())?;
        self.seal();
        self.finish().map(|_| ticket)
    }
}

#[inline]
fn own(writer: &mut Option<Box<LogWriter>>) -> &mut LogWriter {
    writer.as_mut().expect("a lease has its writer until it is dropped")
}

impl Drop for LogLease {
    fn drop(&mut self) {
        let Log::Own { rings, writer } = &mut self.log else { return };
        let Some(mut writer) = writer.take() else { return };
        if !rings.process.is_here() {
            // Threads of the parent may hold any lock. One more owner keeps the rings for ever.
            return std::mem::forget((writer, Arc::clone(rings)));
        }
        match self.step {
            Step::Adding | Step::Reserved => rings.unreserve(&mut writer),
            Step::Numbered if rings.stamps.is_some() => {
                rings.unreserve(&mut writer);
                rings.take_number_back(&mut writer);
            }
            Step::Numbered | Step::Sealed | Step::Flushed => {
                if self.step == Step::Numbered {
                    rings.seal_void(&mut writer);
                }
                // A failure has poisoned the medium: each thread that waits gets the error.
                let _ = rings.flush(&mut writer);
                rings.publish(&mut writer);
            }
        }
        writer.clear();
        writer.deferred = writer.deferred.handed_on();
        rings.writers.put_back(writer.log, writer);
    }
}
