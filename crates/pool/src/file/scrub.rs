//! Compares the pages of a data file that was mapped, not read, with their checksums, in the background.
//!
//! Invariants:
//! 1. A page and its checksum are read under the checkpointer's lock, and not before an interrupted checkpoint has
//!    been finished: so both are of one generation.

use crate::file::medium::FileMedium;
use crate::format::page_sums::{PAGE_BYTES, page_checksum};
use std::ops::Range;
use std::time::Duration;

/// Bytes read under the lock at a time: so long does a checkpoint wait, at most.
const STEP_BYTES: u64 = 1 << 20;
/// Time between two attempts to finish an interrupted checkpoint.
const PAUSE: Duration = Duration::from_millis(20);

impl FileMedium {
    /// Compares every page of these bytes of the data file with its checksum. The first that does not match poisons
    /// the pool.
    pub(crate) fn verify_later(&self, bytes: Range<u64>) {
        let mut buffer = vec![0; STEP_BYTES as usize];
        let mut at = bytes.start;
        while at < bytes.end && !self.ended() {
            let len = STEP_BYTES.min(bytes.end - at) as usize;
            let checkpointer = self.checkpointer();
            if checkpointer.interrupted.is_some() {
                drop(checkpointer);
                // The next checkpoint finishes it, and nothing else may start one.
                if self.checkpoint_now().is_err() {
                    return;
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            let files = &checkpointer.files;
            let damage = match files.image.read_padded(at, &mut buffer[..len]) {
                Err(e) => Some(e),
                Ok(()) => {
                    let first = at / PAGE_BYTES as u64;
                    let pages = (first..).zip(buffer[..len].chunks_exact(PAGE_BYTES));
                    let mut wrong =
                        pages.filter(|(n, page)| page_checksum(page) != checkpointer.sums.get(*n));
                    wrong.next().map(|(n, _)| files.damaged_page(n))
                }
            };
            drop(checkpointer);
            if let Some(damage) = damage {
                self.poison(damage);
                return;
            }
            at += len as u64;
        }
    }
}
