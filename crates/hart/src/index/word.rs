//! The child word: nothing, a leaf, or a node with all that a reader must know before it reads the node.
//!
//! A leaf is its address with bit 0 set and its hint in bits 1..4. A node is its address (a multiple of 64 below 2^48)
//! with its kind in bits 1..4 and its *position* in bits 48..64: the index of the key byte that chooses among its
//! children. Neither changes in the life of a node. In the word they let a reader prefetch the cache line of the child
//! together with that of the version.

use super::leaf::Leaf;
use mangrove_sys::prefetch_lines;

/// Of larger nodes only the first lines are prefetched; they are few and near the root.
const PREFETCHED_BYTES_MAX: usize = 192;

const LEAF: u64 = 1;
const KIND_SHIFT: u32 = 1;
const KIND_MASK: u64 = 0b111;
const POSITION_SHIFT: u32 = 48;
const ADDRESS_MASK: u64 = ((1 << POSITION_SHIFT) - 1) & !63;

/// The node layouts, small to large. Four are those of the ART paper; 10 fills its largest gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum NodeKind {
    N4,
    N10,
    N16,
    N48,
    N256,
}

impl NodeKind {
    pub(super) const COUNT: usize = 5;
    pub(super) const ALL: [Self; Self::COUNT] = [Self::N4, Self::N10, Self::N16, Self::N48, Self::N256];

    /// Children that the layout can hold, without the one that ends at the node.
    #[inline]
    pub(super) fn capacity(self) -> usize {
        [4, 10, 16, 48, 256][self as usize]
    }

    /// Bytes of the layout, as `layouts.rs` asserts.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        [64, 128, 192, 448, 2112][self as usize]
    }

    /// At this number of children or fewer the node gets a smaller layout. It is far below the capacity, so that a
    /// node that loses its children is copied once or twice, not for each layout.
    #[inline]
    pub(super) fn shrink_len(self) -> usize {
        [0, 3, 4, 10, 16][self as usize]
    }

    /// The smallest layout for `len` children.
    #[inline]
    pub(super) fn for_len(len: usize) -> Self {
        match len {
            0..=4 => Self::N4,
            5..=10 => Self::N10,
            11..=16 => Self::N16,
            17..=48 => Self::N48,
            _ => Self::N256,
        }
    }

    #[inline]
    fn from_bits(bits: u64) -> Self {
        match bits {
            0 => Self::N4,
            1 => Self::N10,
            2 => Self::N16,
            3 => Self::N48,
            _ => Self::N256,
        }
    }
}

/// A child word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// What a child word holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Child {
    Empty,
    Leaf(Leaf),
    Node,
}

impl Word {
    pub(super) const EMPTY: Self = Self(0);

    #[inline]
    pub(super) fn leaf(leaf: Leaf) -> Self {
        Self(leaf.bits() | LEAF)
    }

    /// # Panics
    /// The machine's user addresses do not fit 48 bits, or the position does not fit 16.
    #[inline]
    pub(super) fn node(address: usize, kind: NodeKind, position: usize) -> Self {
        let address = address as u64;
        assert_eq!(address & !ADDRESS_MASK, 0, "a node's address is a multiple of 64 below 2^48");
        let position = u64::from(u16::try_from(position).expect("key positions fit 16 bits"));
        Self(address | ((kind as u64) << KIND_SHIFT) | (position << POSITION_SHIFT))
    }

    #[inline]
    pub(super) fn child(self) -> Child {
        if self.0 & LEAF != 0 {
            Leaf::from_bits(self.0 & !LEAF).map_or(Child::Empty, Child::Leaf)
        } else if self.0 == 0 {
            Child::Empty
        } else {
            Child::Node
        }
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Layout of the node.
    #[inline]
    pub(super) fn kind(self) -> NodeKind {
        NodeKind::from_bits((self.0 >> KIND_SHIFT) & KIND_MASK)
    }

    /// Index of the key byte that chooses among the node's children.
    #[inline]
    pub(super) fn position(self) -> usize {
        (self.0 >> POSITION_SHIFT) as usize
    }

    /// Address of the node.
    #[inline]
    pub(super) fn address(self) -> usize {
        (self.0 & ADDRESS_MASK) as usize
    }

    /// Prefetches the node, of a large one its first lines.
    #[inline]
    pub(super) fn prefetch_node(self) {
        let bytes = self.kind().bytes().min(PREFETCHED_BYTES_MAX);
        prefetch_lines(std::ptr::without_provenance(self.address()), bytes);
    }
}
