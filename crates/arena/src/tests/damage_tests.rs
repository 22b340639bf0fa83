//! Damage: what the offline check says of an arena in which one bit is wrong.

use crate::bytes::layout::{GROUP_BITMAPS_BYTES, GROUP_PAGES, Head, PageBitmap, kind, kind_of};
use crate::tests::example_tests::{Blocks, TestSpace};
use crate::{ArenaHeap, ArenaSpace, PAGE_BYTES};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

const HEAD: u64 = 4096;
/// One group, so that every bit of its state can be tried.
const BYTES: u64 = 4 << 20;

/// The memory of a [`TestSpace`], once more.
#[derive(Clone, Copy)]
struct Again(usize);

impl ArenaSpace for Again {
    fn base(&self) -> *mut u8 {
        self.0 as *mut u8
    }
    fn len(&self) -> u64 {
        BYTES
    }
    fn capacity(&self) -> u64 {
        3 * BYTES
    }
    fn grow(&mut self, _: u64) -> io::Result<()> {
        Err(io::Error::other("full"))
    }
}

/// An arena with every kind of span, two to four of each, lists of two and three of them, and two shards.
fn made() -> (ArenaHeap, Again) {
    let mut space = TestSpace::new(3 * BYTES);
    space.grow(BYTES).unwrap();
    let again = Again(space.base() as usize);
    let mut w = Blocks::default();
    let mut heap = ArenaHeap::format(Box::new(space), HEAD, &mut w).unwrap();
    heap.make_shards(&mut w, 2).unwrap();
    let large: Vec<_> = (0..9).map(|_| heap.alloc(&mut w, 20_000) as usize).collect();
    for shard in 0..=2 {
        heap.enter_shard(shard);
        // Three slabs, each with a block in use and a free one.
        let small: Vec<_> = (0..12).map(|_| heap.alloc(&mut w, 16_000) as usize).collect();
        heap.alloc(&mut w, 1000);
        heap.map(&mut w, 3 * PAGE_BYTES, PAGE_BYTES).unwrap();
        for at in small.iter().step_by(4) {
            heap.free(&mut w, *at).unwrap();
        }
    }
    for at in [1, 3, 5] {
        heap.free(&mut w, large[at]).unwrap();
    }
    assert_eq!(heap.check(), Vec::<String>::new());
    (heap, again)
}

/// What opening refuses, or the check says.
fn findings(again: Again) -> Vec<String> {
    match ArenaHeap::open(Box::new(again), HEAD) {
        Ok(heap) => heap.check(),
        Err(why) => vec![why],
    }
}

/// Words whose damage shows, as far as a bit of them can show it: the mask of the bits that cannot.
fn words(heap: &ArenaHeap) -> Vec<(String, &AtomicU64, u64)> {
    let (view, head) = (&heap.view, heap.view.head());
    let mut all = vec![
        ("pages".to_owned(), &head.pages, 0),
        // How far an arena may grow is written nowhere else; the page of its directory has 512 entries.
        ("groups_max".to_owned(), &head.groups_max, 0x1ff),
        ("shards".to_owned(), &head.shards, 0),
        // A shard that holds nothing is as good as none.
        ("shard_count".to_owned(), &head.shard_count, 0b111),
    ];
    let mut array = |name: &str, words: &'static [AtomicU64], blind: u64| {
        all.extend(words.iter().enumerate().map(|(n, word)| (format!("{name} {n}"), word, blind)));
    };
    let group = lasting(view.group(0));
    array("bins_used", &lasting(head).bins_used, 0);
    array("bins", &lasting(head).bins, 0);
    array("lists", &lasting(head).lists, 0);
    for shard in 1..=2 {
        let shard = lasting(view.shard(shard).unwrap());
        array("shard's lists", &shard.lists, 0);
        array("reserve", std::slice::from_ref(&shard.reserve), 0);
    }
    array("starts", &group.starts, 0);
    array("free_ends", &group.free_ends, 0);
    array("directory", std::slice::from_ref(lasting(view.directory_entry(0))), 0);
    array("directory's next", std::slice::from_ref(lasting(view.directory_entry(1))), 0);
    let mut page = 0;
    while page < GROUP_PAGES {
        let span = lasting(view.span(page));
        let pages = span.pages().load(Ordering::Relaxed);
        let of = kind_of(span.what().load(Ordering::Relaxed));
        // A mapping and what the arena keeps for itself have the same entry.
        array(&format!("what (kind {of})"), &span.links[..1], u64::from(of == kind::MAPPED));
        array(&format!("pages (kind {of})"), &span.links[1..2], 0);
        if of == kind::FREE {
            array("run's length at its end", &lasting(view.span(page + pages - 1)).free[..1], 0);
        }
        // A slab without a free block is in no list.
        let full = span.free.iter().all(|word| word.load(Ordering::Relaxed) == 0);
        if of == kind::FREE || of == kind::SLAB && !full {
            array(&format!("links (kind {of})"), &span.links[2..], 0);
        }
        page += pages;
    }
    for page in (0..GROUP_PAGES).step_by(64) {
        // Whether free pages were ever used is written nowhere else.
        let in_use = |page: u64| {
            let kind = kind_of(view.span(view.start_of(page)).what().load(Ordering::Relaxed));
            !matches!(kind, kind::FREE | kind::RESERVE)
        };
        let blind = (0..64).filter(|&n| !in_use(page + n)).fold(0, |mask, n| mask | 1 << n);
        array("touched", &group.bits(PageBitmap::Touched)[page as usize / 64..][..1], blind);
    }
    all
}

/// The region outlives the list of its words.
fn lasting<T>(part: &T) -> &'static T {
    // SAFETY: a part of the test's region, which is unmapped after the list was used.
    unsafe { &*std::ptr::from_ref(part) }
}

#[test]
fn every_wrong_bit_is_found_and_told_in_sentences() {
    let (heap, again) = made();
    let words = words(&heap);
    assert!(words.len() > 400, "{} words", words.len());
    for (name, word, blind) in &words {
        for bit in 0..64 {
            let was = word.load(Ordering::Relaxed);
            word.store(was ^ 1 << bit, Ordering::Relaxed);
            let said = findings(again);
            word.store(was, Ordering::Relaxed);
            let seen = blind >> bit & 1 == 0;
            assert!(!said.is_empty() || !seen, "bit {bit} of {name} is wrong, and nothing was said");
            assert!(said.iter().all(|one| !one.contains('\n') && one.len() < 160), "{said:?}");
        }
    }
    assert_eq!(findings(again), Vec::<String>::new());
}

/// As above, for the handle that the program uses when a stray store hits: it is opened already. It remembers how far
/// the arena may grow, so that word shows, too.
#[test]
fn an_open_arena_finds_every_wrong_bit_of_its_head() {
    let (heap, _) = made();
    let head = std::ptr::from_ref(heap.view.head()).cast::<AtomicU64>();
    // SAFETY: the head's page and the directory's first words, which are atomic.
    let words = unsafe { std::slice::from_raw_parts(head, 4096 / 8 + 3) };
    assert_eq!(heap.check(), Vec::<String>::new());
    let shard_count = std::mem::offset_of!(Head, shard_count) / 8;
    for (at, word) in words.iter().enumerate() {
        for bit in 0..64 {
            // A shard that holds nothing is as good as none.
            if at == shard_count && bit < 3 {
                continue;
            }
            let was = word.load(Ordering::Relaxed);
            word.store(was ^ 1 << bit, Ordering::Relaxed);
            let said = heap.check();
            word.store(was, Ordering::Relaxed);
            assert!(!said.is_empty(), "bit {bit} of the word at {} is wrong, and nothing was said", 8 * at);
        }
    }
    assert_eq!(heap.check(), Vec::<String>::new());
}

/// A program asks a damaged arena for its figures, too: they are wrong then, but within bounds.
#[test]
fn figures_of_a_damaged_arena_stay_within_its_bytes() {
    let (heap, _) = made();
    let whole = heap.stat();
    let mut page = 0;
    while page < GROUP_PAGES {
        let span = heap.view.span(page);
        let pages = span.pages().load(Ordering::Relaxed);
        for word in span.links[..2].iter().chain(&span.free) {
            for bit in 0..64 {
                let was = word.fetch_xor(1 << bit, Ordering::Relaxed);
                let stat = heap.stat();
                word.store(was, Ordering::Relaxed);
                let counted = stat.used_bytes + stat.mapped_bytes + stat.free_bytes + stat.meta_bytes;
                assert!(counted <= whole.bytes, "bit {bit} of an entry at page {page} is wrong: {stat:?}");
            }
        }
        page += pages;
    }
    assert_eq!(heap.stat(), whole);
}

#[test]
fn each_damage_has_its_sentence() {
    let (heap, again) = made();
    let view = heap.view;
    let first = |of: u8| {
        let mut page = 0;
        while kind_of(view.span(page).what().load(Ordering::Relaxed)) != of {
            page += view.span(page).pages().load(Ordering::Relaxed);
        }
        page
    };
    let (free, slab, reserve) = (first(kind::FREE), first(kind::SLAB), first(kind::RESERVE));
    let free_pages = view.span(free).pages().load(Ordering::Relaxed);
    let meta_pages = (GROUP_BITMAPS_BYTES as u64 + (64 << 10)).div_ceil(PAGE_BYTES as u64);
    for (word, value, says) in [
        (view.span(slab).what(), 2 | 99 << 8, "is of unknown class 99"),
        (view.span(slab).what(), 9, "is of unknown kind 9"),
        (view.span(slab).pages(), 0, "says it has 0 pages"),
        (view.span(slab).prev(), 7, "has a wrong link back"),
        (&view.span(slab).free[3], 1 << 63, "has free blocks behind its end"),
        (&view.span(free + free_pages - 1).free[0], 77, "has a wrong length at its end"),
        (view.span(free).prev(), 1000, "has a wrong link back"),
        (&view.head().bins[200], free + 1, "its bit is wrong"),
        (&view.shard(1).unwrap().reserve, 0, "is no shard's"),
        (&view.shard(2).unwrap().reserve, reserve + 1, "starts none, or twice"),
        (view.directory_entry(1), 8192, "has an entry for group 1 of 1"),
        (view.directory_entry(0), (slab + meta_pages) * PAGE_BYTES as u64, ""),
        (&view.head().shards, free + 1, "the table of shards is no span of the arena's own"),
    ] {
        let was = word.swap(value, Ordering::Relaxed);
        let said = findings(again);
        word.store(was, Ordering::Relaxed);
        assert!(said.iter().any(|one| one.contains(says)), "{says:?} is not among {said:?}");
        if matches!(
            says,
            "has free blocks behind its end" | "has a wrong length at its end" | "is no shard's"
        ) {
            assert_eq!(said.len(), 1, "{said:?}");
        }
    }
    assert_eq!(findings(again), Vec::<String>::new());
}
