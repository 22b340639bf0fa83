//! The gate between checkpoints and readers: locks on three bytes, far behind the end of the data file.
//!
//! | byte | a reader | a checkpoint |
//! |---|---|---|
//! | `WISH` | shared, from before it asks for `LOOK` until it has read | alone, for an instant when it begins |
//! | `LOOK` | shared, while it reads | alone, unless a reader has not left it in time |
//! | `RUNNING` | only asks whether it is held | alone |
//!
//! Invariants:
//! 1. While a checkpoint runs, `RUNNING` is held. So a reader that found it free, read, finds it free again and then
//!    the superblock as it was, has read a data file that no checkpoint changed meanwhile: a checkpoint that began and
//!    ended in between has changed the superblock before it let the byte go.
//! 2. A checkpoint waits for readers no longer than its patience. So a reader that stands still delays it, and no more.
//! 3. A checkpoint that begins finds the wish of a reader which waits for the end of the one before: checkpoints in a
//!    row do not keep readers out.

use crate::pool_files::PoolFile;
use mangrove_sys::file;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

const FIRST: u64 = 1 << 62;
const WISH: Range<u64> = FIRST..FIRST + 1;
const LOOK: Range<u64> = FIRST + 1..FIRST + 2;
const RUNNING: Range<u64> = FIRST + 2..FIRST + 3;
/// Between two tries to lock.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a checkpoint waits for readers: so long,
const PATIENCE: Duration = Duration::from_secs(1);
/// and a second more for so many bytes of the data file, which they read,
const BYTES_PER_SECOND: u64 = 1 << 30;
/// but no longer than this.
const PATIENCE_MAX: Duration = Duration::from_secs(4);
/// After each time in vain a checkpoint waits only this part as long.
const IMPATIENCE: u32 = 8;

/// The checkpoints' side.
pub(crate) struct CheckpointGate {
    /// What the next checkpoint's patience is divided by.
    divisor: u32,
}

/// A checkpoint that runs, to the readers.
pub(crate) struct Running<'a> {
    fd: Option<BorrowedFd<'a>>,
}

impl CheckpointGate {
    pub(crate) const fn new() -> Self {
        Self { divisor: 1 }
    }

    /// Waits for the readers of `image`, the data file of `image_bytes`, but not for ever; then keeps new ones out
    /// until the result is dropped.
    ///
    /// Where the file system has no such locks there are no readers beside a writer either.
    pub(crate) fn begin<'a>(&mut self, image: &'a PoolFile, image_bytes: u64) -> Running<'a> {
        let Some(fd) = image.fd() else { return Running { fd: None } };
        // A child that outlives this process would hold the locks.
        image.keep_from_children();
        let more = Duration::from_millis(image_bytes / (BYTES_PER_SECOND / 1000));
        let until = Instant::now() + (PATIENCE + more).min(PATIENCE_MAX) / self.divisor;
        loop {
            match file::try_lock_bytes(fd, WISH.start..LOOK.end, true) {
                Ok(true) => {
                    self.divisor = 1;
                    break;
                }
                Ok(false) if Instant::now() < until => std::thread::sleep(PAUSE),
                Ok(false) => {
                    // One that stands still shall not delay every checkpoint as long.
                    self.divisor = self.divisor.saturating_mul(IMPATIENCE);
                    break;
                }
                Err(_) => return Running { fd: None },
            }
        }
        // No one else locks this byte. If it cannot be locked now, the superblock still tells of the checkpoint.
        let _ = file::try_lock_bytes(fd, RUNNING, true);
        let _ = file::unlock_bytes(fd, WISH);
        Running { fd: Some(fd) }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(fd) = self.fd {
            // Closing the file would release it, too.
            let _ = file::unlock_bytes(fd, WISH.start..RUNNING.end);
        }
    }
}

/// A reader that is in the gate.
pub(crate) struct Reading<'a> {
    fd: BorrowedFd<'a>,
}

/// What a reader found at the gate.
pub(crate) enum Entered<'a> {
    Reading(Reading<'a>),
    /// A checkpoint ran until the time was over, or one runs that has not waited for readers.
    Checkpoint,
    /// The file system has no such locks.
    NoLocks,
}

impl<'a> Reading<'a> {
    /// Waits until no checkpoint runs, but not longer than `until`. Checkpoints then wait until the result is dropped,
    /// within their patience.
    pub(crate) fn enter(image: BorrowedFd<'a>, until: Instant) -> Entered<'a> {
        let reading = Self { fd: image };
        for byte in [WISH, LOOK] {
            loop {
                match file::try_lock_bytes(image, byte.clone(), false) {
                    Ok(true) => break,
                    Ok(false) if Instant::now() < until => std::thread::sleep(PAUSE),
                    Ok(false) => return Entered::Checkpoint,
                    Err(_) => return Entered::NoLocks,
                }
            }
        }
        if reading.is_running() { Entered::Checkpoint } else { Entered::Reading(reading) }
    }

    /// True while a checkpoint runs that has not waited for this reader. What cannot be found out counts as true.
    pub(crate) fn is_running(&self) -> bool {
        file::are_bytes_held(self.fd, RUNNING).unwrap_or(true)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Closing the file would release it, too.
        let _ = file::unlock_bytes(self.fd, WISH.start..LOOK.end);
    }
}
