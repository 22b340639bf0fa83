//! Walks all leaves in key order, while no thread writes.

use super::cursor::LAST_PLACE;
use super::directory::entry_of;
use super::layouts::load;
use super::leaf::{KeySource, Leaf};
use super::tree::Index;
use super::word::Child;

impl<K: KeySource> Index<K> {
    /// Calls `visit` with each leaf, in the order of the keys. It reads no key. The caller keeps writers out.
    pub(crate) fn in_order(&self, mut visit: impl FnMut(Leaf)) {
        // What is still to be walked, the next on top. On the heap: a tree is as deep as keys are long, and a thread
        // that closes a map may have a small stack.
        let mut stack = Vec::new();
        let mut next = self.directory.next_up(entry_of(&[]));
        while let Some(entry) = next {
            stack.push(load(&self.directory.entry(entry).root));
            while let Some(word) = stack.pop() {
                match word.child() {
                    Child::Empty => {}
                    Child::Leaf(leaf) => visit(leaf),
                    Child::Node => self.node(word).walk_down(LAST_PLACE, |_, child| {
                        if let Child::Node = child.child() {
                            child.prefetch_node();
                        }
                        stack.push(child);
                        true
                    }),
                }
            }
            next = self.directory.next_up(entry + 1);
        }
    }
}
