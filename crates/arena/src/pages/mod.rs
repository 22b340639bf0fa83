//! Runs of whole pages.

pub(crate) mod bins;
mod free_pages;
pub(crate) mod mapped;
pub(crate) mod pages;
