//! The working copy in memory, and copies of it.

pub(crate) mod copy;
pub(crate) mod free_space;
pub(crate) mod page_out;
pub(crate) mod page_set;
pub(crate) mod read_only;
pub(crate) mod working;
