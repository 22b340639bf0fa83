//! The structures of the papers, written from the papers on the primitives of `pool`, so that the same medium and
//! the same latencies apply to all of them and to Mangrove.

mod artcow;
mod fptree;
mod hart_paper;
mod nodes;
mod palloc;
mod part;
mod persistent_radix;
mod radix;
mod space;
mod volatile_art;
mod woart;

#[cfg(test)]
mod model_tests;

pub(crate) use artcow::ArtCow;
pub(crate) use fptree::FpTree;
pub(crate) use hart_paper::HartPaper;
pub(crate) use part::PArt;
pub(crate) use volatile_art::VolatileArt;
pub(crate) use woart::Woart;
