//! The shadow as the arena's space.

use crate::heap::error::HeapError;
use crate::left_out::is_left_out;
use mangrove_arena::ArenaSpace;
use mangrove_shadow::{Error, Shadow};
use mangrove_sys::ProcessMark;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why a thread's space has refused to grow since the thread last asked.
#[derive(Clone, Debug, Default)]
pub(super) struct GrowthRefusal(Arc<Mutex<Option<Error>>>);

impl GrowthRefusal {
    fn last(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of the thread, for which there was no block of `wanted` bytes.
    pub(super) fn error(&self, wanted: u64) -> HeapError {
        match self.last().take() {
            None => HeapError::Full { wanted },
            Some(error @ (Error::NoSpace { .. } | Error::FileLimit { .. })) => {
                HeapError::NoSpace { wanted, why: error.to_string() }
            }
            Some(error) => HeapError::Pool(error),
        }
    }

    /// The medium's error, if it refused since the thread last asked; else `other`.
    pub(super) fn or(&self, other: HeapError) -> HeapError {
        self.last().take().map_or(other, HeapError::Pool)
    }
}

/// The shadow's working copy.
#[derive(Clone)]
pub(super) struct ShadowSpace {
    shadow: Arc<Shadow>,
    /// Bytes that may be used, for transactions.
    grown: Arc<AtomicU64>,
    refusal: GrowthRefusal,
    /// A child of fork has its parent's medium.
    process: ProcessMark,
}

impl ShadowSpace {
    pub(super) fn new(shadow: Arc<Shadow>) -> Self {
        let grown = Arc::new(AtomicU64::new(shadow.len()));
        Self { shadow, grown, refusal: GrowthRefusal::default(), process: ProcessMark::here() }
    }

    pub(super) fn shadow(&self) -> &Arc<Shadow> {
        &self.shadow
    }

    pub(super) fn grown(&self) -> &AtomicU64 {
        &self.grown
    }

    /// As a clone, and why that one refuses to grow.
    pub(super) fn of_thread(&self) -> (Self, GrowthRefusal) {
        let refusal = GrowthRefusal::default();
        (Self { refusal: refusal.clone(), ..self.clone() }, refusal)
    }

    /// What the shadow may use, transactions may use.
    pub(super) fn note_len(&self) {
        // Relaxed: an address in a new part reaches other threads by way of a commit.
        self.grown.fetch_max(self.shadow.len(), Ordering::Relaxed);
    }

    /// Keeps why the space refuses.
    #[cold]
    fn refused(&self, error: Error) -> io::Error {
        let text = error.to_string();
        *self.refusal.last() = Some(error);
        io::Error::other(text)
    }

    /// Why this space refuses to grow.
    pub(super) fn refusal(&self) -> &GrowthRefusal {
        &self.refusal
    }

    /// The one owner of the shadow, if no other space is left.
    pub(super) fn into_shadow(self) -> Option<Shadow> {
        Arc::into_inner(self.shadow)
    }
}

impl ArenaSpace for ShadowSpace {
    fn base(&self) -> *mut u8 {
        self.shadow.base()
    }

    fn len(&self) -> u64 {
        self.shadow.len()
    }

    fn capacity(&self) -> u64 {
        self.shadow.capacity()
    }

    fn grow(&mut self, len: u64) -> io::Result<()> {
        if !self.process.is_here() {
            let what = "the process was forked since the heap was opened; open it in the child".into();
            return Err(self.refused(Error::Unsupported { what }));
        }
        self.shadow.grow(len).map_err(|error| self.refused(error))?;
        // An earlier refusal is no reason any more.
        *self.refusal.last() = None;
        self.note_len();
        Ok(())
    }

    #[inline]
    fn provide(&mut self, offset: u64, len: u64) -> io::Result<()> {
        if is_left_out() {
            return Ok(());
        }
        self.shadow.provide(offset..offset + len).map_err(|error| self.refused(error))
    }
}
