//! The tree against a BTreeMap, over memory that knows its blocks: the tree must report every write, must not use
//! freed blocks, and must leave none behind.

use crate::change_list::Change;
use crate::order::{Direction, KeyOrder};
use crate::tree::compaction::{DenserMemory, MoveOutcome};
use crate::tree::load::RightEdge;
use crate::tree::node::{LEAF_SLOTS, RecordVersion};
use crate::tree::tree::{Readers, RecordTree, Refusal, TreeMemory, WalkStart};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

/// A block: its memory, and its bytes according to the reported writes.
struct Block {
    memory: Box<[u128]>,
    bytes: usize,
    said: Vec<u8>,
}

#[derive(Default)]
struct WatchedBlocks {
    blocks: BTreeMap<usize, Block>,
    /// Freed blocks, kept so that no allocation reuses their addresses.
    freed: Vec<Block>,
    wrote: Vec<(usize, usize)>,
    /// Allocations until there is no more memory.
    left: Option<usize>,
}

#[derive(Clone, Default)]
struct Watched(Rc<RefCell<WatchedBlocks>>);

const FRESH: u8 = 0xA5;
const DEAD: u8 = 0xDD;

impl TreeMemory for Watched {
    fn alloc(&self, bytes: usize, align: usize) -> *mut u8 {
        let mut inner = self.0.borrow_mut();
        if let Some(left) = &mut inner.left {
            if *left == 0 {
                return std::ptr::null_mut();
            }
            *left -= 1;
        }
        let fill = u128::from_ne_bytes([FRESH; 16]);
        let mut memory = vec![fill; (bytes + align).div_ceil(16)].into_boxed_slice();
        let start = memory.as_mut_ptr().cast::<u8>();
        let at = start.wrapping_add(start.align_offset(align));
        inner.blocks.insert(at as usize, Block { memory, bytes, said: vec![FRESH; bytes] });
        at
    }

    unsafe fn free(&self, block: *mut u8) {
        let mut inner = self.0.borrow_mut();
        let mut block = inner.blocks.remove(&(block as usize)).expect("a block is freed once");
        block.memory.fill(u128::from_ne_bytes([DEAD; 16]));
        inner.freed.push(block);
    }

    fn wrote(&self, at: *const u8, bytes: usize) {
        self.0.borrow_mut().wrote.push((at as usize, bytes));
    }
}

impl Watched {
    fn bytes_at(at: usize, bytes: usize) -> &'static [u8] {
        // SAFETY: a live block, read while the tree does nothing.
        unsafe { std::slice::from_raw_parts(at as *const u8, bytes) }
    }

    /// Every byte that changed since the last call was reported.
    #[track_caller]
    fn verify(&self) {
        let mut inner = self.0.borrow_mut();
        for (at, bytes) in std::mem::take(&mut inner.wrote) {
            let Some((start, block)) = inner.blocks.range_mut(..=at).next_back() else { continue };
            let offset = at - start;
            // A block that was freed since is skipped.
            if offset + bytes <= block.bytes {
                block.said[offset..offset + bytes].copy_from_slice(Self::bytes_at(at, bytes));
            }
        }
        for (at, block) in &inner.blocks {
            assert!(Self::bytes_at(*at, block.bytes) == block.said, "something was written and not said");
        }
        for block in &inner.freed {
            let dead = u128::from_ne_bytes([DEAD; 16]);
            assert!(block.memory.iter().all(|&w| w == dead), "something was written to a freed block");
        }
        inner.freed.clear();
    }

    fn blocks(&self) -> usize {
        self.0.borrow().blocks.len()
    }

    /// The tree refers to each live block once, and to nothing else.
    #[track_caller]
    fn is_all_of(&self, tree: &RecordTree<Self>) {
        let mut reached = tree.blocks();
        reached.sort_unstable();
        let live: Vec<usize> = self.0.borrow().blocks.keys().copied().collect();
        assert!(reached == live, "the tree leads to {} blocks of {}", reached.len(), live.len());
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Some blocks, which the number chooses, should move.
struct Sparse<'a>(&'a Watched, u64);

impl DenserMemory for Sparse<'_> {
    fn is_sparse(&self, block: *const u8) -> bool {
        (block as u64 ^ self.1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 != 0
    }

    fn alloc(&mut self, block: *const u8) -> *mut u8 {
        if !self.is_sparse(block) {
            return std::ptr::null_mut();
        }
        let bytes = self.0.0.borrow().blocks[&(block as usize)].bytes;
        self.0.alloc(bytes, 32)
    }
}

/// Some steps of a compaction.
fn compact(
    tree: &mut RecordTree<Watched>,
    memory: &Watched,
    readers: &Readers,
    random: &mut Random,
    span: usize,
) {
    let mut from = (random.below(2) == 0).then(|| random.key(span));
    for _ in 0..random.below(4) {
        from = tree.merge_nodes(from.as_deref());
        memory.verify();
        memory.is_all_of(tree);
    }
    memory.0.borrow_mut().left = (random.below(3) == 0).then(|| random.below(40));
    let mut sparse = Sparse(memory, random.0);
    for _ in 0..random.below(4) {
        let MoveOutcome { next, kept } =
            tree.move_blocks(from.as_deref(), readers, &mut sparse, random.below(2) == 0);
        assert!(!kept || next.is_some());
        from = next;
        memory.verify();
        memory.is_all_of(tree);
    }
    memory.0.borrow_mut().left = None;
    assert_eq!(tree.check(), Vec::<String>::new());
}

/// The records that a reader at `number` may hold.
fn held(tree: &RecordTree<Watched>, number: u64) -> Vec<usize> {
    let mut page = Vec::new();
    let mut place = tree.place(WalkStart::End, Direction::Forward);
    tree.collect(&mut place, Direction::Forward, number, usize::MAX, &mut page);
    page.into_iter().map(|record| record as usize).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ x >> 31) % limit as u64) as usize
    }

    fn key(&mut self, span: usize) -> Vec<u8> {
        const BEGINNING: &[u8] = b"with a common beginning ";
        match self.below(7) {
            0 => vec![0; self.below(12)],
            1 | 2 => [BEGINNING, format!("{:04}", self.below(span)).as_bytes()].concat(),
            // A part of that beginning, and perhaps another end.
            3 => {
                let shared = self.below(BEGINNING.len() + 1);
                let end = [&b""[..], b"\0", b"a", b"\xff"][self.below(4)];
                [&BEGINNING[..shared], end].concat()
            }
            // Longer than any node skips.
            4 => [&[b'y'; 300][..], &(self.below(span) as u16).to_be_bytes()].concat(),
            _ => (self.below(span) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
                [..1 + self.0 as usize % 8]
                .to_vec(),
        }
    }
}

fn all(tree: &RecordTree<Watched>, direction: Direction, number: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut place = tree.place(WalkStart::End, direction);
    let (mut found, mut page) = (Vec::new(), Vec::new());
    loop {
        page.clear();
        tree.collect(&mut place, direction, number, 7, &mut page);
        // SAFETY: the tree does nothing meanwhile.
        let record = |r: &*const RecordVersion| unsafe { ((**r).key().to_vec(), (**r).value().to_vec()) };
        found.extend(page.iter().map(record));
        if page.len() < 7 {
            return found;
        }
    }
}

fn compare(tree: &RecordTree<Watched>, model: &Model, number: u64, random: &mut Random, span: usize) {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(all(tree, Direction::Forward, number), expected);
    let backwards: Vec<_> = expected.iter().rev().cloned().collect();
    assert_eq!(all(tree, Direction::Backward, number), backwards);
    for _ in 0..20 {
        let key = random.key(span);
        assert_eq!(tree.get(&key, number).map(RecordVersion::value), model.get(&key).map(Vec::as_slice));
        let mut page = Vec::new();
        let range = (Bound::Excluded(key.clone()), Bound::Unbounded);
        tree.collect(
            &mut tree.place(WalkStart::Beyond(&key), Direction::Forward),
            Direction::Forward,
            number,
            1,
            &mut page,
        );
        let first = |page: &[*const RecordVersion]| {
            // SAFETY: as in `all`.
            page.first().map(|r| unsafe { (**r).key().to_vec() })
        };
        assert_eq!(first(&page), model.range(range).next().map(|(k, _)| k.clone()));
        page.clear();
        tree.collect(
            &mut tree.place(WalkStart::At(&key), Direction::Backward),
            Direction::Backward,
            number,
            1,
            &mut page,
        );
        assert_eq!(first(&page), model.range(..=key).next_back().map(|(k, _)| k.clone()));
    }
}

fn readers(pins: &BTreeMap<u64, Model>) -> Readers {
    Readers::at(pins.keys().copied())
}

/// Versions of a key that are in memory.
fn versions(tree: &RecordTree<Watched>, key: &[u8]) -> usize {
    let (mut version, mut count) = (tree.newest(key), 0);
    while !version.is_null() {
        count += 1;
        // SAFETY: the tree does nothing meanwhile.
        version = unsafe { (*version).older };
    }
    count
}

/// Batches, pins and their ends, failing allocations: everything as in a model.
fn run(seed: u64, steps: usize, span: usize) {
    let (memory, mut random) = (Watched::default(), Random(seed));
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let empty = memory.blocks();
    let mut model = Model::new();
    let mut pins = BTreeMap::<u64, Model>::new();
    let mut moved = 0;
    for step in 0..steps {
        if random.below(4) == 0 {
            let holds: Vec<_> = pins.keys().map(|number| (*number, held(&tree, *number))).collect();
            let before = held(&tree, u64::MAX);
            compact(&mut tree, &memory, &readers(&pins), &mut random, span);
            moved += before.iter().zip(held(&tree, u64::MAX)).filter(|(a, b)| **a != *b).count();
            for (number, records) in holds {
                assert_eq!(held(&tree, number), records, "a record moved that a reader holds");
            }
        }
        let count = [1, 1, 1, 3, 40][random.below(5)];
        let deletes = [1, 3, 9][step / 200 % 3];
        let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..count)
            .map(|_| {
                let value = (random.below(10) >= deletes).then(|| vec![step as u8; random.below(50)]);
                (random.key(span), value)
            })
            .collect();
        let borrowed =
            || changes.iter().map(|(k, v)| v.as_ref().map_or(Change::Delete(k), |v| Change::Put(k, v)));
        if random.below(8) == 0 {
            let (before, number) = (memory.blocks(), tree.number());
            memory.0.borrow_mut().left = Some(random.below(count));
            let outcome = tree.apply(borrowed(), &readers(&pins));
            memory.0.borrow_mut().left = None;
            memory.verify();
            if outcome == Err(Refusal::Full) {
                assert_eq!(tree.number(), number);
                // A split may remain: it changes no record.
                assert!(memory.blocks() <= before + 3 * count);
                compare(&tree, &model, u64::MAX, &mut random, span);
                continue;
            }
        } else {
            tree.apply(borrowed(), &readers(&pins)).expect("memory");
            memory.verify();
        }
        for (key, value) in changes {
            // The newest, one for each reader, and one that stands in the queue for the others.
            assert!(
                versions(&tree, &key) <= pins.len() + 2,
                "{key:?} has {} versions",
                versions(&tree, &key)
            );
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        match random.below(12) {
            0 if pins.len() < 5 => drop(pins.insert(tree.number(), model.clone())),
            1 => {
                let nth = random.below(pins.len().max(1));
                if let Some(number) = pins.keys().nth(nth).copied() {
                    pins.remove(&number);
                }
            }
            _ => {}
        }
        if step % 16 == 0 {
            compare(&tree, &model, u64::MAX, &mut random, span);
            for (number, model) in &pins {
                compare(&tree, model, *number, &mut random, span);
            }
            let bytes: usize = model.iter().map(|(k, v)| k.len() + v.len()).sum();
            assert_eq!(tree.size(), (model.len() as u64, bytes as u64));
            assert_eq!(tree.check(), Vec::<String>::new());
        }
    }
    assert!(moved > 100, "only {moved} records moved");
    // Without readers only the records remain; without records only the first leaf.
    tree.sweep(&Readers::default(), usize::MAX);
    assert!(!tree.has_leftovers());
    let keys: Vec<_> = model.keys().cloned().collect();
    tree.apply(keys.iter().map(|k| Change::Delete(k)), &Readers::default()).expect("memory");
    memory.verify();
    assert_eq!(memory.blocks(), empty, "blocks are left over");
}

/// Loads of ascending keys, with others among them, between changes of other kinds, with failing allocations:
/// everything as in a model.
fn run_loads(seed: u64, steps: usize) {
    let (memory, mut random) = (Watched::default(), Random(seed));
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let (empty, mut edge) = (memory.blocks(), RightEdge::default());
    let (mut model, mut next) = (Model::new(), 0);
    for step in 0..steps {
        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..random.below(300))
            .map(|_| {
                next += 1 + random.below(3);
                (
                    format!("with a common beginning {next:08}").into(),
                    Some(vec![step as u8; random.below(50)]),
                )
            })
            .collect();
        // Keys that were there, that come before, that come twice; and deletions, of the last keys too.
        for _ in 0..[0, 0, 1, 40][random.below(4)] {
            let at = random.below(changes.len() + 1);
            let key = changes.get(at).map_or_else(|| random.key(40), |change| change.0.clone());
            changes.insert(at, (key, (random.below(2) == 0).then(|| vec![7; 3])));
        }
        let listed: Vec<_> = changes
            .iter()
            .map(|(k, v)| v.as_ref().map_or(Change::Delete(k), |v| Change::Put(k, v)))
            .collect();
        if random.below(4) == 0 {
            edge.forget();
            tree.apply(listed.into_iter(), &Readers::default()).expect("memory");
        } else if random.below(4) == 0 {
            memory.0.borrow_mut().left = Some(random.below(listed.len() + 1));
            let outcome = tree.load(&mut edge, listed.into_iter(), &Readers::default());
            memory.0.borrow_mut().left = None;
            if outcome.is_err() {
                // Some of the changes are there, the first ones.
                let there = all(&tree, Direction::Forward, u64::MAX);
                let mut with = model.clone();
                let mut prefixes = changes.into_iter();
                while there != with.clone().into_iter().collect::<Vec<_>>() {
                    let (key, value) = prefixes.next().expect("what is there is no prefix of the changes");
                    match value {
                        Some(value) => drop(with.insert(key, value)),
                        None => drop(with.remove(&key)),
                    }
                }
                model = with;
                changes = Vec::new();
            }
        } else {
            tree.load(&mut edge, listed.into_iter(), &Readers::default()).expect("memory");
        }
        memory.verify();
        for (key, value) in changes {
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        compare(&tree, &model, u64::MAX, &mut random, 40);
        let bytes: usize = model.iter().map(|(k, v)| k.len() + v.len()).sum();
        assert_eq!(tree.size(), (model.len() as u64, bytes as u64));
        assert_eq!(tree.check(), Vec::<String>::new());
        memory.is_all_of(&tree);
    }
    let keys: Vec<_> = model.keys().cloned().collect();
    assert!(tree.head().height >= 3, "too few records for inner nodes that split");
    tree.apply(keys.iter().map(|k| Change::Delete(k)), &Readers::default()).expect("memory");
    memory.verify();
    assert_eq!(memory.blocks(), empty, "blocks are left over");
}

#[test]
fn loads_are_as_a_model() {
    for seed in 0..3 {
        run_loads(seed, 150);
    }
}

#[test]
fn a_load_of_ascending_keys_fills_leaves_and_skips_what_keys_share() {
    let memory = Watched::default();
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let mut edge = RightEdge::default();
    let keys: Vec<_> =
        (0..30 * 22 * 3).map(|i| format!("with a common beginning {i:08}").into_bytes()).collect();
    for part in keys.chunks(1000) {
        tree.load(&mut edge, part.iter().map(|key| Change::Put(key, b"value")), &Readers::default())
            .expect("memory");
    }
    let mut leaf = tree.place(WalkStart::End, Direction::Forward).leaf;
    let (mut leaves, mut skipped) = (0, 0);
    while !leaf.is_null() {
        // SAFETY: a live leaf.
        let order = unsafe { (*leaf).order };
        assert_eq!(usize::from(order.count), LEAF_SLOTS);
        (leaves, skipped) = (leaves + 1, skipped + usize::from(order.skip >= 24));
        // SAFETY: as above.
        leaf = unsafe { (*leaf).next };
    }
    assert_eq!((leaves, skipped), (22 * 3, 22 * 3));
    assert_eq!(tree.head().height, 2);
    assert_eq!(tree.check(), Vec::<String>::new());
    assert_eq!(all(&tree, Direction::Forward, u64::MAX).into_iter().map(|r| r.0).collect::<Vec<_>>(), keys);
}

#[test]
fn as_a_model_with_few_keys() {
    for seed in 0..3 {
        run(seed, 1_000, 40);
    }
}

#[test]
fn as_a_model_with_many_keys() {
    run(77, 1_000, 3_000);
}

/// However often a key is written: what no reader sees goes at once, whether readers come and go or stay.
#[test]
fn an_old_reader_keeps_one_version_of_a_key() {
    let memory = Watched::default();
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let empty = memory.blocks();
    let put = |tree: &mut RecordTree<Watched>, value: u32, readers: &Readers| {
        let value = value.to_be_bytes();
        tree.apply(std::iter::once(Change::Put(b"key", &value)), readers).expect("memory")
    };
    let old = put(&mut tree, 0, &Readers::default());
    let mut short_lived = Vec::new();
    for value in 1..=1_000 {
        let readers = Readers::at(std::iter::once(old).chain(short_lived.drain(..)));
        let number = put(&mut tree, value, &readers);
        if value % 3 == 0 {
            short_lived.push(number);
        }
        assert!(versions(&tree, b"key") <= 4, "{} versions after {value} writes", versions(&tree, b"key"));
        memory.verify();
        memory.is_all_of(&tree);
    }
    assert_eq!(tree.get(b"key", old).expect("a version").value(), [0; 4]);
    assert_eq!(tree.get(b"key", u64::MAX).expect("a version").value(), 1_000u32.to_be_bytes());
    assert_eq!(tree.check(), Vec::<String>::new());
    // Deleted, then without the reader: the batches of other keys sweep it away.
    tree.apply(std::iter::once(Change::Delete(b"key")), &Readers::at(std::iter::once(old))).expect("memory");
    assert!(tree.get(b"key", old).is_some() && tree.get(b"key", u64::MAX).is_none());
    tree.apply(std::iter::once(Change::Put(b"other", b"")), &Readers::default()).expect("memory");
    tree.apply(std::iter::once(Change::Delete(b"other")), &Readers::default()).expect("memory");
    assert!(!tree.has_leftovers());
    assert_eq!((versions(&tree, b"key"), memory.blocks()), (0, empty));
    memory.verify();
}

/// States that were written before versions went at once have many versions of a key in the queue.
#[test]
fn chains_of_many_queued_versions_are_swept() {
    let memory = Watched::default();
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let old = tree.apply(std::iter::once(Change::Put(b"key", b"0")), &Readers::default()).expect("memory");
    let reader = Readers::at(std::iter::once(old));
    for other in 0..20u8 {
        // Readers at every number, so that each version stays; then the chain is marked as it was.
        let all = Readers::at(old..=tree.number());
        tree.apply(std::iter::once(Change::Put(b"key", &[other])), &all).expect("memory");
    }
    assert_eq!(versions(&tree, b"key"), 21);
    tree.queue_every_version(b"key");
    assert_eq!(tree.check(), Vec::<String>::new());
    tree.apply(std::iter::once(Change::Put(b"key", b"new")), &reader).expect("memory");
    assert_eq!(tree.get(b"key", old).expect("a version").value(), b"0");
    tree.sweep(&Readers::default(), 4);
    assert_eq!(tree.check(), Vec::<String>::new());
    memory.is_all_of(&tree);
    tree.sweep(&Readers::default(), usize::MAX);
    assert!(!tree.has_leftovers());
    assert_eq!(versions(&tree, b"key"), 1);
    memory.verify();
    memory.is_all_of(&tree);
}

#[test]
fn ascending_keys_fill_the_leaves() {
    let memory = Watched::default();
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let keys: Vec<_> = (0..20_000u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        tree.apply(std::iter::once(Change::Put(key, b"")), &Readers::default()).expect("memory");
    }
    // One block per record, and one leaf and one separator for 29 of them, with a few inner nodes.
    let overhead = memory.blocks() - keys.len();
    assert!(overhead < 2 * keys.len() / 29 + 200, "{overhead} blocks beside the records");
    assert_eq!(tree.check(), Vec::<String>::new());
}

/// A key as comparators of C get it.
///
/// # Safety
/// So many bytes lie there for as long as the key is used.
unsafe fn key_at<'a>(bytes: *const std::ffi::c_char, len: usize) -> &'a [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }
}

/// A batch of ascending keys searches once for each leaf, and compares each key with the one before.
#[test]
fn ascending_keys_of_a_batch_need_no_search() {
    thread_local! {
        static COMPARED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    unsafe extern "C" fn compare(
        _: *mut std::ffi::c_void,
        a: *const std::ffi::c_char,
        a_len: usize,
        b: *const std::ffi::c_char,
        b_len: usize,
    ) -> std::ffi::c_int {
        COMPARED.set(COMPARED.get() + 1);
        // SAFETY: the tree passes two keys.
        let [a, b] = unsafe { [key_at(a, a_len), key_at(b, b_len)] };
        a.cmp(b) as std::ffi::c_int
    }
    let order = KeyOrder::new(Some(crate::objects::Comparator::of(compare)));
    let mut tree = RecordTree::create(order, Watched::default()).expect("memory");
    let keys: Vec<_> = (0..10_000u32).map(u32::to_be_bytes).collect();
    for part in keys.chunks(1000) {
        tree.apply(part.iter().map(|key| Change::Put(key, b"")), &Readers::default()).expect("memory");
    }
    let compared = COMPARED.get() as usize;
    assert!(compared < 4 * keys.len(), "{compared} comparisons for {} keys", keys.len());
    // Also behind a key that is there, and one that is less.
    let mixed = [&keys[9999][..], &[0xff], &[0xff, 0], &keys[5], &[0xff, 1]];
    tree.apply(mixed.iter().map(|key| Change::Put(key, b"")), &Readers::default()).expect("memory");
    assert_eq!((tree.size().0, tree.check()), (10_003, Vec::new()));
}

/// Keys as programs have them, in random order: a leaf distinguishes nearly all without reading its records.
#[test]
fn keys_that_begin_alike_have_prefixes_that_differ() {
    let memory = Watched::default();
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    let mut keys: Vec<_> = (0..20_000u32).map(|n| format!("users/{n:016}/name").into_bytes()).collect();
    let mut random = Random(5);
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at + 1));
    }
    for key in &keys {
        tree.apply(std::iter::once(Change::Put(key, b"")), &Readers::default()).expect("memory");
        memory.verify();
    }
    let few = tree.neighbours_of_one_prefix();
    assert!(few < 20, "{few} of 20,000");
    assert_eq!(tree.check(), Vec::<String>::new());
    // A key with another beginning goes into the first leaf, and one into the last.
    for key in [&b"use"[..], b"zebra"] {
        tree.apply(std::iter::once(Change::Put(key, b"")), &Readers::default()).expect("memory");
        memory.verify();
    }
    assert_eq!(tree.check(), Vec::<String>::new());
    assert!((few + 1..few + 60).contains(&tree.neighbours_of_one_prefix()));
}

/// A tree of the previous format, in which no node skips anything, is read; the first write gives it the present
/// format.
#[test]
fn a_tree_of_the_format_before_is_taken_over() {
    let memory = Watched::default();
    let mut tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    tree.apply(std::iter::once(Change::Put(b"a", b"1")), &Readers::default()).expect("memory");
    let root = tree.root().cast::<[u8; 8]>();
    let open = |magic: &[u8; 8]| {
        // SAFETY: the root is live, and nothing else uses it.
        unsafe {
            root.write(*magic);
            RecordTree::open(root.cast(), KeyOrder::new(None), memory.clone())
        }
    };
    let mut before = open(b"MGLDBT01").expect("a tree");
    before.apply(std::iter::once(Change::Put(b"b", b"2")), &Readers::default()).expect("memory");
    assert_eq!(before.check(), Vec::<String>::new());
    // SAFETY: as above.
    assert_eq!(unsafe { &*root }, b"MGLDBT02");
    assert!(open(b"MGLDBT03").is_none());
}

/// A comparator whose order changes causes a refusal at worst, never an access to foreign memory.
#[test]
fn a_comparator_that_is_no_order_is_survived() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static MOOD: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn compare(
        _: *mut std::ffi::c_void,
        a: *const std::ffi::c_char,
        a_len: usize,
        b: *const std::ffi::c_char,
        b_len: usize,
    ) -> std::ffi::c_int {
        // SAFETY: keys of the tree, or of this test.
        let [a, b] = unsafe { [key_at(a, a_len), key_at(b, b_len)] };
        let ordered = a.cmp(b) as std::ffi::c_int;
        match MOOD.load(Ordering::Relaxed) {
            0 => ordered,
            1 => -ordered,
            mood => {
                (a.iter().chain(b).fold(mood, |h, x| h.rotate_left(7) ^ u64::from(*x)) % 3) as std::ffi::c_int
                    - 1
            }
        }
    }
    let comparator = crate::objects::Comparator::of(compare);
    let (mut refusals, mut taken_back) = (0, 0);
    for seed in 0..60 {
        let (memory, mut random) = (Watched::default(), Random(seed));
        MOOD.store(0, Ordering::Relaxed);
        let mut tree = RecordTree::create(KeyOrder::new(Some(comparator)), memory.clone()).expect("memory");
        for step in 0..2_000u64 {
            if step >= 1_000 {
                MOOD.store(if step < 1_500 { 1 } else { step }, Ordering::Relaxed);
            }
            let count = [1, 1, 2, 8][random.below(4)];
            let keys: Vec<_> = (0..count).map(|_| (random.below(20_000) as u32).to_be_bytes()).collect();
            let mut change = |key| match random.below(10) {
                0 if seed % 2 == 0 => Change::Delete(key),
                _ => Change::Put(key, b"value"),
            };
            let changes: Vec<_> = keys.iter().map(|key| change(key)).collect();
            let put = tree.apply(changes.into_iter(), &Readers::default());
            assert!(put.is_ok() || step >= 1_000, "what was ordered was refused");
            if put == Err(Refusal::Disordered) {
                refusals += 1;
                taken_back += count - 1;
                memory.verify();
                memory.is_all_of(&tree);
            }
            let mut page = Vec::new();
            let mut place = tree.place(WalkStart::At(&keys[0]), Direction::Forward);
            tree.collect(&mut place, Direction::Forward, u64::MAX, 40, &mut page);
        }
        memory.verify();
        memory.is_all_of(&tree);
    }
    assert!(refusals > 0 && taken_back > 0, "never did it come to that");
}

/// Undoing all changes takes the time of one walk together, not of one walk each.
#[test]
fn a_long_batch_that_a_change_of_mind_refuses_is_soon_taken_back() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static TURNED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn compare(
        _: *mut std::ffi::c_void,
        a: *const std::ffi::c_char,
        a_len: usize,
        b: *const std::ffi::c_char,
        b_len: usize,
    ) -> std::ffi::c_int {
        // SAFETY: keys of the tree, or of this test.
        let ordered = unsafe { key_at(a, a_len).cmp(key_at(b, b_len)) } as std::ffi::c_int;
        if TURNED.load(Ordering::Relaxed) { -ordered } else { ordered }
    }
    let order = KeyOrder::new(Some(crate::objects::Comparator::of(compare)));
    let (memory, mut random) = (Watched::default(), Random(3));
    let mut tree = RecordTree::create(order, memory.clone()).expect("memory");
    let mut model = Model::new();
    let old: Vec<_> = (0..200_000u32).map(|n| (2 * n).to_be_bytes()).collect();
    tree.apply(old.iter().map(|key| Change::Put(key, b"old")), &Readers::default()).expect("memory");
    model.extend(old.iter().map(|key| (key.to_vec(), b"old".to_vec())));
    // New keys, old ones, and some twice; then an allocation fails, and the order is reversed.
    let keys: Vec<_> = (0..20_000).map(|_| (random.below(400_000) as u32).to_be_bytes()).collect();
    let last = [9; 4];
    let changes = keys.iter().enumerate().map(|(n, key)| match n % 9 {
        0 => Change::Delete(&key[..]),
        _ => Change::Put(&key[..], b"new"),
    });
    let end = std::iter::once_with(|| {
        TURNED.store(true, Ordering::Relaxed);
        memory.0.borrow_mut().left = Some(0);
        Change::Put(&last, b"")
    });
    let number = tree.number();
    let mut outcome = Ok(0);
    let took = mangrove_testkit::clock::thread_time_of(|| {
        outcome = tree.apply(changes.chain(end), &Readers::default());
    });
    TURNED.store(false, Ordering::Relaxed);
    memory.0.borrow_mut().left = None;
    assert_eq!((outcome, tree.number()), (Err(Refusal::Full), number));
    assert!(took < std::time::Duration::from_secs(1), "{took:?}");
    memory.verify();
    memory.is_all_of(&tree);
    assert_eq!(tree.check(), Vec::<String>::new());
    let expected: Vec<_> = model.into_iter().collect();
    assert!(all(&tree, Direction::Forward, u64::MAX) == expected, "something was not taken back");
}

/// The checks above can fail: they find a store that was not reported.
#[test]
#[should_panic(expected = "not said")]
fn a_silent_write_is_found() {
    let memory = Watched::default();
    let tree = RecordTree::create(KeyOrder::new(None), memory.clone()).expect("memory");
    memory.verify();
    // SAFETY: the root is live.
    unsafe { tree.root().cast::<u64>().add(1).write(7) };
    memory.verify();
}
