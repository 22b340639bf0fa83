//! The recording medium: DRAM that records every store, flush and fence.
//!
//! Invariants:
//! 1. The trace and the memory agree: replaying the trace over the starting image gives the memory.
//! 2. A suppressed call leaves no event; every other call leaves exactly one, in execution order.

use crate::machine::site::{SiteKind, Sites};
use crate::machine::trace::{Mark, Trace, TraceEvent};
use mangrove_pool::{ByteRange, Lsn, MediumOps, Observers, Region, Result, Site, StoreObserver};
use mangrove_sys::{MapKind, Reservation};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Steps after which a run counts as hung.
const EVENT_COUNT_MAX: usize = 4_000_000;

/// Memory that runs and recoveries use one after the other.
pub(crate) struct SimulatedMemory {
    range: Reservation,
}

/// The files that back the memories of this process, by address.
static FILES: Mutex<BTreeMap<usize, OwnedFd>> = Mutex::new(BTreeMap::new());

/// The file that a region of simulated memory is mapped from.
pub(crate) fn file_of(region: &Region) -> Option<OwnedFd> {
    let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.get(&(region.base() as usize)).and_then(|file| file.try_clone().ok())
}

impl Drop for SimulatedMemory {
    fn drop(&mut self) {
        let base = self.range.base().as_ptr() as usize;
        FILES.lock().unwrap_or_else(PoisonError::into_inner).remove(&base);
    }
}

impl SimulatedMemory {
    /// `len` zeroed bytes.
    #[must_use]
    pub(crate) fn new(len: usize) -> Arc<Self> {
        let fd = rustix::fs::memfd_create("crashlab", rustix::fs::MemfdFlags::CLOEXEC);
        let file = fd.expect("a file in memory");
        rustix::fs::ftruncate(&file, len as u64).expect("memory for a small simulated pool");
        let range = Reservation::file(file.as_fd(), len, MapKind::Shared);
        let range = range.expect("address space for a small simulated pool");
        let base = range.base().as_ptr() as usize;
        FILES.lock().unwrap_or_else(PoisonError::into_inner).insert(base, file);
        Arc::new(Self { range })
    }

    /// Bytes.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// Copies bytes out.
    #[must_use]
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len());
        let mut out = vec![0; len];
        // SAFETY: inside the reservation (asserted); the simulator is the only user between runs, and
        // during a run reads only what the running thread has just stored.
        unsafe {
            std::ptr::copy_nonoverlapping(self.range.base().as_ptr().add(offset), out.as_mut_ptr(), len)
        };
        out
    }

    /// Overwrites bytes without recording it.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len());
        // SAFETY: as in `read`; called between runs only.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.range.base().as_ptr().add(offset),
                bytes.len(),
            );
        };
    }

    /// The bytes that a store has left.
    fn stored(&self, offset: u64, len: usize) -> &[u8] {
        assert!(offset as usize + len <= self.len());
        // SAFETY: as in `read`.
        unsafe { std::slice::from_raw_parts(self.range.base().as_ptr().add(offset as usize), len) }
    }
}

#[derive(Default)]
struct Recorder {
    trace: Trace,
    usable: u64,
    fault: Option<String>,
}

/// A medium over [`SimulatedMemory`] that records.
pub(crate) struct RecordingMedium {
    memory: Arc<SimulatedMemory>,
    sites: Arc<Sites>,
    recorder: Mutex<Recorder>,
}

/// A small number for the calling thread.
fn thread_number() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    thread_local! {
        // Relaxed: only uniqueness matters.
        static NUMBER: u32 = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    NUMBER.with(|n| *n)
}

impl RecordingMedium {
    /// A medium over `memory` as it is, of which `usable` bytes are already grown, and its region.
    #[must_use]
    pub(crate) fn region(
        memory: &Arc<SimulatedMemory>,
        usable: u64,
        sites: &Arc<Sites>,
    ) -> (Arc<Self>, Region) {
        let medium = Arc::new(Self {
            memory: memory.clone(),
            sites: sites.clone(),
            recorder: Mutex::new(Recorder { usable, ..Recorder::default() }),
        });
        // SAFETY: the medium keeps the reservation alive.
        let region = unsafe { Region::new(memory.range.base(), memory.len() as u64, medium.clone()) };
        (medium, region)
    }

    /// Records where the history stands.
    pub(crate) fn mark(&self, mark: Mark) {
        self.lock().trace.events.push(TraceEvent::Mark(mark));
    }

    /// Ends the recording: returns the trace, the grown size, and the first rule of the medium that was broken.
    #[must_use]
    pub(crate) fn finish(&self) -> (Trace, u64, Option<String>) {
        let mut recorder = self.lock();
        (std::mem::take(&mut recorder.trace), recorder.usable, recorder.fault.take())
    }

    fn lock(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interrupted(&self) {
        if crate::machine::interrupt::step() {
            self.mark(Mark::Inner);
        }
    }

    fn push(&self, event: TraceEvent) {
        let mut recorder = self.lock();
        let count = recorder.trace.events.len();
        recorder.trace.events.push(event);
        drop(recorder);
        crate::machine::waits::stepped();
        self.interrupted();
        assert!(
            count < EVENT_COUNT_MAX,
            "the run does not end: {EVENT_COUNT_MAX} stores, flushes and fences"
        );
    }
}

impl MediumOps for RecordingMedium {
    fn observers(self: Arc<Self>) -> Observers {
        Observers { stores: Some(self), reads: None }
    }

    unsafe fn flush(&self, offset: u64, _ptr: *const u8, len: usize, site: Site) {
        if len > 0 && !self.sites.suppressed(SiteKind::Flush, site) {
            self.push(TraceEvent::Flush { offset, len: len as u32, thread: thread_number() });
        }
    }

    fn fence(&self, site: Site) {
        if !self.sites.suppressed(SiteKind::Fence, site) {
            self.push(TraceEvent::Fence { thread: thread_number() });
        }
    }

    fn wait(&self, _lsn: Lsn, site: Site) -> Result<()> {
        // Suppressing a wait changes nothing here, because on this medium a fence makes bytes durable. A missing
        // wait shows in the file world.
        self.sites.suppressed(SiteKind::Wait, site);
        self.interrupted();
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        let capacity = self.memory.len() as u64;
        if bytes > capacity {
            return Err(mangrove_pool::Error::NoSpace {
                path: "simulated memory".into(),
                wanted: bytes - capacity,
            });
        }
        let mut recorder = self.lock();
        recorder.usable = recorder.usable.max(bytes);
        Ok(())
    }

    fn grown(&self) -> u64 {
        self.lock().usable
    }
}

impl RecordingMedium {
    /// Records stores, which `append` adds to the trace.
    fn record(&self, parts: &[ByteRange], site: Site, append: impl FnOnce(&mut Trace)) {
        let mut guard = self.lock();
        let recorder = &mut *guard;
        for part in parts {
            let end = part.offset + part.len;
            if end > recorder.usable && recorder.fault.is_none() {
                recorder.fault = Some(format!(
                    "{site} stores at bytes {}..{end} of a region that was grown to {} only",
                    part.offset, recorder.usable
                ));
            }
        }
        append(&mut recorder.trace);
        assert!(recorder.trace.events.len() < EVENT_COUNT_MAX, "the run does not end: too many stores");
        drop(guard);
        self.interrupted();
    }
}

impl StoreObserver for RecordingMedium {
    fn stored(&self, offset: u64, len: usize, site: Site) {
        self.record(&[ByteRange { offset, len: len as u64 }], site, |trace| {
            if len > 0 {
                trace.store(offset, self.memory.stored(offset, len));
            }
        });
    }

    fn stored_in_one_step(&self, parts: &[ByteRange], site: Site) {
        self.record(parts, site, |trace| {
            trace.step(
                parts.iter().map(|part| (part.offset, self.memory.stored(part.offset, part.len as usize))),
            );
        });
    }
}
