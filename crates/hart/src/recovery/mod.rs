//! Opening after a crash, and checking that a map is sound.

pub(super) mod check;
pub(super) mod closed_map;
mod leaf_order;
mod move_directory;
mod presume;
pub(super) mod recover;
pub(super) mod scan;
mod upgrade;
