//! Brings near what lookups of many keys will touch, their cache misses at the same time.

use super::directory::entry_of;
use super::layouts::load;
use super::leaf::KeySource;
use super::tree::Index;
use super::word::{Child, Word};
use mangrove_sys::{prefetch_lines, prefetch_read};

/// Keys whose walks go side by side: about as many cache misses as a processor has under way at once.
const WALKS: usize = 16;
/// Of larger nodes only the first lines are asked for; they are few and near the root.
const NODE_BYTES_MAX: usize = 192;

impl<K: KeySource> Index<K> {
    /// Asks for the nodes on the way to each key, and for its leaf. A hint: what it reads is not validated, and
    /// late readers of a node land in a node again (see `arena.rs`).
    pub(crate) fn warm<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) {
        loop {
            let mut walks: [(&[u8], Word); WALKS] = [(&[], Word::EMPTY); WALKS];
            let mut count = 0;
            for (walk, key) in walks.iter_mut().zip(keys.by_ref()) {
                walk.0 = key;
                prefetch_read(std::ptr::from_ref(self.directory.entry(entry_of(key))).cast());
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
            prefetch_read(std::ptr::without_provenance(leaf.address() as usize));
            Word::EMPTY
        }
        Child::Node => {
            let bytes = word.kind().bytes().min(NODE_BYTES_MAX);
            prefetch_lines(std::ptr::without_provenance(word.address()), bytes);
            word
        }
    }
}
