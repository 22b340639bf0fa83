//! The page verifier: compares all writable memory before and after a call.
//!
//! It is independent of every tracker, slow, and meant for tests. Before the call it copies each writable mapping.
//! After the call every byte that differs must lie in the set's ranges, and so must every non-zero byte of a
//! mapping that did not exist before. It skips stacks and the trackers' own memory. No other thread may write
//! meanwhile.

use crate::own_memory;
use crate::write_set::own_vec::OwnVec;
use crate::write_set::write_set::{Event, WriteSet};
use std::fs::File;
use std::io::Read;

const PAGE_BYTES: usize = 4096;
/// Writable memory that a snapshot can hold.
const COPY_BYTES_MAX: usize = 16 << 30;
/// Missed addresses that a verdict lists.
const MISSED_LISTED_MAX: usize = 64;

/// A writable mapping.
#[derive(Clone, Copy)]
struct Span {
    lo: usize,
    hi: usize,
    /// Where its copy begins.
    copy: usize,
}

/// What a comparison found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Bytes that differ, or that are not zero in new mappings.
    pub changed: usize,
    /// How many of them the write set does not have.
    pub missed: usize,
    /// The first of those addresses.
    pub missed_at: Vec<usize>,
    /// Bytes that the write set reports.
    pub reported: usize,
}

/// A snapshot of all writable memory.
pub struct Verifier {
    spans: OwnVec<Span>,
    later: OwnVec<Span>,
    /// Reserved address space for the copies.
    copy: usize,
    skip: OwnVec<(usize, usize)>,
    files: OwnVec<(usize, usize)>,
    text: OwnVec<u8>,
    missed_at: OwnVec<usize>,
}

impl Drop for Verifier {
    fn drop(&mut self) {
        own_memory::unmap(self.copy, COPY_BYTES_MAX);
    }
}

impl Verifier {
    /// Prepares a verifier. `skip`: further ranges (address, length) that are not the program's, such as a write
    /// set that lies in the heap. Call it, and [`Verifier::before`], on the thread that makes the call.
    #[must_use]
    pub fn new(skip: &[(usize, usize)]) -> Self {
        let mut ranges = OwnVec::new();
        ranges.extend(skip);
        ranges.extend(&kernel_area());
        // The thread gets its number, which lies in its own storage, before the first snapshot.
        let _ = crate::active::thread_number();
        // Large enough from the start: an array that grows moves, and the list of mappings would name memory that
        // is gone.
        let empty = || {
            let mut spans = OwnVec::new();
            spans.resize(1 << 13, Span { lo: 0, hi: 0, copy: 0 });
            spans
        };
        let mut text = OwnVec::new();
        text.resize(1 << 20, 0);
        let mut missed_at = OwnVec::new();
        missed_at.resize(MISSED_LISTED_MAX, 0);
        Self {
            spans: empty(),
            later: empty(),
            copy: own_memory::map(COPY_BYTES_MAX).expect("address space for the snapshot"),
            skip: ranges,
            files: OwnVec::new(),
            text,
            missed_at,
        }
    }

    /// Takes the snapshot. Nothing may be written between this and the call.
    ///
    /// # Panics
    /// If /proc/self/maps cannot be read.
    pub fn before(&mut self) {
        read_spans(&mut self.spans, &mut self.text);
        let mut at = 0;
        for idx in 0..self.spans.len() {
            let Span { lo, hi, .. } = self.spans[idx];
            self.spans[idx].copy = at;
            for page in (lo..hi).step_by(PAGE_BYTES) {
                if !self.skipped(page) {
                    assert!(at < COPY_BYTES_MAX, "the snapshot fits its address space");
                    // SAFETY: a readable page, and a page of our reserved space.
                    unsafe {
                        let from = std::ptr::with_exposed_provenance::<u8>(page);
                        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.copy + at);
                        std::ptr::copy_nonoverlapping(from, to, PAGE_BYTES);
                    }
                }
                at += PAGE_BYTES;
            }
        }
    }

    /// Compares memory with the snapshot, and the differences with what `writes` reports.
    ///
    /// # Panics
    /// If /proc/self/maps cannot be read.
    pub fn after(&mut self, writes: &mut WriteSet) -> Verdict {
        // The event describes what a new file mapping contains; the ranges do not.
        self.files.clear();
        for event in writes.events() {
            if let Event::Map { addr, len, fd: 0.., .. } = *event {
                self.files.push((addr, len));
            }
        }
        let ranges = writes.ranges();
        let mut verdict =
            Verdict { reported: ranges.iter().map(|range| range.1).sum(), ..Verdict::default() };
        self.missed_at.clear();
        let mut later = std::mem::replace(&mut self.later, OwnVec::new());
        read_spans(&mut later, &mut self.text);
        for span in later.iter() {
            for page in (span.lo..span.hi).step_by(PAGE_BYTES) {
                self.compare_page(page, ranges, &mut verdict);
            }
        }
        self.later = later;
        verdict.missed_at = self.missed_at.to_vec();
        verdict
    }

    fn compare_page(&mut self, page: usize, ranges: &[(usize, usize)], verdict: &mut Verdict) {
        if self.skipped(page) {
            return;
        }
        const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
        // SAFETY: a readable page of the present mappings.
        let now =
            unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(page), PAGE_BYTES) };
        let idx = self.spans.partition_point(|span| span.hi <= page);
        let then = match self.spans.get(idx) {
            Some(span) if span.lo <= page => {
                let at = self.copy + span.copy + page - span.lo;
                // SAFETY: the page's copy in our reserved space.
                unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(at), PAGE_BYTES) }
            }
            _ => &ZEROS[..],
        };
        if now == then {
            return;
        }
        for byte in (0..PAGE_BYTES).filter(|&byte| now[byte] != then[byte]) {
            let addr = page + byte;
            if self.skipped_byte(addr) {
                continue;
            }
            verdict.changed += 1;
            if self.files.iter().any(|file| (file.0..file.0 + file.1).contains(&addr)) {
                continue;
            }
            let at = ranges.partition_point(|range| range.0 + range.1 <= addr);
            if ranges.get(at).is_none_or(|range| range.0 > addr) {
                verdict.missed += 1;
                if self.missed_at.len() < MISSED_LISTED_MAX {
                    self.missed_at.push(addr);
                }
            }
        }
    }

    /// Does the whole page belong to the trackers or to a range that the caller skips?
    fn skipped(&self, page: usize) -> bool {
        let covers = |&(addr, len): &(usize, usize)| addr <= page && page + PAGE_BYTES <= addr + len;
        let mut own = false;
        own_memory::each(|addr, len| own |= covers(&(addr, len)));
        own || self.skip.iter().any(covers)
    }

    /// The same for one byte: of the trackers' few variables, or of a range that the caller skips.
    fn skipped_byte(&self, byte: usize) -> bool {
        let within = |&(addr, len): &(usize, usize)| (addr..addr + len).contains(&byte);
        own_memory::in_heap(byte)
            || own_memory::variables().iter().any(within)
            || crate::active::variables().iter().any(within)
            || self.skip.iter().any(within)
    }
}

/// The calling thread's area of restartable sequences, which the kernel writes at any time.
fn kernel_area() -> Vec<(usize, usize)> {
    const AREA_BYTES: usize = 32;
    // SAFETY: asks for a symbol of glibc 2.35 and later, an int (ptrdiff_t) that never changes.
    let offset = unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if symbol.is_null() {
            return Vec::new();
        }
        symbol.read()
    };
    vec![(crate::active::thread_identity().wrapping_add_signed(offset), AREA_BYTES)]
}

/// Reads the writable, readable mappings except stacks, sorted.
fn read_spans(spans: &mut OwnVec<Span>, text: &mut OwnVec<u8>) {
    const CHUNK: usize = 1 << 16;
    let mut file = File::open("/proc/self/maps").expect("/proc is mounted");
    let mut len = 0;
    loop {
        text.resize(len + CHUNK, 0);
        let got = file.read(&mut text[len..]).expect("/proc/self/maps can be read");
        if got == 0 {
            break;
        }
        len += got;
    }
    drop(file);
    spans.clear();
    let local = 0u8;
    let here = std::ptr::from_ref(&local).addr();
    for line in text[..len].split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b' ');
        let (Some(span), Some(perms)) = (fields.next(), fields.next()) else { continue };
        let mut ends = span
            .split(|&byte| byte == b'-')
            .filter_map(|digits| usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        let (Some(lo), Some(hi)) = (ends.next(), ends.next()) else { continue };
        let special = line.ends_with(b"[stack]") || line.ends_with(b"[vvar]");
        let mut own = false;
        own_memory::each(|addr, len| own |= addr <= lo && hi <= addr + len);
        if perms.starts_with(b"rw") && !special && !own && !(lo..hi).contains(&here) {
            spans.push(Span { lo, hi, copy: 0 });
        }
    }
}
