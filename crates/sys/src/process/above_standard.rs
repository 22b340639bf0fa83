//! Descriptors above those of standard input, output and error.
//!
//! A program may run with one of the three closed. The next file that is opened gets its number, and then what any
//! code of the process prints goes into that file.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Standard error's, the last of the three.
const LAST: i32 = libc::STDERR_FILENO;

/// Makes descriptors by `make`, none of which is one of the three. Meanwhile other files stand in for those that are
/// closed, and what another thread prints goes nowhere; afterwards they are closed again. No thread may close one of
/// the three at the same time.
///
/// # Errors
/// Those of `make`, and of eventfd(2).
pub fn make_above_standard<T>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut stand_ins = Vec::new();
    for number in 0..=LAST {
        // SAFETY: asks about a number, whether or not it is a descriptor.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            stand_ins.push(stand_in()?);
        }
    }
    make()
}

/// As [`make_above_standard`], of one file, and whatever other threads do.
///
/// # Errors
/// Those of `open`, of eventfd(2) and of fcntl(2).
pub fn open_above_standard<F: AsFd + From<OwnedFd>>(open: impl FnOnce() -> io::Result<F>) -> io::Result<F> {
    let made = make_above_standard(open)?;
    if made.as_fd().as_raw_fd() > LAST {
        return Ok(made);
    }
    // Another thread closed one of the three meanwhile.
    Ok(rustix::io::fcntl_dupfd_cloexec(&made, LAST + 1)?.into())
}

/// A file that keeps nothing and never blocks.
fn stand_in() -> io::Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::in_child::in_child;
    use std::fs::File;

    #[test]
    fn a_file_takes_no_number_of_the_three_and_closed_ones_stay_closed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        for closed in [&[0][..], &[1], &[2], &[1, 2], &[0, 1, 2], &[]] {
            let is_right = in_child(|| {
                // SAFETY: the child's own descriptors, of which it uses none.
                closed.iter().for_each(|&number| _ = unsafe { libc::close(number) });
                // SAFETY: asks about a number.
                let is_open = |number| unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
                let before = [0, 1, 2].map(is_open);
                let Ok(file) = open_above_standard(|| File::create(&path)) else { return 0 };
                i32::from(file.as_raw_fd() > LAST && [0, 1, 2].map(is_open) == before)
            });
            assert_eq!(is_right, 1, "{closed:?}");
        }
        // The test can fail.
        let takes_one = in_child(|| {
            // SAFETY: as above.
            unsafe { libc::close(1) };
            i32::from(File::create(&path).is_ok_and(|file| file.as_raw_fd() == 1))
        });
        assert_eq!(takes_one, 1);
    }
}
