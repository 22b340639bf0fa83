//! Bytes of the four node types of an adaptive radix tree, with the 8-byte header of WORT.
//!
//! A link is a place, with the type of what lies there in its low three bits, so that a search reads one line less.
//! Layout, all little endian, sizes multiples of 8:
//!
//! | type | at 0 | then |
//! |---|---|---|
//! | NODE4 | header | slot array u64 (four of {byte, index+1}), 4 links |
//! | NODE16 | header | bitmap u64, 16 bytes, 16 links |
//! | NODE48 | header | hint u64 (used links), 256 index bytes (0xFF none), 48 links |
//! | NODE256 | header | hint u64 (number of links), 256 links |
//!
//! The hints are never flushed, and no operation relies on them: a link slot is free only if its link is 0, and a
//! node is counted again before it shrinks.

use super::space::NodeSpace;
use mangrove_sys::equal_bytes;
use std::mem::MaybeUninit;

/// Prefix bytes kept in the header (WORT section 3: the header must be one failure-atomic word).
pub(crate) const PREFIX_BYTES_MAX: usize = 6;

/// Low bits of a link.
pub(crate) mod tag {
    pub(crate) const EMPTY: u64 = 0;
    pub(crate) const NODE4: u64 = 1;
    pub(crate) const NODE16: u64 = 2;
    pub(crate) const NODE48: u64 = 3;
    pub(crate) const NODE256: u64 = 4;
    pub(crate) const LEAF: u64 = 5;
    pub(crate) const MASK: u64 = 7;
}

/// Type of the thing that a link leads to.
#[inline]
pub(crate) fn tag_of(link: u64) -> u64 {
    link & tag::MASK
}

/// Place of the thing that a link leads to.
#[inline]
pub(crate) fn place_of(link: u64) -> u64 {
    link & !tag::MASK
}

/// Bytes of a node of a type.
pub(crate) fn bytes_of(kind: u64) -> usize {
    match kind {
        tag::NODE4 => 48,
        tag::NODE16 => 160,
        tag::NODE48 => 656,
        tag::NODE256 => 2064,
        _ => unreachable!("only inner nodes have a size here"),
    }
}

const INDEX48: u64 = 16;
const LINKS4: u64 = 16;
const LINKS16: u64 = 32;
const LINKS48: u64 = 272;
const LINKS256: u64 = 16;
const NONE48: u8 = 0xFF;

/// The first word of a node: its depth in the key, and the compressed path before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BaselineHeader {
    /// Key bytes before the compressed path.
    pub(crate) depth: usize,
    /// Bytes of the compressed path; the header has the first [`PREFIX_BYTES_MAX`] of them.
    pub(crate) len: usize,
    /// The path's first bytes.
    pub(crate) prefix: [u8; PREFIX_BYTES_MAX],
}

impl BaselineHeader {
    /// The header for the path `key[depth..depth + len]`.
    pub(crate) fn of_key(key: &[u8], depth: usize, len: usize) -> Self {
        let mut prefix = [0; PREFIX_BYTES_MAX];
        for (i, b) in prefix.iter_mut().enumerate().take(len) {
            *b = byte_at(key, depth + i);
        }
        Self { depth, len, prefix }
    }

    #[inline]
    pub(crate) fn load<S: NodeSpace>(s: &S, node: u64) -> Self {
        let b = s.load(node).to_le_bytes();
        Self { depth: b[0].into(), len: b[1].into(), prefix: [b[2], b[3], b[4], b[5], b[6], b[7]] }
    }

    /// True unless the first bytes of the path are other ones than those of the key.
    #[inline]
    pub(crate) fn leads(self, key: &[u8]) -> bool {
        let near = self.len.min(PREFIX_BYTES_MAX);
        match key.get(self.depth..self.depth + near) {
            Some(bytes) => bytes == &self.prefix[..near],
            // The path has the zero byte that ends the key.
            None => (0..near).all(|i| byte_at(key, self.depth + i) == self.prefix[i]),
        }
    }

    pub(crate) fn word(self) -> u64 {
        let p = self.prefix;
        u64::from_le_bytes([self.depth as u8, self.len as u8, p[0], p[1], p[2], p[3], p[4], p[5]])
    }
}

/// Byte `at` of a key, which ends with a zero byte as the C strings of the papers do.
#[inline]
pub(crate) fn byte_at(key: &[u8], at: usize) -> u8 {
    key.get(at).copied().unwrap_or(0)
}

/// Up to 256 children in ascending order of their bytes. Not initialised up front: a NODE4 is
/// rebuilt far more often than a NODE256.
pub(crate) struct Children {
    len: usize,
    items: [MaybeUninit<(u8, u64)>; 256],
}

impl Children {
    pub(crate) fn new() -> Self {
        Self { len: 0, items: [const { MaybeUninit::uninit() }; 256] }
    }

    pub(crate) fn as_slice(&self) -> &[(u8, u64)] {
        // SAFETY: the first `len` items are initialised (`push` and `insert` write before they count).
        unsafe { std::slice::from_raw_parts(self.items.as_ptr().cast(), self.len) }
    }

    pub(crate) fn push(&mut self, byte: u8, link: u64) {
        self.items[self.len].write((byte, link));
        self.len += 1;
    }

    pub(crate) fn insert(&mut self, byte: u8, link: u64) {
        let at = self.as_slice().partition_point(|c| c.0 < byte);
        self.items.copy_within(at..self.len, at + 1);
        self.items[at].write((byte, link));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, byte: u8) {
        if let Some(at) = self.as_slice().iter().position(|c| c.0 == byte) {
            self.items.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
    }
}

/// The children of a node, sorted, into `out`.
pub(crate) fn children<S: NodeSpace>(s: &S, link: u64, out: &mut Children) {
    let node = place_of(link);
    out.len = 0;
    match tag_of(link) {
        tag::NODE4 => {
            s.reading(node, 48);
            for_each_slot4(s.load(node + 8), |byte, idx| out.insert(byte, s.load(node + LINKS4 + 8 * idx)));
        }
        tag::NODE16 => {
            s.reading(node, 160);
            let mut map = s.load(node + 8);
            while map != 0 {
                let idx = u64::from(map.trailing_zeros());
                map &= map - 1;
                out.insert(s.load_byte(node + 16 + idx), s.load(node + LINKS16 + 8 * idx));
            }
        }
        tag::NODE48 => {
            s.reading(node, 656);
            for byte in 0..=255u8 {
                let idx = s.load_byte(node + INDEX48 + u64::from(byte));
                if idx != NONE48 {
                    out.push(byte, s.load(node + LINKS48 + 8 * u64::from(idx)));
                }
            }
        }
        _ => {
            s.reading(node, 2064);
            for byte in 0..=255u8 {
                let child = s.load(node + LINKS256 + 8 * u64::from(byte));
                if child != 0 {
                    out.push(byte, child);
                }
            }
        }
    }
}

#[inline]
fn for_each_slot4(slots: u64, mut f: impl FnMut(u8, u64)) {
    for i in 0..4 {
        let e = (slots >> (16 * i)) as u16;
        if e == 0 {
            break;
        }
        f(e as u8, u64::from(e >> 8) - 1);
    }
}

/// Place of the link for `byte` in a node, if the node has that child.
#[inline]
pub(crate) fn child_slot<S: NodeSpace>(s: &S, link: u64, byte: u8) -> Option<u64> {
    let node = place_of(link);
    match tag_of(link) {
        tag::NODE4 => {
            s.reading(node, 48);
            let slots = s.load(node + 8);
            let hits = matches4(slots, byte);
            if hits == 0 {
                return None;
            }
            let index = (slots >> (hits.trailing_zeros() & !15) >> 8) & 0xff;
            Some(node + LINKS4 + 8 * (index - 1))
        }
        tag::NODE16 => {
            s.reading(node, 32);
            let map = s.load(node + 8);
            // As libart does it.
            let mut hits = u64::from(equal_bytes([s.load(node + 16), s.load(node + 24)], byte)) & map;
            if hits == 0 {
                return None;
            }
            hits = u64::from(hits.trailing_zeros());
            s.reading(node + LINKS16 + 8 * hits, 8);
            Some(node + LINKS16 + 8 * hits)
        }
        tag::NODE48 => {
            s.reading(node, 8);
            s.reading(node + INDEX48 + u64::from(byte), 1);
            let idx = s.load_byte(node + INDEX48 + u64::from(byte));
            if idx == NONE48 {
                return None;
            }
            s.reading(node + LINKS48 + 8 * u64::from(idx), 8);
            Some(node + LINKS48 + 8 * u64::from(idx))
        }
        _ => {
            s.reading(node, 8);
            let slot = node + LINKS256 + 8 * u64::from(byte);
            s.reading(slot, 8);
            (s.load(slot) != 0).then_some(slot)
        }
    }
}

/// Bit 8 of each of the four {byte, index+1} is set where the entry is there and has this byte; not one after the
/// other, as which of them it is cannot be predicted.
#[inline]
fn matches4(slots: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x0001_0001_0001_0001;
    const BIT8: u64 = LOW << 8;
    // Bit 8 of each lane, whose value is below 256, is set unless the value is 0.
    let not_zero = |lanes: u64| ((lanes | BIT8) - LOW) & BIT8;
    let differing = slots ^ (LOW * u64::from(byte));
    let indices = (slots >> 8) & (LOW * 0xff);
    !not_zero(differing & (LOW * 0xff)) & not_zero(indices) & BIT8
}

/// Number of children, from the durable state alone for NODE4 and NODE16, from the hint otherwise.
pub(crate) fn count<S: NodeSpace>(s: &S, link: u64) -> usize {
    let word = s.load(place_of(link) + 8);
    match tag_of(link) {
        tag::NODE4 => (0..4).take_while(|i| (word >> (16 * i)) as u16 != 0).count(),
        tag::NODE16 | tag::NODE48 => word.count_ones() as usize,
        _ => word as usize,
    }
}

/// The smallest type that holds `len` children.
pub(crate) fn kind_for(len: usize) -> u64 {
    match len {
        0..=4 => tag::NODE4,
        5..=16 => tag::NODE16,
        17..=48 => tag::NODE48,
        _ => tag::NODE256,
    }
}

/// Makes and persists a node of `kind` with these children. Nothing refers to it yet.
pub(crate) fn build<S: NodeSpace>(s: &S, kind: u64, header: BaselineHeader, items: &[(u8, u64)]) -> u64 {
    match kind {
        tag::NODE4 => build_sized::<S, 48>(s, kind, header, items),
        tag::NODE16 => build_sized::<S, 160>(s, kind, header, items),
        tag::NODE48 => build_sized::<S, 656>(s, kind, header, items),
        _ => build_sized::<S, 2064>(s, kind, header, items),
    }
}

fn build_sized<S: NodeSpace, const BYTES: usize>(
    s: &S,
    kind: u64,
    header: BaselineHeader,
    items: &[(u8, u64)],
) -> u64 {
    let mut image = [0u8; BYTES];
    let mut put =
        |at: u64, word: u64| image[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    put(0, header.word());
    match kind {
        tag::NODE4 => {
            let mut slots = 0u64;
            for (i, &(byte, link)) in items.iter().enumerate() {
                slots |= (u64::from(byte) | (i as u64 + 1) << 8) << (16 * i);
                put(LINKS4 + 8 * i as u64, link);
            }
            put(8, slots);
        }
        tag::NODE16 => {
            put(8, (1u64 << items.len()) - 1);
            for (i, &(_, link)) in items.iter().enumerate() {
                put(LINKS16 + 8 * i as u64, link);
            }
            for (i, &(byte, _)) in items.iter().enumerate() {
                image[16 + i] = byte;
            }
        }
        tag::NODE48 => {
            put(8, (1u64 << items.len()) - 1);
            for (i, &(_, link)) in items.iter().enumerate() {
                put(LINKS48 + 8 * i as u64, link);
            }
            image[INDEX48 as usize..INDEX48 as usize + 256].fill(NONE48);
            for (i, &(byte, _)) in items.iter().enumerate() {
                image[INDEX48 as usize + usize::from(byte)] = i as u8;
            }
        }
        _ => {
            put(8, items.len() as u64);
            for &(byte, link) in items {
                put(LINKS256 + 8 * u64::from(byte), link);
            }
        }
    }
    let node = s.alloc(BYTES);
    s.write(node, &image);
    s.persist(node, BYTES);
    node | kind
}

/// Adds a child in place. False when the node is full.
///
/// WOART sections 4.2-4.4: the link is persisted before the word or byte that makes it valid.
pub(crate) fn add_in_place<S: NodeSpace>(s: &S, link: u64, byte: u8, child: u64) -> bool {
    let node = place_of(link);
    match tag_of(link) {
        tag::NODE4 => {
            let slots = s.load(node + 8);
            let len = count(s, link);
            if len == 4 {
                return false;
            }
            let mut used = 0u64;
            for_each_slot4(slots, |_, idx| used |= 1 << idx);
            let idx = u64::from(used.trailing_ones());
            s.store(node + LINKS4 + 8 * idx, child);
            s.persist(node + LINKS4 + 8 * idx, 8);
            s.store(node + 8, slot4_with(slots, len, byte, idx));
            s.persist(node + 8, 8);
        }
        tag::NODE16 => {
            let map = s.load(node + 8);
            let idx = u64::from(map.trailing_ones());
            if idx == 16 {
                return false;
            }
            s.store_byte(node + 16 + idx, byte);
            s.store(node + LINKS16 + 8 * idx, child);
            s.flush(node + 16 + idx, 1);
            s.persist(node + LINKS16 + 8 * idx, 8);
            s.store(node + 8, map | 1 << idx);
            s.persist(node + 8, 8);
        }
        tag::NODE48 => {
            let used = s.load(node + 8);
            let mut idx = u64::from(used.trailing_ones());
            if idx >= 48 || s.load(node + LINKS48 + 8 * idx) != 0 {
                match (0..48).find(|i| s.load(node + LINKS48 + 8 * i) == 0) {
                    Some(free) => idx = free,
                    None => return false,
                }
            }
            s.store(node + LINKS48 + 8 * idx, child);
            s.persist(node + LINKS48 + 8 * idx, 8);
            s.store_byte(node + INDEX48 + u64::from(byte), idx as u8);
            s.persist(node + INDEX48 + u64::from(byte), 1);
            s.store(node + 8, used | 1 << idx);
        }
        _ => {
            let slot = node + LINKS256 + 8 * u64::from(byte);
            s.store(slot, child);
            s.persist(slot, 8);
            s.store(node + 8, s.load(node + 8) + 1);
        }
    }
    true
}

/// The slot array with one more entry, ascending by byte.
fn slot4_with(slots: u64, len: usize, byte: u8, idx: u64) -> u64 {
    let entry = u64::from(byte) | (idx + 1) << 8;
    let at = (0..len).position(|i| (slots >> (16 * i)) as u8 > byte).unwrap_or(len);
    let low = slots & ((1u64 << (16 * at)) - 1);
    let high = slots & !((1u64 << (16 * at)) - 1);
    low | entry << (16 * at) | high << 16
}

/// Removes a child in place by its validating word or byte: one persist.
pub(crate) fn remove_in_place<S: NodeSpace>(s: &S, link: u64, byte: u8, slot: u64) {
    let node = place_of(link);
    match tag_of(link) {
        tag::NODE4 => {
            let slots = s.load(node + 8);
            let at =
                (0..4).position(|i| (slots >> (16 * i)) as u8 == byte && (slots >> (16 * i)) as u16 != 0);
            let at = at.expect("the child was found in this node");
            let low = slots & ((1u64 << (16 * at)) - 1);
            let high = if at == 3 { 0 } else { slots >> (16 * (at + 1)) << (16 * at) };
            s.store(node + 8, low | high);
            s.persist(node + 8, 8);
        }
        tag::NODE16 => {
            let idx = (slot - node - LINKS16) / 8;
            s.store(node + 8, s.load(node + 8) & !(1 << idx));
            s.persist(node + 8, 8);
        }
        tag::NODE48 => {
            let idx = (slot - node - LINKS48) / 8;
            s.store_byte(node + INDEX48 + u64::from(byte), NONE48);
            s.persist(node + INDEX48 + u64::from(byte), 1);
            s.store(slot, 0);
            s.store(node + 8, s.load(node + 8) & !(1 << idx));
        }
        _ => {
            s.store(slot, 0);
            s.persist(slot, 8);
            s.store(node + 8, s.load(node + 8).saturating_sub(1));
        }
    }
}
