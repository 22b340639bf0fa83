//! A heap that holds words, which swaps exchange through the calls that programs use.

use super::load::Random;
use super::place::LOG_BYTES;
use anyhow::ensure;
use mangrove_txn::{Create, Domain, Heap, HeapOptions, Latency, Medium, Ptr};
use std::path::Path;

/// Words that one transaction fills.
const BATCH: usize = 1 << 13;

/// Media by their names in the report.
pub(super) const MEDIA: [(&str, Medium); 2] =
    [("ADR", Medium::Emulated(Latency::new(0, 0))), ("file", Medium::File)];

/// The words of an open heap.
pub(super) struct HeapWords {
    pub(super) heap: Heap,
    base: usize,
    count: usize,
}

fn options(medium: Medium, words: usize) -> HeapOptions {
    let capacity = words as u64 * 16 + (64 << 20);
    let options =
        HeapOptions::new().create(Create::IfMissing).medium(medium).capacity(capacity).log_bytes(LOG_BYTES);
    // A file has no caches that could persist.
    if matches!(medium, Medium::Emulated(_)) { options.domain(Domain::Adr) } else { options }
}

impl HeapWords {
    /// A new heap with the numbers below `words`, a power of two.
    pub(super) fn create(path: &Path, medium: Medium, words: usize) -> anyhow::Result<Self> {
        let heap = options(medium, words).open(path)?;
        let base = heap.transaction(|tx| tx.alloc_bytes(words * 8, 64))?;
        for from in (0..words).step_by(BATCH) {
            let to = words.min(from + BATCH);
            let bytes: Vec<u8> = (from..to).flat_map(|number| (number as u64).to_le_bytes()).collect();
            heap.transaction(|tx| tx.write_bytes(base + from * 8, &bytes))?;
        }
        Ok(Self { heap, base, count: words })
    }

    /// Two words at random.
    pub(super) fn pair(&self, random: &mut Random) -> [Ptr<u64>; 2] {
        [(); 2].map(|()| Ptr::at(self.base + random.below(self.count) * 8))
    }

    /// Closes the heap, opens the one at `path`, this one or a copy, and looks whether each number is there once.
    pub(super) fn verify(self, path: &Path, medium: Medium) -> anyhow::Result<()> {
        let (base, count) = (self.base, self.count);
        self.heap.close()?;
        let heap = options(medium, count).open(path)?;
        ensure!(!heap.was_created(), "the heap was made anew");
        let mut seen = vec![false; count];
        for from in (0..count).step_by(BATCH) {
            heap.transaction(|tx| {
                for at in from..count.min(from + BATCH) {
                    let word = tx.read(Ptr::<u64>::at(base + at * 8))?;
                    if let Some(seen) = seen.get_mut(word as usize) {
                        *seen = true;
                    }
                }
                Ok(())
            })?;
        }
        ensure!(seen.into_iter().all(|seen| seen), "the words are not what swaps leave");
        Ok(heap.close()?)
    }
}
