//! Distinguishes a process from those forked from it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Marks the process that made it, and no process forked from that one since.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMark {
    number: u64,
    /// Holds the number; zero in a child of fork.
    word: &'static AtomicU64,
}

impl ProcessMark {
    /// The mark of the calling process. Where the system cannot distinguish them (Linux before 4.14), children have
    /// the parent's.
    #[must_use]
    pub fn here() -> Self {
        static WORD: OnceLock<&'static AtomicU64> = OnceLock::new();
        /// Copied by fork, so that no number of a child is one of its parent's.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        static FALLBACK: AtomicU64 = AtomicU64::new(0);
        let word = WORD.get_or_init(|| wiped_on_fork().unwrap_or(&FALLBACK));
        if word.load(Ordering::Relaxed) == 0 {
            // Relaxed: a number and nothing else. A thread that comes second takes the number of the first.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let _ = word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        }
        Self { number: word.load(Ordering::Relaxed), word }
    }

    /// Whether the calling process is the marked one. One load.
    #[inline]
    #[must_use]
    pub fn is_here(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.number
    }
}

/// A word that is zero in every child of fork; never unmapped.
fn wiped_on_fork() -> Option<&'static AtomicU64> {
    #[cfg(target_os = "linux")]
    {
        const PAGE_BYTES: usize = 4096;
        // SAFETY: a fresh anonymous page of our own, which stays mapped and is zero at first.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if page == libc::MAP_FAILED {
                return None;
            }
            if libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) != 0 {
                libc::munmap(page, PAGE_BYTES);
                return None;
            }
            Some(&*page.cast::<AtomicU64>())
        }
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(test)]
mod tests {
    use super::ProcessMark;

    #[test]
    fn a_child_is_another_process() {
        let mark = ProcessMark::here();
        assert!(mark.is_here() && ProcessMark::here().is_here());
        // SAFETY: the child only loads, stores and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = ProcessMark::here();
            let told = !mark.is_here() && own.is_here();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!told)) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: our child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(mark.is_here());
    }
}
