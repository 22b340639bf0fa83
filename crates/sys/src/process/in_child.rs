//! For tests: work in a child of fork.

/// The exit status of a child that runs `work`, which it returns; 99 when it did not end by itself.
pub(super) fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child makes system calls and exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(120);
            libc::_exit(work());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 99 }
    }
}
