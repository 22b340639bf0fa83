//! The process's mappings, read from /proc/self/maps without the heap.

use super::raw::{failed, syscall};
use crate::map_vec::MapVec;

/// What code may be translated from a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file that has a name, or the kernel's vdso.
    File,
    /// Anonymous memory, a memfd, a deleted or a shared-memory file: made at run time.
    Made,
    /// The legacy vsyscall page.
    Vsyscall,
}

/// A line of /proc/self/maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) lo: usize,
    pub(crate) hi: usize,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) execute: bool,
    pub(crate) origin: Origin,
    /// The stack that the kernel grows.
    pub(crate) is_main_stack: bool,
}

/// All mappings, sorted.
pub(crate) struct Maps {
    list: MapVec<Mapping>,
    text: MapVec<u8>,
}

impl Maps {
    pub(crate) const fn new() -> Self {
        Self { list: MapVec::new(), text: MapVec::new() }
    }

    /// Reads them again.
    pub(crate) fn refresh(&mut self) {
        self.list.clear();
        if !self.read_text() {
            return;
        }
        for line in self.text.split(|&byte| byte == b'\n') {
            if let Some(mapping) = parse(line) {
                self.list.push(mapping);
            }
        }
    }

    fn read_text(&mut self) -> bool {
        const CHUNK: usize = 1 << 16;
        let path = c"/proc/self/maps";
        // SAFETY: open, read into our own memory, close.
        unsafe {
            let fd = syscall(
                libc::SYS_openat,
                [libc::AT_FDCWD as u64, path.as_ptr() as u64, libc::O_CLOEXEC as u64, 0, 0, 0],
            );
            if failed(fd) {
                return false;
            }
            let mut len = 0;
            loop {
                self.text.resize(len + CHUNK, 0);
                let at = self.text.as_mut_ptr().add(len);
                let got = syscall(libc::SYS_read, [fd as u64, at as u64, CHUNK as u64, 0, 0, 0]);
                if failed(got) || got == 0 {
                    break;
                }
                len += got as usize;
            }
            self.text.truncate(len);
            syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
        }
        true
    }

    /// The mapping that holds `addr`, as of the last refresh.
    pub(crate) fn find(&self, addr: usize) -> Option<Mapping> {
        let idx = self.list.partition_point(|mapping| mapping.hi <= addr);
        self.list.get(idx).copied().filter(|mapping| mapping.lo <= addr)
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Mapping] {
        &self.list
    }

    /// Start of a free range of `len` bytes, as near to `addr` as there is one.
    pub(crate) fn gap_near(&self, addr: usize, len: usize) -> Option<usize> {
        const MARGIN: usize = 1 << 20;
        let mut best: Option<usize> = None;
        let mut last = 1 << 16;
        for mapping in self.list.iter() {
            if mapping.lo > last && mapping.lo - last >= len + 2 * MARGIN {
                let (first, end) =
                    ((last + MARGIN).next_multiple_of(1 << 16), (mapping.lo - MARGIN - len) & !0xffff);
                for at in [first, end, (addr & !0xffff).clamp(first.min(end), end)] {
                    if at >= last
                        && at + len <= mapping.lo
                        && best.is_none_or(|b| at.abs_diff(addr) < b.abs_diff(addr))
                    {
                        best = Some(at);
                    }
                }
            }
            last = mapping.hi;
        }
        best
    }
}

/// `lo-hi perms offset dev inode name`
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let mut span = fields.next()?.split(|&byte| byte == b'-');
    let (lo, hi) = (hex(span.next()?)?, hex(span.next()?)?);
    let perms = fields.next()?;
    let name = fields.nth(3).unwrap_or(b"");
    let deleted = line.ends_with(b" (deleted)");
    let origin = match name {
        b"[vdso]" => Origin::File,
        b"[vsyscall]" => Origin::Vsyscall,
        _ if name.starts_with(b"/memfd:") || name.starts_with(b"/dev/") => Origin::Made,
        _ if name.starts_with(b"/") && !(deleted && name.starts_with(b"/SYSV")) => Origin::File,
        _ => Origin::Made,
    };
    let perm = |idx: usize, letter: u8| perms.get(idx) == Some(&letter);
    Some(Mapping {
        lo,
        hi,
        read: perm(0, b'r'),
        write: perm(1, b'w'),
        execute: perm(2, b'x'),
        origin,
        is_main_stack: name == b"[stack]",
    })
}

fn hex(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::{Maps, Origin};

    #[test]
    fn finds_this_code_and_a_gap_near_it() {
        let mut maps = Maps::new();
        maps.refresh();
        let here = finds_this_code_and_a_gap_near_it as *const () as usize;
        let found = maps.find(here).unwrap();
        assert!(found.execute && found.read && !found.write && found.origin == Origin::File);
        let local = 0u8;
        let stack = maps.find(std::ptr::from_ref(&local).addr()).unwrap();
        assert!(stack.write && !stack.execute && stack.origin == Origin::Made);
        let gap = maps.gap_near(here, 64 << 20).unwrap();
        assert!(gap.abs_diff(here) < 1 << 30);
        assert!(maps.all().iter().all(|m| m.hi <= gap || m.lo >= gap + (64 << 20)));
    }
}
