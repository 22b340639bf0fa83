//! The program's own variables: bytes of .data and .bss that write commands wrote.
//!
//! Each page of variables of which a command wrote something has a *mirror* in the arena: the bytes, and a bit per
//! byte that says which of them belong to the state. A commit copies what was written into the mirrors, which are
//! part of the same atomic group; opening copies it back, or, where a library is loaded later, the first call after
//! that. Bytes that no command wrote are never touched: a listening
//! socket next to the state's pointer stays that of the present run.
//!
//! Invariants:
//! 1. At most one mirror a page of a module.
//! 2. A bit once set stays set: the variable belongs to the state from then on.

use crate::Error;
use crate::image::layout::StateHeader;
use crate::image::modules::Modules;
use mangrove_arena::{ArenaHeap, PAGE_BYTES, SMALL_BYTES_MAX, Writes};
use std::collections::{BTreeSet, HashMap, HashSet};

/// A page of variables, in the arena.
#[repr(C)]
struct Mirror {
    /// Address of the next; 0 ends the list.
    next: u64,
    /// The module's place in the table of modules.
    module: u64,
    /// The page's address less the module's bias.
    page: u64,
    /// Bit per byte: it belongs to the state.
    counts: [u64; PAGE_BYTES / 64],
    bytes: [u8; PAGE_BYTES],
}

impl Mirror {
    /// Copies what belongs to the state to the page, which lies at `page` now.
    ///
    /// # Safety
    /// No other thread uses those variables now.
    unsafe fn put_back(&self, page: usize, modules: &Modules) {
        for at in (0..PAGE_BYTES).filter(|at| self.counts[at / 64] >> (at % 64) & 1 == 1) {
            if modules.is_variable(page + at) {
                // SAFETY: a writable byte of a loaded module (just checked); the rest is passed on.
                unsafe { ((page + at) as *mut u8).write(self.bytes[at]) };
            }
        }
    }
}

/// Where the mirrors are.
pub(crate) struct Globals {
    /// By the address of the page, of modules that are loaded.
    mirrors: HashMap<usize, *mut Mirror>,
    last: (usize, *mut Mirror),
}

// SAFETY: the pointers lead into the region; only commits use them.
unsafe impl Send for Globals {}

/// The arena has no space for the variables' copies.
#[derive(Debug)]
pub(crate) struct NoRoom;

impl Globals {
    pub(crate) fn new() -> Self {
        Self { mirrors: HashMap::new(), last: (0, std::ptr::null_mut()) }
    }

    /// Copies variables that were written, as (address, bytes), into their mirrors. What is not a variable
    /// of a program module is left out.
    pub(crate) fn keep<W: Writes>(
        &mut self,
        header: *mut StateHeader,
        heap: &mut ArenaHeap,
        modules: &Modules,
        written: &[(usize, usize)],
        w: &mut W,
    ) -> Result<(), NoRoom> {
        for &(address, len) in written {
            let mut from = address;
            while from < address + len {
                let page = from & !(PAGE_BYTES - 1);
                let until = (address + len).min(page + PAGE_BYTES);
                if let Some(mirror) = self.mirror(header, heap, modules, page, w)? {
                    // SAFETY: a mirror lives as long as the state; `from..until` are bytes of a variable that a
                    // command of this process just wrote, so they are mapped.
                    unsafe { copy_in(&mut *mirror, from, until, w) };
                }
                from = until;
            }
        }
        Ok(())
    }

    fn mirror<W: Writes>(
        &mut self,
        header: *mut StateHeader,
        heap: &mut ArenaHeap,
        modules: &Modules,
        page: usize,
        w: &mut W,
    ) -> Result<Option<*mut Mirror>, NoRoom> {
        if self.last.0 == page {
            return Ok(Some(self.last.1));
        }
        let mirror = match self.mirrors.get(&page) {
            Some(&mirror) => mirror,
            None => {
                let Some((module, bias)) = modules.variable_owner(page) else { return Ok(None) };
                let mirror = heap.alloc_zeroed(w, size_of::<Mirror>(), 8).cast::<Mirror>();
                if mirror.is_null() {
                    return Err(NoRoom);
                }
                // What is written here is in the atomic group already: the arena reports a small block of zeros
                // whole, since what it held before must not come back.
                const _: () = assert!(size_of::<Mirror>() <= SMALL_BYTES_MAX);
                // SAFETY: a fresh block of this size, zero; the header is the region's first page.
                unsafe {
                    (*mirror).next = (*header).globals;
                    (*mirror).module = module as u64;
                    (*mirror).page = page.wrapping_sub(bias) as u64;
                    (*header).globals = mirror as u64;
                    StateHeader::report(w, &(*header).globals);
                }
                self.mirrors.insert(page, mirror);
                mirror
            }
        };
        self.last = (page, mirror);
        Ok(Some(mirror))
    }

    /// Puts the variables of all mirrors back where their modules are now. Those of modules that are not loaded are
    /// awaited.
    ///
    /// # Errors
    /// When a mirror cannot be one, or variables are not kept; some variables may be back.
    ///
    /// # Safety
    /// No other thread uses those variables now.
    pub(crate) unsafe fn restore(
        header: *const StateHeader,
        heap: &ArenaHeap,
        modules: &mut Modules,
    ) -> Result<Self, Error> {
        let damaged = |what: String| Err(Error::Damaged { what });
        let mut all = Self::new();
        // SAFETY: the header is the region's first page.
        let mut next = unsafe { (*header).globals } as usize;
        let mut seen = HashSet::new();
        while next != 0 {
            if heap.usable_bytes(next).is_none_or(|bytes| bytes < size_of::<Mirror>()) {
                return damaged(format!("the list of variables leads to {next:#x}, where no block is"));
            }
            // SAFETY: a block in use that is large enough; plain numbers.
            let mirror = unsafe { &*(next as *const Mirror) };
            if !seen.insert((mirror.module, mirror.page)) {
                return damaged(format!("the list of variables has page {:#x} twice", mirror.page));
            }
            match modules.variable_page(mirror.module as usize, mirror.page as usize)? {
                Some(page) => {
                    all.mirrors.insert(page, next as *mut Mirror);
                    // SAFETY: passed on.
                    unsafe { mirror.put_back(page, modules) };
                }
                None => modules.await_module(mirror.module as usize),
            }
            next = mirror.next as usize;
        }
        Ok(all)
    }

    /// Finds the mirrors' pages where their modules are now. Mirrors of modules that are not loaded stay in the
    /// list. Puts variables of the modules `arrived` in place.
    ///
    /// # Safety
    /// No other thread uses the variables of those modules now.
    pub(crate) unsafe fn find_again(
        &mut self,
        header: *const StateHeader,
        modules: &Modules,
        arrived: &BTreeSet<usize>,
    ) {
        *self = Self::new();
        // SAFETY: the region's first page, and a list that `restore` has checked or `mirror` made; no thread writes
        // to it now.
        let mut next = unsafe { (*header).globals } as *mut Mirror;
        while !next.is_null() {
            // SAFETY: as above.
            let mirror = unsafe { &*next };
            if let Ok(Some(page)) = modules.variable_page(mirror.module as usize, mirror.page as usize) {
                self.mirrors.insert(page, next);
                if arrived.contains(&(mirror.module as usize)) {
                    // SAFETY: passed on.
                    unsafe { mirror.put_back(page, modules) };
                }
            }
            next = mirror.next as *mut Mirror;
        }
    }

    /// Whether the byte at `address` belongs to the state.
    pub(crate) fn has(&self, address: usize) -> bool {
        let at = address % PAGE_BYTES;
        let mirror = self.mirrors.get(&(address - at));
        // SAFETY: a mirror lives as long as the state, and only commits use it.
        mirror.is_some_and(|&mirror| unsafe { (*mirror).counts[at / 64] } >> (at % 64) & 1 == 1)
    }

    /// Pages of variables with a mirror.
    pub(crate) fn pages(&self) -> usize {
        self.mirrors.len()
    }
}

/// # Safety
/// `from..until` lies in the mirror's page and is readable.
unsafe fn copy_in<W: Writes>(mirror: &mut Mirror, from: usize, until: usize, w: &mut W) {
    let (at, len) = (from % PAGE_BYTES, until - from);
    // SAFETY: the caller's promise.
    let now = unsafe { std::slice::from_raw_parts(from as *const u8, len) };
    let bytes = &mut mirror.bytes[at..at + len];
    if bytes != now {
        bytes.copy_from_slice(now);
        w.wrote(bytes.as_ptr() as usize, len);
    }
    let (mut bit, end) = (at, at + len);
    while bit < end {
        let count = (64 - bit % 64).min(end - bit);
        let mask = (!0u64 >> (64 - count)) << (bit % 64);
        let word = &mut mirror.counts[bit / 64];
        if *word & mask != mask {
            *word |= mask;
            w.wrote(std::ptr::from_ref(word) as usize, 8);
        }
        bit += count;
    }
}
