//! Brings near what lookups of many keys will touch, their cache misses at the same time.

use super::directory::entry_of;
use super::layouts::load;
use super::leaf::KeySource;
use super::tree::Index;
use super::word::{Child, Kind, Word};

/// Keys whose walks go side by side: about as many cache misses as a processor has under way at once.
const WALKS: usize = 16;
/// Of larger nodes only the first lines are asked for; they are few and near the root.
const NODE_BYTES_MAX: usize = 192;
const LINE_BYTES: usize = 64;

impl<K: KeySource> Index<K> {
    /// Asks for the nodes on the way to each key, and for its leaf. A hint: what it reads is not validated, and
    /// late readers of a node land in a node again (see `arena.rs`).
    pub(crate) fn warm<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) {
        loop {
            let mut walks: [(&[u8], Word); WALKS] = [(&[], Word::EMPTY); WALKS];
            let mut count = 0;
            for (walk, key) in walks.iter_mut().zip(keys.by_ref()) {
                walk.0 = key;
                prefetch(std::ptr::from_ref(self.directory.entry(entry_of(key))).cast(), 1);
                count += 1;
            }
            if count == 0 {
                return;
            }
            let walks = &mut walks[..count];
            for (key, word) in walks.iter_mut() {
                *word = ask(load(&self.directory.entry(entry_of(key)).root));
            }
            while walks.iter().any(|(_, word)| !word.is_empty()) {
                for (key, word) in walks.iter_mut().filter(|(_, word)| !word.is_empty()) {
                    let node = self.node(*word);
                    let child = match key.get(node.position()) {
                        Some(byte) => node.find(*byte).map_or(Word::EMPTY, load),
                        None => load(node.end()),
                    };
                    *word = ask(child);
                }
            }
        }
    }
}

/// Asks for what the word names; answers the word if it is a node's, else the empty one.
fn ask(word: Word) -> Word {
    match word.child() {
        Child::Empty => Word::EMPTY,
        Child::Leaf(leaf) => {
            prefetch(std::ptr::without_provenance(leaf.address() as usize), 1);
            Word::EMPTY
        }
        Child::Node => {
            let kind: Kind = word.kind();
            let lines = kind.bytes().min(NODE_BYTES_MAX) / LINE_BYTES;
            prefetch(std::ptr::without_provenance(word.address()), lines);
            word
        }
    }
}

fn prefetch(from: *const u8, lines: usize) {
    for line in 0..lines {
        mangrove_sys::prefetch_read(from.wrapping_add(line * LINE_BYTES));
    }
}
