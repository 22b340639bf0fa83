//! The persistent arena: an allocator whose every byte of state lies in the region it allocates from.

mod bins;
mod bitmap;
mod blocks;
mod check;
mod class;
mod format;
mod free_bytes;
mod heap;
mod layout;
mod mapped;
mod pages;
mod realloc;
mod slab;
mod space;
mod view;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod speed_tests;
#[cfg(test)]
mod tests;

pub(crate) use blocks::BadFree;
pub use check::ArenaStat;
pub(crate) use class::SMALL_BYTES_MAX;
pub(crate) use free_bytes::FreeBytes;
pub(crate) use heap::Heap;
pub(crate) use layout::PAGE_BYTES;
pub(crate) use mapped::MapError;
pub(crate) use space::{ArenaSpace, Writes};
pub(crate) use view::ArenaView;
