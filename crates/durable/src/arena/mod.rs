//! The persistent arena: an allocator whose every byte of state lies in the region it allocates from.

mod blocks;
mod bitmap;
mod bins;
mod check;
mod class;
mod format;
mod heap;
mod layout;
mod mapped;
mod pages;
mod realloc;
mod slab;
mod space;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

pub(crate) use check::ArenaStat;
pub(crate) use heap::Heap;
pub(crate) use layout::{ARENA_HEAD_BYTES, PAGE_BYTES, arena_front_bytes};
pub(crate) use mapped::MapError;
pub(crate) use blocks::BadFree;
pub(crate) use space::{Space, Writes};
