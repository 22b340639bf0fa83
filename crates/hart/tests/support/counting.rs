//! A medium in DRAM for the tests of the map: it counts what it is asked to do, and fails where a test wants it to.

use mangrove_pool::{Capabilities, Error, Lsn, MediumOps, Region, Result, Site};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The calls of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub flushes: u64,
    pub lines: u64,
    pub bytes: u64,
    pub fences: u64,
    pub waits: u64,
}

/// DRAM that counts calls, pretends to have a log, and runs full or fails when a test wants it to.
pub struct Counting {
    memory: Box<[AtomicU64]>,
    flushes: AtomicU64,
    lines: AtomicU64,
    bytes: AtomicU64,
    fences: AtomicU64,
    waits: AtomicU64,
    appended: AtomicU64,
    durable: AtomicU64,
    log: bool,
    /// `wait` makes everything durable.
    pub eager: AtomicBool,
    /// `wait` fails from now on.
    pub broken: AtomicBool,
    /// `wait` fails from now on, because the medium is full.
    pub full: AtomicBool,
    /// `flush` does nothing and `wait` fails from now on; the first flush notices.
    pub deaf: AtomicBool,
    /// A flush has noticed.
    refuses: AtomicBool,
    /// Runs once, when a thread begins to wait: what other threads do meanwhile.
    pub at_wait: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Runs whenever a thread leaves what it wrote unawaited, as a compaction does after each batch of moves.
    pub at_unawaited: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// `grow` refuses more than this.
    pub room: AtomicU64,
    /// Copies of all memory, one at each flush, while this is `Some`.
    pub images: Mutex<Option<Vec<Vec<u64>>>>,
}

impl Counting {
    pub fn region(bytes: usize, log: bool) -> (Region, Arc<Self>) {
        let medium = Arc::new(Self {
            memory: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect(),
            flushes: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            fences: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            log,
            eager: AtomicBool::new(true),
            broken: AtomicBool::new(false),
            full: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            at_wait: Mutex::new(None),
            at_unawaited: Mutex::new(None),
            room: AtomicU64::new(u64::MAX),
            images: Mutex::new(None),
        });
        let base = NonNull::new(medium.memory.as_ptr().cast_mut().cast::<u8>()).expect("not null");
        // SAFETY: the medium owns the memory, which is made of atomics.
        let region = unsafe { Region::new(base, bytes as u64, Arc::clone(&medium) as Arc<dyn MediumOps>) };
        (region, medium)
    }

    pub fn cost(&self) -> Cost {
        let get = |a: &AtomicU64| a.load(Ordering::SeqCst);
        Cost {
            flushes: get(&self.flushes),
            lines: get(&self.lines),
            bytes: get(&self.bytes),
            fences: get(&self.fences),
            waits: get(&self.waits),
        }
    }

    /// What `work` costs.
    pub fn cost_of(&self, work: impl FnOnce()) -> Cost {
        let before = self.cost();
        work();
        let after = self.cost();
        Cost {
            flushes: after.flushes - before.flushes,
            lines: after.lines - before.lines,
            bytes: after.bytes - before.bytes,
            fences: after.fences - before.fences,
            waits: after.waits - before.waits,
        }
    }

    /// All memory as it is now.
    pub fn image(&self) -> Vec<u64> {
        self.memory.iter().map(|word| word.load(Ordering::SeqCst)).collect()
    }

    /// All memory at each flush of `work`, and after it.
    pub fn images_of(&self, work: impl FnOnce()) -> Vec<Vec<u64>> {
        *self.images.lock().unwrap() = Some(Vec::new());
        work();
        let mut images = self.images.lock().unwrap().take().unwrap_or_default();
        images.push(self.image());
        images
    }

    /// Makes everything appended durable.
    pub fn settle(&self) {
        self.durable.store(self.appended.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    fn failure() -> Error {
        Error::Poisoned { first: "the test broke the medium".into() }
    }
}

impl MediumOps for Counting {
    fn capabilities(&self) -> Capabilities {
        Capabilities { has_log: self.log, may_refuse: true, ..Capabilities::default() }
    }

    unsafe fn flush(&self, offset: u64, _ptr: *const u8, len: usize, _site: Site) {
        if self.deaf.load(Ordering::SeqCst) {
            self.refuses.store(true, Ordering::SeqCst);
            return;
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(len as u64, Ordering::SeqCst);
        let lines = (offset + len as u64).div_ceil(64) - offset / 64;
        self.lines.fetch_add(lines, Ordering::SeqCst);
        self.appended.fetch_add(len as u64, Ordering::SeqCst);
        if let Some(images) = self.images.lock().unwrap().as_mut() {
            images.push(self.image());
        }
    }

    fn fence(&self, _site: Site) {
        self.fences.fetch_add(1, Ordering::SeqCst);
    }

    fn appended(&self) -> Lsn {
        if self.log { self.appended.load(Ordering::SeqCst) } else { 0 }
    }

    fn durable(&self) -> Lsn {
        self.durable.load(Ordering::SeqCst)
    }

    fn wait(&self, lsn: Lsn, _site: Site) -> Result<()> {
        self.waits.fetch_add(1, Ordering::SeqCst);
        let meanwhile = self.at_wait.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        if self.deaf.load(Ordering::SeqCst) {
            return Err(Self::failure());
        }
        if self.full.load(Ordering::SeqCst) {
            return Err(Error::NoSpace { path: "the test's medium".into(), wanted: 1 });
        }
        while self.log && self.durable() < lsn {
            if self.broken.load(Ordering::SeqCst) {
                return Err(Self::failure());
            }
            if self.eager.load(Ordering::SeqCst) {
                self.settle();
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn leave_unawaited(&self) {
        // Not under the lock: it may write.
        let hook = self.at_unawaited.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
            self.at_unawaited.lock().unwrap().get_or_insert(hook);
        }
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        if bytes > self.room.load(Ordering::SeqCst) {
            return Err(Error::NoSpace { path: "the test's medium".into(), wanted: bytes });
        }
        Ok(())
    }

    fn poisoned(&self) -> Option<Error> {
        self.broken.load(Ordering::SeqCst).then(Self::failure)
    }

    fn refuses(&self) -> bool {
        self.refuses.load(Ordering::SeqCst)
    }
}
