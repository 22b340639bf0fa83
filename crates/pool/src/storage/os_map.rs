//! Files of the operating system as memory: two windows, each of which covers a part of a file.
//!
//! Invariants:
//! 1. A page is stored to only after the system has readied it, so that a store does not fail: where it would, readying
//!    does. A page that the system has written to the medium since is readied again by the store itself; that needs no
//!    space, because the page has its own (`mangrove_sys::file::is_reserved`).

use crate::Site;
use crate::storage::traits::FileMap;
use mangrove_sys::{Reservation, file};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a window, of which those that are used count as the process's memory. A new one costs two system calls and
/// a fault for each page; two hold the longest ring of recent writes that grows with use (`log/recent.rs`).
const WINDOW_BYTES: u64 = 4 << 20;
/// Bytes that are readied at a time.
const STEP_BYTES: u64 = 64 << 10;

/// A part of a file in memory.
struct Window {
    memory: Reservation,
    /// Where it begins in the file, a multiple of [`WINDOW_BYTES`].
    start: u64,
    /// What of the file has been readied.
    ready: Range<u64>,
}

/// A file as memory.
pub(super) struct OsMap {
    file: Arc<File>,
    /// The one that was used last comes first. A writer that appends, and returns to where it began, needs two.
    windows: [Option<Window>; 2],
    /// So many bytes of the file are reserved.
    reserved: u64,
}

impl OsMap {
    /// `None` where a store may lack space.
    pub(super) fn of(file: &Arc<File>) -> io::Result<Option<Self>> {
        let bytes = file.metadata()?.len();
        let map = Self { file: Arc::clone(file), windows: [None, None], reserved: bytes };
        Ok(file::is_reserved(file, bytes)?.then_some(map))
    }

    /// The memory of `len` bytes at `offset`, which lie in one window, ready for stores.
    #[inline]
    fn place(&mut self, offset: u64, len: u64) -> io::Result<*mut u8> {
        let start = offset / WINDOW_BYTES * WINDOW_BYTES;
        if self.windows[0].as_ref().is_none_or(|window| window.start != start) {
            self.windows.swap(0, 1);
        }
        match &self.windows[0] {
            Some(window)
                if window.start == start
                    && window.ready.start <= offset
                    && offset + len <= window.ready.end =>
            {
                Ok(window.memory.base().as_ptr().wrapping_add((offset - start) as usize))
            }
            _ => self.make_ready(start, offset, len),
        }
    }

    #[cold]
    fn make_ready(&mut self, start: u64, offset: u64, len: u64) -> io::Result<*mut u8> {
        if offset + len > self.reserved {
            // The file has grown.
            let bytes = self.file.metadata()?.len();
            if offset + len > bytes || !file::is_reserved(&self.file, bytes)? {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.reserved = bytes;
        }
        let window = match self.windows[0].take_if(|window| window.start == start) {
            Some(window) => window,
            None => {
                // The one that was not used last goes first, and makes room.
                self.windows[0] = None;
                let memory = Reservation::file_part(self.file.as_fd(), start, WINDOW_BYTES as usize)?;
                Window { memory, start, ready: offset..offset }
            }
        };
        let window = self.windows[0].insert(window);
        // A file that is mapped ends where a page does, or its last page is there whole.
        let from = offset / STEP_BYTES * STEP_BYTES;
        let to = (offset + len).next_multiple_of(STEP_BYTES).min(self.reserved.next_multiple_of(4096));
        match window.memory.populate((from - start) as usize, (to - from) as usize) {
            // A kernel that cannot ready pages: stores do it.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            done => done?,
        }
        let touches = from <= window.ready.end && window.ready.start <= to;
        window.ready =
            if touches { window.ready.start.min(from)..window.ready.end.max(to) } else { from..to };
        Ok(window.memory.base().as_ptr().wrapping_add((offset - start) as usize))
    }
}

impl FileMap for OsMap {
    #[inline]
    fn store(&mut self, mut offset: u64, mut bytes: &[u8], _site: Site) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = WINDOW_BYTES - offset % WINDOW_BYTES;
            let (part, rest) = bytes.split_at(bytes.len().min(left as usize));
            let to = self.place(offset, part.len() as u64)?;
            // SAFETY: `place` returns memory of the window for as many bytes; this map alone stores there.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) };
            (offset, bytes) = (offset + part.len() as u64, rest);
        }
        Ok(())
    }

    #[inline]
    fn store_word(&mut self, offset: u64, word: [u8; 8], _site: Site) -> io::Result<()> {
        assert!(offset.is_multiple_of(8), "a word has its place");
        let to = self.place(offset, 8)?.cast::<AtomicU64>();
        // SAFETY: as above; aligned (asserted, and windows begin with pages). Release: for the compiler, which must not
        // move earlier stores behind this one; a process that is killed has done its stores in their order.
        unsafe { (*to).store(u64::from_ne_bytes(word), Ordering::Release) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::traits::here;
    use std::os::unix::fs::FileExt;

    /// Stores as a writer makes them that appends and returns to a header, over many windows, in a file that grows.
    #[test]
    fn what_is_stored_is_in_the_file() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut len = 300_000;
        file::allocate(&file, 0, len).unwrap();
        let Some(mut map) = OsMap::of(&file).unwrap() else {
            println!("nothing is mapped on this file system");
            return;
        };
        let (mut model, mut at, mut seed) = (vec![0u8; len as usize], 0, 1u64);
        for turn in 0..16_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = vec![(turn % 250) as u8 + 1; (seed >> 33) as usize % 3000 + 1];
            if at + bytes.len() as u64 > len {
                file::allocate(&file, len, len).unwrap();
                len *= 2;
                model.resize(len as usize, 0);
            }
            let header = at / 512 / 1000 * 1000 * 512;
            map.store(at, &bytes, here()).unwrap();
            map.store_word(header, turn.to_le_bytes(), here()).unwrap();
            model[at as usize..][..bytes.len()].copy_from_slice(&bytes);
            model[header as usize..][..8].copy_from_slice(&turn.to_le_bytes());
            at += bytes.len() as u64;
        }
        assert!(len > 4 * WINDOW_BYTES);
        let mut found = vec![0; len as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == model);
        assert!(map.store(len, &[1], here()).is_err(), "beyond the end nothing is stored, and nobody ends");
    }

    #[test]
    fn a_file_with_holes_is_not_mapped() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.set_len(1 << 20).unwrap();
        assert!(OsMap::of(&file).unwrap().is_none());
    }
}
