//! Keeps the memory that a heap takes under a limit, so that it can be larger than the machine's memory: a thread
//! gives pages back that transactions have written and the durable copy has.
//!
//! Source: the dissertation's future work ("heaps larger than DRAM"). The price of a page is paid here, in the
//! background. A transaction that touches the page later faults it in from the file, and does not wait for the
//! replayer.
//!
//! A heap opened read-only lies in private memory as a whole, of which nothing can be given back. It has no thread, and
//! must fit when it is opened.
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
/// Each time that nothing could be given back doubles it, up to this: each try closes the gate.
const PERIOD_MAX: Duration = Duration::from_secs(1);
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
    /// None for a heap opened read-only.
    thread: Option<JoinHandle<()>>,
}

impl MemoryLimit {
    /// Starts the thread, if the heap needs one.
    ///
    /// # Errors
    /// The operating system's: it starts no thread, or has no /proc. For a heap opened read-only, that it takes more.
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
        let mut keeper = Keeper::new(bytes_max, Arc::clone(&counters))?;
        if shadow.is_read_only() {
            let own = keeper.map.own_bytes(shadow.base() as usize, shadow.len() as usize)?;
            if own > bytes_max {
                let what = format!(
                    "a heap that is opened read-only lies in memory as a whole, and this one takes {own} bytes of it"
                );
                return Err(io::Error::other(what));
            }
            return Ok(Self { counters, thread: None });
        }
        let of_thread = Arc::clone(&counters);
        let body = move || {
            // None: the model of hardware has no core left, and its threads keep their memory.
            let Some(mut handle) = executor.thread() else { return };
            keeper.keep(&shadow, |parts| give_back(&shadow, &mut handle, &of_thread, parts));
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

/// What shall go.
struct Chosen {
    /// Parts of the heap: where each begins and ends.
    parts: Vec<(usize, usize)>,
    /// The heap's own bytes in them.
    bytes: usize,
}

impl Keeper {
    /// One that has counted nothing yet.
    ///
    /// # Errors
    /// No /proc.
    fn new(bytes_max: usize, counters: Arc<ThreadCounters>) -> io::Result<Self> {
        Ok(Self {
            map: PageMap::open()?,
            bytes_max,
            own: 0,
            process: own_memory_bytes()?,
            counted: Instant::now(),
            count_took: Duration::ZERO,
            hand: 0,
            counters,
        })
    }

    /// Has `give_back` give parts of the heap back whenever the heap takes too much, until the thread shall stop or the
    /// medium has failed.
    fn keep(
        &mut self,
        shadow: &Shadow,
        mut give_back: impl FnMut(&[(usize, usize)]) -> mangrove_shadow::Result<()>,
    ) {
        let mut period = PERIOD;
        while !self.counters.stops() {
            let ticket = self.counters.wake.ticket();
            if !self.counters.stops() {
                self.counters.wake.wait_for(ticket, period);
            }
            let waited = std::mem::replace(&mut period, PERIOD);
            while (self.is_above() || self.is_due()) && !self.counters.stops() {
                let Some(Chosen { parts, bytes }) = self.choose(shadow) else { break };
                if give_back(&parts).is_ok() {
                    self.note_given_back(bytes);
                } else if shadow.poisoned().is_some() {
                    // The next transaction says so, and memory stays as it is.
                    return;
                } else {
                    // For now: there is no descriptor left, say.
                    period = (waited * 2).min(PERIOD_MAX);
                    break;
                }
            }
        }
    }

    fn note_given_back(&mut self, bytes: usize) {
        self.own -= bytes;
        self.process = self.process.saturating_sub(bytes);
        // Relaxed: a counter.
        self.counters.given_back.fetch_add(bytes as u64, Ordering::Relaxed);
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

    /// Counts the heap's own pages; if they are too many, the pieces that shall go. O(bytes of the heap / 512).
    fn choose(&mut self, shadow: &Shadow) -> Option<Chosen> {
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
        let mut parts: Vec<(usize, usize)> = Vec::new();
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
            match parts.last_mut() {
                Some((_, end)) if *end == piece(n).start => *end = piece(n).end,
                _ => parts.push((piece(n).start, piece(n).end)),
            }
        }
        Some(Chosen { parts, bytes })
    }
}

/// Gives these parts of the heap back.
fn give_back(
    shadow: &Shadow,
    handle: &mut HeapThread,
    counters: &ThreadCounters,
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
    counters.longest_pause.fetch_max(pause, Ordering::Relaxed);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
    use mangrove_shadow::{Create, Error, Medium, Options};

    const LIMIT: usize = 4 << 20;
    const LEN: usize = 8 << 20;

    /// Keeps the limit of a shadow that takes twice as much, where `answer` says what becomes of the n-th try, from 1
    /// on; returns how many there were, and the bytes that count as given back. `fails`: so does the medium.
    fn keep(fails: bool, answer: impl Fn(u32, &ThreadCounters) -> mangrove_shadow::Result<()>) -> (u32, u64) {
        let folder = tempfile::tempdir().unwrap();
        let storage = Faulty::new(Arc::new(OsStorage));
        let options = Options::new().create(Create::New).medium(Medium::File).background(false);
        let options = options.capacity(64 << 20).storage(Arc::new(storage.clone()));
        let shadow = options.open(folder.path().join("s")).unwrap();
        shadow.grow(LEN as u64).unwrap();
        let counters = Arc::new(ThreadCounters::default());
        let mut keeper = Keeper::new(LIMIT, Arc::clone(&counters)).unwrap();
        // SAFETY: the usable part, which no other thread uses.
        unsafe { shadow.base().write_bytes(7, LEN) };
        if fails {
            let (file, operations) = (Some("log".to_owned()), vec![FaultyOperation::Write]);
            storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Errno(5) });
            shadow.commit(0, &[(shadow.base() as usize, 8)]).unwrap();
            shadow.sync().unwrap_err();
        }
        let mut tries = 0;
        keeper.keep(&shadow, |parts| {
            assert!(parts.iter().all(|(from, to)| from < to && *to <= LEN));
            tries += 1;
            answer(tries, &counters)
        });
        (tries, counters.given_back())
    }

    fn refused() -> mangrove_shadow::Result<()> {
        Err(Error::Unsupported { what: "nothing is given back now".into() })
    }

    fn stop(counters: &ThreadCounters) {
        counters.stop.store(true, Ordering::Release);
    }

    #[test]
    fn after_a_refusal_the_limit_is_kept_all_the_same() {
        let (tries, given_back) = keep(false, |number, counters| {
            if number < 4 {
                return refused();
            }
            stop(counters);
            Ok(())
        });
        assert_eq!(tries, 4);
        // What was refused does not count.
        assert!((LIMIT..=LEN).contains(&(given_back as usize)), "{given_back}");
    }

    #[test]
    fn after_the_mediums_failure_nothing_more_is_tried() {
        let (tries, given_back) = keep(true, |number, counters| {
            if number > 1 {
                stop(counters);
            }
            refused()
        });
        assert_eq!((tries, given_back), (1, 0));
    }
}
