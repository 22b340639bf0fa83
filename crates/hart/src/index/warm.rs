//! Prefetches what lookups of many keys will read, so that their cache misses overlap.

use super::directory::entry_of;
use super::layouts::load;
use super::leaf::{KeySource, Leaf};
use super::tree::Index;
use super::word::{Child, Word};
use mangrove_sys::prefetch_read;

/// Keys whose walks advance together: about as many cache misses as a processor handles at once.
pub(crate) const WALKS: usize = 16;

impl<K: KeySource> Index<K> {
    /// Prefetches the nodes on the way to each key, and its leaf. This validates nothing that it reads; a late reader
    /// of a node still finds a node in its place (see `arena.rs`).
    pub(crate) fn warm<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) {
        let mut group: [&[u8]; WALKS] = [&[]; WALKS];
        loop {
            let count = group.iter_mut().zip(keys.by_ref()).map(|(place, key)| *place = key).count();
            if count == 0 {
                return;
            }
            self.walk_abreast(&group[..count], |_| {});
        }
    }

    /// As [`Index::warm`], for up to [`WALKS`] keys. Calls `arrive` with the leaves at which the walks end; each may
    /// be another key's, or no longer in use.
    #[inline]
    pub(crate) fn walk_abreast(&self, keys: &[&[u8]], mut arrive: impl FnMut(Leaf)) {
        let mut words = [Word::EMPTY; WALKS];
        let words = &mut words[..keys.len()];
        for key in keys {
            prefetch_read(std::ptr::from_ref(self.directory.entry(entry_of(key))).cast());
        }
        let mut ask = |word: Word| match word.child() {
            Child::Empty => Word::EMPTY,
            Child::Leaf(leaf) => {
                leaf.prefetch();
                arrive(leaf);
                Word::EMPTY
            }
            Child::Node => {
                word.prefetch_node();
                word
            }
        };
        for (word, key) in words.iter_mut().zip(keys) {
            *word = ask(load(&self.directory.entry(entry_of(key)).root));
        }
        while words.iter().any(|word| !word.is_empty()) {
            for (word, key) in words.iter_mut().zip(keys).filter(|(word, _)| !word.is_empty()) {
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
