//! The code cache: arenas within reach of the modules whose code they hold.
//!
//! Each arena is shared memory that is mapped twice: one mapping is readable and executable, and the code runs
//! there; the other is readable and writable, and the recompiler writes through it. The program never learns where
//! the second one lies. No mapping is both writable and executable.

use super::proc_maps::Maps;
use crate::own_memory;
use crate::recompiler::run::raw_syscall::{failed, syscall};
use crate::recompiler::translate::emit::{Code, reaches};

/// Address space of an arena; memory is used as code is translated.
const ARENA_BYTES: usize = 64 << 20;
/// How the arena is divided.
const HOT_BYTES: usize = 24 << 20;
const SLOW_BYTES: usize = 28 << 20;
/// The most that the translation of one piece of code takes in any part.
pub(crate) const FREE_BYTES_MIN: usize = 256 << 10;
/// How far a module may be from its arena.
const REACH: usize = 0x6000_0000;
const ARENA_COUNT_MAX: usize = 16;

/// One arena.
pub(crate) struct CodeArena {
    /// Translated code.
    pub(crate) hot: Code,
    /// Out-of-line parts of records.
    pub(crate) slow: Code,
    /// Exit stubs, entries for indirect branches, constants.
    pub(crate) cold: Code,
}

impl CodeArena {
    pub(crate) fn lo(&self) -> usize {
        self.hot.base
    }

    pub(crate) fn hi(&self) -> usize {
        self.cold.end
    }

    pub(crate) fn contains(&self, addr: usize) -> bool {
        (self.lo()..self.hi()).contains(&addr)
    }

    /// True if this arena may hold the translation of code at `addr`.
    pub(crate) fn serves(&self, addr: usize) -> bool {
        self.hi().max(addr) - self.lo().min(addr) < REACH
    }

    /// True if there is space for one more piece of code.
    pub(crate) fn has_space(&self) -> bool {
        self.hot.free_bytes() >= FREE_BYTES_MIN
            && self.slow.free_bytes() >= FREE_BYTES_MIN
            && self.cold.free_bytes() >= FREE_BYTES_MIN
    }

    /// Puts a constant into memory and returns its address.
    pub(crate) fn constant(&mut self, value: u64) -> usize {
        while !self.cold.pos.is_multiple_of(8) {
            self.cold.bytes(&[0xcc]);
        }
        self.cold.u64(value);
        self.cold.pos - 8
    }

    fn reset(&mut self) {
        for code in [&mut self.hot, &mut self.slow, &mut self.cold] {
            code.pos = code.base;
        }
    }
}

/// All arenas.
pub(crate) struct CodeCache {
    arenas: [Option<CodeArena>; ARENA_COUNT_MAX],
    count: usize,
}

impl CodeCache {
    pub(crate) const fn new() -> Self {
        Self { arenas: [const { None }; ARENA_COUNT_MAX], count: 0 }
    }

    /// The arena for code at `addr`, made if there is none. `None`: no memory or no address space.
    pub(crate) fn arena_for(&mut self, addr: usize, maps: &mut Maps) -> Option<usize> {
        if let Some(idx) = self.all().position(|arena| arena.serves(addr)) {
            return Some(idx);
        }
        if self.count == ARENA_COUNT_MAX {
            return None;
        }
        // The kernel refuses to map over anything that was mapped since.
        let _ = maps.refresh();
        let at = maps.gap_near(addr, ARENA_BYTES)?;
        let arena = self.map(at)?;
        if !arena.serves(addr) {
            return None;
        }
        self.arenas[self.count] = Some(arena);
        self.count += 1;
        Some(self.count - 1)
    }

    fn map(&mut self, at: usize) -> Option<CodeArena> {
        let (runs, written) = (at, own_memory::map(ARENA_BYTES)?);
        // SAFETY: memory of our own, mapped at a free place and over a piece of our own memory; nothing else is
        // touched.
        unsafe {
            // A file in memory needs a descriptor and falls under the limit of file sizes; valgrind supports no
            // other way.
            if !map_twice(runs, written) && !map_file_twice(runs, written) {
                return None;
            }
            for addr in [runs, written] {
                // A forked child must not write into the code that its parent runs.
                let advice = libc::MADV_DONTFORK as u64;
                syscall(libc::SYS_madvise, [addr as u64, ARENA_BYTES as u64, advice, 0, 0, 0]);
                let advice = libc::MADV_DONTDUMP as u64;
                syscall(libc::SYS_madvise, [addr as u64, ARENA_BYTES as u64, advice, 0, 0, 0]);
            }
        }
        own_memory::note(runs, ARENA_BYTES);
        let delta = written as isize - runs as isize;
        let part =
            |from: usize, to: usize| Code { base: runs + from, pos: runs + from, end: runs + to, delta };
        Some(CodeArena {
            hot: part(0, HOT_BYTES),
            slow: part(HOT_BYTES, HOT_BYTES + SLOW_BYTES),
            cold: part(HOT_BYTES + SLOW_BYTES, ARENA_BYTES),
        })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &CodeArena> {
        self.arenas[..self.count].iter().flatten()
    }

    pub(crate) fn arena(&mut self, idx: usize) -> &mut CodeArena {
        self.arenas[idx].as_mut().expect("an index that arena_for gave")
    }

    /// The arena that holds cache address `addr`.
    pub(crate) fn arena_of(&mut self, addr: usize) -> Option<&mut CodeArena> {
        self.arenas[..self.count].iter_mut().flatten().find(|arena| arena.contains(addr))
    }

    /// Forgets all code.
    pub(crate) fn reset(&mut self) {
        self.arenas[..self.count].iter_mut().flatten().for_each(CodeArena::reset);
    }
}

const READ_EXECUTE: i32 = libc::PROT_READ | libc::PROT_EXEC;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps fresh shared memory twice: at the free address `runs`, to be executed, and at `written`, to be written.
///
/// # Safety
/// The caller owns the memory at `written`, for the length of an arena, and lets it be replaced.
unsafe fn map_twice(runs: usize, written: usize) -> bool {
    let (at, len) = (runs as u64, ARENA_BYTES as u64);
    // SAFETY: by contract; what is mapped here is unmapped if it cannot be used.
    unsafe {
        if !map(
            runs,
            READ_EXECUTE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            u64::MAX,
        ) {
            return false;
        }
        // An old length of zero maps the same pages once more.
        let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let mapped = syscall(libc::SYS_mremap, [at, 0, len, how, written as u64, 0]);
        if !failed(mapped)
            && !failed(syscall(libc::SYS_mprotect, [written as u64, len, READ_WRITE as u64, 0, 0, 0]))
        {
            return true;
        }
        syscall(libc::SYS_munmap, [at, len, 0, 0, 0, 0]);
        false
    }
}

/// The same with a file in memory.
///
/// # Safety
/// As for `map_twice`.
unsafe fn map_file_twice(runs: usize, written: usize) -> bool {
    const MFD_EXEC: u64 = 0x10;
    let name = c"mangrove-code".as_ptr() as u64;
    let cloexec = u64::from(libc::MFD_CLOEXEC);
    // SAFETY: a new file of our own; by contract.
    unsafe {
        let mut fd = syscall(libc::SYS_memfd_create, [name, cloexec | MFD_EXEC, 0, 0, 0, 0]);
        if failed(fd) {
            fd = syscall(libc::SYS_memfd_create, [name, cloexec, 0, 0, 0, 0]);
        }
        if failed(fd) {
            return false;
        }
        let fd = fd as u64;
        let done = !failed(syscall(libc::SYS_ftruncate, [fd, ARENA_BYTES as u64, 0, 0, 0, 0]))
            && map(runs, READ_EXECUTE, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE, fd)
            && map(written, READ_WRITE, libc::MAP_SHARED | libc::MAP_FIXED, fd);
        syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        done
    }
}

/// # Safety
/// As `mmap`, with a fixed address.
unsafe fn map(at: usize, protection: i32, flags: i32, fd: u64) -> bool {
    let args = [at as u64, ARENA_BYTES as u64, protection as u64, flags as u64, fd, 0];
    // SAFETY: by contract.
    unsafe { syscall(libc::SYS_mmap, args) == at as i64 }
}

/// Points the 32-bit displacement at cache address `site` to `target`, if it reaches.
pub(crate) fn link(arena: &CodeArena, site: usize, target: usize) -> bool {
    if !reaches(target, site + 4) {
        return false;
    }
    let rel = target.wrapping_sub(site + 4) as u32;
    // SAFETY: a displacement of an emitted jump, written through the arena's writable mapping. Only this thread
    // runs the code, and it is not in it now.
    unsafe {
        let at = site.wrapping_add_signed(arena.hot.delta);
        std::ptr::with_exposed_provenance_mut::<u32>(at).write_unaligned(rel);
    }
    true
}
