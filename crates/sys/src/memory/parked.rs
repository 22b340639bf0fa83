//! Memory that outlives its owner: it is moved to other addresses while the owner unmaps its own, then moved back.

use crate::Reservation;
use std::io;
use std::ops::Range;

/// Mappings that were moved to other addresses.
#[derive(Debug)]
pub struct Parked {
    /// Where each mapping was, and where it is now.
    parts: Vec<(Range<usize>, usize)>,
    scratch: Reservation,
}

/// Memory at its old addresses, without another owner; unmapped on drop.
#[derive(Debug)]
pub struct LeftMemory(Vec<Range<usize>>);

/// Moves everything mapped in a range to other addresses, with its content. Costs one system call for each mapping.
///
/// # Errors
/// Those of reading /proc/self/maps and of mremap(2); everything is then where it was.
///
/// # Safety
/// No thread touches the range until [`Parked::put_back`].
pub unsafe fn park(range: Range<usize>) -> io::Result<Parked> {
    let mapped = mappings_in(&range)?;
    let bytes: usize = mapped.iter().map(Range::len).sum();
    let mut parked = Parked { parts: Vec::new(), scratch: Reservation::addresses(bytes.max(1))? };
    let mut to = parked.scratch.base().as_ptr() as usize;
    for part in mapped {
        let len = part.len();
        // SAFETY: the scratch is ours, and no thread uses the part (the caller's promise).
        if let Err(e) = unsafe { move_mapping(part.clone(), to) } {
            parked.restore();
            return Err(e);
        }
        parked.parts.push((part, to));
        to += len;
    }
    Ok(parked)
}

impl Parked {
    /// Moves everything back. `None` where something else has been mapped at the old addresses meanwhile: that stays,
    /// and what was moved is unmapped.
    #[must_use]
    pub fn put_back(mut self) -> Option<LeftMemory> {
        let (back, is_taken) = self.restore();
        let left = LeftMemory(back);
        (!is_taken).then_some(left)
    }

    /// What is back, and whether the place of something is taken.
    fn restore(&mut self) -> (Vec<Range<usize>>, bool) {
        let (mut back, mut is_taken) = (Vec::new(), false);
        for (part, at) in self.parts.drain(..) {
            // SAFETY: no thread knows where the part is now.
            match unsafe { move_back(at, &part) } {
                Ok(()) => back.push(part),
                Err(e) => is_taken |= e.kind() == io::ErrorKind::AlreadyExists,
            }
        }
        (back, is_taken)
    }
}

impl Drop for LeftMemory {
    fn drop(&mut self) {
        for part in &self.0 {
            // SAFETY: ours since it was put back.
            unsafe { libc::munmap(part.start as *mut libc::c_void, part.len()) };
        }
    }
}

/// Moves the mapping at `from` to the addresses of `part`, which has as many bytes. Replaces nothing.
///
/// # Safety
/// No thread uses what is at `from`.
unsafe fn move_back(from: usize, part: &Range<usize>) -> io::Result<()> {
    let place = Reservation::anonymous_at(part.start, part.len())?;
    // SAFETY: the caller's promise; the place is ours.
    unsafe { move_mapping(from..from + part.len(), part.start) }?;
    // The part has taken its place.
    std::mem::forget(place);
    Ok(())
}

/// # Safety
/// No thread uses `from`, and the caller may replace what is mapped at `to`.
unsafe fn move_mapping(from: Range<usize>, to: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let got = unsafe {
        libc::mremap(
            from.start as *mut libc::c_void,
            from.len(),
            from.len(),
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            to as *mut libc::c_void,
        )
    };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A mapping of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where it is.
    pub span: Range<usize>,
    /// The file's path, or the kernel's name for it; empty for anonymous memory.
    pub name: String,
    /// It may be written.
    pub is_writable: bool,
    /// MAP_SHARED.
    pub is_shared: bool,
}

/// The mappings of this process, in order.
///
/// # Errors
/// /proc/self/maps cannot be read.
pub fn mapped() -> io::Result<Vec<Mapped>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let hex = |text: &str| usize::from_str_radix(text, 16).ok();
    let mapping = |line: &str| {
        // The name may have spaces.
        let mut parts = line.splitn(6, ' ');
        let (from, to) = parts.next()?.split_once('-')?;
        let rights = parts.next()?;
        let name = parts.nth(3).unwrap_or("").trim_start().to_owned();
        let (is_writable, is_shared) = (rights.contains('w'), rights.contains('s'));
        Some(Mapped { span: hex(from)?..hex(to)?, name, is_writable, is_shared })
    };
    Ok(maps.lines().filter_map(mapping).collect())
}

/// The parts of a range that are mapped, one per mapping.
fn mappings_in(range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let hex = |text: &str| usize::from_str_radix(text, 16).ok();
    Ok(maps
        .lines()
        .filter_map(|line| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            let part = hex(from)?.max(range.start)..hex(to)?.min(range.end);
            (!part.is_empty()).then_some(part)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses at which the system maps nothing by itself, also for a test that runs at the same time.
    const FREE: [usize; 2] = [0x2100_0000_0000, 0x2200_0000_0000];

    #[test]
    fn mappings_have_their_names_and_rights() {
        static VARIABLE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
        let local = 1u8;
        let all = mapped().unwrap();
        let of = |at: *const u8| all.iter().find(|m| m.span.contains(&(at as usize))).unwrap();
        let (program, stack) = (of(VARIABLE.as_ptr()), of(&raw const local));
        assert!(program.is_writable && !program.is_shared && program.name.starts_with('/'));
        assert!(stack.is_writable && (stack.name.is_empty() || stack.name.starts_with('[')));
        assert!(!of(b"constant".as_ptr()).is_writable);
    }

    #[test]
    fn content_survives_its_owner() {
        let owner = Reservation::anonymous_at(FREE[0], 64 << 10).unwrap();
        let base = owner.base().as_ptr();
        // SAFETY: the test's own memory; a part of it is made a mapping of its own.
        unsafe {
            base.write_bytes(7, 64 << 10);
            libc::mprotect(base.add(8192).cast(), 4096, libc::PROT_READ);
        }
        let range = base as usize..base as usize + (64 << 10);
        // SAFETY: no other code knows the range.
        let parked = unsafe { park(range.clone()) }.unwrap();
        assert!(mappings_in(&range).unwrap().is_empty());
        drop(owner);
        let left = parked.put_back().unwrap();
        // SAFETY: back at its address.
        assert!(unsafe { std::slice::from_raw_parts(base, 64 << 10) }.iter().all(|&b| b == 7));
        assert_eq!(mappings_in(&range).unwrap().len(), 3);
        drop(left);
        assert!(mappings_in(&range).unwrap().is_empty());
    }

    /// The third of four mappings is the one that meets another owner.
    #[test]
    fn what_another_owner_has_mapped_meanwhile_stays() {
        const PAGE: usize = 4096;
        let owner = Reservation::anonymous_at(FREE[1], 4 * PAGE).unwrap();
        let base = owner.base().as_ptr();
        // SAFETY: the test's own memory, of which parts are made mappings of their own.
        unsafe {
            base.write_bytes(7, 4 * PAGE);
            for page in [1, 3] {
                libc::mprotect(base.add(page * PAGE).cast(), PAGE, libc::PROT_READ);
            }
        }
        let range = base as usize..base as usize + 4 * PAGE;
        // SAFETY: no other code knows the range.
        let parked = unsafe { park(range.clone()) }.unwrap();
        drop(owner);
        let other = Reservation::anonymous_at(range.start + 2 * PAGE, PAGE).unwrap();
        // SAFETY: the test's own memory.
        unsafe { other.base().as_ptr().write_bytes(9, PAGE) };
        assert!(parked.put_back().is_none());
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(other.base().as_ptr(), PAGE) };
        assert!(bytes.iter().all(|&byte| byte == 9));
        let place = range.start + 2 * PAGE..range.start + 3 * PAGE;
        assert_eq!(mappings_in(&range).unwrap(), [place]);
    }
}
