//! A node of the ordered map: up to 15 keys, each with a payload, in the order that one word tells.
//!
//! In a leaf the payload is a value, and the link is the next leaf. In an inner node it is the child with the keys
//! from its key on, and the link is the child with the keys before all of them.

use super::key::HeapKey;
use super::order::{EntryOrder, WIDTH};
use super::reads::Reads;
use crate::heap::{Ptr, Stop, Tx};
use bytemuck::Pod;
use std::marker::PhantomData;

/// Offsets of the word of the order and of the link.
pub(super) const AT_ORDER: usize = 0;
pub(super) const AT_LINK: usize = 8;
pub(super) const AT_KEYS: usize = 16;

/// Entries of a node that was merged, at most: the next insertions do not split it.
const MERGED_MAX: usize = 12;
/// A node with more entries looks for no neighbour to merge with.
pub(super) const SMALL_MAX: usize = 5;

/// The address of a node with payloads of type `P`.
#[derive(Debug)]
pub(super) struct NodePtr<K, P> {
    pub(super) address: usize,
    of: PhantomData<fn() -> (K, P)>,
}

impl<K, P> Clone for NodePtr<K, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, P> Copy for NodePtr<K, P> {}

/// A node that was split off, and the key that separates it from the one before it.
pub(super) struct Split<K> {
    pub(super) separator: K,
    pub(super) right: usize,
}

impl<K: HeapKey, P: Pod> NodePtr<K, P> {
    const ALIGN: usize = if align_of::<K>() > align_of::<P>() { align_of::<K>() } else { align_of::<P>() };
    const KEYS: usize = AT_KEYS.next_multiple_of(align_of::<K>());
    const PAYLOADS: usize = (Self::KEYS + WIDTH * size_of::<K>()).next_multiple_of(align_of::<P>());
    const BYTES: usize = Self::PAYLOADS + WIDTH * size_of::<P>();

    #[inline(always)]
    pub(super) const fn at(address: usize) -> Self {
        Self { address, of: PhantomData }
    }

    /// A node without entries.
    pub(super) fn make(tx: &mut Tx<'_>, link: u64) -> Result<Self, Stop> {
        let node = Self::at(tx.alloc_bytes(Self::BYTES, Self::ALIGN)?);
        node.set_order(tx, EntryOrder::EMPTY)?;
        node.set_link(tx, link)?;
        Ok(node)
    }

    #[inline(always)]
    pub(super) fn order<R: Reads>(self, reads: &mut R) -> Result<EntryOrder, R::Stop> {
        Ok(EntryOrder(reads.word(self.address + AT_ORDER)?))
    }

    pub(super) fn set_order(self, tx: &mut Tx<'_>, order: EntryOrder) -> Result<(), Stop> {
        tx.write(Ptr::at(self.address + AT_ORDER), order.0)
    }

    #[inline(always)]
    pub(super) fn link<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        reads.word(self.address + AT_LINK)
    }

    pub(super) fn set_link(self, tx: &mut Tx<'_>, link: u64) -> Result<(), Stop> {
        tx.write(Ptr::at(self.address + AT_LINK), link)
    }

    #[inline(always)]
    fn key_at(self, place: usize) -> Ptr<K> {
        Ptr::at(self.address + Self::KEYS + place * size_of::<K>())
    }

    #[inline(always)]
    pub(super) fn payload_at(self, place: usize) -> Ptr<P> {
        Ptr::at(self.address + Self::PAYLOADS + place * size_of::<P>())
    }

    #[inline(always)]
    pub(super) fn key<R: Reads>(
        self,
        reads: &mut R,
        order: EntryOrder,
        position: usize,
    ) -> Result<K, R::Stop> {
        reads.read(self.key_at(order.place(position)))
    }

    #[inline(always)]
    pub(super) fn payload<R: Reads>(
        self,
        reads: &mut R,
        order: EntryOrder,
        position: usize,
    ) -> Result<P, R::Stop> {
        reads.read(self.payload_at(order.place(position)))
    }

    /// The position of a key, or else the one at which it belongs. O(log entries).
    #[inline(always)]
    pub(super) fn search<R: Reads>(
        self,
        reads: &mut R,
        order: EntryOrder,
        query: &K::Query,
    ) -> Result<Result<usize, usize>, R::Stop> {
        let (mut from, mut to) = (0, order.len());
        while from < to {
            let middle = (from + to) / 2;
            match self.key(reads, order, middle)?.order(reads, query)? {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(Ok(middle)),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Ok(Err(from))
    }

    fn place(self, tx: &mut Tx<'_>, position: usize, key: K, payload: P) -> Result<(), Stop> {
        let (order, place) = self.order(tx)?.insert(position);
        tx.write(self.key_at(place), key)?;
        tx.write(self.payload_at(place), payload)?;
        self.set_order(tx, order)
    }

    /// Removes the entry at a position.
    pub(super) fn take(self, tx: &mut Tx<'_>, position: usize) -> Result<(), Stop> {
        let order = self.order(tx)?.remove(position);
        self.set_order(tx, order)
    }

    /// Copies the entries from `from` on to the end of another node.
    fn append(self, tx: &mut Tx<'_>, from: usize, to: Self) -> Result<(), Stop> {
        let order = self.order(tx)?;
        for position in from..order.len() {
            let (key, payload) = (self.key(tx, order, position)?, self.payload(tx, order, position)?);
            let len = to.order(tx)?.len();
            to.place(tx, len, key, payload)?;
        }
        Ok(())
    }

    fn truncate(self, tx: &mut Tx<'_>, len: usize) -> Result<(), Stop> {
        let order = self.order(tx)?.truncate(len);
        self.set_order(tx, order)
    }

    /// Puts an entry into a leaf; a full one is split first.
    pub(super) fn add_to_leaf(
        self,
        tx: &mut Tx<'_>,
        position: usize,
        key: K,
        payload: P,
    ) -> Result<Option<Split<K>>, Stop> {
        if self.order(tx)?.len() < WIDTH {
            self.place(tx, position, key, payload)?;
            return Ok(None);
        }
        let link = self.link(tx)?;
        // Keys that come in ascending order fill their leaves.
        let split_at = if link == 0 && position == WIDTH { WIDTH } else { WIDTH.div_ceil(2) };
        let right = Self::make(tx, link)?;
        self.append(tx, split_at, right)?;
        self.truncate(tx, split_at)?;
        self.set_link(tx, right.address as u64)?;
        if position > split_at || split_at == WIDTH {
            right.place(tx, position - split_at, key, payload)?;
        } else {
            self.place(tx, position, key, payload)?;
        }
        let order = right.order(tx)?;
        let separator = right.key(tx, order, 0)?.copy(tx)?;
        Ok(Some(Split { separator, right: right.address }))
    }

    /// Whether this node and the next one, with `between` entries from their parent, fit into one.
    pub(super) fn fits(self, tx: &mut Tx<'_>, right: Self, between: usize) -> Result<bool, Stop> {
        let (one, other) = (self.order(tx)?.len(), right.order(tx)?.len());
        Ok(one + other + between <= MERGED_MAX
            || one == 0 && other + between <= WIDTH
            || other == 0 && one < WIDTH)
    }

    /// Takes all of the next leaf's entries, and frees it.
    pub(super) fn merge_leaf(self, tx: &mut Tx<'_>, right: Self) -> Result<(), Stop> {
        right.append(tx, 0, self)?;
        let link = right.link(tx)?;
        self.set_link(tx, link)?;
        tx.free_bytes(right.address)
    }
}

impl<K: HeapKey> NodePtr<K, u64> {
    /// The child at `position`, of one more than there are keys.
    #[inline(always)]
    pub(super) fn child<R: Reads>(
        self,
        reads: &mut R,
        order: EntryOrder,
        position: usize,
    ) -> Result<usize, R::Stop> {
        let child = if position == 0 { self.link(reads)? } else { self.payload(reads, order, position - 1)? };
        Ok(child as usize)
    }

    /// Puts a child that was split off into an inner node; a full one is split first, and its middle key goes up.
    pub(super) fn add_child(
        self,
        tx: &mut Tx<'_>,
        position: usize,
        split: Split<K>,
    ) -> Result<Option<Split<K>>, Stop> {
        let order = self.order(tx)?;
        let Split { separator, right: child } = split;
        if order.len() < WIDTH {
            self.place(tx, position, separator, child as u64)?;
            return Ok(None);
        }
        let middle = WIDTH / 2;
        let (up, link) = (self.key(tx, order, middle)?, self.payload(tx, order, middle)?);
        let right = Self::make(tx, link)?;
        self.append(tx, middle + 1, right)?;
        self.truncate(tx, middle)?;
        if position > middle {
            right.place(tx, position - middle - 1, separator, child as u64)?;
        } else {
            self.place(tx, position, separator, child as u64)?;
        }
        Ok(Some(Split { separator: up, right: right.address }))
    }

    /// Takes all children of the next inner node, with the key that separated the two, and frees it.
    pub(super) fn merge_inner(self, tx: &mut Tx<'_>, separator: K, right: Self) -> Result<(), Stop> {
        let len = self.order(tx)?.len();
        let link = right.link(tx)?;
        self.place(tx, len, separator, link)?;
        right.append(tx, 0, self)?;
        tx.free_bytes(right.address)
    }
}
