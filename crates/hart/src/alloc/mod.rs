//! EPallocator: durable slots in chunks of 56, segments, extents (paper, section III-A.4, Algorithms 2 and 6).

mod cache;
mod evacuate;
mod garbage;
mod leafbit;
mod moving;
mod segments;
mod slab;
mod without_space;

pub(crate) use segments::provide_again;
pub(crate) use slab::SlabAllocator;
pub(crate) use without_space::WithoutSpace;
