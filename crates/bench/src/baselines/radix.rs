//! The adaptive radix tree that the baselines share: search, insert, delete, ordered walk.
//!
//! Source: Leis et al., "The Adaptive Radix Tree" (ICDE'13), with the durable orders of Lee et
//! al., "WORT" (FAST'17), section 4, and of Lee et al., "RECIPE" (SOSP'19), section 6.4. In DRAM
//! (HART's inner nodes, the volatile bound) the persists compile to nothing.
//!
//! Keys end with a zero byte, as in the papers' C implementations, so no key may contain one; a
//! key that is a prefix of another is then an ordinary key. Keys have at most 254 bytes.
//!
//! Invariants:
//! 1. A node becomes reachable by one 8-byte store of a link, after it was persisted.
//! 2. `header.depth + header.len` never changes while a node lives: a search needs no more than
//!    this to survive a header that a crash left one step behind (WORT, section 3.2).

use super::nodes::{
    BaselineHeader, Children, PREFIX_BYTES_MAX, add_in_place, build, byte_at, bytes_of, child_slot, children,
    count, kind_for, place_of, remove_in_place, tag, tag_of,
};
use super::space::NodeSpace;

/// How a structure changes nodes that others may be reading after a crash.
pub(crate) trait Discipline {
    /// NODE4, NODE16 and compressed paths are never changed in place (ART+CoW).
    const COPY_ON_WRITE: bool;
}

/// In-place changes ordered by persists: WOART, P-ART, and anything in DRAM.
pub(crate) struct InPlace;

impl Discipline for InPlace {
    const COPY_ON_WRITE: bool = false;
}

/// Copies of small nodes: ART+CoW.
pub(crate) struct CopyOnWrite;

impl Discipline for CopyOnWrite {
    const COPY_ON_WRITE: bool = true;
}

/// The leaf of `key` in the tree whose root link is at `root`; the tree's keys share their first
/// `depth` bytes.
#[inline]
pub(crate) fn find<S: NodeSpace>(s: &S, root: u64, key: &[u8], mut depth: usize) -> Option<u64> {
    let mut slot = root;
    loop {
        let link = s.load(slot);
        match tag_of(link) {
            tag::EMPTY => return None,
            tag::LEAF => return (s.leaf_key(place_of(link)) == key).then_some(place_of(link)),
            _ => {}
        }
        let h = BaselineHeader::load(s, place_of(link));
        // Most nodes have no compressed path, and most paths of those that have one are those of the key.
        if h.len > 0 && h.depth == depth && !h.leads(key) {
            return None;
        }
        depth = h.depth + h.len;
        if depth > key.len() {
            return None;
        }
        slot = child_slot(s, link, byte_at(key, depth))?;
        depth += 1;
    }
}

/// Puts the leaf that `make` creates (and persists) into the tree.
///
/// # Errors
/// The leaf that has the key already; `make` was not called then.
pub(crate) fn insert<S: NodeSpace, D: Discipline>(
    s: &S,
    root: u64,
    key: &[u8],
    start: usize,
    make: impl FnOnce() -> u64,
) -> Result<(), u64> {
    debug_assert!(key.len() < 255 && !key.contains(&0));
    let mut slot = root;
    let mut depth = start;
    loop {
        let link = s.load(slot);
        match tag_of(link) {
            tag::EMPTY => {
                replace(s, slot, make() | tag::LEAF);
                return Ok(());
            }
            tag::LEAF => {
                let other = place_of(link);
                let other_key = s.leaf_key(other);
                if other_key == key {
                    return Err(other);
                }
                let common = common_bytes(key, other_key, depth);
                let leaf = make() | tag::LEAF;
                let ours = (byte_at(key, depth + common), leaf);
                let theirs = (byte_at(other_key, depth + common), link);
                let header = BaselineHeader::of_key(key, depth, common);
                replace(s, slot, build(s, tag::NODE4, header, &ordered(ours, theirs)));
                return Ok(());
            }
            _ => {}
        }
        let h = current_header(s, link, depth);
        let same = matching_bytes(s, link, h, key);
        if same < h.len {
            split_path::<S, D>(s, slot, link, h, key, same, make);
            return Ok(());
        }
        depth += h.len;
        let byte = byte_at(key, depth);
        if let Some(child) = child_slot(s, link, byte) {
            slot = child;
            depth += 1;
            continue;
        }
        let leaf = make() | tag::LEAF;
        add_child::<S, D>(s, slot, link, h, byte, leaf);
        return Ok(());
    }
}

/// Takes `key` out of the tree and returns its leaf, which the caller frees.
pub(crate) fn remove<S: NodeSpace, D: Discipline>(s: &S, root: u64, key: &[u8], start: usize) -> Option<u64> {
    let mut above: Option<(u64, u64, BaselineHeader, u8)> = None;
    let mut slot = root;
    let mut depth = start;
    loop {
        let link = s.load(slot);
        match tag_of(link) {
            tag::EMPTY => return None,
            tag::LEAF => {
                if s.leaf_key(place_of(link)) != key {
                    return None;
                }
                match above {
                    None => replace(s, root, 0),
                    Some((parent, node, header, byte)) => {
                        remove_child::<S, D>(s, parent, node, header, byte, slot);
                    }
                }
                return Some(place_of(link));
            }
            _ => {}
        }
        let h = current_header(s, link, depth);
        for (i, p) in h.prefix.iter().enumerate().take(h.len.min(PREFIX_BYTES_MAX)) {
            if byte_at(key, depth + i) != *p {
                return None;
            }
        }
        depth = h.depth + h.len;
        if depth > key.len() {
            return None;
        }
        let byte = byte_at(key, depth);
        let child = child_slot(s, link, byte)?;
        above = Some((slot, link, h, byte));
        slot = child;
        depth += 1;
    }
}

/// Visits leaves in ascending order of their keys, from `lower` on, while `visit` returns true.
pub(crate) fn walk<S: NodeSpace>(
    s: &S,
    link: u64,
    depth: usize,
    lower: Option<&[u8]>,
    visit: &mut dyn FnMut(u64) -> bool,
) -> bool {
    match tag_of(link) {
        tag::EMPTY => return true,
        tag::LEAF => {
            let leaf = place_of(link);
            return lower.is_some_and(|l| s.leaf_key(leaf) < l) || visit(leaf);
        }
        _ => {}
    }
    let h = BaselineHeader::load(s, place_of(link));
    let branch = h.depth + h.len;
    let mut lower = lower;
    if let Some(l) = lower {
        // The path from the leftmost leaf: it is complete and up to date, unlike the header's.
        let path = s.leaf_key(leftmost(s, link));
        for at in depth..branch {
            match byte_at(path, at).cmp(&byte_at(l, at)) {
                std::cmp::Ordering::Less => return true,
                std::cmp::Ordering::Greater => {
                    lower = None;
                    break;
                }
                std::cmp::Ordering::Equal => {}
            }
        }
    }
    let mut items = Children::new();
    children(s, link, &mut items);
    for &(byte, child) in items.as_slice() {
        let below = match lower {
            Some(l) if byte < byte_at(l, branch) => continue,
            Some(l) if byte == byte_at(l, branch) => Some(l),
            _ => None,
        };
        if !walk(s, child, branch + 1, below, visit) {
            return false;
        }
    }
    true
}

/// Frees all inner nodes below a link, and passes every leaf to `leaf`.
pub(crate) fn tear_down<S: NodeSpace>(s: &S, link: u64, leaf: &mut dyn FnMut(u64)) {
    match tag_of(link) {
        tag::EMPTY => {}
        tag::LEAF => leaf(place_of(link)),
        kind => {
            let mut items = Children::new();
            children(s, link, &mut items);
            for &(_, child) in items.as_slice() {
                tear_down(s, child, leaf);
            }
            s.free(place_of(link), bytes_of(kind));
        }
    }
}

fn ordered(a: (u8, u64), b: (u8, u64)) -> [(u8, u64); 2] {
    if a.0 < b.0 { [a, b] } else { [b, a] }
}

/// The commit of every structural change: one failure-atomic store, persisted.
fn replace<S: NodeSpace>(s: &S, slot: u64, link: u64) {
    s.store(slot, link);
    s.persist(slot, 8);
}

fn common_bytes(a: &[u8], b: &[u8], from: usize) -> usize {
    let end = a.len().min(b.len());
    (from..end).take_while(|&i| a[i] == b[i]).count()
}

fn leftmost<S: NodeSpace>(s: &S, mut link: u64) -> u64 {
    while tag_of(link) != tag::LEAF {
        if tag_of(link) == tag::NODE4 {
            // The slot array is sorted: its first entry is the least.
            let first = s.load(place_of(link) + 8) as u16;
            let byte = first as u8;
            link = s.load(child_slot(s, link, byte).expect("the first entry exists"));
            continue;
        }
        let mut items = Children::new();
        children(s, link, &mut items);
        link = items.as_slice()[0].1;
    }
    place_of(link)
}

/// The node's header, repaired first when a crash came between a change above it and this header.
fn current_header<S: NodeSpace>(s: &S, link: u64, depth: usize) -> BaselineHeader {
    let node = place_of(link);
    let h = BaselineHeader::load(s, node);
    if h.depth == depth {
        return h;
    }
    let len = h.depth + h.len - depth;
    let right = BaselineHeader::of_key(s.leaf_key(leftmost(s, link)), depth, len);
    s.store(node, right.word());
    s.persist(node, 8);
    right
}

/// How many bytes of the node's path `key` shares.
fn matching_bytes<S: NodeSpace>(s: &S, link: u64, h: BaselineHeader, key: &[u8]) -> usize {
    let near = h.len.min(PREFIX_BYTES_MAX);
    for (i, p) in h.prefix.iter().enumerate().take(near) {
        if byte_at(key, h.depth + i) != *p {
            return i;
        }
    }
    if h.len <= PREFIX_BYTES_MAX {
        return h.len;
    }
    let path = s.leaf_key(leftmost(s, link));
    (near..h.len).find(|&i| byte_at(key, h.depth + i) != byte_at(path, h.depth + i)).unwrap_or(h.len)
}

/// The key leaves the node's compressed path after `same` bytes.
fn split_path<S: NodeSpace, D: Discipline>(
    s: &S,
    slot: u64,
    link: u64,
    h: BaselineHeader,
    key: &[u8],
    same: usize,
    make: impl FnOnce() -> u64,
) {
    let node = place_of(link);
    let path = s.leaf_key(leftmost(s, link));
    let branch = h.depth + same;
    let byte_of_node = byte_at(path, branch);
    let shorter = BaselineHeader::of_key(path, branch + 1, h.len - same - 1);
    let leaf = make() | tag::LEAF;
    let lower = if D::COPY_ON_WRITE { copy_with_header(s, link, shorter) } else { link };
    let items = ordered((byte_at(key, branch), leaf), (byte_of_node, lower));
    let upper = build(s, tag::NODE4, BaselineHeader::of_key(path, h.depth, same), &items);
    replace(s, slot, upper);
    if D::COPY_ON_WRITE {
        s.free(node, bytes_of(tag_of(link)));
    } else {
        // Durable-order: after the link above it. A crash in between leaves a header whose depth
        // does not fit, which searches tolerate and the next change repairs.
        s.store(node, shorter.word());
        s.persist(node, 8);
    }
}

fn copy_with_header<S: NodeSpace>(s: &S, link: u64, header: BaselineHeader) -> u64 {
    let mut items = Children::new();
    children(s, link, &mut items);
    build(s, tag_of(link), header, items.as_slice())
}

fn add_child<S: NodeSpace, D: Discipline>(
    s: &S,
    slot: u64,
    link: u64,
    h: BaselineHeader,
    byte: u8,
    child: u64,
) {
    let small = matches!(tag_of(link), tag::NODE4 | tag::NODE16);
    if !(D::COPY_ON_WRITE && small) && add_in_place(s, link, byte, child) {
        return;
    }
    let mut items = Children::new();
    children(s, link, &mut items);
    items.insert(byte, child);
    rebuild(s, slot, link, h, &items);
}

fn rebuild<S: NodeSpace>(s: &S, slot: u64, link: u64, h: BaselineHeader, items: &Children) {
    // A crash may have left slots of a NODE48 taken: never rebuild into a smaller type than the number of children
    // needs.
    let kind = kind_for(items.as_slice().len());
    replace(s, slot, build(s, kind, h, items.as_slice()));
    s.free(place_of(link), bytes_of(tag_of(link)));
}

/// Below this many children a node becomes one of the next smaller type. (The number is a little below what the
/// smaller type holds, so that nodes do not change back and forth.)
fn shrink_at(kind: u64) -> usize {
    match kind {
        tag::NODE16 => 3,
        tag::NODE48 => 12,
        tag::NODE256 => 37,
        _ => 0,
    }
}

fn remove_child<S: NodeSpace, D: Discipline>(
    s: &S,
    parent: u64,
    link: u64,
    h: BaselineHeader,
    byte: u8,
    slot: u64,
) {
    let kind = tag_of(link);
    let left = count(s, link).saturating_sub(1);
    if kind == tag::NODE4 && left == 1 {
        collapse::<S, D>(s, parent, link, byte);
        return;
    }
    let copies = D::COPY_ON_WRITE && matches!(kind, tag::NODE4 | tag::NODE16);
    if copies || left <= shrink_at(kind) {
        let mut items = Children::new();
        children(s, link, &mut items);
        items.remove(byte);
        rebuild(s, parent, link, h, &items);
        return;
    }
    remove_in_place(s, link, byte, slot);
}

/// A NODE4 with one child left gives its place to that child.
fn collapse<S: NodeSpace, D: Discipline>(s: &S, parent: u64, link: u64, byte: u8) {
    let mut items = Children::new();
    children(s, link, &mut items);
    items.remove(byte);
    let last = items.as_slice()[0].1;
    if tag_of(last) == tag::LEAF {
        replace(s, parent, last);
    } else {
        let upper = BaselineHeader::load(s, place_of(link));
        let lower = BaselineHeader::load(s, place_of(last));
        let len = lower.depth + lower.len - upper.depth;
        let merged = BaselineHeader::of_key(s.leaf_key(leftmost(s, last)), upper.depth, len);
        if D::COPY_ON_WRITE {
            replace(s, parent, copy_with_header(s, last, merged));
            s.free(place_of(last), bytes_of(tag_of(last)));
        } else {
            replace(s, parent, last);
            s.store(place_of(last), merged.word());
            s.persist(place_of(last), 8);
        }
    }
    s.free(place_of(link), bytes_of(tag::NODE4));
}
