//! Memory calls that a command makes to the kernel: what it maps comes from the arena, so that it is as persistent as
//! what malloc gives, or the command is refused with a message. docs/durable.md has the table for users.
//!
//! Invariants:
//! 1. A mapping that a command gets is persistent, or libc's own (`mapped_file.rs`), or may vanish at any time by
//!    what the command asked for (MAP_DROPPABLE).
//! 2. Pages of the region are changed by the arena alone: no other mapping ever takes their place.

use crate::alloc::mapped_file::{FilePurpose, MappedFile};
use crate::alloc::reports::Reports;
use crate::alloc::split_allocation;
use mangrove_arena::{MapError, PAGE_BYTES, Writes};
use mangrove_tracker::{Decision, SyscallHook, WriteSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The one hook of all trackers.
pub(crate) struct Mappings;

/// The hook as trackers take it.
pub(crate) static MAPPINGS: Mappings = Mappings;

const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Memory that the kernel may make zero at any time (linux/mman.h).
const MAP_DROPPABLE: i32 = 8;
/// Flags that ask for a place which the region does not have: below 2 GiB, or one that grows downwards.
const UNSUITED: i32 = libc::MAP_GROWSDOWN | if cfg!(target_arch = "x86_64") { 0x40 } else { 0 };

/// Where the last file mapping of a library of libc's own ended. The dynamic linker puts the library's zeroed
/// variables there.
static LIBCS_END: AtomicUsize = AtomicUsize::new(0);

/// Where a range lies relative to the durable state.
#[derive(PartialEq, Eq)]
enum Containment {
    Outside,
    Inside,
    Across,
}

fn place(address: usize, len: usize) -> Containment {
    let last = address.wrapping_add(len.max(1) - 1);
    match (split_allocation::is_persistent(address), split_allocation::is_persistent(last)) {
        (true, true) => Containment::Inside,
        (false, false) if !split_allocation::overlaps(address, len) => Containment::Outside,
        _ => Containment::Across,
    }
}

fn fail(code: i32) -> Decision {
    Decision::Return(-i64::from(code))
}

fn answer<T>(result: Result<T, MapError>, then: impl FnOnce(T) -> i64) -> Decision {
    match result {
        Ok(value) => Decision::Return(then(value)),
        Err(MapError::Full) => fail(libc::ENOMEM),
        Err(MapError::NotMapped) => fail(libc::EINVAL),
    }
}

const ACROSS: Decision = Decision::Refuse(
    "a command changed mappings across the border of the durable state; only what it mapped itself may be changed",
);

const ELSEWHERE: Decision = Decision::Refuse(
    "a command mapped memory at a fixed address outside of the durable state, where it would not be durable; let the system choose the address",
);
const OVER: Decision = Decision::Refuse(
    "a command mapped memory over durable memory that it had not mapped before; let the system choose the address",
);
const SHARED: Decision =
    Decision::Refuse("a command asked for shared memory, which cannot be durable; ask for private memory");
const SHARED_FILE: Decision = Decision::Refuse(
    "a command mapped a file shared, and the next start would not find it mapped; map it private, which copies it into the state, or read it",
);
const EXECUTABLE: Decision =
    Decision::Refuse("a command mapped executable memory; code that is made at run time cannot be durable");
const PLACE: Decision = Decision::Refuse(
    "a command asked for memory below 2 GiB or for memory that grows downwards (MAP_32BIT, MAP_GROWSDOWN), and durable memory is neither; leave the flag out",
);
const DEVICE: Decision = Decision::Refuse(
    "a command mapped a device, whose memory cannot be durable; map it before opening the state, and again at each start",
);

impl SyscallHook for Mappings {
    fn before(&self, number: i64, args: &[u64; 6], writes: &mut WriteSet) -> Decision {
        if split_allocation::is_inside() {
            serve(number, args, &mut Reports(writes))
        } else {
            Decision::Native
        }
    }
}

/// Decides about a call that a command makes.
pub(crate) fn serve<W: Writes>(number: i64, args: &[u64; 6], writes: &mut W) -> Decision {
    let [a, b, c, d, e, f] = args.map(|arg| arg as usize);
    match number {
        libc::SYS_mmap => {
            let wish = Wish { address: a, len: b, protection: c as i32, flags: d as i32 };
            wish.serve(MappedFile { fd: e as i32, offset: f }, writes)
        }
        libc::SYS_munmap => match place(a, b) {
            Containment::Outside => Decision::Native,
            Containment::Across => ACROSS,
            Containment::Inside => {
                answer(split_allocation::with_heap(|heap| heap.unmap(writes, a, b)), |()| 0)
            }
        },
        libc::SYS_mremap => remap(a, b, c, d as i32, e, writes),
        libc::SYS_madvise => match place(a, b) {
            Containment::Outside => Decision::Native,
            Containment::Across => ACROSS,
            Containment::Inside => match c as i32 {
                libc::MADV_DONTNEED | libc::MADV_REMOVE => {
                    answer(split_allocation::with_heap(|heap| heap.map_again(writes, a, b)), |()| 0)
                }
                libc::MADV_WIPEONFORK | libc::MADV_DONTFORK => fail(libc::EINVAL),
                // Hints about huge pages, read-ahead and dumps change nothing. Nor is memory dropped that may be.
                _ => Decision::Return(0),
            },
        },
        libc::SYS_mprotect => match place(a, b) {
            Containment::Outside => Decision::Native,
            Containment::Across => ACROSS,
            Containment::Inside if c as i32 & libc::PROT_EXEC != 0 => Decision::Refuse(
                "a command made durable memory executable; code that is made at run time cannot be durable",
            ),
            // The runtime itself reads and writes there, and the program only wants a guard.
            Containment::Inside => Decision::Return(0),
        },
        libc::SYS_brk => {
            if a == 0 {
                return Decision::Native;
            }
            Decision::Refuse(
                "a command moved the end of the process's heap (brk, sbrk), which is not durable; let the allocator use mmap instead",
            )
        }
        _ => Decision::Native,
    }
}

/// A mapping that a command wants.
struct Wish {
    address: usize,
    len: usize,
    protection: i32,
    flags: i32,
}

impl Wish {
    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn is_fixed(&self) -> bool {
        self.has(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE)
    }

    fn is_executable(&self) -> bool {
        self.protection & libc::PROT_EXEC != 0
    }

    fn kind(&self) -> i32 {
        self.flags & libc::MAP_TYPE
    }

    fn serve<W: Writes>(&self, file: MappedFile, writes: &mut W) -> Decision {
        if self.len == 0 {
            return Decision::Native; // The kernel has a word for it.
        }
        let at = if self.is_fixed() { place(self.address, self.len) } else { Containment::Outside };
        if at == Containment::Across {
            return ACROSS;
        }
        if self.has(libc::MAP_ANONYMOUS) {
            self.anonymous(&at, writes)
        } else {
            self.file(&file, &at, writes)
        }
    }

    fn anonymous<W: Writes>(&self, at: &Containment, writes: &mut W) -> Decision {
        // Relaxed: commands come one after the other.
        let is_libcs = || self.address == LIBCS_END.swap(0, Ordering::Relaxed);
        if self.is_fixed() && *at == Containment::Outside {
            return if is_libcs() { Decision::Native } else { ELSEWHERE };
        }
        match self.kind() {
            libc::MAP_PRIVATE => {}
            // Its content may vanish at any time, and so may it at a restart.
            MAP_DROPPABLE if !self.is_fixed() => return Decision::Native,
            _ => return SHARED,
        }
        if self.is_executable() {
            return EXECUTABLE;
        }
        self.arena_memory(at, writes)
            .map_or_else(|refusal| refusal, |address| Decision::Return(address as i64))
    }

    /// Allocates zeroed memory of the arena. Returns its address, or the decision that refuses the call.
    fn arena_memory<W: Writes>(&self, at: &Containment, writes: &mut W) -> Result<usize, Decision> {
        if self.is_fixed() && *at == Containment::Inside {
            if self.has(libc::MAP_FIXED_NOREPLACE) {
                return Err(fail(libc::EEXIST));
            }
            let mapped = split_allocation::with_heap(|heap| heap.map_again(writes, self.address, self.len));
            return mapped.map(|()| self.address).map_err(|_| OVER);
        }
        if self.has(UNSUITED) {
            return Err(PLACE);
        }
        let (mut len, mut align) = (self.len, PAGE_BYTES);
        if self.has(libc::MAP_HUGETLB) {
            // The kernel gives whole huge pages, and the command may unmap whole ones.
            let huge = match (self.flags >> libc::MAP_HUGE_SHIFT) & libc::MAP_HUGE_MASK {
                0 => HUGE_PAGE_BYTES,
                log @ 16..=34 => 1 << log,
                _ => return Err(fail(libc::EINVAL)),
            };
            len = len.checked_next_multiple_of(huge).ok_or(fail(libc::ENOMEM))?;
            align = HUGE_PAGE_BYTES;
        }
        let mapped = split_allocation::with_heap(|heap| heap.map(writes, len, align));
        mapped.map(|address| address as usize).map_err(|_| fail(libc::ENOMEM))
    }

    fn file<W: Writes>(&self, file: &MappedFile, at: &Containment, writes: &mut W) -> Decision {
        let purpose = file.purpose();
        match purpose {
            FilePurpose::LibcsLibrary if *at == Containment::Outside => {
                if self.is_fixed() {
                    let end = self.address.wrapping_add(self.len).next_multiple_of(PAGE_BYTES);
                    LIBCS_END.store(end, Ordering::Relaxed);
                }
                return Decision::Native;
            }
            FilePurpose::LibcsData
                if *at == Containment::Outside && self.protection & libc::PROT_WRITE == 0 =>
            {
                return Decision::Native;
            }
            FilePurpose::LibcsLibrary => return OVER,
            // A library: what the dynamic linker records of it would lie in the state, and the next start has not
            // loaded it.
            _ if self.is_executable() || self.has(libc::MAP_DENYWRITE) => return fail(libc::EPERM),
            // Not a file that can be mapped: the kernel has a word for it.
            FilePurpose::None => return Decision::Native,
            FilePurpose::Device => return DEVICE,
            FilePurpose::Zero | FilePurpose::Content | FilePurpose::LibcsData => {}
        }
        match self.kind() {
            libc::MAP_PRIVATE => {}
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => return SHARED_FILE,
            _ => return Decision::Native,
        }
        if !file.offset.is_multiple_of(PAGE_BYTES) {
            return fail(libc::EINVAL);
        }
        if !file.is_readable() {
            return fail(libc::EACCES);
        }
        if self.is_fixed() && *at == Containment::Outside {
            return ELSEWHERE;
        }
        let address = match self.arena_memory(at, writes) {
            Ok(address) => address,
            Err(refusal) => return refusal,
        };
        let got = match purpose {
            FilePurpose::Zero => Ok(0),
            // SAFETY: memory that the arena has just given for this mapping.
            _ => unsafe { file.read_to(address as *mut u8, self.len) },
        };
        match got {
            Ok(got) => {
                writes.wrote(address, got);
                Decision::Return(address as i64)
            }
            Err(code) => {
                let _ = split_allocation::with_heap(|heap| heap.unmap(writes, address, self.len));
                fail(code)
            }
        }
    }
}

fn remap<W: Writes>(
    old: usize,
    old_len: usize,
    len: usize,
    flags: i32,
    to: usize,
    writes: &mut W,
) -> Decision {
    match place(old, old_len) {
        Containment::Outside => {
            let replaces = flags & libc::MREMAP_FIXED != 0 && place(to, len) != Containment::Outside;
            return if replaces { OVER } else { Decision::Native };
        }
        Containment::Across => return ACROSS,
        Containment::Inside => {}
    }
    if flags & !libc::MREMAP_MAYMOVE != 0 || old_len == 0 {
        return Decision::Refuse(
            "a command moved durable memory to a fixed address; let the system choose it",
        );
    }
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    answer(split_allocation::with_heap(|heap| heap.remap(writes, old, old_len, len, may_move)), |at| {
        at as i64
    })
}
