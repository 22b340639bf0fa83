//! Nodes: the only place that turns child words into references.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layouts::{Full, NodeHeader, NodeLayout, Ranked, Small, Sorted, load, store};
use super::lock::VersionLock;
use super::word::{NodeKind, Word};

/// A node of an index that lives for `'a`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    word: Word,
    index: PhantomData<&'a NodeHeader>,
}

/// Runs `$body` with `$layout` bound to the node in its layout.
macro_rules! in_layout {
    ($node:expr, $layout:ident => $body:expr) => {{
        let node: Node<'_> = $node;
        match node.word.kind() {
            NodeKind::N4 => {
                let $layout = node.cast::<Small>();
                $body
            }
            NodeKind::N10 => {
                let $layout = node.cast::<Sorted<10>>();
                $body
            }
            NodeKind::N16 => {
                let $layout = node.cast::<Sorted<16>>();
                $body
            }
            NodeKind::N48 => {
                let $layout = node.cast::<Ranked<48>>();
                $body
            }
            NodeKind::N256 => {
                let $layout = node.cast::<Full>();
                $body
            }
        }
    }};
}

impl<'a> Node<'a> {
    /// The node that `word` names.
    ///
    /// # Safety
    /// The word is a node's, and a `NodeArena` that lives for `'a` made it (child slots hold no others).
    #[inline]
    pub(super) unsafe fn new(word: Word) -> Self {
        Self { word, index: PhantomData }
    }

    #[inline]
    fn cast<T>(self) -> &'a T {
        // SAFETY: by the contract of `new` the address is a block of the arena, whose memory stays mapped,
        // initialised and of this kind for `'a`; all fields are atomics, so sharing it is sound whatever
        // life the node is in.
        unsafe { &*std::ptr::with_exposed_provenance::<T>(self.word.address()) }
    }

    /// The word that names the node.
    #[inline]
    pub(super) fn word(self) -> Word {
        self.word
    }

    #[inline]
    fn header(self) -> &'a NodeHeader {
        self.cast()
    }

    /// The node's lock.
    #[inline]
    pub(super) fn lock(self) -> &'a VersionLock {
        &self.header().lock
    }

    /// Index of the key byte that chooses among the children.
    #[inline]
    pub(super) fn position(self) -> usize {
        self.word.position()
    }

    /// The last (up to) 8 bytes before the position, the last one highest.
    #[inline]
    pub(super) fn tail(self) -> u64 {
        self.header().tail.load(Ordering::Relaxed)
    }

    /// The slot of the leaf whose key ends at the position.
    #[inline]
    pub(super) fn end(self) -> &'a AtomicU64 {
        &self.header().end
    }

    /// The slot of the child under `byte`.
    #[inline(always)]
    pub(super) fn find(self, byte: u8) -> Option<&'a AtomicU64> {
        in_layout!(self, layout => layout.find(byte))
    }

    /// The number of children under bytes.
    #[inline]
    pub(super) fn len(self) -> usize {
        self.header().len()
    }

    /// The number of children, including the one that ends here.
    #[inline]
    pub(super) fn total(self) -> usize {
        self.len() + usize::from(!load(self.end()).is_empty())
    }

    /// True if a child under a new byte needs a larger layout.
    #[inline]
    pub(super) fn is_full(self) -> bool {
        self.len() >= self.word.kind().capacity()
    }

    /// True if a smaller layout, or none, should hold the children.
    #[inline]
    pub(super) fn is_underfull(self) -> bool {
        match self.word.kind() {
            NodeKind::N4 => self.total() <= 1,
            kind => self.len() <= kind.shrink_len(),
        }
    }

    /// Empties the (locked, unreachable) node and sets the path before its position.
    pub(super) fn reset(self, tail: u64) {
        self.header().tail.store(tail, Ordering::Relaxed);
        store(self.end(), Word::EMPTY);
        in_layout!(self, layout => layout.clear());
    }

    /// Adds a child under a new byte, or as the end of the path; the node is locked and not full.
    pub(super) fn put(self, byte: Option<u8>, word: Word) {
        match byte {
            Some(byte) => in_layout!(self, layout => layout.put(byte, word)),
            None => store(self.end(), word),
        }
    }

    /// Removes the child, which is there; the node is locked.
    pub(super) fn take(self, byte: Option<u8>) {
        match byte {
            Some(byte) => in_layout!(self, layout => layout.take(byte)),
            None => store(self.end(), Word::EMPTY),
        }
    }

    /// Fills this empty (locked, unreachable) node with the children of `other`, which is locked.
    pub(super) fn copy_from(self, other: Node<'_>) {
        store(self.end(), load(other.end()));
        in_layout!(other, layout => layout.walk_up(0, |byte, word| {
            self.put(Some(byte), word);
            true
        }));
    }

    /// The first child in key order.
    pub(super) fn first(self) -> Word {
        let mut first = load(self.end());
        if first.is_empty() {
            in_layout!(self, layout => layout.walk_up(0, |_, word| {
                first = word;
                false
            }));
        }
        first
    }

    /// Passes the children from `place` upwards to `visit` until it returns false. Place 0 is the end of the path,
    /// place `1 + byte` the child under that byte.
    #[inline]
    pub(super) fn walk_up(self, place: i32, mut visit: impl FnMut(i32, Word) -> bool) {
        if place <= 0 {
            let end = load(self.end());
            if !end.is_empty() && !visit(0, end) {
                return;
            }
        }
        let Ok(byte) = u8::try_from((place - 1).max(0)) else { return };
        in_layout!(self, layout => layout.walk_up(byte, |byte, word| visit(1 + i32::from(byte), word)));
    }

    /// Passes the children from `place` downwards to `visit` until it returns false.
    #[inline]
    pub(super) fn walk_down(self, place: i32, mut visit: impl FnMut(i32, Word) -> bool) {
        let mut go_on = true;
        if let Ok(byte) = u8::try_from(place - 1) {
            in_layout!(self, layout => layout.walk_down(byte, |byte, word| {
                go_on = visit(1 + i32::from(byte), word);
                go_on
            }));
        }
        if go_on && place >= 0 {
            let end = load(self.end());
            if !end.is_empty() {
                visit(0, end);
            }
        }
    }
}
