//! The ordered tree of the default engine.

mod check;
pub(super) mod compaction;
pub(super) mod load;
pub(super) mod node;
mod structure;
pub(super) mod tree;
#[cfg(test)]
mod tree_tests;
mod versions;
