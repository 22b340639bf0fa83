//! The executor with ownership records: attempts, conflicts, the fallback that runs alone, `retry`.

use super::backoff::Backoff;
use super::crowd::{Place, ThreadLimit};
use super::gate::{Exclusive, Gate};
use super::ownership::{OwnershipTable, RECORD_BITS_MAX, STRIPE_BITS};
use super::policy::{Looks, Policy};
use super::solo::SoloWatch;
use super::stm_tx::{Commit, Stm, StmTx};
use super::wakeup::Wakeups;
use crate::access::{Halt, Interrupted};
use crate::memory::TxMemory;
use crate::run::{Answer, Isolation, TxCounts, TxError, TxThread, foreign_interruption};
use crate::sink::{RedoLog, RedoSink};
use std::convert::Infallible;

/// Attempts with unlogged reads before they are logged, so that a snapshot can be extended.
const UNLOGGED_ATTEMPTS_MAX: u32 = 2;

/// How an [`Stm`] is made.
#[derive(Clone, Copy, Debug)]
pub struct StmOptions {
    /// The number of ownership records is 2 to this power (at most 28); each takes 8 bytes.
    pub record_bits: u32,
    /// A record is responsible for 2 to this power bytes (3 to 12).
    pub stripe_bits: u32,
    /// After so many conflicts a transaction runs alone.
    pub serial_after: u32,
    /// After so many commits a thread asks whether it is the only one with transactions, to run without records from
    /// then on; `None`: it never does.
    pub solo_after: Option<u32>,
    /// At most one transaction writes at a time, and those that run beside it begin again when it commits. For few
    /// threads, or few writes: accesses cost next to nothing.
    pub one_writer: bool,
    /// Both ways are tried now and then, and the one with more commits stays; `one_writer` is only the first.
    pub measures: bool,
    /// How many threads run transactions at once; the others sleep until it is their turn. A heap on the file medium,
    /// whose commits wait for the device, finds no limit.
    pub threads: ThreadLimit,
}

impl Default for StmOptions {
    /// 2^18 records of 32 bytes each, alone after 24 conflicts, solo mode after 64 commits, and a limit on threads that
    /// is found.
    fn default() -> Self {
        Self {
            record_bits: 18,
            stripe_bits: 5,
            serial_after: 24,
            solo_after: Some(64),
            one_writer: false,
            measures: false,
            threads: ThreadLimit::Found,
        }
    }
}

impl StmOptions {
    /// Whether [`Stm::new`] takes them.
    pub(crate) fn are_in_range(&self) -> bool {
        self.record_bits <= RECORD_BITS_MAX && STRIPE_BITS.contains(&self.stripe_bits)
    }
}

impl<L: RedoLog> Stm<L> {
    /// An executor for the transactions on `memory`; no other one may use it meanwhile.
    ///
    /// # Panics
    /// When an option is out of its range. For a log whose numbers are time stamps ([`RedoLog::is_stamped`]): run it on
    /// one lock, or in hardware.
    pub fn new(memory: TxMemory, log: L, options: StmOptions) -> Self {
        assert!(
            !log.is_stamped(),
            "ownership records need a log that counts; a log with time stamps needs one lock or RTM"
        );
        Self {
            memory,
            table: OwnershipTable::new(options.record_bits, options.stripe_bits),
            gate: Gate::new(options.one_writer),
            wakeups: Wakeups::new(),
            serial_after: options.serial_after,
            solo_after: options.solo_after,
            policy: Policy::new(options.measures, options.threads),
            log,
        }
    }
}

impl<L: RedoLog> Stm<L> {
    /// Lets the others run again after a transaction that ran alone, and wakes those that sleep.
    #[cold]
    #[inline(never)]
    fn open(&self, exclusive: Exclusive<'_>) {
        drop(exclusive);
        self.wakeups.wake_after_commit();
    }
}

impl<L: RedoLog> Isolation for Stm<L> {
    type Thread<'stm>
        = StmThread<'stm, L>
    where
        Self: 'stm;

    fn thread(&self) -> StmThread<'_, L> {
        let tx = StmTx::new(self);
        let number = tx.slot().number();
        StmThread {
            place: self.policy.as_ref().map(|policy| policy.join(number)),
            backoff: Backoff::new(number),
            solo: SoloWatch::new(self.solo_after),
            looks: Looks::new(),
            beside: 0,
            settled: 0,
            counts: TxCounts::default(),
            tx,
        }
    }
}

/// One thread's handle to an [`Stm`].
#[derive(Debug)]
pub struct StmThread<'stm, L: RedoLog + 'stm> {
    tx: StmTx<'stm, L>,
    backoff: Backoff,
    solo: SoloWatch,
    looks: Looks,
    /// Where there is a policy.
    place: Option<Place>,
    /// Commits neither alone nor serial.
    beside: u64,
    /// Every commit up to this one is durable, as this thread has found out.
    settled: u64,
    /// Without the sum, `commits`.
    counts: TxCounts,
}

impl<L: RedoLog> Drop for StmThread<'_, L> {
    fn drop(&mut self) {
        if let (Some(policy), Some(place)) = (&self.tx.stm().policy, &mut self.place) {
            policy.leave(place);
        }
    }
}

/// How an attempt that did not commit ended, when its transaction has left the gate.
enum End<E, S> {
    Conflict,
    /// With the number of closings while it ran; none if it ran alone.
    Retry(Option<u64>),
    Failed(TxError<E, S>),
}

/// How a transaction has gone so far.
struct Course {
    /// The next attempt notes what it reads.
    logs_reads: bool,
    conflicts: u32,
    /// The next attempt notes what it reads, so that `retry` can wait for that: it runs beside others.
    beside: bool,
    seated: bool,
}

/// An attempt that runs; undone if its body panics.
struct Attempt<'a, 'stm, L: RedoLog>(&'a mut StmTx<'stm, L>);

impl<L: RedoLog> Drop for Attempt<'_, '_, L> {
    fn drop(&mut self) {
        self.0.undo();
    }
}

/// A transaction's body, by a pointer.
type ErasedBody<'a, 'stm, L, T, E> = &'a mut dyn FnMut(&mut StmTx<'stm, L>) -> Result<T, Halt<E>>;

/// Why the log of an executor fails.
type SinkError<'stm, L> = <<L as RedoLog>::Sink<'stm> as RedoSink>::Error;

impl<'stm, L: RedoLog> Attempt<'_, 'stm, L> {
    /// Commits, or undoes what cannot commit.
    #[inline(always)]
    fn commit<E>(self) -> Result<Commit, End<E, SinkError<'stm, L>>> {
        match self.0.commit() {
            Ok(commit) => {
                std::mem::forget(self);
                if matches!(commit, Commit::Invalid) { Err(End::Conflict) } else { Ok(commit) }
            }
            Err(cause) => Err(End::Failed(TxError::Refused(cause))),
        }
    }

    /// Undoes it: it met another transaction, or its body halted.
    #[cold]
    #[inline(never)]
    fn halt<E>(self, halt: Option<Halt<E>>) -> End<E, SinkError<'stm, L>> {
        match halt {
            // A body may have swallowed the interruption, or concluded something from it.
            _ if self.0.is_doomed() => End::Conflict,
            None | Some(Halt::Interrupted(_)) => End::Conflict,
            // Counted while it runs: nothing writes without records before it has left.
            Some(Halt::Retry) => {
                self.0.note_owned_as_read();
                End::Retry((!self.0.is_alone()).then(|| self.0.stm().gate.closings()))
            }
            Some(Halt::Abort(value)) => End::Failed(TxError::Aborted(value)),
        }
    }
}

impl<'stm, L: RedoLog> StmThread<'stm, L> {
    /// Waits until the commit may be told.
    #[inline(always)]
    fn acknowledge(&mut self, commit: &Commit) -> Result<(), <L::Sink<'stm> as RedoSink>::Error> {
        match *commit {
            Commit::Wrote(number) => {
                // Not kept in a variable: a copy of the result would load more than was stored last, and such a load
                // waits for the fence.
                if let Err(cause) = self.tx.sink().finish() {
                    self.tx.wait_for_older(number);
                    return Err(cause);
                }
                self.settled = number;
                self.tx.wait_for_older(number);
                Ok(())
            }
            Commit::Read(newest) if L::KEEPS && newest > self.settled => self.settle(newest),
            Commit::Read(_) | Commit::Invalid => Ok(()),
        }
    }

    /// Waits until what was read is durable: every commit up to `newest`.
    #[inline(never)]
    fn settle(&mut self, newest: u64) -> Result<(), <L::Sink<'stm> as RedoSink>::Error> {
        self.tx.sink().settle(newest)?;
        self.settled = newest;
        Ok(())
    }

    /// Counts a commit.
    #[inline(always)]
    fn count(&mut self, serial: bool) {
        match (serial, self.tx.is_alone()) {
            (true, _) => self.counts.serial += 1,
            (false, true) => self.counts.solo += 1,
            (false, false) => self.beside += 1,
        }
    }

    /// After a commit beside others: whether it is time to run alone, or to change the mode.
    #[inline]
    fn look_around(&mut self) {
        let stm = self.tx.stm();
        if self.solo.is_due() {
            let asleep = || stm.wakeups.needed();
            self.solo.ask(&stm.gate, self.tx.slot(), self.counts.solo, asleep);
        }
        if let (Some(policy), Some(place)) = (&stm.policy, &mut self.place)
            && self.looks.is_due()
        {
            let change = || {
                stm.gate.change_writers(self.tx.slot(), || stm.log.newest());
                stm.wakeups.wake_after_commit();
            };
            self.looks.look(policy, place, change);
        }
    }

    /// As `acknowledge`, without the wait: returns the redo log's ticket.
    #[inline(always)]
    fn leave_unawaited(&mut self, commit: &Commit) -> Result<u64, <L::Sink<'stm> as RedoSink>::Error> {
        match *commit {
            Commit::Wrote(number) => {
                let deferred = self.tx.sink().defer();
                self.tx.wait_for_older(number);
                deferred
            }
            Commit::Read(newest) if L::KEEPS => self.tx.sink().settle_later(newest),
            Commit::Read(_) | Commit::Invalid => Ok(0),
        }
    }

    /// `ticket`: where the redo log's ticket goes, for a caller who does not wait.
    #[inline(always)]
    fn transact<T, E>(
        &mut self,
        logs_reads: bool,
        ticket: Option<&mut u64>,
        mut body: impl FnMut(&mut StmTx<'stm, L>) -> Result<T, Halt<E>>,
    ) -> Answer<T, E, Self> {
        self.sit_down();
        if self.tx.stm().serial_after == 0 {
            return self.try_again(None, logs_reads, ticket, &mut body);
        }
        self.tx.begin(false, logs_reads);
        match self.attempt(&mut body) {
            Ok((answer, commit)) => self.tell(answer, &commit, false, ticket),
            Err(end) => self.try_again(Some(end), logs_reads, ticket, &mut body),
        }
    }

    #[inline(always)]
    fn sit_down(&mut self) {
        if let (Some(policy), Some(place)) = (&self.tx.stm().policy, &mut self.place) {
            policy.sit_down(place);
        }
    }

    /// Runs the body in the attempt that has begun.
    #[inline(always)]
    fn attempt<T, E, B>(&mut self, body: &mut B) -> Result<(T, Commit), End<E, SinkError<'stm, L>>>
    where
        B: FnMut(&mut StmTx<'stm, L>) -> Result<T, Halt<E>> + ?Sized,
    {
        let attempt = Attempt(&mut self.tx);
        match body(attempt.0) {
            Ok(answer) if !attempt.0.is_doomed() => attempt.commit().map(|commit| (answer, commit)),
            answer => Err(attempt.halt(answer.err())),
        }
    }

    /// Gives the answer of a transaction that has committed, when it may be told.
    #[inline(always)]
    fn tell<T, E>(
        &mut self,
        answer: T,
        commit: &Commit,
        serial: bool,
        ticket: Option<&mut u64>,
    ) -> Answer<T, E, Self> {
        if let Some(ticket) = ticket {
            match self.leave_unawaited(commit) {
                Ok(deferred) => *ticket = deferred,
                Err(cause) => {
                    self.count(serial);
                    return Err(TxError::InDoubt(cause));
                }
            }
        } else if let Err(cause) = self.acknowledge(commit) {
            // As in `acknowledge`: not kept.
            self.count(serial);
            return Err(TxError::InDoubt(cause));
        }
        self.count(serial);
        if !self.tx.is_alone() {
            self.look_around();
        }
        Ok(answer)
    }

    /// The attempts after the first, if that did not commit but ended with `end`. They call the body by a pointer, so
    /// that a program has it once for all of them.
    #[cold]
    #[inline(never)]
    fn try_again<T, E>(
        &mut self,
        mut end: Option<End<E, SinkError<'stm, L>>>,
        logs_reads: bool,
        ticket: Option<&mut u64>,
        body: ErasedBody<'_, 'stm, L, T, E>,
    ) -> Answer<T, E, Self> {
        let stm = self.tx.stm();
        let mut course = Course { logs_reads, conflicts: 0, beside: false, seated: true };
        loop {
            if let Some(error) = end.and_then(|end| self.after(end, &mut course)) {
                return Err(error);
            }
            if !course.seated {
                self.sit_down();
                course.seated = true;
            }
            let serial = course.conflicts >= stm.serial_after && !course.beside;
            let exclusive = serial.then(|| stm.gate.exclusive(self.tx.slot()));
            self.tx.begin(serial, course.logs_reads);
            let ended = self.attempt(body);
            if let Some(exclusive) = exclusive {
                stm.open(exclusive);
            }
            match ended {
                Ok((answer, commit)) => return self.tell(answer, &commit, serial, ticket),
                Err(other) => end = Some(other),
            }
        }
    }

    /// What follows an attempt that did not commit: the error with which the transaction ends, or another attempt.
    #[cold]
    #[inline(never)]
    fn after<E>(
        &mut self,
        end: End<E, SinkError<'stm, L>>,
        course: &mut Course,
    ) -> Option<TxError<E, SinkError<'stm, L>>> {
        let stm = self.tx.stm();
        // What follows waits for other threads, and so does the next attempt: for the gate, for an owner.
        if !matches!(end, End::Failed(_))
            && let Err(cause) = self.tx.sink().refuse_child()
        {
            return Some(TxError::Refused(cause));
        }
        match end {
            End::Conflict if self.tx.wants_log() => course.logs_reads = true,
            End::Conflict => {
                self.counts.conflicts += 1;
                course.conflicts += 1;
                course.beside = false;
                course.logs_reads |= course.conflicts >= UNLOGGED_ATTEMPTS_MAX;
                self.backoff.wait(course.conflicts);
            }
            End::Retry(closings) => {
                course.conflicts = 0;
                course.beside = closings.is_none() || !self.tx.logs_reads();
                match closings {
                    // It ran alone, and noted nothing.
                    None => stm.gate.end_solo(self.tx.slot()),
                    Some(closings) if self.tx.logs_reads() => {
                        if let (Some(policy), Some(place)) = (&stm.policy, &mut self.place) {
                            policy.stand_up(place);
                            course.seated = false;
                        }
                        self.tx.sleep(closings);
                    }
                    Some(_) => {}
                }
                course.logs_reads = true;
            }
            End::Failed(error) => return Some(error),
        }
        None
    }
}

impl<L: RedoLog> StmThread<'_, L> {
    /// Runs `work` while no transaction runs; `work` begins none.
    pub(crate) fn alone<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let stm = self.tx.stm();
        let exclusive = stm.gate.exclusive(self.tx.slot());
        let result = work();
        stm.open(exclusive);
        result
    }
}

impl<'stm, L: RedoLog> TxThread for StmThread<'stm, L> {
    type Tx = StmTx<'stm, L>;
    type SinkError = <L::Sink<'stm> as RedoSink>::Error;

    #[inline]
    fn run<T, E>(&mut self, body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>) -> Answer<T, E, Self> {
        self.transact(true, None, body)
    }

    #[inline]
    fn read<T, E>(&mut self, body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>) -> Answer<T, E, Self> {
        self.transact(false, None, body)
    }

    #[inline]
    fn run_nowait<T, E>(
        &mut self,
        body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>,
    ) -> Answer<(T, u64), E, Self> {
        let mut ticket = 0;
        let answer = self.transact(true, Some(&mut ticket), body)?;
        Ok((answer, ticket))
    }

    fn irrevocable<T>(
        &mut self,
        body: impl FnOnce(&mut Self::Tx) -> Result<T, Interrupted>,
    ) -> Answer<T, Infallible, Self> {
        let stm = self.tx.stm();
        let exclusive = stm.gate.exclusive(self.tx.slot());
        self.tx.begin(true, true);
        let attempt = Attempt(&mut self.tx);
        let end = match body(attempt.0) {
            Ok(answer) => attempt.commit::<Infallible>().map(|commit| (answer, commit)),
            Err(_) => Err(attempt.halt(None)),
        };
        stm.open(exclusive);
        match end {
            Ok((answer, commit)) => {
                self.counts.serial += 1;
                self.acknowledge(&commit).map(|()| answer).map_err(TxError::InDoubt)
            }
            Err(End::Failed(error)) => Err(error),
            Err(End::Conflict | End::Retry(_)) => foreign_interruption(),
        }
    }

    fn settle_all(&mut self) -> Result<(), Self::SinkError> {
        let newest = self.tx.stm().log.newest();
        if L::KEEPS && newest > self.settled { self.settle(newest) } else { Ok(()) }
    }

    fn counts(&self) -> TxCounts {
        TxCounts { commits: self.beside + self.counts.solo + self.counts.serial, ..self.counts }
    }
}
