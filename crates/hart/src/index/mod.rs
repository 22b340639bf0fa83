//! The volatile ordered index: one adaptive radix tree for each two leading key bytes.

mod leaf;
mod simple;

pub(crate) use leaf::{KeySource, Leaf};
pub(crate) use simple::entry_of;
pub(crate) use simple::{
    BuildItem, Change, Cursor, Direction, DuplicateKey, ENTRY_COUNT, Index, Intent, Stats,
};
