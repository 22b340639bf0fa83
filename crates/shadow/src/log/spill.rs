//! Puts the records of an atomic group that is too long for a ring behind the durable copy, and grows the durable copy
//! over that space when the group there has been applied.

use crate::layout::{AT_DIRTY_END, AT_LEN, PAGE_BYTES, REDO_BYTES, le_bytes, redo_total, redo_words};
use crate::log::commit::put_checksummed;
use crate::log::log_writer::SMALL_BYTES;
use crate::log::spill_area::{Held, Spilled};
use crate::ring::Rings;
use crate::sync::give_way;
use crate::{Error, Result};
use mangrove_pool::crc32c;
use std::sync::atomic::Ordering;

impl Rings {
    /// Waits until no other thread uses the spill area, and takes it; returns what it holds.
    fn take_area(&self) -> Result<Held> {
        loop {
            if let Some(held) = self.spill_area.try_take() {
                return Ok(held);
            }
            self.alive()?;
            give_way();
        }
    }

    /// Puts the records of an atomic group that is too long for a ring after the durable copy; the log gets a record
    /// that names them. One such atomic group at a time: the space is free when the last one has been applied. The
    /// spill area stays taken until `publish` or `unreserve` releases it.
    pub(crate) fn spill<'a>(
        &self,
        buffer: &mut [u8; SMALL_BYTES],
        pieces: impl Iterator<Item = (u64, &'a [u8])> + Clone,
    ) -> Result<Spilled> {
        let held = self.take_area()?;
        self.wait_applied(held.seq)
            .and_then(|()| self.put_aside(buffer, pieces))
            .inspect_err(|_| self.spill_area.release(None))
    }

    /// Durable-order: `dirty_end`, which says how far the region is no longer zero, before the records. Otherwise
    /// `grow` would not know, after a crash, what to zero. The records need no fence before the COMMIT record: one
    /// fence makes both durable, and an atomic group whose records do not match their checksum was not finished.
    fn put_aside<'a>(
        &self,
        buffer: &mut [u8; SMALL_BYTES],
        pieces: impl Iterator<Item = (u64, &'a [u8])> + Clone,
    ) -> Result<Spilled> {
        let start = self.layout.image_start() + self.len();
        let sum =
            |(bytes, count), (_, data): (u64, &[u8])| (bytes + redo_total(data.len() as u64), count + 1);
        let (bytes, count) = pieces.clone().fold((0, 0), sum);
        let no_space = |wanted| Error::NoSpace { path: "a unit longer than its log".into(), wanted };
        if start + bytes > self.region.len() {
            return Err(no_space(start + bytes - self.region.len()));
        }
        self.region.grow(start + bytes)?;
        let dirty_end = self.len() + bytes;
        // Relaxed: a thread that grows or spills has taken the spill area.
        if dirty_end > self.region.word(AT_DIRTY_END).load(Ordering::Relaxed) {
            self.region.store(AT_DIRTY_END, dirty_end, Ordering::Relaxed);
            self.region.flush(AT_DIRTY_END, 8);
            self.region.fence();
        }
        let (mut at, mut crc) = (start, 0);
        for (offset, data) in pieces {
            let head: [u8; 16] = le_bytes(redo_words(offset, data.len() as u64));
            self.region.write_through(at, &head);
            let put = |at, bytes: &[u8]| self.region.write_through(at, bytes);
            crc = put_checksummed(buffer, data, at + REDO_BYTES, crc32c(crc, &head), put);
            at += redo_total(data.len() as u64);
        }
        if self.gaps {
            // Durable-order: the records before the atomic group that names them, whose stores wait for no others.
            self.region.fence();
        }
        Ok(Spilled { crc, start, bytes, count })
    }

    /// Makes the first `bytes` bytes of the working copy usable.
    ///
    /// Durable-order: zeros over spilled records, before the length that includes their place. Otherwise bytes that
    /// were never committed would be found in the durable copy after a crash.
    pub(crate) fn grow(&self, bytes: u64) -> Result<()> {
        if bytes <= self.len() {
            return Ok(());
        }
        self.refuse_child()?;
        if bytes > self.layout.capacity || bytes > self.working.len() {
            let wanted = bytes - self.layout.capacity.min(self.working.len());
            return Err(Error::NoSpace { path: "the shadow's address space".into(), wanted });
        }
        let held = self.take_area()?;
        let grown = self.grow_alone(bytes, held);
        self.spill_area.release(None);
        grown
    }

    /// As `grow`, with the spill area taken.
    fn grow_alone(&self, bytes: u64, held: Held) -> Result<()> {
        let (len, to) = (self.len(), bytes.next_multiple_of(PAGE_BYTES).min(self.layout.capacity));
        if to <= len {
            return Ok(());
        }
        let image = self.layout.image_start();
        self.region.grow(image + to)?;
        if held.end > image + len {
            self.wait_applied(held.seq)?;
        }
        // Relaxed: a thread that grows or spills has taken the spill area.
        let dirty = self.region.word(AT_DIRTY_END).load(Ordering::Relaxed).min(to);
        if dirty > len {
            self.region.zero(image + len, (dirty - len) as usize);
            self.region.flush(image + len, (dirty - len) as usize);
            self.region.fence();
        }
        self.region.store(AT_LEN, to, Ordering::Relaxed);
        self.region.flush(AT_LEN, 8);
        self.region.fence();
        self.region.drain()?;
        // Release pairs with the Acquire in `len`.
        self.len.store(to, Ordering::Release);
        Ok(())
    }
}
