//! The process's mappings, read from /proc/self/maps without the heap.

use crate::recompiler::run::raw_syscall::{failed, syscall};
use crate::write_set::own_vec::OwnVec;

/// Where the code of a mapping comes from, which decides whether it may be translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file that has a name, or the kernel's vdso.
    File,
    /// Anonymous memory, a memfd or a shared mapping: its code may be made at run time.
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
    list: OwnVec<Mapping>,
    text: OwnVec<u8>,
    /// The open file, kept because the process may have no free descriptor when a call comes.
    file: Option<Held>,
}

/// A descriptor, and the file that it named when it was opened: a program may close descriptors that it did not
/// open.
struct Held {
    fd: u64,
    device: u64,
    inode: u64,
}

impl Held {
    fn open() -> Option<Self> {
        let path = c"/proc/self/maps".as_ptr() as u64;
        // SAFETY: opens a file.
        let fd = unsafe {
            syscall(
                libc::SYS_openat,
                [libc::AT_FDCWD as u64, path, (libc::O_RDONLY | libc::O_CLOEXEC) as u64, 0, 0, 0],
            )
        };
        let (device, inode) = identity(fd as u64).filter(|_| !failed(fd))?;
        Some(Self { fd: fd as u64, device, inode })
    }

    fn is_ours(&self) -> bool {
        identity(self.fd) == Some((self.device, self.inode))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: our own descriptor.
            unsafe { syscall(libc::SYS_close, [self.fd, 0, 0, 0, 0, 0]) };
        }
    }
}

/// Device and number of an open file.
fn identity(fd: u64) -> Option<(u64, u64)> {
    // SAFETY: a structure of numbers, which the call fills.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let to = std::ptr::from_mut(&mut stat).expose_provenance() as u64;
        let got = syscall(libc::SYS_fstat, [fd, to, 0, 0, 0, 0]);
        (!failed(got)).then_some((stat.st_dev, stat.st_ino))
    }
}

impl Maps {
    pub(crate) const fn new() -> Self {
        Self { list: OwnVec::new(), text: OwnVec::new(), file: None }
    }

    /// Reads the mappings again. If that fails it returns false and keeps the old list.
    #[must_use]
    pub(crate) fn refresh(&mut self) -> bool {
        if !self.file.as_ref().is_some_and(Held::is_ours) {
            self.file = Held::open();
        }
        let Some(fd) = self.file.as_ref().map(|file| file.fd) else { return false };
        if !self.read_text(fd) {
            return false;
        }
        self.list.clear();
        for line in self.text.split(|&byte| byte == b'\n') {
            if let Some(mapping) = parse(line) {
                self.list.push(mapping);
            }
        }
        true
    }

    fn read_text(&mut self, fd: u64) -> bool {
        const CHUNK: usize = 1 << 16;
        let mut len = 0;
        loop {
            self.text.resize(len + CHUNK, 0);
            // SAFETY: reads into the end of our own memory, from a place of its own in the file.
            let got = unsafe {
                let at = self.text.as_mut_ptr().add(len);
                syscall(libc::SYS_pread64, [fd, at as u64, CHUNK as u64, len as u64, 0, 0])
            };
            if failed(got) || got == 0 {
                self.text.truncate(len);
                return len > 0;
            }
            len += got as usize;
        }
    }

    /// The mapping that holds `addr`, as of the last refresh.
    pub(crate) fn find(&self, addr: usize) -> Option<Mapping> {
        let idx = self.list.partition_point(|mapping| mapping.hi <= addr);
        self.list.get(idx).copied().filter(|mapping| mapping.lo <= addr)
    }

    /// The byte of the mapped file at `addr`, whatever memory holds now. `None`: no file, or another file has its
    /// name now.
    #[cold]
    pub(crate) fn byte_in_file(&self, addr: usize) -> Option<u8> {
        let line = self
            .text
            .split(|&byte| byte == b'\n')
            .find(|line| parse(line).is_some_and(|mapping| mapping.lo <= addr && addr < mapping.hi))?;
        let mapping = parse(line)?;
        let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        let offset = hex(fields.nth(2)?)? + (addr - mapping.lo);
        let inode: u64 = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
        let name = &line[line.iter().position(|&byte| byte == b'/')?..];
        let mut path = [0u8; libc::PATH_MAX as usize];
        path.get_mut(..name.len())?.copy_from_slice(name);
        *path.last_mut()? = 0;
        // SAFETY: opens a file by a name that ends with zero, reads one byte of it into ours, closes it.
        unsafe {
            let how = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
            let at = path.as_ptr() as u64;
            let fd = syscall(libc::SYS_openat, [libc::AT_FDCWD as u64, at, how, 0, 0, 0]);
            if failed(fd) {
                return None;
            }
            let mut byte = 0u8;
            let to = std::ptr::from_mut(&mut byte).expose_provenance() as u64;
            let same = identity(fd as u64).is_some_and(|(_, number)| number == inode);
            let got = syscall(libc::SYS_pread64, [fd as u64, to, 1, offset as u64, 0, 0]);
            syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]);
            (same && got == 1).then_some(byte)
        }
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
    let perm = |idx: usize, letter: u8| perms.get(idx) == Some(&letter);
    let origin = match name {
        b"[vdso]" => Origin::File,
        b"[vsyscall]" => Origin::Vsyscall,
        // Another mapping of the same file can write the code.
        _ if perm(3, b's') => Origin::Made,
        _ if name.starts_with(b"/memfd:") || name.starts_with(b"/dev/") => Origin::Made,
        _ if name.starts_with(b"/") && !(deleted && name.starts_with(b"/SYSV")) => Origin::File,
        _ => Origin::Made,
    };
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
        assert!(maps.refresh());
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

    #[test]
    fn finds_the_bytes_of_code_in_its_file() {
        let mut maps = Maps::new();
        assert!(maps.refresh());
        let here = finds_the_bytes_of_code_in_its_file as *const () as usize;
        for at in here..here + 100 {
            // SAFETY: code of this program.
            let byte = unsafe { *(at as *const u8) };
            assert_eq!(maps.byte_in_file(at), Some(byte));
        }
        let local = 0u8;
        assert_eq!(maps.byte_in_file(std::ptr::from_ref(&local).addr()), None);
    }

    #[test]
    fn goes_on_where_a_program_closed_or_replaced_the_descriptor() {
        let mut maps = Maps::new();
        assert!(maps.refresh());
        let held = maps.file.as_ref().unwrap().fd as i32;
        let other = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the descriptor is this test's, and names /dev/null from now on.
        assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&other), held) }, held);
        let count = maps.all().len();
        assert!(maps.refresh() && maps.all().len() + 9 > count);
        assert_ne!(maps.file.as_ref().unwrap().fd as i32, held);
        drop(maps);
        // The descriptor was not the list's to close. SAFETY: as above.
        assert_eq!(unsafe { libc::close(held) }, 0);
    }
}
