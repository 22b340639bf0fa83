//! The volatile part: a B+-tree over separators, rebuilt after a crash.
//!
//! A separator is the largest key of the leaf to its left when the leaf was split (or built), so
//! a key goes to the first child whose separator is not below it.

/// Separators of a node.
const SEPARATORS_MAX: usize = 128;

/// A child: another node, or a leaf in the region.
enum Child {
    Node(Box<Node>),
    Leaf(u64),
}

/// A separator and its first bytes, big endian, so that most comparisons are of integers.
struct Separator {
    head: u64,
    key: Box<[u8]>,
}

#[derive(Default)]
struct Node {
    /// `heads[i]` belongs to `keys[i]`. A separate array, so that a search touches few lines.
    heads: Vec<u64>,
    keys: Vec<Box<[u8]>>,
    children: Vec<Child>,
}

/// The inner nodes.
pub(super) struct InnerNodes {
    root: Node,
}

fn head(key: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = key.len().min(8);
    word[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(word)
}

impl Node {
    /// The child that a key belongs to.
    fn position(&self, head: u64, key: &[u8]) -> usize {
        let mut at = self.heads.partition_point(|&h| h < head);
        while at < self.keys.len() && self.heads[at] == head && *self.keys[at] < *key {
            at += 1;
        }
        at
    }

    fn insert(&mut self, at: usize, separator: Separator, right: Child) {
        self.heads.insert(at, separator.head);
        self.keys.insert(at, separator.key);
        self.children.insert(at + 1, right);
    }

    /// Cuts the upper half off when the node is too full; returns it with the separator between the halves.
    fn split(&mut self) -> Option<(Separator, Node)> {
        if self.keys.len() <= SEPARATORS_MAX {
            return None;
        }
        let middle = self.keys.len() / 2;
        let right = Node {
            heads: self.heads.split_off(middle + 1),
            keys: self.keys.split_off(middle + 1),
            children: self.children.split_off(middle + 1),
        };
        let key = self.keys.pop()?;
        let head = self.heads.pop()?;
        Some((Separator { head, key }, right))
    }

    /// A leaf was split: `right` is new, `separator` the largest key that stays left of it.
    fn add(&mut self, separator: Separator, right: u64) -> Option<(Separator, Node)> {
        let at = self.position(separator.head, &separator.key);
        match &mut self.children[at] {
            Child::Leaf(_) => self.insert(at, separator, Child::Leaf(right)),
            Child::Node(node) => {
                if let Some((up, sibling)) = node.add(separator, right) {
                    self.insert(at, up, Child::Node(Box::new(sibling)));
                }
            }
        }
        self.split()
    }

    /// Removes the leaf of `key`; true when the node has no child left.
    fn remove(&mut self, head: u64, key: &[u8]) -> bool {
        let at = self.position(head, key);
        let empty = match &mut self.children[at] {
            Child::Leaf(_) => true,
            Child::Node(node) => node.remove(head, key),
        };
        if empty {
            self.children.remove(at);
            if !self.keys.is_empty() {
                // The neighbour takes over the range: on the right, or on the left at the end.
                let separator = at.min(self.keys.len() - 1);
                self.keys.remove(separator);
                self.heads.remove(separator);
            }
        }
        self.children.is_empty()
    }

    fn rightmost(&self) -> u64 {
        match self.children.last().expect("nodes have children") {
            Child::Leaf(leaf) => *leaf,
            Child::Node(node) => node.rightmost(),
        }
    }
}

impl InnerNodes {
    /// Inner nodes over one leaf.
    pub(super) fn new(leaf: u64) -> Self {
        Self { root: Node { children: vec![Child::Leaf(leaf)], ..Node::default() } }
    }

    /// Builds the nodes bottom-up over leaves in order, each with its largest key (Algorithm 9, line 6).
    pub(super) fn build(leaves: Vec<(Box<[u8]>, u64)>) -> Self {
        let mut level: Vec<(Box<[u8]>, Child)> =
            leaves.into_iter().map(|(k, l)| (k, Child::Leaf(l))).collect();
        loop {
            let done = level.len() <= SEPARATORS_MAX;
            let mut above = Vec::new();
            let mut items = level.into_iter().peekable();
            while items.peek().is_some() {
                let mut node = Node::default();
                let mut last: Box<[u8]> = Box::default();
                for (key, child) in items.by_ref().take(SEPARATORS_MAX) {
                    if !node.children.is_empty() {
                        node.heads.push(head(&last));
                        node.keys.push(std::mem::take(&mut last));
                    }
                    node.children.push(child);
                    last = key;
                }
                if done {
                    return Self { root: node };
                }
                above.push((last, Child::Node(Box::new(node))));
            }
            level = above;
        }
    }

    /// The leaf where a key is, or belongs.
    pub(super) fn leaf(&self, key: &[u8]) -> u64 {
        let head = head(key);
        let mut node = &self.root;
        loop {
            match &node.children[node.position(head, key)] {
                Child::Leaf(leaf) => return *leaf,
                Child::Node(below) => node = below,
            }
        }
    }

    /// The leaf before the one where a key belongs; `None` at the first.
    pub(super) fn leaf_before(&self, key: &[u8]) -> Option<u64> {
        let head = head(key);
        let mut node = &self.root;
        let mut before = None;
        loop {
            let at = node.position(head, key);
            if at > 0 {
                before = Some(&node.children[at - 1]);
            }
            match &node.children[at] {
                Child::Leaf(_) => break,
                Child::Node(below) => node = below,
            }
        }
        before.map(|child| match child {
            Child::Leaf(leaf) => *leaf,
            Child::Node(node) => node.rightmost(),
        })
    }

    /// Adds a leaf after a split: `right` holds what is above `separator`.
    pub(super) fn add(&mut self, separator: &[u8], right: u64) {
        let separator = Separator { head: head(separator), key: separator.into() };
        if let Some((up, sibling)) = self.root.add(separator, right) {
            let left = std::mem::take(&mut self.root);
            self.root.children = vec![Child::Node(Box::new(left))];
            self.root.insert(0, up, Child::Node(Box::new(sibling)));
        }
    }

    /// Removes the leaf of `key`, which was unlinked and was not the last one.
    pub(super) fn remove(&mut self, key: &[u8]) {
        self.root.remove(head(key), key);
    }
}
