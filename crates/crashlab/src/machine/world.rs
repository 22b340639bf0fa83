//! What a sweep needs from a fault model: it runs a program, and yields the images of its crashes.

use crate::machine::lines::ImageChoice;
use crate::machine::site::Sites;
use crate::machine::trace::Mark;
use mangrove_pool::Region;
use std::sync::Arc;

/// The machine that a run sees: it opens its pool, and notes where the history stands.
pub trait Machine {
    /// Opens the region of the pool; `fresh` creates it.
    ///
    /// # Errors
    /// The pool's own message.
    fn open(&self, fresh: bool) -> Result<Region, String>;

    /// Whether the pool that [`Machine::open`] found had been closed in order; `None` where the machine cannot
    /// tell.
    fn was_clean(&self) -> Option<bool> {
        None
    }

    /// Notes where the history stands.
    fn mark(&self, mark: Mark);

    /// Closes the pool in order. The region is no longer used.
    ///
    /// # Errors
    /// The pool's own message.
    fn close(&self) -> Result<(), String>;
}

/// A fault model.
pub trait World {
    /// What a run did.
    type Recording;
    /// A position in a recording.
    type Cursor;
    /// One crash image, as a difference from the durable state at a cursor.
    type Overlay;

    /// Runs `body` on an empty machine, or on the one that a crash left.
    ///
    /// # Errors
    /// What `body` returns, a panic, or a rule of the medium that was broken.
    fn boot<R>(
        &mut self,
        crashed: Option<(&mut Self::Cursor, &Self::Overlay)>,
        sites: &Arc<Sites>,
        body: impl FnOnce(&dyn Machine) -> Result<R, String>,
    ) -> (Result<R, String>, Self::Recording);

    /// The start of a recording, which was made on the machine given to `boot`.
    fn start(
        &self,
        recording: &Self::Recording,
        crashed: Option<(&Self::Cursor, &Self::Overlay)>,
    ) -> Self::Cursor;

    /// Steps in a recording.
    fn event_count(recording: &Self::Recording) -> usize;

    /// The mark at a step, if it is one.
    fn mark_at(recording: &Self::Recording, event: usize) -> Option<Mark>;

    /// True when a crash just before `event` is worth judging: it may leave images that a crash before an earlier
    /// event cannot, or must keep promises that an earlier crash need not keep.
    fn is_cut(cursor: &Self::Cursor, recording: &Self::Recording, event: usize) -> bool;

    /// How many images a crash there could leave.
    fn combinations(cursor: &Self::Cursor, recording: &Self::Recording, event: usize) -> u64;

    /// Builds one of these images.
    fn pick(
        cursor: &Self::Cursor,
        recording: &Self::Recording,
        event: usize,
        choice: ImageChoice,
    ) -> Self::Overlay;

    /// True when this world knows faults beyond a plain crash ([`ImageChoice::Extra`]).
    const HAS_EXTRAS: bool = false;

    /// True when the image is damaged, not just crashed: the engine may refuse it, but must not answer wrongly. (A
    /// pool that had been closed in order must open even then: one damaged copy of the superblock is harmless.)
    fn may_refuse(_overlay: &Self::Overlay) -> bool {
        false
    }

    /// True when every operation that had returned must be there, whatever it promised.
    fn keeps_returned(_overlay: &Self::Overlay) -> bool {
        false
    }

    /// Distinguishes images with the same content but different faults of the machine.
    fn fault(_overlay: &Self::Overlay) -> u64 {
        0
    }

    /// The identity of an image: images with equal content have equal numbers.
    fn identity(cursor: &Self::Cursor, overlay: &Self::Overlay) -> u64;

    /// Executes one event.
    fn step(cursor: &mut Self::Cursor, recording: &Self::Recording, event: usize);
}
