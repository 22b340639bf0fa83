//! The sections of the bench: one question each.

mod batches;
mod bitflip;
mod child;
mod deletes;
pub(crate) mod floors;
mod gets;
mod killed_open;
pub(crate) mod lines;
mod loaded;
mod looks;
mod memory;
mod mixes;
mod operations;
pub(crate) mod overwrites;
mod persists;
mod ranges;
mod recovery;
mod scale;
mod synced_puts;
mod table;
mod threads;
mod values;
mod ycsb;

pub(crate) use child::run_child;
pub(crate) use table::{ALL, Section};
