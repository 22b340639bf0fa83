//! Open files that no child of fork(2) keeps: those that a process has locked.
//!
//! A lock of flock(2) or of fcntl(2) on an open file belongs to the opening, and a child has the same one. A child that
//! outlives its parent would keep the lock. So in a child each such descriptor stands for something else, before any
//! code of the program runs there; the parent's lock stays.
//!
//! Invariants:
//! 1. The handler in the child touches only atomics, and calls only what a child of a process with threads may call.
//! 2. A descriptor is replaced only where it is the registered file: a child may have the parent's descriptors as they
//!    were an instant before its memory, and another file then had that number.
//! 3. An owner registers its file before it locks it, and unlocks it before it ends the registration.
//!
//! A fork in the instant between opening and registering is missed: that child keeps the lock, as the mapping of a file
//! does, and a child that was made past the handlers of pthread_atfork (clone, vfork).

use super::process::ProcessMark;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Files that are kept from children at a time, at most; three a pool.
const KEPT_MAX: usize = 1024;

/// In place of a descriptor.
const FREE: RawFd = -1;
const CLAIMED: RawFd = -2;

/// In one page, so that a child has all of it as it was at one moment.
#[repr(align(32))]
struct Kept {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

static KEPT: [Kept; KEPT_MAX] =
    [const { Kept { fd: AtomicI32::new(FREE), device: AtomicU64::new(0), inode: AtomicU64::new(0) } };
        KEPT_MAX];

/// While it lives, children of this process do not get the file.
#[derive(Debug)]
pub struct KeptFromChildren {
    number: usize,
    process: ProcessMark,
}

impl KeptFromChildren {
    /// Keeps `file` from children. `None` where too many are kept already, or the system does not describe the file.
    #[must_use]
    pub fn of(file: &File) -> Option<Self> {
        static HANDLER: Once = Once::new();
        // SAFETY: registers a handler that does what invariant 1 says.
        HANDLER.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) });
        let stat = rustix::fs::fstat(file).ok()?;
        let number = KEPT.iter().position(|kept| {
            // Acquire pairs with the Release in `drop`: the last owner's use of the entry is over.
            kept.fd.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        KEPT[number].device.store(stat.st_dev, Ordering::Relaxed);
        KEPT[number].inode.store(stat.st_ino, Ordering::Relaxed);
        // Release pairs with the Acquire in `after_fork_in_child`: who sees the descriptor sees the file's numbers.
        KEPT[number].fd.store(file.as_raw_fd(), Ordering::Release);
        Some(Self { number, process: ProcessMark::here() })
    }
}

impl Drop for KeptFromChildren {
    fn drop(&mut self) {
        // In a child the entry may be another file's by now.
        if self.process.is_here() {
            // Release: see `of`.
            KEPT[self.number].fd.store(FREE, Ordering::Release);
        }
    }
}

unsafe extern "C" fn after_fork_in_child() {
    // SAFETY: system calls without memory of ours but a struct on the stack; errno is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let mut instead = FREE;
        for kept in &KEPT {
            // Acquire: see `of`.
            let fd = kept.fd.load(Ordering::Acquire);
            kept.fd.store(FREE, Ordering::Relaxed);
            let mut stat: libc::stat = std::mem::zeroed();
            if fd < 0 || libc::fstat(fd, &raw mut stat) != 0 {
                continue;
            }
            let (device, inode) = (kept.device.load(Ordering::Relaxed), kept.inode.load(Ordering::Relaxed));
            if (stat.st_dev, stat.st_ino) != (device, inode) {
                continue;
            }
            // The number stays in use, because the child's copy of the owner may close it. Reading and writing at an
            // offset fail there.
            if instead < 0 {
                instead = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            }
            if instead >= 0 {
                libc::dup3(instead, fd, libc::O_CLOEXEC);
            }
        }
        if instead >= 0 {
            libc::close(instead);
        }
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{try_lock, unlock};
    use crate::lock_holder;
    use crate::process::in_child::in_child;

    #[test]
    fn a_child_has_another_file_in_its_place_until_it_is_no_longer_kept() {
        let file = tempfile::tempfile().unwrap();
        let inode = || rustix::fs::fstat(&file).map_or(0, |stat| stat.st_ino);
        let own = inode();
        let is_own = || i32::from(inode() == own);
        assert_eq!(in_child(is_own), 1, "the check sees the file");
        let kept = KeptFromChildren::of(&file).unwrap();
        assert_eq!(in_child(is_own), 0);
        assert_eq!(inode(), own, "the parent keeps it");
        // In a grandchild, too, and what the child drops is its own affair.
        assert_eq!(in_child(|| in_child(is_own)), 0);
        drop(kept);
        assert_eq!(in_child(is_own), 1);
    }

    /// The number of a registered file stands for another one: as if that had been opened before the fork's instant.
    #[test]
    fn a_strangers_file_under_the_number_stays() {
        let (file, stranger) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let _kept = KeptFromChildren::of(&file).unwrap();
        let own = rustix::fs::fstat(&stranger).unwrap().st_ino;
        let place = rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
        // SAFETY: both are open, and the first gets its file back.
        assert!(unsafe { libc::dup2(stranger.as_raw_fd(), file.as_raw_fd()) } >= 0);
        let stays = in_child(|| i32::from(rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_ino == own)));
        // SAFETY: as above.
        assert!(unsafe { libc::dup2(place.as_raw_fd(), file.as_raw_fd()) } >= 0);
        assert_eq!(stays, 1);
    }

    #[test]
    fn the_lock_of_a_process_that_has_ended_is_free_beside_its_child() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let again = File::create(&path).unwrap();
        let (ended, end) = std::io::pipe().unwrap();
        let (ran, run) = std::io::pipe().unwrap();
        // The handler is there before any child, which must not wait for a thread of its parent's that registers it.
        drop(KeptFromChildren::of(&again));
        let parent = |keeps: bool| {
            let file = File::options().write(true).open(&path).unwrap();
            let _kept = keeps.then(|| KeptFromChildren::of(&file));
            if !try_lock(&file, true).unwrap() {
                return 1;
            }
            // SAFETY: the child waits for the test's end. Its handlers are done when it says so: until then it has the
            // lock, whichever process lives.
            unsafe {
                let mut byte = 0u8;
                if libc::fork() == 0 {
                    libc::close(end.as_raw_fd());
                    libc::write(run.as_raw_fd(), (&raw const byte).cast(), 1);
                    libc::read(ended.as_raw_fd(), (&raw mut byte).cast(), 1);
                    libc::_exit(0);
                }
                libc::read(ran.as_raw_fd(), (&raw mut byte).cast(), 1);
            }
            i32::from(try_lock(&again, true).unwrap())
        };
        assert_eq!(in_child(|| parent(true)), 0, "locked while its process lives");
        assert!(try_lock(&again, true).unwrap());
        unlock(&again).unwrap();
        assert_eq!(in_child(|| parent(false)), 0);
        assert!(!try_lock(&again, true).unwrap(), "the test can fail");
        assert_eq!(lock_holder(&path), None, "no process that has ended");
        drop(end);
    }
}
