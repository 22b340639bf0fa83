//! Walks an index without writers and checks the invariants of `tree.rs`.

use super::super::layouts::load;
use super::super::leaf::{KeySource, Leaf};
use super::super::node::Node;
use super::super::word::{Child, NodeKind, Word};
use super::super::{ENTRY_COUNT, Index, entry_of, keys};

/// All leaves in order; panics where an invariant does not hold.
pub(super) fn audit<K: KeySource>(index: &Index<K>) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut nodes = [0; NodeKind::COUNT];
    let mut filled = Vec::new();
    for entry in 0..ENTRY_COUNT {
        let word = load(&index.directory.entry(entry).root);
        if !word.is_empty() {
            filled.push(entry);
        }
        let first = leaves.len();
        visit(index, word, 2, &mut leaves, &mut nodes);
        for leaf in &leaves[first..] {
            let mut key = Vec::new();
            keys::copy(&index.keys, *leaf, &mut key);
            assert_eq!(entry_of(&key), entry);
        }
    }
    let next_up = |entry| index.directory.next_up(entry);
    assert!(std::iter::successors(next_up(0), |entry| next_up(entry + 1)).eq(filled.iter().copied()));
    let next_down = |entry| index.directory.next_down(entry);
    let downwards =
        std::iter::successors(next_down(ENTRY_COUNT - 1), |entry| next_down(entry.checked_sub(1)?));
    assert!(downwards.eq(filled.iter().rev().copied()), "the directory's bitmap says what is filled");
    assert!(leaves.is_sorted_by(|a, b| keys::compare(&index.keys, *a, *b).is_lt()), "leaves are ordered");
    assert_eq!(index.stats().nodes, nodes, "every node in use is in the tree, none leaked");
    leaves
}

fn visit<K: KeySource>(
    index: &Index<K>,
    word: Word,
    depth: usize,
    leaves: &mut Vec<Leaf>,
    nodes: &mut [u64; NodeKind::COUNT],
) {
    match word.child() {
        Child::Empty => {}
        Child::Leaf(leaf) => leaves.push(leaf),
        Child::Node => {
            let node = index.node(word);
            nodes[word.kind() as usize] += 1;
            assert!(node.position() >= depth, "positions grow");
            assert!(!node.is_underfull(), "{:?} with {} children", word.kind(), node.total());
            assert!(node.lock().read().is_ok(), "unlocked and alive");
            let first = leaves.len();
            let mut len = 0;
            let mut places = Vec::new();
            node.walk_up(0, |place, child| {
                places.push(place);
                let before = leaves.len();
                visit(index, child, node.position() + 1, leaves, nodes);
                for leaf in &leaves[before..] {
                    let byte = keys::byte_of(&index.keys, *leaf, node.position());
                    assert_eq!(place, byte.map_or(0, |byte| 1 + i32::from(byte)), "leaf under its byte");
                }
                len += usize::from(place > 0);
                true
            });
            assert_eq!(len, node.len(), "the count is that of the children");
            let mut downwards = Vec::new();
            node.walk_down(256, |place, _| {
                downwards.push(place);
                true
            });
            downwards.reverse();
            assert_eq!(places, downwards, "both directions see the same children");
            check_path(index, node, &leaves[first..]);
        }
    }
}

fn check_path<K: KeySource>(index: &Index<K>, node: Node<'_>, leaves: &[Leaf]) {
    let path = |leaf: Leaf| {
        let mut key = Vec::new();
        keys::copy(&index.keys, leaf, &mut key);
        key.truncate(node.position());
        key
    };
    let first = path(leaves[0]);
    assert_eq!(first.len(), node.position());
    assert_eq!(keys::tail_of(&first, node.position()), node.tail(), "the tail is the path's");
    for leaf in leaves {
        assert_eq!(path(*leaf), first, "keys below a node agree before its position");
    }
}
