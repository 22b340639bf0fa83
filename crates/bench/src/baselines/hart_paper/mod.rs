//! HART as its paper writes it ("HART-paper" in the reports).
//!
//! Source: "HART: A Concurrent Hash-Assisted Radix Tree for DRAM-PM Hybrid Memory Systems", sections III and IV-G,
//! Algorithms 1 to 7. Persists: 6 an insertion, 8 an update, 2 a deletion, besides chunk allocation and recycling;
//! the golden test in `tree.rs` holds them.
//!
//! What had to change for it to be correct, or not to be a strawman:
//! 1. Algorithm 2, lines 12-16 (repair of a stale p_value at the next allocation) frees live values of other keys.
//!    Here the leaf bit alone commits; recovery frees values that no live leaf has.
//! 2. Algorithm 2 reserves nothing before the bit is set, though two trees may allocate at once: a volatile mask
//!    reserves.
//! 3. Algorithm 2, lines 1-7 walk the chunk list, and Algorithm 6, line 8 walks it for the predecessor: both
//!    quadratic. Here there are volatile stacks of chunks with free objects, and volatile back links.
//! 4. Algorithm 3: lines 7 and 9 are persisted, and line 10 recycles the chunk of the old value.
//! 5. LogReclaim clears PNewV, POldV, PLeaf in this order in one cache line, so recovery recognises a torn clear.
//! 6. Algorithm 6: under the class's lock; recovery looks in the list whether PCurrent is still there.
//! 7. With k_h = 2 the hash table is an array of 65,536 trees without collisions; short hash keys are padded with a
//!    zero byte; trees are never freed (Algorithm 5, lines 15-16 would free one that another thread waits for).
//! 8. Algorithm 7 advances to the next chunk, replays the logs first and rebuilds volatile state.
//! 9. Only 8-byte values: the bench stores no others.

mod epalloc;
mod recover;
mod tree;

pub(crate) use tree::HartPaper;
