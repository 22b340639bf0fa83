//! What stores and system calls write into exact ranges: the tracker must report these bytes and no others, because
//! reported bytes become part of the state.

use super::library::Library;
use mangrove_tracker::{Tracker, WriteSet};

/// Offset and bytes of what `exact_kernel` in libc.c has the kernel write into `exact_area`.
pub(crate) const WRITTEN: [(usize, usize); 17] = [
    // revents, twice
    (64 + 6, 2),
    (72 + 6, 2),
    // an int of attributes
    (128, 4),
    // msg_len, twice
    (512 + 56, 4),
    (576 + 56, 4),
    // msg_controllen and the first half of the word of msg_flags, then msg_len, twice
    (1024 + 40, 12),
    (1024 + 56, 4),
    (1088 + 40, 12),
    (1088 + 56, 4),
    // three instructions of a filter
    (2048, 24),
    // as much of a longer name as there is space for; its length; msg_controllen and half of the word of msg_flags
    (3072, 4),
    (3200 + 8, 4),
    (3200 + 40, 12),
    // the same, of one of several messages, and its msg_len
    (3456, 4),
    (3584 + 8, 4),
    (3584 + 40, 12),
    (3584 + 56, 4),
];

/// Makes the calls and returns what went wrong.
pub(crate) fn check(library: &Library, tracker: &dyn Tracker) -> Vec<String> {
    let area = library.address("exact_area").addr();
    let mut writes = WriteSet::new(32).expect("a block size");
    writes.set_exact(&[(area, 8192)]);
    // SAFETY: test programs' functions.
    let result = unsafe {
        library.function("exact_prepare")(std::ptr::null_mut());
        tracker.call(&mut writes, library.function("exact_kernel"), std::ptr::null_mut())
    };
    let mut wrong: Vec<_> = result.err().map(|error| error.to_string()).into_iter().collect();
    let inside = |range: &&(usize, usize)| range.0 < area + 8192 && area < range.0 + range.1;
    let found: Vec<_> =
        writes.ranges().iter().filter(inside).map(|&(addr, len)| (addr - area, len)).collect();
    // SAFETY: an int of the program: whether the file system has attributes.
    let has_attributes = unsafe { library.address("exact_attributes").cast::<i32>().read() } != 0;
    let expected: Vec<_> = WRITTEN.into_iter().filter(|range| has_attributes || range.0 != 128).collect();
    if found != expected {
        wrong.push(format!("{found:?}, not {expected:?}"));
    }
    wrong.extend(check_discard(library, tracker));
    wrong
}

/// Memory that the kernel makes zero has changed, also in part of an exact range.
fn check_discard(library: &Library, tracker: &dyn Tracker) -> Option<String> {
    let area = library.address("exact_large").addr();
    let mut writes = WriteSet::new(32).expect("a block size");
    writes.set_exact(&[(area + 4000, 8192)]);
    // SAFETY: a test program's function.
    let result =
        unsafe { tracker.call(&mut writes, library.function("exact_discard"), std::ptr::null_mut()) };
    let exact = writes.exact().to_vec();
    let is_whole = result.is_ok() && exact == [(area + PAGE, 8192 - 96)];
    (!is_whole).then(|| format!("discarded memory: {result:?}, {exact:?} of {area:#x}"))
}

const LARGE_BYTES: usize = 1 << 19;
/// Exact ranges of `exact_large` in libc.c: their borders lie within words, granules of the tracker's flags, and pages.
const EXACT: [(usize, usize); 5] =
    [(3, 61), (100, 5000), (8192, 4096), (20_001, 300_000), (400_000, 124_288)];
/// Widths of the stores of kind 4.
const JOINED: [usize; 8] = [3, 6, 12, 17, 24, 39, 48, 64];
const PAGE: usize = 4096;

/// A store of `exact_stores` in libc.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Store {
    kind: i32,
    offset: i32,
    len: i32,
}

/// Stores of all widths, aligned and not, again and again, often of what is there already; and what is too much for the
/// tracker's lists. Blocks of all sizes. Returns what went wrong.
pub(crate) fn check_stores(library: &Library, tracker: &dyn Tracker) -> Vec<String> {
    let rounds = rounds();
    let mut wrong = Vec::new();
    for block in [32, 16, 64, 128] {
        let most = if block == 32 { rounds.len() } else { 24 };
        check_rounds(library, tracker, block, &rounds[..most], &mut wrong);
    }
    wrong
}

fn rounds() -> Vec<Vec<Store>> {
    let mut dice = 88_172_645_463_325_252_u64;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % sides as u64) as usize
    };
    let place = |kind, offset: usize, len: usize| Store { kind, offset: offset as i32, len: len as i32 };
    let mut rounds: Vec<Vec<Store>> = vec![
        (0..LARGE_BYTES / 64).map(|at| place(0, at * 64, 1)).collect(),
        (0..LARGE_BYTES / 64).map(|at| place(2, (at * 64 + 7).min(LARGE_BYTES - 9), 9)).collect(),
        (0..4096).map(|at| place(0, 8192 + at, 1)).collect(),
        // Each of the joined stores at each place of a granule, twice; then over the whole area.
        (0..2 * 64 * 8).map(|at| place(4, 24_000 + at % 64, JOINED[at / 64 % 8])).collect(),
        (0..LARGE_BYTES / 56 - 1).map(|at| place(4, at * 56 + 3, JOINED[at % 8])).collect(),
        (0..LARGE_BYTES / 88 - 1).map(|at| place(2, at * 88 + 5, 70)).collect(),
    ];
    // Across the borders of pages of all kinds, by stores of all kinds.
    for border in (PAGE..8 * PAGE).step_by(PAGE).chain([97 * PAGE, 98 * PAGE]) {
        rounds.push(
            (0..400)
                .map(|_| {
                    let joined = roll(2) == 0;
                    let len = if joined { JOINED[roll(8)] } else { 1 + roll(300) };
                    place(if joined { 4 } else { 1 + roll(3) as i32 }, border - roll(len.min(64)), len)
                })
                .collect(),
        );
    }
    for round in 0..60 {
        let (near, count) = (if round % 2 == 0 { 600 } else { LARGE_BYTES - 600 }, 1 + roll(400));
        let from = roll(LARGE_BYTES - 600 - near + 1);
        let mut stores = Vec::new();
        for _ in 0..count {
            let (kind, width) = match roll(4) {
                0 => (1 + roll(3), 1 + roll(300)),
                1 => (4, JOINED[roll(8)]),
                _ => (0, 1 << roll(5)),
            };
            let offset = from + roll(near);
            let offset = if roll(2) == 0 { offset / width * width } else { offset };
            stores.push(place(kind as i32, offset, width));
        }
        rounds.push(stores);
    }
    rounds
}

/// Every other round in two calls of one batch.
fn check_rounds(
    library: &Library,
    tracker: &dyn Tracker,
    block: usize,
    rounds: &[Vec<Store>],
    wrong: &mut Vec<String>,
) {
    let area = library.address("exact_large").addr();
    let exact: Vec<_> = EXACT.iter().map(|&(from, len)| (area + from, len)).collect();
    let mut writes = WriteSet::new(block).expect("a block size");
    writes.set_exact(&exact);
    let mut is_exact = vec![false; LARGE_BYTES];
    EXACT.iter().for_each(|&(from, len)| is_exact[from..from + len].fill(true));
    for (round, stores) in rounds.iter().enumerate() {
        writes.clear();
        let mut written = vec![false; LARGE_BYTES];
        // Bytes of blocks with a written byte.
        let mut around = vec![false; LARGE_BYTES];
        for store in stores {
            let (from, to) = (store.offset as usize, (store.offset + store.len) as usize);
            written[from..to].fill(true);
            around[from / block * block..to.next_multiple_of(block)].fill(true);
        }
        for part in stores.chunks(stores.len().div_ceil(1 + round % 2)) {
            let mut part = part.to_vec();
            part.push(Store::default());
            // SAFETY: a test program's function, with a list that it knows the end of.
            let called = unsafe {
                tracker.call(&mut writes, library.function("exact_stores"), part.as_mut_ptr().cast())
            };
            wrong.extend(called.err().map(|error| error.to_string()));
        }
        let is_within = |&&(addr, len): &&(usize, usize)| {
            exact.iter().any(|&(from, bytes)| from <= addr && addr + len <= from + bytes)
        };
        if let Some(range) = writes.exact().iter().find(|range| !is_within(range)) {
            wrong.push(format!("blocks of {block}, round {round}: {range:x?} is not exact"));
        }
        let mut reported = vec![false; LARGE_BYTES];
        for &(addr, len) in writes.ranges() {
            let (from, to) = (addr.max(area), (addr + len).min(area + LARGE_BYTES));
            if from < to {
                reported[from - area..to - area].fill(true);
            }
        }
        let is_wrong = |&at: &usize| {
            let may = if is_exact[at] { written[at] } else { around[at] };
            written[at] && !reported[at] || reported[at] && !may
        };
        if let Some(at) = (0..LARGE_BYTES).find(is_wrong) {
            wrong.push(format!(
                "blocks of {block}, round {round}, byte {at}: written {}, reported {}, exact {}",
                written[at], reported[at], is_exact[at]
            ));
        }
    }
}
