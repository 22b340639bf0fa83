//! Makes an arena in a region of zeroes, and finds one again.

use crate::bytes::layout::{
    ARENA_HEAD_BYTES, GROUP_BYTES, GROUP_PAGES, PAGE_BYTES, PageBitmap, PageGroup, arena_front_bytes, kind,
    what,
};
use crate::heap::ArenaHeap;
use crate::pages::pages::meta_pages;
use crate::space::{ArenaSpace, Words, certain};
use std::convert::Infallible;
use std::sync::atomic::Ordering;

impl ArenaHeap {
    /// Makes an arena in a space of zeroes. Its head goes to `head_offset`, a multiple of the page; what comes
    /// before it stays the caller's.
    ///
    /// # Errors
    /// A message, when the space is too small or does not grow.
    pub fn format<W: Words<Stop = Infallible>>(
        space: Box<dyn ArenaSpace>,
        head_offset: u64,
        w: &mut W,
    ) -> Result<Self, String> {
        let mut space = space;
        assert!(head_offset.is_multiple_of(PAGE_BYTES as u64));
        let capacity = space.capacity() / GROUP_BYTES * GROUP_BYTES;
        let front = head_offset + arena_front_bytes(capacity);
        let groups = (front + 2 * size_of::<PageGroup>() as u64).div_ceil(GROUP_BYTES);
        let mut groups = groups.max(space.len() / GROUP_BYTES);
        let reserved_for = |groups| front.div_ceil(PAGE_BYTES as u64) + meta_pages(groups);
        let has_room = |groups| reserved_for(groups) + 16 <= groups * GROUP_PAGES;
        // Descriptions may need more: behind a long directory, or in a space that is large from the start.
        while !has_room(groups) && groups < capacity / GROUP_BYTES {
            groups += 1;
        }
        let reserved = reserved_for(groups);
        if groups * GROUP_BYTES > capacity || !has_room(groups) {
            return Err(format!(
                "a capacity of {} bytes is too small; give it at least {}",
                space.capacity(),
                (groups + u64::from(!has_room(groups))) * GROUP_BYTES
            ));
        }
        if space.len() < reserved * PAGE_BYTES as u64 {
            space.grow(reserved * PAGE_BYTES as u64).map_err(|e| format!("the region cannot grow: {e}"))?;
        }
        let mut heap = Self::attach(space, head_offset);
        heap.groups_max = capacity / GROUP_BYTES;
        heap.view.groups_max = heap.groups_max;
        let view = heap.view;
        let head = view.head();
        certain(w.store(&head.pages, groups * GROUP_PAGES));
        certain(w.store(&head.groups_max, capacity / GROUP_BYTES));
        for group in 0..groups {
            let offset = front.next_multiple_of(PAGE_BYTES as u64) + group * size_of::<PageGroup>() as u64;
            certain(w.store(view.directory_entry(group), offset));
        }
        certain(w.store_all(&view.span(0).links, &[what(kind::META, 0), reserved, 0, 0]));
        certain(heap.set_bit(w, PageBitmap::Starts, 0, true));
        certain(heap.touch(w, 0, reserved));
        certain(heap.free_run(w, reserved, groups * GROUP_PAGES - reserved));
        Ok(heap)
    }

    /// Finds the arena that [`ArenaHeap::format`] made, in this run or an earlier one. Should a crash have made the
    /// space shorter, grows it to the end of what was ever allocated. Reads one word a group, which is 8 bytes for
    /// 4 MiB: pages and blocks are looked at when they are used, and all of them by [`ArenaHeap::check`].
    ///
    /// Several handles may be open at a time if each writes in transactions. A handle from before the arena grew
    /// knows what was added.
    ///
    /// # Errors
    /// A message, when the head cannot be an arena's.
    pub fn open(space: Box<dyn ArenaSpace>, head_offset: u64) -> Result<Self, String> {
        let len = space.len();
        if len < head_offset + ARENA_HEAD_BYTES as u64 {
            return Err(format!("the region ends after {len} bytes, before the arena's head"));
        }
        let mut heap = Self::attach(space, head_offset);
        let (pages, groups_max) = heap.check_sizes()?;
        heap.check_parts(pages)?;
        // A crash takes back space that was never written to; what comes in its place is zero, as it was.
        let used = if len < pages * PAGE_BYTES as u64 { heap.used_pages(pages)? } else { pages };
        if len < used * PAGE_BYTES as u64 && heap.space_grow(used * PAGE_BYTES as u64).is_none() {
            return Err(format!(
                "the arena has {used} pages, of which the crash left {}; make room for the others on the medium",
                len / PAGE_BYTES as u64
            ));
        }
        heap.know_groups_max(groups_max);
        Ok(heap)
    }

    /// As [`ArenaHeap::open`], of an arena that the program has open already: looks at its sizes alone. Other threads
    /// may be in transactions that let it grow, and that may be undone.
    ///
    /// # Errors
    /// As there.
    pub fn open_checked(space: Box<dyn ArenaSpace>, head_offset: u64) -> Result<Self, String> {
        let mut heap = Self::attach(space, head_offset);
        let (_, groups_max) = heap.check_sizes()?;
        heap.know_groups_max(groups_max);
        Ok(heap)
    }

    fn know_groups_max(&mut self, groups_max: u64) {
        self.groups_max = groups_max;
        self.view.groups_max = groups_max.min(self.space_capacity() / GROUP_BYTES);
    }

    /// The pages under management, and the groups that the directory is for, as the head says.
    ///
    /// # Errors
    /// A message, when they cannot be an arena's.
    pub(crate) fn check_sizes(&self) -> Result<(u64, u64), String> {
        let (len, capacity) = (self.space_len(), self.space_capacity());
        // Relaxed: the thread that wrote the arena is done, or writes in transactions that only add to these words.
        let (pages, groups_max) =
            (self.head().pages.load(Ordering::Relaxed), self.head().groups_max.load(Ordering::Relaxed));
        if pages == 0 || !pages.is_multiple_of(GROUP_PAGES) || pages > capacity / PAGE_BYTES as u64 {
            return Err(format!(
                "the arena says it has {pages} pages, but the region has {} and room for {}",
                len / PAGE_BYTES as u64,
                capacity / PAGE_BYTES as u64
            ));
        }
        // The directory lies in the pages. It may be for more groups than this run has addresses for.
        if pages / GROUP_PAGES > groups_max || groups_max > pages * PAGE_BYTES as u64 / 8 {
            return Err(format!(
                "the arena's directory is for {groups_max} groups, but the region has {}",
                pages / GROUP_PAGES
            ));
        }
        Ok((pages, groups_max))
    }

    /// The end of what was ever allocated, in an arena whose parts have been checked.
    ///
    /// # Errors
    /// A message, when nothing was, which cannot be.
    pub(crate) fn used_pages(&self, pages: u64) -> Result<u64, String> {
        let mut used = 0;
        for group in (0..pages / GROUP_PAGES).rev() {
            // Relaxed: as in `check_sizes`. Beyond the space's end the region has zeros.
            let words = &self.view.group(group * GROUP_PAGES).touched;
            let last = (0..).zip(words).map(|(at, word)| (at, word.load(Ordering::Relaxed)));
            if let Some((at, word)) = last.filter(|(_, word)| *word != 0).last() {
                used = group * GROUP_PAGES + at * 64 + u64::from(64 - word.leading_zeros());
                break;
            }
        }
        if used == 0 { Err("the arena's first page was never allocated".to_owned()) } else { Ok(used) }
    }

    /// Whether directory and table of shards lie in the arena's pages, which the space has: then all that they name can
    /// be looked at.
    ///
    /// # Errors
    /// A message, when they do not.
    pub(crate) fn check_parts(&self, pages: u64) -> Result<(), String> {
        for group in 0..pages / GROUP_PAGES {
            let offset = self.view.directory_entry(group).load(Ordering::Relaxed);
            if offset < arena_front_bytes(0)
                || !offset.is_multiple_of(64)
                || offset.saturating_add(size_of::<PageGroup>() as u64) > pages * PAGE_BYTES as u64
            {
                return Err(format!("the arena's directory has offset {offset:#x} for group {group}"));
            }
        }
        if !self.view.bit(PageBitmap::Starts, 0) {
            return Err("the arena's first page starts no span".to_owned());
        }
        self.check_shard_table()
    }
}
