//! What one thread allocates, another may use and acknowledge before the first has fenced anything of its own. So the
//! allocator fences on behalf of all threads. On this medium, as on the machine, a fence belongs to its thread: a
//! line is durable only when the thread that flushed it has fenced. The tests leave out each of the allocator's
//! fences once, and the map must then lose data.

use crate::support::Counting;
use mangrove_hart::{Hart, Options, WriteMode};
use mangrove_pool::{Lsn, MediumOps, Region, Result, Site};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, ThreadId};

const BYTES: usize = 1 << 20;

/// Memory whose durable copy gets a line only when the thread that flushed it fences.
struct PerThread {
    memory: Box<[AtomicU64]>,
    durable: Mutex<Vec<u64>>,
    flushed: Mutex<HashMap<ThreadId, Vec<(u64, usize)>>>,
    /// The thread that is stopped at its first flush of this many bytes.
    victim: Mutex<Option<ThreadId>>,
    stop_at_len: usize,
    stopped: Barrier,
    resume: Barrier,
    /// Fences of that thread so far, and the one to leave out.
    fences: AtomicU64,
    skip: u64,
    hit: AtomicBool,
}

impl MediumOps for PerThread {
    unsafe fn flush(&self, offset: u64, _ptr: *const u8, len: usize, _site: Site) {
        let me = thread::current().id();
        let is_victim = *self.victim.lock().unwrap() == Some(me);
        if is_victim && len == self.stop_at_len && !self.hit.swap(true, Ordering::SeqCst) {
            self.stopped.wait();
            self.resume.wait();
        }
        self.flushed.lock().unwrap().entry(me).or_default().push((offset, len));
    }

    fn fence(&self, _site: Site) {
        let me = thread::current().id();
        if *self.victim.lock().unwrap() == Some(me) && self.fences.fetch_add(1, Ordering::SeqCst) == self.skip
        {
            return;
        }
        let lines = self.flushed.lock().unwrap().remove(&me).unwrap_or_default();
        let mut durable = self.durable.lock().unwrap();
        for (offset, len) in lines {
            for word in offset / 64 * 8..(offset + len as u64).div_ceil(64) * 8 {
                durable[word as usize] = self.memory[word as usize].load(Ordering::SeqCst);
            }
        }
    }

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        Ok(())
    }

    fn grow(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

/// One thread adds a segment and stops before it fences its own leaf; another thread inserts into the same segment.
/// Returns what a crash then leaves of the other's record, and how often the first thread had fenced.
fn race(skip: u64, value: &[u8], stop_at_len: usize, other: &[u8]) -> (bool, u64) {
    let medium = Arc::new(PerThread {
        memory: (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect(),
        durable: Mutex::new(vec![0; BYTES / 8]),
        flushed: Mutex::default(),
        victim: Mutex::new(None),
        stop_at_len,
        stopped: Barrier::new(2),
        resume: Barrier::new(2),
        fences: AtomicU64::new(0),
        skip,
        hit: AtomicBool::new(false),
    });
    let base = NonNull::new(medium.memory.as_ptr().cast_mut().cast::<u8>()).unwrap();
    // SAFETY: the medium owns the memory, which is made of atomics.
    let region = unsafe { Region::new(base, BYTES as u64, Arc::clone(&medium) as Arc<dyn MediumOps>) };
    let options =
        Options { segment_shift: 14, grow_bytes: 1 << 17, recovery_threads: 1, ..Options::default() };
    let hart = Hart::create(region, &options).unwrap();
    // The map grows by half of itself: after these twelve segments, without a free one, by six. (No header has as many
    // bytes as six entries.)
    for value in [&b"inline"[..], &[b'v'; 180_000]] {
        hart.put(&[b'k'; 200], value, WriteMode::Durable).unwrap();
    }
    let (image, fences) = thread::scope(|scope| {
        scope.spawn(|| {
            *medium.victim.lock().unwrap() = Some(thread::current().id());
            hart.put(b"the first", value, WriteMode::Durable).unwrap();
        });
        medium.stopped.wait();
        let fences = medium.fences.load(Ordering::SeqCst);
        hart.put(other, value, WriteMode::Durable).unwrap();
        let image = medium.durable.lock().unwrap().clone();
        medium.resume.wait();
        (image, fences)
    });
    let (crashed, _) = Counting::region(BYTES, false);
    for (number, word) in image.iter().enumerate() {
        crashed.store(number as u64 * 8, *word, Ordering::Relaxed);
    }
    let kept = Hart::recover(crashed, &options)
        .is_ok_and(|(hart, _)| hart.get(other).is_ok_and(|v| v.as_deref() == Some(value)));
    (kept, fences)
}

/// Bytes of the first thread's leaf: two words and a key of 9 bytes.
const LEAF_BYTES: usize = 25;
/// Bytes of a chunk header.
const HEADER_BYTES: usize = 32;

#[test]
fn a_new_segment_is_fenced_before_it_is_shared() {
    // In another tree, so that the index's lock is free; of the same class, so that both use the segment.
    let other = b"other key";
    for value in [&b"inline"[..], &[b'v'; 600]] {
        let (kept, fences) = race(u64::MAX, value, LEAF_BYTES, other);
        assert!(kept, "an acknowledged record is gone");
        // Growth (two), chunk headers, and the free slots of a chunk together with the entry of a segment of leaves;
        // for values in blocks one entry more, and the fence between value and leaf.
        assert_eq!(fences, if value.len() > 8 { 6 } else { 4 });
        let entry = 3;
        assert!(
            value.len() > 8 || !race(entry, value, LEAF_BYTES, other).0,
            "the entry's fence was not missed"
        );
    }
}

#[test]
fn growth_is_fenced_before_it_is_shared() {
    // Of another class, whose lock is free; the first thread has only grown the region.
    let other = b"another key, which goes into another class of leaves";
    let (kept, fences) = race(u64::MAX, b"inline", HEADER_BYTES, other);
    assert!(kept, "an acknowledged record is gone");
    // The entries of the new segments, and the high water.
    assert_eq!(fences, 2);
    assert!(!race(1, b"inline", HEADER_BYTES, other).0, "the growth's fence was not missed");
}
