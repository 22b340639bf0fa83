//! Memory calls that a command makes to the kernel: anonymous mappings come from the arena, so that they are
//! as persistent as what malloc gives. Files, shared memory and threads' stacks stay the process's own.

use crate::alloc::split_allocation;
use crate::arena::{MapError, PAGE_BYTES, Writes};
use crate::image::modules::is_libcs_own;
use mangrove_tracker::{Decision, SyscallHook, WriteSet};
use std::io::Write as _;

/// The one hook of all trackers.
pub(crate) struct Mappings;

/// The hook as trackers take it.
pub(crate) static MAPPINGS: Mappings = Mappings;

const HUGE_PAGE_BYTES: usize = 2 << 20;

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

impl SyscallHook for Mappings {
    fn before(&self, number: i64, args: &[u64; 6], writes: &mut WriteSet) -> Decision {
        if split_allocation::is_inside() { serve(number, args, writes) } else { Decision::Native }
    }
}

/// Decides about a call that a command makes.
pub(crate) fn serve<W: Writes>(number: i64, args: &[u64; 6], writes: &mut W) -> Decision {
    let [a, b, c, d, e, _] = args.map(|arg| arg as usize);
    match number {
        libc::SYS_mmap => map(a, b, c as i32, d as i32, e as i32, writes),
        libc::SYS_munmap => match place(a, b) {
            Containment::Outside => Decision::Native,
            Containment::Across => ACROSS,
            Containment::Inside => {
                answer(split_allocation::with_heap(|heap| heap.unmap(writes, a, b)), |()| 0)
            }
        },
        libc::SYS_mremap => remap(a, b, c, d as i32, writes),
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

/// Whether an open file is a library that libc loads for itself. Allocates nothing.
fn is_libcs_own_file(fd: i32) -> bool {
    let mut link = [0u8; 32];
    let mut path = [0u8; libc::PATH_MAX as usize];
    if write!(&mut link[..31], "/proc/self/fd/{fd}").is_err() {
        return false;
    }
    // SAFETY: a name that ends with zero, and space for the result.
    let len = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    let path = usize::try_from(len).ok().and_then(|len| std::str::from_utf8(&path[..len]).ok());
    path.is_some_and(is_libcs_own)
}

fn map<W: Writes>(
    address: usize,
    len: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    writes: &mut W,
) -> Decision {
    let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    let at = if fixed { place(address, len) } else { Containment::Outside };
    if at == Containment::Across {
        return ACROSS;
    }
    if flags & libc::MAP_ANONYMOUS == 0 {
        return if at == Containment::Inside {
            Decision::Refuse("a command mapped a file over durable memory; map it elsewhere and copy")
        } else if protection & libc::PROT_EXEC != 0 && !is_libcs_own_file(fd) {
            // A library: what the dynamic linker records of it would lie in the state, and the next start has not
            // loaded it.
            fail(libc::EPERM)
        } else {
            // A file's mapping is the process's: the state must not keep addresses of it.
            Decision::Native
        };
    }
    if at == Containment::Inside {
        if flags & libc::MAP_FIXED_NOREPLACE != 0 {
            return fail(libc::EEXIST);
        }
        return answer(split_allocation::with_heap(|heap| heap.map_again(writes, address, len)), |()| {
            address as i64
        });
    }
    // A fixed address outside the state comes from the dynamic linker, which reserved it; stacks belong to threads.
    if fixed || flags & libc::MAP_STACK != 0 || protection & libc::PROT_EXEC != 0 || len == 0 {
        return Decision::Native;
    }
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        return Decision::Refuse(
            "a command asked for shared memory, which cannot be durable; ask for private memory",
        );
    }
    let align = if flags & libc::MAP_HUGETLB != 0 { HUGE_PAGE_BYTES } else { PAGE_BYTES };
    answer(split_allocation::with_heap(|heap| heap.map(writes, len, align)), |at| at as i64)
}

fn remap<W: Writes>(old: usize, old_len: usize, len: usize, flags: i32, writes: &mut W) -> Decision {
    match place(old, old_len) {
        Containment::Outside => return Decision::Native,
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
