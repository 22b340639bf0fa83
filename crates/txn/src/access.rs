//! What the body of a transaction may do, whichever executor runs it.

use crate::memory::WORD_BYTES;

/// An access did not take place: the executor must run the body again, or end it. Pass it on with `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted(pub(crate) ());

/// How a body ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt<E> {
    /// An access was interrupted; `?` makes this of [`Interrupted`].
    Interrupted(Interrupted),
    /// Undo the transaction, and run it again when something that it read has changed.
    Retry,
    /// Undo the transaction, and give this to the caller.
    Abort(E),
}

impl<E> From<Interrupted> for Halt<E> {
    #[inline(always)]
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

/// Reads and writes of one transaction.
///
/// Addresses lie in the executor's [`TxMemory`](crate::TxMemory); one outside is a mistake of the program, and the
/// access panics (which undoes the transaction). Reads see the transaction's own writes. Bytes that were not written
/// are never stored to, not even when the transaction is undone: another thread may own the neighbours of a byte.
///
/// A function that takes `&mut impl TxAccess` takes part in the transaction of its caller, and if it halts, all of it
/// halts; what runs in [`nested`](Self::nested) halts alone. A body must not begin a second transaction on the same
/// executor.
///
/// Each access costs time in proportion to its bytes.
pub trait TxAccess {
    /// The low `size` bytes at `address`, which lie in one aligned word, as a little-endian number.
    ///
    /// # Errors
    /// [`Interrupted`] when the attempt has met another transaction.
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted>;

    /// Writes the low `size` bytes of `value` to `address`; they lie in one aligned word.
    ///
    /// # Errors
    /// As for `read_piece`.
    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted>;

    /// Asks that the commit return only when no transaction runs that began before it and might still read what
    /// this one makes private, or undo a write to it. From then on plain loads and stores may use that memory, and
    /// it may be freed and used anew.
    fn privatise(&mut self);

    /// Begins a nested transaction; [`end_nested`](Self::end_nested) must follow. Programs call
    /// [`nested`](Self::nested) instead, which ends it in every case.
    fn begin_nested(&mut self);

    /// Ends the innermost nested transaction: what it wrote becomes a part of the transaction around it, or is undone
    /// alone.
    fn end_nested(&mut self, keeps: bool);

    /// Runs `body` as a nested transaction: if it halts, what it wrote is undone, and nothing else. It sees what the
    /// transaction around it wrote; others see its writes when that one commits. Costs no more than its accesses.
    ///
    /// What it read stays a part of the transaction: another thread's change of that undoes all of it, and `retry`
    /// waits for that, too.
    ///
    /// # Errors
    /// Those of `body`. The caller may pass them on with `?`, or do something else after [`Halt::Abort`] and
    /// [`Halt::Retry`]; it must pass [`Halt::Interrupted`] on.
    #[inline]
    fn nested<T, E>(&mut self, body: impl FnOnce(&mut Self) -> Result<T, Halt<E>>) -> Result<T, Halt<E>>
    where
        Self: Sized,
    {
        self.begin_nested();
        let mut nest = Nest { tx: self, keeps: false };
        let answer = body(nest.tx);
        nest.keeps = answer.is_ok();
        answer
    }

    /// Runs `first`; if it asks for a retry, undoes it and runs `second` instead. If that asks for a retry, too, the
    /// transaction waits until something has changed that either of them read, and runs again.
    ///
    /// # Errors
    /// [`Halt::Retry`] if both ask for it, and the other errors of the one that ran last; its writes are undone.
    #[inline]
    fn or_else<T, E>(
        &mut self,
        first: impl FnOnce(&mut Self) -> Result<T, Halt<E>>,
        second: impl FnOnce(&mut Self) -> Result<T, Halt<E>>,
    ) -> Result<T, Halt<E>>
    where
        Self: Sized,
    {
        match self.nested(first) {
            Err(Halt::Retry) => self.nested(second),
            answer => answer,
        }
    }

    /// The eight bytes at `address`.
    ///
    /// # Errors
    /// As for `read_piece`.
    #[inline(always)]
    fn read_word(&mut self, address: usize) -> Result<u64, Interrupted> {
        if address.is_multiple_of(WORD_BYTES) {
            return self.read_piece(address, WORD_BYTES);
        }
        let mut bytes = [0; WORD_BYTES];
        self.read_bytes(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes eight bytes at `address`.
    ///
    /// # Errors
    /// As for `read_piece`.
    #[inline(always)]
    fn write_word(&mut self, address: usize, value: u64) -> Result<(), Interrupted> {
        if address.is_multiple_of(WORD_BYTES) {
            return self.write_piece(address, WORD_BYTES, value);
        }
        self.write_bytes(address, &value.to_le_bytes())
    }

    /// The `N` bytes at `address`, which may have any alignment.
    ///
    /// # Errors
    /// As for `read_piece`.
    #[inline]
    fn read<const N: usize>(&mut self, address: usize) -> Result<[u8; N], Interrupted> {
        let mut bytes = [0; N];
        self.read_bytes(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes the `N` bytes to `address`, which may have any alignment.
    ///
    /// # Errors
    /// As for `read_piece`.
    #[inline]
    fn write<const N: usize>(&mut self, address: usize, bytes: [u8; N]) -> Result<(), Interrupted> {
        self.write_bytes(address, &bytes)
    }

    /// Fills `into` with the bytes from `address` on.
    ///
    /// # Errors
    /// As for `read_piece`.
    #[inline]
    fn read_bytes(&mut self, address: usize, into: &mut [u8]) -> Result<(), Interrupted> {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done);
            let size = (WORD_BYTES - at % WORD_BYTES).min(into.len() - done);
            let value = self.read_piece(at, size)?.to_le_bytes();
            into[done..done + size].copy_from_slice(&value[..size]);
            done += size;
        }
        Ok(())
    }

    /// Writes `bytes` from `address` on. If it is interrupted, some bytes may have been written; they are undone with
    /// the rest.
    ///
    /// # Errors
    /// As for `read_piece`.
    #[inline]
    fn write_bytes(&mut self, address: usize, bytes: &[u8]) -> Result<(), Interrupted> {
        write_in_pieces(self, address, bytes)
    }
}

/// Writes bytes piece by piece.
#[inline]
pub(crate) fn write_in_pieces(
    tx: &mut (impl TxAccess + ?Sized),
    address: usize,
    bytes: &[u8],
) -> Result<(), Interrupted> {
    let mut done = 0;
    while done < bytes.len() {
        let at = address.wrapping_add(done);
        let size = (WORD_BYTES - at % WORD_BYTES).min(bytes.len() - done);
        let mut value = [0; WORD_BYTES];
        value[..size].copy_from_slice(&bytes[done..done + size]);
        tx.write_piece(at, size, u64::from_le_bytes(value))?;
        done += size;
    }
    Ok(())
}

/// A nested transaction that runs; undone if its body panics.
struct Nest<'a, X: TxAccess> {
    tx: &'a mut X,
    keeps: bool,
}

impl<X: TxAccess> Drop for Nest<'_, X> {
    fn drop(&mut self) {
        self.tx.end_nested(self.keeps);
    }
}
