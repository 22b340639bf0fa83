//! What system calls write into exact ranges: the tracker must report these bytes and no others, because reported
//! bytes become part of the state.

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
