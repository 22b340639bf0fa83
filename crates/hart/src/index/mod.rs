//! The volatile ordered index: one adaptive radix tree for each two leading key bytes.

mod arena;
mod build;
mod cursor;
mod directory;
mod insert;
mod keys;
mod layouts;
mod leaf;
mod lock;
mod modify;
mod node;
mod order;
mod remove;
mod search;
mod stats;
mod sync;
#[cfg(test)]
mod tests;
mod tree;
mod warm;
mod word;

pub(crate) use build::{BuildItem, DuplicateKey};
pub(crate) use cursor::{Direction, IndexCursor, Streamed, VisitOutcome};
pub(crate) use directory::{ENTRY_COUNT, entry_of};
pub(crate) use leaf::{KeySource, Leaf, LeafHint};
pub(crate) use modify::{Edit, Intent, LeafChange};
pub(crate) use tree::Index;
pub(crate) use warm::WALKS;
