//! The shadow as the arena's space.

use crate::Error;
use crate::alloc::split_allocation;
use crate::silence::is_left_out;
use mangrove_arena::ArenaSpace;
use mangrove_shadow::Shadow;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Why a space has refused to grow, if it did.
#[derive(Clone, Default)]
pub(super) struct RefusedGrowth(Arc<Mutex<Option<mangrove_shadow::Error>>>);

impl RefusedGrowth {
    /// The medium's error, if it has refused; else `other`, which is the arena's word for the same.
    pub(super) fn or(&self, other: Error) -> Error {
        self.0.lock().take().map_or(other, Error::from)
    }

    /// Keeps the error. Outside of commands: nothing of it becomes a part of the state.
    #[cold]
    fn keep(&self, error: mangrove_shadow::Error) -> io::Error {
        let text = error.to_string();
        *self.0.lock() = Some(error);
        io::Error::other(text)
    }
}

/// The shadow's working copy.
pub(super) struct ImageSpace {
    shadow: Arc<Shadow>,
    refusal: RefusedGrowth,
}

impl ImageSpace {
    pub(super) fn new(shadow: Arc<Shadow>) -> (Self, RefusedGrowth) {
        let refusal = RefusedGrowth::default();
        (Self { shadow, refusal: refusal.clone() }, refusal)
    }
}

impl ArenaSpace for ImageSpace {
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
        // This runs inside a command's malloc: what growing allocates is not part of the state.
        split_allocation::outside(|| self.shadow.grow(len).map_err(|error| self.refusal.keep(error)))
    }

    fn provide(&mut self, offset: u64, len: u64) -> io::Result<()> {
        if is_left_out() {
            return Ok(());
        }
        let provide = || self.shadow.provide(offset..offset + len);
        split_allocation::outside(|| provide().map_err(|error| self.refusal.keep(error)))
    }
}
