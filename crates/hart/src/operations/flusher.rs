//! Collects the ranges that a batch writes, and flushes neighbouring ranges in one call.

use mangrove_pool::Region;

/// The longest flush of a batch, in bytes.
const FLUSH_BYTES_MAX: u64 = 256 << 10;
/// Ranges this close to each other are flushed together: a flush of its own costs more than this in a log.
const FLUSH_GAP_BYTES_MAX: u64 = 16;

/// Flushes ranges, neighbours together. It flushes what was added at the latest in `finish`, or when it goes: also
/// what a batch has written that is not carried out, because a page that changes and is never flushed has no right
/// checksum when a pool on persistent memory is closed.
pub(super) struct RangeFlusher<'a> {
    region: &'a Region,
    start: u64,
    end: u64,
}

impl<'a> RangeFlusher<'a> {
    pub(super) fn new(region: &'a Region) -> Self {
        Self { region, start: 0, end: 0 }
    }

    pub(super) fn add(&mut self, offset: u64, len: u64) {
        let follows = offset >= self.end && offset - self.end <= FLUSH_GAP_BYTES_MAX;
        if !follows || offset + len - self.start > FLUSH_BYTES_MAX {
            self.finish();
            self.start = offset;
        }
        self.end = offset + len;
    }

    pub(super) fn finish(&mut self) {
        while self.start < self.end {
            let piece = (self.end - self.start).min(FLUSH_BYTES_MAX);
            self.region.flush(self.start, piece as usize);
            self.start += piece;
        }
    }
}

impl Drop for RangeFlusher<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}
