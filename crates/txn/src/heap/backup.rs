//! Online backup: a copy of one instant, while transactions continue.
//!
//! The copy is made twice. The first time the heap is read while transactions run, and may show halves of them: this
//! copies most bytes, and gets the memory for them. The second time no transaction runs; then memory is compared with
//! the copy, and only pages that differ are copied. The rest (making the copy durable) happens beside transactions
//! again.
//!
//! Durable-order: the last transaction in the copy is durable in the heap before the copy gets its name. Otherwise a
//! crash could leave a backup of a state that never was.

use super::error::{HeapError, HeapResult};
use super::heap::Heap;
use super::options::KIND;
use super::thread::Thread;
use mangrove_pool::{LOG_BYTES_MAX, LOG_BYTES_MIN, PoolConfig, PoolOptions, appear};
use mangrove_shadow::{Create, Durability, MediumKind, Options, Shadow, ShadowCopy};
use mangrove_sys::copy_nonzero_pages;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are compared at a time.
const PAGE_BYTES: usize = 4096;
/// Bytes that one thread copies at a time, and after which `progress` is called.
const CHUNK_BYTES: u64 = 2 << 20;
/// From this size on, several threads compare.
const LARGE_BYTES: u64 = 16 << 20;

/// How far a backup is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes of the heap that were copied and made durable so far; each counts once for either.
    pub bytes: u64,
    /// As many as there will be.
    pub bytes_total: u64,
}

/// What [`Heap::backup`] wrote.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeapBackup {
    /// Bytes of the pages that are not zero.
    pub bytes: u64,
    /// How long transactions waited.
    pub stopped: Duration,
}

impl Heap {
    /// Copies this instant into a new heap at `path`, while transactions go on; they wait only while memory is compared
    /// with the copy (O(bytes), at memory speed). The new heap appears whole and durable, or not at all. It belongs at
    /// the same address, so one process opens one of the two at a time. `progress` is called now and then, and stops
    /// the backup by returning `Break`. On the file medium, where an error has ended all writing, it copies what
    /// opening the heap again would give: every transaction that was acknowledged.
    ///
    /// Unless it lies on persistent memory, all of the copy is in this process's memory until the backup ends, beside
    /// the heap and whatever [`HeapOptions::memory_bytes_max`](crate::HeapOptions::memory_bytes_max) says. A process
    /// that could then have more than nine tenths of the memory and swap space of the machine, or of its control
    /// groups, gets `MemoryLimit` before anything is copied (a page counts also if it holds zeros, which take none).
    ///
    /// # Errors
    /// `Stopped`; `Invalid` for a place inside the heap's own directory; `Nested` inside a transaction, `Forked` in
    /// a child; the pool's `Exists`, `Foreign` where something else lies at `path`, `Unsupported` in another pool's
    /// directory, `NoSpace`, `MemoryLimit`, `Io`, and `Busy`: another backup to `path` is at work. Nothing is left at
    /// `path`.
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> HeapResult<HeapBackup> {
        // Before a file is made.
        drop(self.thread()?);
        self.refuse_own_directory(path.as_ref())?;
        let like = self.shadow().path().unwrap_or(Path::new("")).to_owned();
        if self.shadow().medium() == MediumKind::File && self.shadow().poisoned().is_some() {
            return appear(path.as_ref(), Some(&like), |part| self.copy_files_to(&like, part, &mut progress));
        }
        appear(path.as_ref(), Some(&like), |part| self.copy_to(part, &mut progress))
    }

    /// Copies what opening the heap in `from` again would give. Where the medium has failed, what was never made
    /// durable cannot be told from the rest in memory, but it can in the files.
    fn copy_files_to(
        &self,
        from: &Path,
        part: &Path,
        progress: &mut impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> HeapResult<HeapBackup> {
        // None begins any more, but one that began before the failure may still write and remove files.
        let _ = self.shadow().checkpoint();
        // This process has the heap, at its address, and writes to its files no more.
        let mut options = PoolOptions::new().config(limited()).kind(KIND).read_only(true);
        if let Some(storage) = self.shadow().storage() {
            // Its path may name another heap by now.
            options = options.storage(storage);
        }
        let pool = options.unlocked(true).away(true).open(from)?;
        pool.finish()?;
        let len = pool.stat().grown;
        let mut copy =
            ShadowCopy::create(part, &self.copy_options(), self.shadow().base().expose_provenance() as u64)?;
        copy.grow(len)?;
        // SAFETY: both have `len` bytes, which no other thread uses; those of the copy are zero.
        unsafe { copy_nonzero_pages(pool.region().at(0), copy.base(), len as usize) };
        let go_on = |done| progress(BackupProgress { bytes: len + done, bytes_total: 2 * len }).is_continue();
        let bytes = copy.close(go_on)?.ok_or(HeapError::Stopped)?;
        Ok(HeapBackup { bytes, stopped: Duration::ZERO })
    }

    /// A pool in the heap's own directory would be lost with it, and be copied with it by other tools.
    fn refuse_own_directory(&self, path: &Path) -> HeapResult<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let own = self.shadow().path().and_then(|own| own.canonicalize().ok());
        match (parent.canonicalize(), own) {
            (Ok(parent), Some(own)) if parent.starts_with(&own) => Err(HeapError::Invalid {
                what: format!(
                    "{} lies inside the heap's own directory; choose a place for the backup outside of it",
                    path.display()
                ),
            }),
            _ => Ok(()),
        }
    }

    fn copy_to(
        &self,
        part: &Path,
        progress: &mut impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> HeapResult<HeapBackup> {
        let shadow = self.shadow();
        let mut copy = ShadowCopy::create(part, &self.copy_options(), shadow.base() as u64)?;
        let first = shadow.len();
        copy.grow(first)?;
        let mut done = 0;
        while done < first {
            let end = first.min(done + CHUNK_BYTES);
            // SAFETY: below both lengths; the pages of this copy are no other thread's.
            (done..end).step_by(PAGE_BYTES).for_each(|at| unsafe { copy_page(shadow, &copy, at) });
            done = end;
            let so_far = BackupProgress { bytes: done, bytes_total: 2 * first };
            if progress(so_far).is_break() {
                return Err(HeapError::Stopped);
            }
        }
        let mut thread = self.thread()?;
        let Thread { handle, .. } = &mut *thread;
        let begun = Instant::now();
        let (len, copied) = handle.alone(|| {
            let len = shadow.len();
            (len, copy.grow(len).map(|()| compare(shadow, &copy, len)))
        });
        copied?;
        let stopped = begun.elapsed();
        drop(thread);
        shadow.sync()?;
        let go_on = |done| progress(BackupProgress { bytes: len + done, bytes_total: 2 * len }).is_continue();
        let bytes = copy.close(go_on)?.ok_or(HeapError::Stopped)?;
        Ok(HeapBackup { bytes, stopped })
    }

    /// A heap like this one.
    fn copy_options(&self) -> Options {
        let (shadow, stat) = (self.shadow(), self.shadow().stat());
        let logs = stat.logs.max(1);
        // On dax and emulated the option is the size of one log.
        let all = shadow.log_bytes_max();
        let log_bytes = if shadow.medium() == MediumKind::File { all } else { all / logs as u64 };
        Options::new()
            .config(limited())
            .kind(KIND)
            .create(Create::New)
            // The copy counts only once it is durable as a whole: no need to wait for each part.
            .durability(Durability::interval_ms(100))
            .capacity(shadow.capacity_kept())
            .log_bytes(log_bytes.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX))
            .log_count(logs)
    }
}

/// With the limit on memory of a pool that lies in it.
fn limited() -> PoolConfig {
    PoolConfig::default().memory_limited()
}

/// Copies what differs. No transaction runs.
fn compare(shadow: &Shadow, copy: &ShadowCopy, len: u64) {
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            // Relaxed: only gives each part to one thread.
            let begin = next.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
            if begin >= len {
                return;
            }
            for at in (begin..len.min(begin + CHUNK_BYTES)).step_by(PAGE_BYTES) {
                // SAFETY: below both lengths; each part is one thread's.
                unsafe { copy_page(shadow, copy, at) };
            }
        }
    };
    let threads =
        if len < LARGE_BYTES { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
    mangrove_sys::fan_out(threads.min(16), |_| work());
}

/// Copies the words of a page that differ. Transactions may store to it meanwhile: then the copy has some of what they
/// stored.
///
/// # Safety
/// The page at `at` is usable in both, and no other thread stores to that of the copy.
unsafe fn copy_page(shadow: &Shadow, copy: &ShadowCopy, at: u64) {
    for at in (at..at + PAGE_BYTES as u64).step_by(8) {
        // SAFETY: the caller's promise; pages are aligned, and other threads use atomics.
        unsafe {
            let from = AtomicU64::from_ptr(shadow.base().add(at as usize).cast());
            let to = copy.base().add(at as usize).cast::<u64>();
            // Relaxed: `alone` orders the words that are copied for good.
            let word = from.load(Ordering::Relaxed);
            if to.read() != word {
                to.write(word);
            }
        }
    }
}
