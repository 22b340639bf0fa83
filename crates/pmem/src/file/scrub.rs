//! Compares the pages of an image that was mapped, not read, with their sums: behind, while the pool is in use.
//!
//! Invariants:
//! 1. A page and its sum are looked at under the checkpointer's lock, and not before an interrupted checkpoint has
//!    been finished: so both are of one generation.

use crate::Error;
use crate::file_medium::FileMedium;
use crate::sums::{PAGE_BYTES, page_sum};
use std::ops::Range;
use std::time::Duration;

/// Bytes looked at under the lock at a time: a checkpoint waits no longer than for reading them.
const STEP_BYTES: u64 = 1 << 20;
/// How long an interrupted checkpoint is waited for at a time.
const PAUSE: Duration = Duration::from_millis(20);

impl FileMedium {
    /// Compares every page of these bytes of the image with its sum; the first that does not fit poisons the pool.
    pub(crate) fn verify_later(&self, bytes: Range<u64>) {
        let mut buffer = vec![0; STEP_BYTES as usize];
        let mut at = bytes.start;
        while at < bytes.end && !self.ended() {
            let len = STEP_BYTES.min(bytes.end - at) as usize;
            let checkpointer = self.checkpointer();
            if checkpointer.interrupted.is_some() {
                drop(checkpointer);
                // It is finished with the next checkpoint; nothing else may ask for one.
                if self.checkpoint_now().is_err() {
                    return;
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            let files = &checkpointer.files;
            let damage = match files.image.read_at(at, &mut buffer[..len]) {
                Err(e) => Some(Error::from_io(files.image_path.clone(), "read", &e)),
                Ok(n) => {
                    buffer[n..len].fill(0);
                    let first = at / PAGE_BYTES as u64;
                    let pages = (first..).zip(buffer[..len].chunks_exact(PAGE_BYTES));
                    let mut wrong = pages.filter(|(n, page)| page_sum(page) != checkpointer.sums.get(*n));
                    wrong.next().map(|(n, _)| Error::Corrupt {
                        path: files.image_path.clone(),
                        offset: n * PAGE_BYTES as u64,
                        what: "the page does not match its checksum".into(),
                    })
                }
            };
            drop(checkpointer);
            if let Some(damage) = damage {
                self.latch(damage);
                return;
            }
            at += len as u64;
        }
    }
}
