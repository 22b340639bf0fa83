//! The medium `file`: a working copy in DRAM, the redo log, and the data file that checkpoints bring up to date.

mod apply_log;
pub(super) mod bulk;
pub(super) mod checkpoint;
pub(super) mod closed;
mod damage_notes;
pub(super) mod exit_hook;
pub(super) mod finish_recovery;
pub(super) mod flusher;
mod grow_log;
mod huge_pages;
mod image;
pub(super) mod left_index;
mod log_growth;
pub(super) mod medium;
mod page_marks;
mod page_out;
mod provide;
pub(super) mod recover;
pub(super) mod released;
pub(super) mod scrub;
