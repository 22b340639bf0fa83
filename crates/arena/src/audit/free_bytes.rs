//! Which bytes lie in no block: their content does not matter and need not be made durable.
//!
//! All that the arena knows of free memory lies elsewhere, in spans and bitmaps, and a page counts as zero only
//! before it was ever allocated. So a block that a command allocates, fills and frees costs no log.

use crate::audit::freed_pages::FreedPages;
use crate::bytes::class::CLASSES;
use crate::bytes::layout::{PAGE_BYTES, Span, class_of_span, kind, kind_of};
use crate::heap::{ArenaHeap, FREED_KEPT};
use mangrove_sys::prefetch_read;
use std::sync::atomic::Ordering;

/// Asked in the order of addresses; remembers the span of the last one.
pub struct FreeBytes<'a> {
    heap: &'a ArenaHeap,
    /// Where anything may be free that is asked for, as far as that is known.
    among: Option<&'a [(usize, usize)]>,
    /// The same by pages, where `among` is not known.
    pages: Option<&'a FreedPages>,
    /// Addresses of the span, and its entry.
    from: usize,
    until: usize,
    span: Option<&'a Span>,
}

impl ArenaHeap {
    /// Blocks and runs freed since the handle was made: while it stays the same, nothing in use became free.
    #[inline]
    pub fn frees(&self) -> u64 {
        self.frees
    }

    /// Notes that a block, or a run, was freed.
    #[inline]
    pub(crate) fn note_freed(&mut self, address: usize, bytes: usize) {
        self.freed[self.frees as usize % FREED_KEPT] = (address, address + bytes);
        self.freed_pages.note(address, bytes);
        self.frees += 1;
    }

    /// Forgets what was freed so far: [`ArenaHeap::bytes_freed_since`] is asked only about later frees from now on.
    #[inline]
    pub fn forget_freed(&mut self) {
        self.freed_pages.clear();
    }

    /// Looks at the arena as it is now.
    pub fn free_bytes(&self) -> FreeBytes<'_> {
        FreeBytes { heap: self, among: None, pages: None, from: 0, until: 0, span: None }
    }

    /// As `free_bytes`, of what was freed since [`ArenaHeap::frees`] was `before`, which was not before the last
    /// [`ArenaHeap::forget_freed`]; other free bytes may be told or not.
    pub fn bytes_freed_since(&self, before: u64) -> FreeBytes<'_> {
        let count = (self.frees - before) as usize;
        let first = before as usize % FREED_KEPT;
        // Where the entries wrap around the list's end, all of the list: its other entries were freed, too.
        let among = match count {
            0..=FREED_KEPT if first + count <= FREED_KEPT => Some(&self.freed[first..first + count]),
            0..=FREED_KEPT => Some(&self.freed[..]),
            _ => None,
        };
        FreeBytes { among, pages: Some(&self.freed_pages), ..self.free_bytes() }
    }
}

impl FreeBytes<'_> {
    /// Whether [`FreeBytes::hold`] may say so of any byte of `[address, address + len)`: looks at no span.
    #[inline]
    pub fn may_hold(&self, address: usize, len: usize) -> bool {
        // The entries of spans are rarely in the cache, and most of what a batch writes stays in use.
        let is_near = |&(from, until): &(usize, usize)| from < address + len && address < until;
        match (self.among, self.pages) {
            (Some(freed), _) => freed.iter().any(is_near),
            (None, Some(pages)) => pages.may_hold(address, len),
            (None, None) => true,
        }
    }

    /// Has the entry of the span come near that `address` lies in: `hold` is asked about it soon.
    #[inline]
    pub fn prefetch(&self, address: usize) {
        let view = &self.heap.view;
        if let Some(page) = view.page_of(address) {
            prefetch_read(std::ptr::from_ref(view.span(view.start_of(page))).cast());
        }
    }

    /// Whether no byte of `[address, address + len)` lies in a block in use, or in other memory in use. Also false
    /// where the answer would cost more (a range over several spans). O(1) for small blocks.
    #[inline]
    pub fn hold(&mut self, address: usize, len: usize) -> bool {
        if !self.may_hold(address, len) {
            return false;
        }
        if !(self.from..self.until).contains(&address) {
            self.find(address);
        }
        let Some(span) = self.span.filter(|_| address + len <= self.until) else { return false };
        // Relaxed, here and below: no batch runs.
        let what = span.what().load(Ordering::Relaxed);
        match kind_of(what) {
            kind::FREE | kind::RESERVE => true,
            kind::SLAB => {
                let shape = &CLASSES[class_of_span(what) as usize];
                let offset = address - self.from;
                let (first, last) = (shape.slot_of(offset), shape.slot_of(offset + len - 1));
                // Bytes after the last block belong to no block, but no program writes them either.
                last < shape.slots as usize
                    && (first..=last)
                        .all(|slot| span.free[slot / 64].load(Ordering::Relaxed) >> (slot % 64) & 1 == 1)
            }
            _ => false,
        }
    }

    fn find(&mut self, address: usize) {
        let view = &self.heap.view;
        let Some(page) = view.page_of(address) else {
            (self.from, self.until, self.span) = (0, 0, None);
            return;
        };
        let start = view.start_of(page);
        let span = view.span(start);
        self.from = view.address(start) as usize;
        self.until = self.from + span.pages().load(Ordering::Relaxed) as usize * PAGE_BYTES;
        self.span = Some(span);
    }
}
