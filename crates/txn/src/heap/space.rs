//! The shadow as the arena's space.

use mangrove_arena::ArenaSpace;
use mangrove_shadow::Shadow;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Why the space last refused to grow, for the message.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusal(Arc<Mutex<Option<String>>>);

impl Refusal {
    pub(super) fn why(&self) -> String {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.unwrap_or_else(|| {
            "its address space is used up; a heap's capacity is fixed when it is created".into()
        })
    }
}

/// The shadow's working copy.
#[derive(Clone)]
pub(super) struct ShadowSpace {
    shadow: Arc<Shadow>,
    /// Bytes that may be used, for transactions.
    grown: Arc<AtomicU64>,
    refusal: Refusal,
}

impl ShadowSpace {
    pub(super) fn new(shadow: Arc<Shadow>) -> Self {
        let grown = Arc::new(AtomicU64::new(shadow.len()));
        Self { shadow, grown, refusal: Refusal::default() }
    }

    pub(super) fn shadow(&self) -> &Arc<Shadow> {
        &self.shadow
    }

    pub(super) fn grown(&self) -> &AtomicU64 {
        &self.grown
    }

    /// Why the space last refused to grow.
    pub(super) fn refusal(&self) -> &Refusal {
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
        self.shadow.grow(len).map_err(|error| {
            *self.refusal.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            io::Error::other(error.to_string())
        })?;
        // Relaxed: an address in the new part reaches other threads by way of a commit.
        self.grown.fetch_max(self.shadow.len(), Ordering::Relaxed);
        Ok(())
    }
}
