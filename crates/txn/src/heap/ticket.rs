//! Commits that return before they are durable: what names them, and the waits for them.

use super::error::{HeapError, HeapResult};
use super::heap::Heap;
use super::stop::{Cancel, Stop};
use super::tx::Tx;
use mangrove_shadow::Ticket;
use std::convert::Infallible;

/// Names a commit of [`Heap::transaction_nowait`], and with it everything that was committed before, or that it has
/// read. It belongs to this opening of this heap. Tickets need not be waited for, and may be waited for by any thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TxTicket {
    /// Names the opening; random.
    opening: u64,
    /// The redo log's ticket.
    position: u64,
}

impl TxTicket {
    /// The two words that it consists of, for a caller who keeps it elsewhere.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        [self.opening, self.position]
    }

    /// The ticket of [`TxTicket::to_words`]. Any other words are refused where it is used, or name some commit.
    #[must_use]
    pub fn from_words([opening, position]: [u64; 2]) -> Self {
        Self { opening, position }
    }
}

impl Heap {
    /// As [`Heap::transaction`], but returns before what the transaction changed, and what it read, is durable; it
    /// returns the result with a ticket to wait for. Many commits then share one fence (dax, emulated) or one
    /// device write (file). Other transactions see the changes at once; those that wait, and [`Heap::read`], return
    /// when what they saw is durable.
    ///
    /// A crash keeps a prefix of the commits, in their order. A commit that no thread waits for becomes durable
    /// within about 100 ms ([`HeapOptions::nowait_within`](crate::HeapOptions::nowait_within)), by a background
    /// thread (none with [`HeapOptions::background`](crate::HeapOptions::background) off), and when the heap is
    /// closed. While the log is full the call waits for space. With persistent caches the commit is durable on
    /// return.
    ///
    /// # Errors
    /// As there. `InDoubt` is the log's failure as far as it is known yet; [`Heap::wait`] tells the rest.
    #[inline]
    #[track_caller]
    pub fn transaction_nowait<T>(
        &self,
        mut body: impl FnMut(&mut Tx<'_>) -> Result<T, Stop>,
    ) -> HeapResult<(T, TxTicket)> {
        let answer = self.try_transaction_nowait(|tx| body(tx).map_err(Cancel::<Infallible>::Stop))?;
        let Ok(answer) = answer;
        Ok(answer)
    }

    /// As [`Heap::transaction_nowait`], with a body that may abort with a value, as that of
    /// [`Heap::try_transaction`]. There is no ticket then: before a caller tells what the value says of other commits,
    /// [`Heap::sync`] makes those durable.
    ///
    /// # Errors
    /// As there.
    #[inline]
    #[track_caller]
    pub fn try_transaction_nowait<T, E>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T, Cancel<E>>,
    ) -> HeapResult<Result<(T, TxTicket), E>> {
        let ticket = |(answer, position)| (answer, TxTicket { opening: self.opening(), position });
        Ok(self.run_nowait(body)?.map(ticket))
    }

    /// Waits until the commit is durable, in every durability mode; so is all that it read, and every commit before.
    /// O(1) if it is durable.
    ///
    /// # Errors
    /// `InDoubt` after the medium failed, for a commit that was not durable by then; `Invalid` for a ticket of another
    /// heap, or of an earlier opening; `Forked` in a child.
    pub fn wait(&self, ticket: TxTicket) -> HeapResult<()> {
        let ticket = self.own(ticket)?;
        let shadow = self.shadow();
        if shadow.is_durable(ticket) { Ok(()) } else { shadow.sync_to(ticket).map_err(HeapError::InDoubt) }
    }

    /// Whether [`Heap::wait`] would return at once. O(logs).
    ///
    /// # Errors
    /// As [`Heap::wait`].
    pub fn is_durable(&self, ticket: TxTicket) -> HeapResult<bool> {
        let ticket = self.own(ticket)?;
        let shadow = self.shadow();
        match shadow.is_durable(ticket) {
            true => Ok(true),
            false => shadow.poisoned().map_or(Ok(false), |error| Err(HeapError::InDoubt(error))),
        }
    }

    /// The redo log's ticket of one of this opening.
    fn own(&self, ticket: TxTicket) -> HeapResult<Ticket> {
        self.refuse_child()?;
        let (own, committed) = (Ticket(ticket.position), self.shadow().committed());
        if ticket.opening != self.opening() || own > committed {
            return Err(HeapError::Invalid {
                what: "this ticket is of another heap, or of an earlier opening of this one; what was committed before an opening is durable if it is there".into(),
            });
        }
        Ok(own)
    }
}
