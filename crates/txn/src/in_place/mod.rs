//! Memory on the medium itself, which transactions change in place, and the undo log that a lock's holder needs there.

mod check;
mod layout;
mod memory;
mod options;
mod recover;
mod undo_log;

pub use layout::UNDO_ENTRIES_MAX;
pub use memory::InPlaceMemory;
pub use options::{InPlaceOptions, KIND as IN_PLACE_KIND};
