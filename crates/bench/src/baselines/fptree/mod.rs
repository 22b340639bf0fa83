//! FPTree: a B+-tree with fingerprinted, unsorted leaves in persistent memory and its inner nodes in DRAM.
//!
//! Source: Oukid, Lasperas, Nica, Willhalm, Lehner, "FPTree: A Hybrid SCM-DRAM Persistent and Concurrent B-Tree for
//! Storage Class Memory" (SIGMOD'16), sections 4 and 5: fingerprints, bitmap commit, micro-logs for splits and leaf
//! deletion (Algorithms 3, 6, 7), variable-size keys behind pointers (section 5.5, Algorithms 10 to 15), recovery
//! by a walk of the leaf list (Algorithm 9).
//!
//! Deviations:
//! 1. One thread: no HTM, no leaf locks (cheaper than the original on one thread).
//! 2. Pointers are 8-byte offsets where PMDK's are 16 bytes: smaller leaves.
//! 3. Inner nodes hold up to 128 separators (the paper tunes 2,048 for strings on its machine, a memmove of 16 KiB
//!    an insertion). The first 8 bytes of each stand in an array of their own, so that a descent compares integers.
//!    Separators own their bytes.
//! 4. A fingerprint and the bitmap share one cache line, but the fingerprint is persisted with the key-value pair
//!    and the bitmap after it, as printed.
//! 5. Allocation as in `palloc.rs`; no leaf groups (section 4.3) are needed above it.
//! 6. Values are 8 bytes, in the leaf, as in the paper.

mod inner;
mod leaf;
mod tree;

pub(crate) use tree::FpTree;
