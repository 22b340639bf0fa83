//! HTM+SGL: Algorithm 1 of the SPHT-eADR dissertation ("SGL with Undo Log"). Transactions work in place, on the
//! medium, without a working copy. With persistent caches a hardware commit makes all its stores visible and durable in
//! one step and needs no log. A transaction that hardware does not take has the single global lock and an undo log on
//! the medium. l. are the algorithm's lines; `in_place/undo_log.rs` has l.1, and the order in which its bytes become
//! durable.
//!
//! What the text leaves open, and what is different here (docs/decisions/txn.md has the reasons):
//!
//! - l.2: the lock cannot be thread-local: it is the executor's, one for all.
//! - l.3 to l.5 are the executor's: it takes the lock, and storing to the lock's word aborts what runs in hardware, or
//!   waits for what commits.
//! - l.6: nothing is to do. The log is empty since l.12 of the transaction before, or since recovery.
//! - l.10 comes after l.9 is durable, with its count; recovery undoes backwards (`in_place/recover.rs`).
//! - l.12 comes after all stores are durable; and also when a body aborts or panics, when its stores are undone.
//! - l.13: the executor releases the lock after l.12 is durable.
//! - Where caches are volatile (ADR), only the lock path is right, with a flush and a fence for each of these steps:
//!   hardware commits are refused.
//! - A transaction with more writes than the log has entries is undone and fails.
//! - A child of fork has the parent's bytes and undo log, and a copy of the lock, which keeps the parent's transactions
//!   from nothing: it neither stores nor undoes.

use crate::executor::{HardwareLimits, HardwareModel, Htm, Sgl};
use crate::in_place::InPlaceMemory;
use crate::left_out::is_left_out;
use crate::memory::{InPlaceStores, TxMemory, store};
use crate::sink::{RedoLog, RedoSink, TxWrites, UnitSize};
use crate::sync::time_stamp;
use mangrove_pool::{ByteRange, Error, Result};
use std::sync::Arc;

/// HTM+SGL on memory in place: what makes an executor of it.
#[derive(Debug)]
pub struct HtmSgl {
    place: Arc<InPlaceMemory>,
}

impl HtmSgl {
    /// The lock path alone, which is right on every domain.
    ///
    /// # Errors
    /// `Unsupported` when another executor uses the memory.
    pub fn one_lock(place: Arc<InPlaceMemory>) -> Result<Sgl<Self>> {
        let (memory, log) = Self::take(place)?;
        Ok(Sgl::new(memory, log))
    }

    /// Intel RTM, and the lock path where hardware does not commit.
    ///
    /// # Errors
    /// `Unsupported` without persistent caches, or when another executor uses the memory.
    pub fn rtm(place: Arc<InPlaceMemory>) -> Result<Htm<Self>> {
        needs_persistent_caches(&place)?;
        let (memory, log) = Self::take(place)?;
        Ok(Htm::new(memory, log))
    }

    /// The model of transactional hardware, for tests.
    ///
    /// # Errors
    /// As for `rtm`.
    pub fn modelled(place: Arc<InPlaceMemory>, limits: HardwareLimits) -> Result<HardwareModel<Self>> {
        needs_persistent_caches(&place)?;
        let (memory, log) = Self::take(place)?;
        Ok(HardwareModel::new(memory, log, limits))
    }

    fn take(place: Arc<InPlaceMemory>) -> Result<(TxMemory, Self)> {
        if !place.take() {
            return Err(Error::Unsupported {
                what: "another executor uses this memory; all threads share one".into(),
            });
        }
        let stores: *const InPlaceMemory = Arc::as_ptr(&place);
        // SAFETY: the executor drops memory and log together, and the log keeps the place, which keeps the data. Only
        // this executor stores there: `take`.
        let memory = unsafe { TxMemory::in_place(place.base(), place.bytes() as usize, stores) };
        Ok((memory, Self { place }))
    }
}

impl Drop for HtmSgl {
    fn drop(&mut self) {
        self.place.give_back();
    }
}

fn needs_persistent_caches(place: &InPlaceMemory) -> Result<()> {
    if place.domain().eadr {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: "HTM+SGL in hardware needs persistent caches (eADR): on ADR a hardware commit is not durable; use its lock path, or SPHT".into(),
    })
}

impl InPlaceStores for InPlaceMemory {
    /// WRITE(addr, val), with the lock
    unsafe fn write(&self, at: *mut u8, size: usize, old: u64, value: u64) -> bool {
        if !self.is_here() {
            return false;
        }
        let offset = self.undo().region.offset_of(at);
        // l.8 is the executor's: it has loaded `old`.
        let late = is_left_out();
        if !late && !self.undo().log_previous(offset, size, old) {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { store(at, size, value) }; // l.10
        self.undo().region.stored_in_one_step(&[ByteRange { offset, len: size as u64 }]);
        !late || self.undo().log_previous(offset, size, old)
    }

    fn stored(&self, stores: &mut dyn Iterator<Item = (usize, usize)>) {
        let region = &self.undo().region;
        if !region.is_observed() {
            return;
        }
        let range = |(address, size): (usize, usize)| ByteRange {
            offset: (address - region.base().addr()) as u64,
            len: size as u64,
        };
        region.stored_in_one_step(&stores.map(range).collect::<Vec<_>>());
    }

    fn are_ours(&self) -> bool {
        self.is_here()
    }
}

impl RedoLog for HtmSgl {
    type Sink<'log> = HtmSglSink<'log>;
    /// What is visible is durable: with the lock, before it is released; in hardware, in the same step.
    const KEEPS: bool = false;
    const DENSE: bool = false;

    fn is_stamped(&self) -> bool {
        true
    }

    fn sink(&self) -> HtmSglSink<'_> {
        HtmSglSink { place: &self.place, in_hardware: false }
    }

    /// No counter, which would be in the write set of every hardware transaction.
    #[inline(always)]
    fn newest(&self) -> u64 {
        time_stamp()
    }
}

/// One thread's way to the undo log.
#[derive(Debug)]
pub struct HtmSglSink<'log> {
    place: &'log InPlaceMemory,
    /// The attempt has no lock, and the undo log is not its.
    in_hardware: bool,
}

impl RedoSink for HtmSglSink<'_> {
    type Error = Error;

    #[inline(always)]
    fn refuse_child(&self) -> Result<()> {
        self.place.refuse_child()
    }

    /// BEGINTX in hardware
    fn prepare(&mut self, _size: UnitSize) -> Result<()> {
        self.in_hardware = true;
        self.alive()
    }

    fn refusal(&mut self) -> Option<Error> {
        // The body may have forked.
        if let Err(forked) = self.refuse_child() {
            return Some(forked);
        }
        if self.in_hardware || !self.place.undo().has_refused() {
            return None;
        }
        Some(Error::Unsupported {
            what: "the transaction writes more than the undo log has entries for; make it shorter, or create the memory with more (undo_entries)".into(),
        })
    }

    #[inline(always)]
    fn put(&mut self, _writes: &impl TxWrites) -> Result<()> {
        // Modelled hardware lets a body fork.
        self.refuse_child()?;
        if self.in_hardware { Ok(()) } else { self.alive() }
    }

    #[inline(always)]
    fn number(&mut self) -> u64 {
        0
    }

    /// COMMITTX
    #[inline(always)]
    fn seal(&mut self) -> Result<()> {
        if !self.in_hardware {
            self.place.undo().clear(); // l.12
        }
        Ok(()) // l.13 is the executor's.
    }

    /// The attempt has stored back what was there before, and still has the lock.
    fn withdraw(&mut self) {
        if !std::mem::take(&mut self.in_hardware) && self.place.is_here() {
            self.place.undo().clear();
        }
    }

    fn void(&mut self) {
        self.withdraw();
    }

    fn number_void(&mut self) -> u64 {
        0
    }

    #[inline(always)]
    fn finish(&mut self) -> Result<()> {
        self.in_hardware = false;
        #[cfg(feature = "silenced-steps")]
        crate::lab::window();
        Ok(())
    }

    #[inline(always)]
    fn settle(&mut self, _number: u64) -> Result<()> {
        Ok(())
    }
}

impl HtmSglSink<'_> {
    fn alive(&self) -> Result<()> {
        self.place.undo().region.medium().poisoned().map_or(Ok(()), Err)
    }
}
