//! One operation inside another: when the outer one reaches its n-th step on the medium, the inner one runs to its
//! end on another thread. There are two threads and one switch, and every replay switches at the same step.
//!
//! When the inner operation needs a lock that the outer one holds, it cannot end. Once it sleeps, or has spun for long
//! enough, the outer one continues, and the inner one when it gets the lock. What the inner operation does decides,
//! not the clock: on a busy machine a thread may wait long for its first turn.

use crate::machine::cursor::CrashDomain;
use crate::machine::trace::Mark;
use crate::machine::waits::Pair;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often the outer operation looks at the inner one.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// An inner operation that sleeps at so many looks in a row waits for the outer one.
const ASLEEP_LOOKS: u32 = 5;
/// One that has had the processor for so long spins for the outer one. Operations take a millisecond at most.
const SPUN: Duration = Duration::from_millis(10);
/// What a tick of the processor's time in `stat` counts for: it takes five ticks, since one is soon hit.
const TICK: Duration = Duration::from_millis(2);

/// The places in a [`Pair`] of the thread that runs operations and of the one that runs inner ones.
const OUTER: usize = 0;
const INNER: usize = 1;

type Job = Box<dyn FnOnce() + Send>;
/// Notes a mark in a machine's history.
pub(crate) type Marker = Rc<dyn Fn(Mark)>;

/// The thread that runs inner operations.
struct Helper {
    jobs: Sender<Job>,
    /// Its number in `/proc/self/task`.
    thread: u32,
}

thread_local! {
    /// The number of steps left, and the job that then starts.
    static ARMED: RefCell<Option<(u32, Job, Receiver<()>)>> = const { RefCell::new(None) };
    /// Notes in the machine's history which of the two operations has ended.
    static MARK: RefCell<Option<Marker>> = const { RefCell::new(None) };
    /// The inner operation has ended at its step.
    static INNER_ENDED: Cell<bool> = const { Cell::new(false) };
    /// What a crash of the machine keeps.
    static DOMAIN: Cell<Option<CrashDomain>> = const { Cell::new(None) };
    /// A fault is injected at some call site.
    static HAS_FAULT: Cell<bool> = const { Cell::new(false) };
    /// This thread's helper. It never changes, because engines give threads numbers.
    static HELPER: RefCell<Option<Helper>> = const { RefCell::new(None) };
    /// What this thread and its helper tell each other of their waits.
    static PAIR: Arc<Pair> = Arc::default();
}

/// Gives a job to this thread's helper and returns that thread's number.
fn helper(job: Job) -> u32 {
    HELPER.with_borrow_mut(|helper| {
        let helper = helper.get_or_insert_with(|| {
            let (sender, jobs) = channel::<Job>();
            let (say, said) = channel();
            let pair = PAIR.with(Arc::clone);
            std::thread::spawn(move || {
                Pair::enter(&pair, INNER);
                let _ = say.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
                jobs.into_iter().for_each(|job| job());
            });
            Helper { jobs: sender, thread: said.recv().expect("a thread that begins says its number") }
        });
        let works = PAIR.with(|pair| pair.works(INNER));
        let job = Box::new(move || {
            let _works = works;
            job();
        });
        helper.jobs.send(job).expect("the helper lives as long as this thread");
        helper.thread
    })
}

/// Whether a thread sleeps, and how long it has had the processor.
fn look_at(thread: u32) -> (bool, Duration) {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
    let stat = read("stat").unwrap_or_default();
    // After the name, which may hold anything: the state is the third field, user and system time the 14th and 15th.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|ticks| ticks.parse::<u32>().ok()).unwrap_or(0);
    // The first number of `schedstat`, which some kernels do not have, is exact.
    let exact = read("schedstat").ok().and_then(|numbers| numbers.split_whitespace().next()?.parse().ok());
    let time = exact.map_or_else(|| TICK * (ticks(14) + ticks(15)), Duration::from_nanos);
    (fields.first().is_none_or(|state| *state == "S"), time)
}

/// Waits until the inner operation has ended, or waits itself for the outer one; true when it has ended.
fn ends_or_waits(ends: &Receiver<()>, thread: u32) -> bool {
    let (_, had) = look_at(thread);
    let mut asleep = 0;
    loop {
        match ends.recv_timeout(LOOK_EVERY) {
            Ok(()) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let (sleeps, time) = look_at(thread);
        asleep = if sleeps { asleep + 1 } else { 0 };
        if asleep == ASLEEP_LOOKS || time >= had + SPUN {
            return false;
        }
    }
}

/// Runs `outer` here, and `inner` on the helper at the `at`-th step of `outer`, or after `outer`.
pub(crate) fn during<A, B: Send + 'static>(
    at: u32,
    outer: impl FnOnce() -> A,
    inner: impl FnOnce() -> B + Send + 'static,
) -> (A, B) {
    during_and_told(at, false, outer, inner)
}

/// As `during`. If `acknowledges`, what `outer` did is durable when it returns, and the history says so where `inner`
/// still runs.
pub(crate) fn during_and_told<A, B: Send + 'static>(
    at: u32,
    acknowledges: bool,
    outer: impl FnOnce() -> A,
    inner: impl FnOnce() -> B + Send + 'static,
) -> (A, B) {
    let (answer, answers) = channel();
    let (ended, ends) = channel();
    let job: Job = Box::new(move || {
        let _ = answer.send(inner());
        let _ = ended.send(());
    });
    // If the outer operation panics, the next run must not find the inner one armed.
    struct Disarm;
    impl Drop for Disarm {
        fn drop(&mut self) {
            ARMED.take();
        }
    }
    let disarm = Disarm;
    INNER_ENDED.set(false);
    ARMED.set(Some((at, job, ends)));
    let a = {
        let _works = PAIR.with(|pair| pair.works(OUTER));
        outer()
    };
    let unstarted = ARMED.take();
    if acknowledges && !INNER_ENDED.take() {
        mark(Mark::Outer);
    }
    if let Some((_, job, _)) = unstarted {
        helper(job);
    }
    drop(disarm);
    let b = answers.recv().expect("the inner operation answers, if only with its panic");
    (a, b)
}

/// From now on the calling thread runs a machine with this domain, and with an injected fault or without one; `mark`
/// notes in its history that an inner operation has ended in a [`window`], or an outer one before its inner one.
pub(crate) fn enter_machine(domain: CrashDomain, has_fault: bool, mark: Marker) {
    DOMAIN.set(Some(domain));
    HAS_FAULT.set(has_fault);
    PAIR.with(|pair| Pair::enter(pair, OUTER));
    MARK.set(Some(mark));
}

/// What a crash of the calling thread's machine keeps.
pub(crate) fn machine_domain() -> Option<CrashDomain> {
    DOMAIN.get()
}

/// Whether a fault is injected into the calling thread's machine.
pub(crate) fn has_fault() -> bool {
    HAS_FAULT.get()
}

/// A step of the calling thread that is none of the medium's.
pub(crate) fn window() {
    if step() {
        mark(Mark::Inner);
    }
}

fn mark(what: Mark) {
    if let Some(mark) = MARK.with_borrow(Clone::clone) {
        mark(what);
    }
}

/// Counts a step of the calling thread on the medium; true when the inner operation ran to its end at this step.
pub(crate) fn step() -> bool {
    let due = ARMED.with_borrow_mut(|armed| match armed {
        Some((0, ..)) => true,
        Some((left, ..)) => {
            *left -= 1;
            false
        }
        None => false,
    });
    let Some((_, job, ends)) = due.then(|| ARMED.take()).flatten() else { return false };
    let thread = helper(job);
    let has_ended = ends_or_waits(&ends, thread);
    INNER_ENDED.set(has_ended);
    has_ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The marks of an operation with one step, in which another one runs that ends there or waits for the outer one.
    fn marks(acknowledges: bool, at: u32, waits: bool) -> Vec<Mark> {
        let marks = Rc::new(RefCell::new(Vec::new()));
        let noted = Rc::clone(&marks);
        enter_machine(CrashDomain::Adr, false, Rc::new(move |mark| noted.borrow_mut().push(mark)));
        let (release, released) = channel::<()>();
        let (_, ()) = during_and_told(
            at,
            acknowledges,
            || {
                window();
                // The outer operation returns, and gives its locks back.
                let _ = release.send(());
            },
            move || {
                if waits {
                    released.recv().unwrap();
                }
            },
        );
        marks.take()
    }

    #[test]
    fn an_outer_operation_is_acknowledged_while_its_inner_one_runs() {
        assert_eq!(marks(true, 0, true), [Mark::Outer], "the inner one waits for the outer one");
        assert_eq!(marks(true, 0, false), [Mark::Inner], "both have returned: the end follows");
        assert_eq!(marks(true, 9, false), [Mark::Outer], "the inner one begins behind the outer one");
        assert_eq!(marks(false, 0, true), [], "nothing is durable yet");
    }
}
