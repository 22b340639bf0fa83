//! Which bytes of exact pages were written: a flag for each byte, set by translated code.
//!
//! Invariants:
//! 1. A page with exact bytes has a *shadow* page, unless another one has its slot: [`EXACT_SHADOWS`] has, by the page
//!    number modulo the slots, how far the shadow lies from the page. An address plus that lies in the shadows exactly
//!    if the page is the one that has the slot: others of the slot are a multiple of 256 MiB away, and the shadows take
//!    at most that.
//! 2. A byte of the shadow is not 0 if the byte was written since the last [`take`]. Then its granule is in the list at
//!    [`GRANULES`], and marked as such: it is there once.
//! 3. What has no flags (long writes, those that cross pages, pages without a shadow) is in the list at `EXACT`.

use super::context::{EXACT_PAGE_SLOTS, EXACT_SHADOWS, GRANULE_BYTES, GRANULES, LowContext, NO_SHADOW};
use crate::own_memory;
use crate::write_set::exact::ExactRanges;
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_movemask_epi8};

const PAGE_BYTES: usize = 4096;
/// A process with little address space keeps most of it for lists: shadows take one part in so many.
const PART_OF_REGION: usize = 16;

fn distance(page: usize) -> *mut usize {
    std::ptr::with_exposed_provenance_mut::<usize>(EXACT_SHADOWS).wrapping_add(page & (EXACT_PAGE_SLOTS - 1))
}

/// Gives the pages of `exact` shadows, in place of those of before. Where there is no memory for them they have none.
/// The page of `also` is watched for another reason.
pub(in crate::recompiler) fn make(context: &mut LowContext, exact: &ExactRanges, also: usize) {
    forget(context);
    // SAFETY: the table's own memory.
    unsafe { std::ptr::write_bytes(distance(0), 0, EXACT_PAGE_SLOTS) };
    if context.shadow_bytes != 0 {
        own_memory::unmap(context.shadow_lo as usize, context.shadow_bytes as usize);
    }
    (context.shadow_lo, context.shadow_len, context.shadow_bytes) = (0, 0, 0);
    // More pages of a span repeat its slots.
    let pages_of = |&(lo, hi): &(usize, usize)| (lo >> 12..=(hi - 1) >> 12).take(EXACT_PAGE_SLOTS);
    let pages = || exact.spans().iter().flat_map(pages_of);
    let count = pages().take(EXACT_PAGE_SLOTS).count();
    let (flags, marks) = (count * PAGE_BYTES, count * PAGE_BYTES / GRANULE_BYTES);
    let is_allowed = count > 0 && flags + marks <= own_memory::region_bytes() / PART_OF_REGION;
    let lo = if is_allowed { own_memory::map(flags + marks) } else { None };
    let mut next = lo.unwrap_or(0);
    let end = next + lo.map_or(0, |_| flags);
    for page in pages() {
        // SAFETY: inside the table.
        let distance = unsafe { &mut *distance(page) };
        if *distance == 0 && next < end {
            *distance = next.wrapping_sub(page << 12);
            next += PAGE_BYTES;
        } else if *distance == 0 {
            *distance = NO_SHADOW;
        }
    }
    if let Some(lo) = lo {
        context.shadow_lo = lo as u64;
        context.shadow_len = (next - lo) as u64;
        context.shadow_bytes = (flags + marks) as u64;
        context.granule_marks = (lo + flags) as u64;
    }
    if also != 0 {
        watch(also);
    }
}

/// Translated code leaves stores to the page of `address` to the dispatcher, unless another page has its slot.
pub(in crate::recompiler) fn watch(address: usize) {
    // SAFETY: inside the table.
    let distance = unsafe { &mut *distance(address >> 12) };
    if *distance == 0 {
        *distance = NO_SHADOW;
    }
}

/// Calls `each(lo, hi)` with the bytes that were written since the last time, and forgets them.
pub(in crate::recompiler) fn take(context: &mut LowContext, mut each: impl FnMut(usize, usize)) {
    let count = (context.granules_ptr as usize - GRANULES) / 8;
    // SAFETY: the list of the low region, up to its end.
    let granules =
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<usize>(GRANULES), count) };
    let (mut from, mut to) = (0, 0);
    for &granule in granules {
        // SAFETY: a granule is in the list because its page has a shadow (invariant 1), whose bytes are ours.
        let mut left = unsafe {
            let shadow = granule.wrapping_add(*distance(granule >> 12));
            let mark = (shadow - context.shadow_lo as usize) / GRANULE_BYTES + context.granule_marks as usize;
            std::ptr::with_exposed_provenance_mut::<u8>(mark).write(0);
            let flags = std::ptr::with_exposed_provenance_mut::<__m128i>(shadow);
            let mut bits = 0u64;
            for part in 0..GRANULE_BYTES / 16 {
                let mask = _mm_movemask_epi8(_mm_loadu_si128(flags.add(part)));
                bits |= u64::from(mask as u32) << (part * 16);
            }
            std::ptr::write_bytes(flags.cast::<u8>(), 0, GRANULE_BYTES);
            bits
        };
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let run = (!(left >> first)).trailing_zeros() as usize;
            let run = run.min(GRANULE_BYTES - first);
            if granule + first != to {
                if from < to {
                    each(from, to);
                }
                from = granule + first;
            }
            to = granule + first + run;
            left = if first + run < GRANULE_BYTES { left & (!0 << (first + run)) } else { 0 };
        }
    }
    if from < to {
        each(from, to);
    }
    context.granules_ptr = GRANULES as u64;
}

/// Forgets what was written.
pub(in crate::recompiler) fn forget(context: &mut LowContext) {
    take(context, |_, _| {});
}

#[cfg(test)]
mod tests {
    use crate::recompiler::run::dispatch::state;
    use crate::{Error, Recompiler, Tracker, WriteSet};
    use std::ffi::c_void;

    const BYTES: usize = 40_000;

    struct Bytes {
        to: *mut u8,
        /// Records by the dispatcher. Inside the call no other thread has the turn.
        by_hand: *const u64,
        more: u64,
    }

    /// Runs `write` on memory whose bytes are exact but for the first and the last; returns how many stores went to the
    /// dispatcher, what is reported, and where the exact bytes begin.
    fn run(write: unsafe extern "C" fn(*mut c_void)) -> (u64, Vec<(usize, usize)>, usize) {
        let tracker = Recompiler::new().unwrap();
        let mut writes = WriteSet::new(32).unwrap();
        let mut memory = vec![0u8; BYTES];
        let to = memory.as_mut_ptr();
        // SAFETY: the state is there since the recompiler was made.
        let by_hand = unsafe { &raw const (*state()).counts.records_by_hand };
        let mut bytes = Bytes { to, by_hand, more: u64::MAX };
        let from = to.expose_provenance();
        writes.set_exact(&[(from + 1, BYTES - 2)]);
        let arg = (&raw mut bytes).cast();
        // SAFETY: the function's argument.
        while unsafe { tracker.call(&mut writes, write, arg) } == Err(Error::Busy) {}
        let within = |range: &&(usize, usize)| range.0 < from + BYTES && from < range.0 + range.1;
        let ranges = writes.ranges().iter().filter(within).copied().collect();
        (bytes.more, ranges, from + 1)
    }

    unsafe extern "C" fn write_each_byte(arg: *mut c_void) {
        // SAFETY: the test's memory, and a counter that lives for ever.
        unsafe {
            let bytes = &mut *arg.cast::<Bytes>();
            let before = bytes.by_hand.read_volatile();
            (1..BYTES - 1).for_each(|at| bytes.to.add(at).write_volatile(at as u8));
            bytes.more = bytes.by_hand.read_volatile() - before;
        }
    }

    /// Each store to a variable went to the dispatcher before it had flags: 40,000 of them.
    #[test]
    fn stores_to_exact_bytes_stay_in_translated_code() {
        let (by_hand, ranges, from) = run(write_each_byte);
        assert_eq!(ranges, [(from, BYTES - 2)]);
        assert_eq!(by_hand, 0);
    }

    /// Structs and copies that follow each other, of lengths that cross granules and pages.
    unsafe extern "C" fn write_structs_and_copies(arg: *mut c_void) {
        // SAFETY: as above.
        unsafe {
            let bytes = &mut *arg.cast::<Bytes>();
            let before = bytes.by_hand.read_volatile();
            let mut at = 1;
            while at + 500 < BYTES {
                bytes.to.add(at).cast::<[u64; 6]>().write_unaligned([at as u64; 6]);
                std::hint::black_box(bytes.to);
                at += 48;
                for len in [3, 20, 64, 65, 200] {
                    let len = std::hint::black_box(len);
                    std::ptr::copy(bytes.to.add(at + 100), bytes.to.add(at), len);
                    at += len;
                }
            }
            (at..BYTES - 1).for_each(|at| bytes.to.add(at).write_volatile(at as u8));
            bytes.more = bytes.by_hand.read_volatile() - before;
        }
    }

    /// Each of them cost 60 to 300 ns in the dispatcher where it costs 10 to 50 on the heap.
    #[test]
    fn structs_and_copies_to_exact_bytes_stay_in_translated_code() {
        let (by_hand, ranges, from) = run(write_structs_and_copies);
        assert_eq!(ranges, [(from, BYTES - 2)]);
        assert_eq!(by_hand, 0);
    }
}
