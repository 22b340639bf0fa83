//! What stores and system calls write into exact ranges: the tracker must report these bytes and no others, because
//! reported bytes become part of the state.

use super::library::Library;
use mangrove_tracker::{Tracker, WriteSet};

/// Offset and bytes of what `exact_kernel` in libc.c has the kernel write into `exact_area`.
pub(crate) const WRITTEN: [(usize, usize); 10] = [
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
    wrong
}

const LARGE_BYTES: usize = 1 << 19;
/// Exact ranges of `exact_large` in libc.c: their borders lie within words, granules of the tracker's flags, and pages.
const EXACT: [(usize, usize); 5] =
    [(3, 61), (100, 5000), (8192, 4096), (20_001, 300_000), (400_000, 124_288)];
/// Bytes of a block: outside of the exact ranges the tracker may report so much around a store.
const BLOCK: usize = 32;

/// A store of `exact_stores` in libc.c.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Store {
    kind: i32,
    offset: i32,
    len: i32,
}

/// Stores of all widths, aligned and not, again and again, often of what is there already; and what is too much for the
/// tracker's lists. Returns what went wrong.
pub(crate) fn check_stores(library: &Library, tracker: &dyn Tracker) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut dice = 88_172_645_463_325_252_u64;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % sides as u64) as usize
    };
    let mut rounds: Vec<Vec<Store>> = vec![
        (0..LARGE_BYTES / 64).map(|at| Store { kind: 0, offset: at as i32 * 64, len: 1 }).collect(),
        (0..LARGE_BYTES / 64).map(|at| Store { kind: 2, offset: at as i32 * 64 + 7, len: 9 }).collect(),
        (0..4096).map(|at| Store { kind: 0, offset: 8192 + at, len: 1 }).collect(),
    ];
    for round in 0..60 {
        let (near, count) = (if round % 2 == 0 { 600 } else { LARGE_BYTES - 600 }, 1 + roll(400));
        let from = roll(LARGE_BYTES - 600 - near + 1);
        let mut stores = Vec::new();
        for _ in 0..count {
            let (kind, width) = if roll(3) > 0 { (0, 1 << roll(5)) } else { (1 + roll(3), 1 + roll(300)) };
            let offset = from + roll(near);
            let offset = if roll(2) == 0 { offset / width * width } else { offset };
            stores.push(Store { kind: kind as i32, offset: offset as i32, len: width as i32 });
        }
        rounds.push(stores);
    }
    let area = library.address("exact_large").addr();
    let exact: Vec<_> = EXACT.iter().map(|&(from, len)| (area + from, len)).collect();
    let mut writes = WriteSet::new(BLOCK).expect("a block size");
    writes.set_exact(&exact);
    let mut is_exact = vec![false; LARGE_BYTES];
    EXACT.iter().for_each(|&(from, len)| is_exact[from..from + len].fill(true));
    for (round, mut stores) in rounds.into_iter().enumerate() {
        writes.clear();
        let mut written = vec![false; LARGE_BYTES];
        for store in &stores {
            written[store.offset as usize..(store.offset + store.len) as usize].fill(true);
        }
        stores.push(Store::default());
        // SAFETY: a test program's function, with a list that it knows the end of.
        let called = unsafe {
            tracker.call(&mut writes, library.function("exact_stores"), stores.as_mut_ptr().cast())
        };
        wrong.extend(called.err().map(|error| error.to_string()));
        let mut reported = vec![false; LARGE_BYTES];
        for &(addr, len) in writes.ranges() {
            let (from, to) = (addr.max(area), (addr + len).min(area + LARGE_BYTES));
            if from < to {
                reported[from - area..to - area].fill(true);
            }
        }
        let is_wrong = |&at: &usize| {
            let around = at / BLOCK * BLOCK;
            let may = is_exact[at] && written[at]
                || !is_exact[at] && written[around..around + BLOCK].iter().any(|&byte| byte);
            written[at] && !reported[at] || reported[at] && !may
        };
        if let Some(at) = (0..LARGE_BYTES).find(is_wrong) {
            wrong.push(format!(
                "round {round}, byte {at}: written {}, reported {}, exact {}",
                written[at], reported[at], is_exact[at]
            ));
        }
    }
    wrong
}
