//! Walks all leaves in key order, while no thread writes.

use super::directory::entry_of;
use super::layouts::load;
use super::leaf::{KeySource, Leaf};
use super::tree::Index;
use super::word::{Child, Word};

impl<K: KeySource> Index<K> {
    /// Calls `visit` with each leaf, in the order of the keys. It reads no key. The caller keeps writers out.
    pub(crate) fn in_order(&self, mut visit: impl FnMut(Leaf)) {
        let mut next = self.directory.next_up(entry_of(&[]));
        while let Some(entry) = next {
            self.walk(load(&self.directory.entry(entry).root), &mut visit);
            next = self.directory.next_up(entry + 1);
        }
    }

    /// As deep as keys are long, at most.
    fn walk(&self, word: Word, visit: &mut impl FnMut(Leaf)) {
        match word.child() {
            Child::Empty => {}
            Child::Leaf(leaf) => visit(leaf),
            Child::Node => {
                let node = self.node(word);
                node.walk_up(0, |_, child| {
                    if let Child::Node = child.child() {
                        child.prefetch_node();
                    }
                    true
                });
                node.walk_up(0, |_, child| {
                    self.walk(child, visit);
                    true
                });
            }
        }
    }
}
