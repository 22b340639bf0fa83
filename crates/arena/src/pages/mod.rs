//! Runs of whole pages.

pub(crate) mod bins;
pub(crate) mod mapped;
pub(crate) mod pages;
