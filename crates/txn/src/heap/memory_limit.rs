//! Keeps the memory that a heap takes under a limit, so that it can be larger than the machine's memory: a thread
//! gives pages back that transactions have written and the durable copy has.
//!
//! Source: the dissertation's future work ("heaps larger than DRAM"). The price of a page is paid here, in the
//! background. A transaction that touches the page later faults it in from the file, and does not wait for the
//! replayer.
//!
//! Invariants:
//! 1. Pages go only while no transaction runs (the gate is closed), and while the logs are empty: what the file shows
//!    then is what transactions have committed, and nothing else was in memory.
//! 2. The durable copy is brought up to date before the gate closes, so that little is left to do behind it.

use super::executors::{HeapExecutor, HeapThread};
use mangrove_shadow::Shadow;
use mangrove_sys::{EventCount, PageMap, own_memory_bytes, without_signals};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at the memory.
const PERIOD: Duration = Duration::from_millis(5);
/// Pages go in pieces of so many bytes of addresses.
const PIECE_BYTES: usize = 2 << 20;
/// At most so much memory is given back while the gate is closed once.
const TURN_BYTES: usize = 32 << 20;
/// So long after a count the next one is due, and at least so many times as long as the last one took.
const COUNT_AFTER: Duration = Duration::from_secs(1);
const COUNT_SHARE: u32 = 50;

/// What the thread has done; see [`HeapStat`](crate::HeapStat).
#[derive(Debug, Default)]
pub(super) struct ThreadCounters {
    stop: AtomicBool,
    wake: EventCount,
    given_back: AtomicU64,
    longest_pause: AtomicU64,
}

impl ThreadCounters {
    /// Bytes given back.
    pub(super) fn given_back(&self) -> u64 {
        // Relaxed: a counter.
        self.given_back.load(Ordering::Relaxed)
    }

    /// The longest time that transactions had to wait.
    pub(super) fn longest_pause(&self) -> Duration {
        // Relaxed: a counter.
        Duration::from_nanos(self.longest_pause.load(Ordering::Relaxed))
    }

    fn stops(&self) -> bool {
        // Acquire pairs with the Release in `drop`.
        self.stop.load(Ordering::Acquire)
    }
}

/// The thread that keeps a limit; joined when it is dropped.
pub(super) struct MemoryLimit {
    counters: Arc<ThreadCounters>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryLimit {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system's: it starts no thread, or has no /proc.
    ///
    /// # Safety
    /// The executor outlives this.
    pub(super) unsafe fn start(
        executor: &HeapExecutor,
        shadow: &Arc<Shadow>,
        bytes_max: usize,
    ) -> io::Result<Self> {
        // SAFETY: the caller keeps the executor for as long as the thread, which `drop` joins.
        let executor: &'static HeapExecutor = unsafe { &*std::ptr::from_ref(executor) };
        let shadow = Arc::clone(shadow);
        let counters = Arc::new(ThreadCounters::default());
        let mut keeper = Keeper {
            map: PageMap::open()?,
            bytes_max,
            own: 0,
            process: own_memory_bytes()?,
            counted: Instant::now(),
            count_took: Duration::ZERO,
            hand: 0,
            counters: Arc::clone(&counters),
        };
        let body = move || {
            // None: the model of hardware has no core left, and its threads keep their memory.
            let Some(mut handle) = executor.thread() else { return };
            // The medium has failed: the next transaction says so, and memory stays as it is.
            let _ = keeper.keep(&shadow, &mut handle);
        };
        let thread =
            without_signals(|| std::thread::Builder::new().name("mangrove-memory".into()).spawn(body))?;
        Ok(Self { counters, thread: Some(thread) })
    }

    pub(super) fn counters(&self) -> &ThreadCounters {
        &self.counters
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `stops`.
        self.counters.stop.store(true, Ordering::Release);
        self.counters.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // It only panics for a bug of its own, which has been printed.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Keeper {
    map: PageMap,
    bytes_max: usize,
    /// Bytes of the heap's own pages when they were last counted, and of the process's.
    own: usize,
    process: usize,
    /// When that was, and how long it took.
    counted: Instant,
    count_took: Duration,
    /// The piece that goes next: the pieces take turns.
    hand: usize,
    counters: Arc<ThreadCounters>,
}

impl Keeper {
    fn keep(&mut self, shadow: &Shadow, handle: &mut HeapThread) -> mangrove_shadow::Result<()> {
        while !self.counters.stops() {
            let ticket = self.counters.wake.ticket();
            if !self.counters.stops() {
                self.counters.wake.wait_for(ticket, PERIOD);
            }
            while (self.is_above() || self.is_due()) && !self.counters.stops() {
                let Some(pieces) = self.choose(shadow) else { break };
                self.give_back(shadow, handle, &pieces)?;
            }
        }
        Ok(())
    }

    /// Whether the heap may take more than the limit: as if all that the process took since the last count were its
    /// own. O(1).
    fn is_above(&mut self) -> bool {
        let Ok(now) = own_memory_bytes() else { return false };
        // What the process gives back is not the heap's.
        self.process = self.process.min(now);
        self.own + (now - self.process) > self.bytes_max
    }

    /// Whether to count in any case: what the process gives back between two looks hides what the heap takes.
    fn is_due(&self) -> bool {
        self.counted.elapsed() >= COUNT_AFTER.max(self.count_took * COUNT_SHARE)
    }

    /// Counts the heap's own pages; if they are too many, the pieces that shall go: first piece and count, and the
    /// bytes of them all. O(bytes of the heap / 512).
    fn choose(&mut self, shadow: &Shadow) -> Option<Vec<(usize, usize)>> {
        let begun = Instant::now();
        let (base, len) = (shadow.base() as usize, shadow.len() as usize);
        let process = own_memory_bytes().ok()?;
        let piece = |n: usize| n * PIECE_BYTES..len.min((n + 1) * PIECE_BYTES);
        let count = len.div_ceil(PIECE_BYTES);
        let mut own = Vec::with_capacity(count);
        for n in 0..count {
            own.push(self.map.own_bytes(base + piece(n).start, piece(n).len()).ok()?);
        }
        (self.own, self.process) = (own.iter().sum(), process);
        (self.counted, self.count_took) = (Instant::now(), begun.elapsed());
        let above = self.own.checked_sub(self.bytes_max).filter(|&above| above > 0)?;
        let wanted = (above + self.bytes_max / 4).min(TURN_BYTES);
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        let mut bytes = 0;
        for n in (0..count).map(|n| (self.hand + n) % count) {
            if bytes >= wanted {
                self.hand = n;
                break;
            }
            if own[n] == 0 {
                continue;
            }
            bytes += own[n];
            match chosen.last_mut() {
                Some((_, end)) if *end == piece(n).start => *end = piece(n).end,
                _ => chosen.push((piece(n).start, piece(n).end)),
            }
        }
        self.own -= bytes;
        self.process = self.process.saturating_sub(bytes);
        // Relaxed: a counter.
        self.counters.given_back.fetch_add(bytes as u64, Ordering::Relaxed);
        Some(chosen)
    }

    /// Gives these parts of the heap back.
    fn give_back(
        &self,
        shadow: &Shadow,
        handle: &mut HeapThread,
        parts: &[(usize, usize)],
    ) -> mangrove_shadow::Result<()> {
        // Twice: the second time there is only what was committed during the first.
        shadow.checkpoint()?;
        shadow.checkpoint()?;
        let begun = Instant::now();
        let done = handle.alone(|| {
            parts.iter().try_for_each(|&(from, to)| {
                // SAFETY: no transaction runs, and only transactions store to a heap with a limit and commit.
                unsafe { shadow.page_out(from as u64, (to - from) as u64) }
            })
        });
        // Relaxed: a counter.
        let pause = begun.elapsed().as_nanos() as u64;
        self.counters.longest_pause.fetch_max(pause, Ordering::Relaxed);
        done
    }
}
