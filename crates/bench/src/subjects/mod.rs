//! The subjects that the sections compare.

mod blart_index;
mod btree;
mod mangrove_c;
mod mangrove_index;
mod mangrove_store;
mod skiplist;
mod table;

pub(crate) use mangrove_c::MangroveC;
pub(crate) use mangrove_store::MangroveStore;
pub(crate) use table::{BLART, HART_PAPER, IndexKind, VOLATILE_ART, all, of_threads};
