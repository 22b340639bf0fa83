//! Loads the data file of a file pool into memory, page by page, and compares the pages with their checksums.
//!
//! Invariants:
//! 1. Every byte that enters the working copy was under a checksum that matches. A file that is mapped copy on
//!    write is compared with its checksums afterwards (`file/scrub.rs`).

use crate::damage_check::DamageCheck;
use crate::file::huge_pages::advise_huge;
use crate::format::page_sums::{PAGE_BYTES, PageChecksums, page_checksum};
use crate::pool_files::{DataFiles, FileError};
use crate::storage::traits::here;
use crate::{Error, Result};
use mangrove_sys::Reservation;
use std::sync::atomic::{AtomicU64, Ordering};

/// The data file grows by an eighth of itself, within these bounds, so that growing is rarely a system call.
const GROW_BYTES_MIN: u64 = 128 << 10;
const GROW_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the data file that one thread reads at a time.
const CHUNK_BYTES: u64 = 2 << 20;
/// Pages read at a time: few enough to be still in the cache when they are verified.
const READ_PAGES: u64 = 64;

/// Maps the data file into `memory`, copy on write. False where its storage has no file to map.
///
/// A page that has not been stored to shows the file, which a checkpoint changes. But a checkpoint writes only what
/// was flushed from this very memory, and a program that flushes a byte has stored it first, or left it unchanged.
pub(super) fn map_image(files: &DataFiles, size: u64, memory: &Reservation) -> Result<bool> {
    let Some(fd) = files.image.fd().filter(|_| size > 0) else { return Ok(false) };
    memory.replace_by_private(0, size as usize, fd, 0).map_err(|e| files.image.error("map", &e))?;
    Ok(true)
}

/// Reads the data file into memory, on all threads that call `read`.
pub(super) struct ImageReader<'a> {
    pub(super) files: &'a DataFiles,
    pub(super) sums: &'a PageChecksums,
    pub(super) size: u64,
    pub(super) memory: &'a Reservation,
    /// The first byte that no thread has taken yet.
    pub(super) next: AtomicU64,
    /// Fails once reading shall end.
    pub(super) check_ended: &'a (dyn Fn() -> Result<()> + Sync),
}

impl ImageReader<'_> {
    /// Reads until no part is left. Returns the pages that do not match their checksum (they may be torn).
    pub(super) fn read(&self) -> Result<Vec<u64>> {
        let mut suspects = Vec::new();
        loop {
            // Relaxed: only gives each part to one thread.
            let offset = self.next.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
            if offset >= self.size {
                return Ok(suspects);
            }
            (self.check_ended)()?;
            self.read_chunk(offset, CHUNK_BYTES.min(self.size - offset), &mut suspects)?;
        }
    }

    fn read_chunk(&self, offset: u64, len: u64, suspects: &mut Vec<u64>) -> Result<()> {
        let (mut page, end) = (offset / PAGE_BYTES as u64, (offset + len) / PAGE_BYTES as u64);
        while page < end {
            let is_zero = self.sums.get(page) == 0;
            let run = (page..end.min(page + READ_PAGES))
                .take_while(|&p| (self.sums.get(p) == 0) == is_zero)
                .count() as u64;
            if is_zero {
                self.read_zeros(page..page + run, suspects)?;
            } else {
                // SAFETY: inside the reservation (the file is no longer than it); each part is one thread's.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(self.place(page), run as usize * PAGE_BYTES) };
                self.read_pages(page, bytes)?;
                for (number, content) in (page..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                    if page_checksum(content) != self.sums.get(number) {
                        suspects.push(number);
                    }
                }
            }
            page += run;
        }
        Ok(())
    }

    /// Pages with checksum 0 are zero and stay untouched memory, which takes no space. But where the file has bytes
    /// for such a page they are read, because the checksum itself may be damaged.
    fn read_zeros(&self, pages: std::ops::Range<u64>, suspects: &mut Vec<u64>) -> Result<()> {
        let Some(data) = self.files.image.next_data(pages.start * PAGE_BYTES as u64)? else {
            return Ok(());
        };
        let first = data / PAGE_BYTES as u64;
        if first >= pages.end {
            return Ok(());
        }
        let mut bytes = vec![0; (pages.end - first) as usize * PAGE_BYTES];
        self.read_pages(first, &mut bytes)?;
        for (number, content) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            if page_checksum(content) != 0 {
                // SAFETY: as in `read_chunk`.
                unsafe { std::slice::from_raw_parts_mut(self.place(number), PAGE_BYTES) }
                    .copy_from_slice(content);
                suspects.push(number);
            }
        }
        Ok(())
    }

    fn place(&self, page: u64) -> *mut u8 {
        self.memory.base().as_ptr().wrapping_add(page as usize * PAGE_BYTES)
    }

    /// Reads pages from `first` on; beyond the end of the file they are zero.
    fn read_pages(&self, first: u64, bytes: &mut [u8]) -> Result<()> {
        self.files.image.read_padded(first * PAGE_BYTES as u64, bytes)
    }
}

/// A page that did not match its checksum must do so now that the interrupted checkpoint's records are applied.
pub(super) fn verify_suspect(
    page: u64,
    memory: &Reservation,
    sums: &PageChecksums,
    files: &DataFiles,
) -> Result<()> {
    // SAFETY: inside the reservation; no thread writes it now.
    let bytes = unsafe {
        std::slice::from_raw_parts(memory.base().as_ptr().add(page as usize * PAGE_BYTES), PAGE_BYTES)
    };
    if page_checksum(bytes) != sums.get(page) && DamageCheck::PageChecksum.is_on() {
        return Err(files.damaged_page(page));
    }
    Ok(())
}

/// Reserves space for at least `bytes` bytes of the data file, for which space for `grown` is reserved, and for their
/// page checksums: for some more than that, unless there is no space for more. Returns for how many bytes there is
/// space then, and has asked for huge pages for them in `memory`.
///
/// # Errors
/// `NoSpace`, `FileLimit`: the caller may go on. Any other error of the medium, which `poison` gets first.
pub(super) fn reserve_more(
    files: &DataFiles,
    memory: &Reservation,
    grown: u64,
    bytes: u64,
    poison: impl FnOnce(Error),
) -> Result<u64> {
    let exact = bytes.next_multiple_of(PAGE_BYTES as u64);
    reserve_by(files, memory, grown..exact, grown, poison, |capacity| {
        let spare = (grown / 8).clamp(GROW_BYTES_MIN, GROW_BYTES_MAX).next_multiple_of(PAGE_BYTES as u64);
        let generous = (grown + spare).clamp(exact, capacity);
        match files.allocate(grown, generous) {
            Err(e) if generous > exact && e.is_no_space() => files.allocate(grown, exact).map(|()| exact),
            result => result.map(|()| generous),
        }
    })
}

/// Reserves space for the pages in `part` of the data file, whose used part ends at `grown`, and for their page
/// checksums. Returns up to where the region may be used then.
///
/// # Errors
/// As `reserve_more`.
pub(super) fn reserve_part(
    files: &DataFiles,
    memory: &Reservation,
    grown: u64,
    part: std::ops::Range<u64>,
    poison: impl FnOnce(Error),
) -> Result<u64> {
    let end = part.end;
    reserve_by(files, memory, part.clone(), grown, poison, |_| {
        files.provide(part.start, end).map(|()| end.max(grown))
    })
}

/// Has `reserve` reserve space for `part`; it gets the capacity.
fn reserve_by(
    files: &DataFiles,
    memory: &Reservation,
    part: std::ops::Range<u64>,
    grown: u64,
    poison: impl FnOnce(Error),
    reserve: impl FnOnce(u64) -> std::result::Result<u64, FileError>,
) -> Result<u64> {
    let capacity = memory.len() as u64;
    if part.end > capacity {
        let path = files.image.path().to_owned();
        return Err(Error::NoSpace { path, wanted: part.end - capacity });
    }
    let to = reserve(capacity).map_err(|e| {
        let is_full = e.is_no_space();
        let error = e.doing_with_space("allocate space in", part.end - part.start);
        if !is_full {
            poison(error.clone());
        }
        error
    })?;
    if to > grown {
        advise_huge(memory, grown, to);
    }
    Ok(to)
}

/// Returns how many bytes of the data file may be used, after reserving space for them. A crash may have lost space
/// that `grow` reserved (a length is durable only at a checkpoint), in the data file or only in the page checksums;
/// but the next checkpoint will record that both files are as long as what may be used. `beyond` are the pages beyond
/// the data file that the log has records for; others there may never have had space.
pub(super) fn make_room(
    files: &DataFiles,
    image_size: u64,
    needed: u64,
    beyond: &[u64],
    read_only: bool,
) -> Result<u64> {
    let needed = needed.next_multiple_of(PAGE_BYTES as u64);
    let mut usable = image_size.max(needed);
    if read_only {
        return Ok(usable);
    }
    if needed > image_size {
        // The last page gives the file its length.
        let last = [needed / PAGE_BYTES as u64 - 1];
        let runs = beyond.chunk_by(|page, next| page + 1 == *next).chain([&last[..]]);
        for run in runs {
            let [from, to] = [run[0], run[run.len() - 1] + 1].map(|page| page * PAGE_BYTES as u64);
            let given = files.provide(from, to);
            given.map_err(|e| e.doing_with_space("allocate space in", needed - image_size))?;
        }
    }
    let sums = files.sums.size()?;
    let give = |to: u64| {
        let wanted = PageChecksums::file_bytes(to / PAGE_BYTES as u64);
        if sums < wanted { files.sums.allocate(sums, wanted - sums, here()) } else { Ok(()) }
    };
    let mut room = give(usable);
    if usable > needed && room.as_ref().is_err_and(FileError::is_no_space) {
        // The end of the data file is left over from a growth that failed on a full medium: nothing was written
        // there.
        usable = needed;
        room = give(usable);
    }
    let wanted = PageChecksums::file_bytes(usable / PAGE_BYTES as u64);
    room.map_err(|e| e.doing_with_space("allocate space in", wanted - sums))?;
    Ok(usable)
}
