//! Calls that may wait, without the interpreter's lock, and open to Ctrl-C.
//!
//! Python runs signal handlers on its main thread only, between byte codes. So the main thread has a helper do what
//! may wait, and looks for signals while it waits for the helper. When a handler raises, the call raises; what the
//! helper has begun it finishes, unless it looks at [`GivenUp`]: then it undoes it, also while the interpreter ends.
//! When a handler forks, the call raises in the child, which has not got the helper.
//! All other threads wait by themselves, and so does the main thread of a process that gets no further thread.

use crate::errors::exception;
use crate::shutdown::{UNDOING, attached, calling, detached};
use mangrove_sys::{ProcessMark, without_signals};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long the main thread waits between two looks for signals.
const LOOK: Duration = Duration::from_millis(20);
/// How long an interrupted call waits for a helper that was told to stop.
const GRACE: Duration = Duration::from_millis(40);

/// Whether the caller has given up.
#[derive(Clone, Default)]
pub(crate) struct GivenUp(Arc<State>);

#[derive(Default)]
struct State {
    given_up: AtomicBool,
    /// The work looks: it will stop, and undo what it has done.
    looks: AtomicBool,
    /// The helper has ended the work, or the caller has counted it in [`UNDOING`]; whoever comes second takes it off.
    is_settled: AtomicBool,
}

impl GivenUp {
    /// `Break` when the caller has given up.
    pub(crate) fn look(&self) -> ControlFlow<()> {
        // Relaxed: the flags alone count.
        self.0.looks.store(true, Ordering::Relaxed);
        if self.0.given_up.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// The caller does not wait for the helper, which still removes what the work has made. The hook at the
    /// interpreter's end waits for it.
    fn leave(&self) {
        if self.0.looks.load(Ordering::Relaxed) {
            UNDOING.fetch_add(1, Ordering::SeqCst);
            if self.0.is_settled.swap(true, Ordering::SeqCst) {
                UNDOING.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// The work has ended.
    fn end(&self) {
        if self.0.is_settled.swap(true, Ordering::SeqCst) {
            UNDOING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The helper that has nothing to do, and the process that it lives in.
static IDLE: Mutex<Option<(Sender<Job>, ProcessMark)>> = Mutex::new(None);

/// Does `work` without the interpreter's lock.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&GivenUp) -> T + Send + 'static,
) -> PyResult<T> {
    wait_with(py, (), move |(), stop| work(stop))
}

/// As `wait`, for work on Python's objects. Those are dropped with the lock: without it the drop would take a lock of
/// PyO3's, which a fork at that moment would leave taken in the child for ever.
pub(crate) fn wait_with<A: Send + Sync + 'static, T: Send + 'static>(
    py: Python<'_>,
    objects: A,
    work: impl FnOnce(&A, &GivenUp) -> T + Send + 'static,
) -> PyResult<T> {
    let stop = GivenUp::default();
    let helper = if is_main_thread(py)? { helper() } else { None };
    let Some(helper) = helper else { return Ok(detached(py, || work(&objects, &stop))) };
    let (answer, answered) = channel();
    let home = ProcessMark::here();
    let stop_of_work = stop.clone();
    let job: Job = Box::new(move || {
        let value = work(&objects, &stop_of_work);
        stop_of_work.end();
        // Nobody listens after an interruption.
        if let Err(SendError((value, objects))) = answer.send((value, objects)) {
            // Without the lock: it may be a map, which takes its time to close.
            drop(value);
            let mut objects = Some(objects);
            if std::mem::needs_drop::<A>() {
                attached(|_| objects = None);
            }
            // An interpreter that has ended takes all objects along.
            std::mem::forget(objects);
        }
    });
    if helper.send(job).is_err() {
        return Err(PyRuntimeError::new_err("the thread that waits for the main thread has ended"));
    }
    match listen(py, answered, &helper, &stop, home) {
        Ok(Some((value, _objects))) => {
            *IDLE.lock().unwrap_or_else(PoisonError::into_inner) = Some((helper, home));
            Ok(value)
        }
        Ok(None) => Err(PyRuntimeError::new_err("the thread that waits for the main thread has panicked")),
        Err(raised) => {
            if !home.is_here() {
                // The channel's lock may be taken by the helper, which is the parent's.
                std::mem::forget(helper);
            }
            Err(raised)
        }
    }
}

/// What the helper answers: the value, and the objects; nothing if it has panicked; an exception if a signal's handler
/// raises one, or has made this process from `home` by a fork.
fn listen<T: Send + 'static, A: Send>(
    py: Python<'_>,
    mut answered: Receiver<(T, A)>,
    helper: &Sender<Job>,
    stop: &GivenUp,
    home: ProcessMark,
) -> PyResult<Option<(T, A)>> {
    loop {
        let result;
        (result, answered) = detached(py, move || (answered.recv_timeout(LOOK), answered));
        match result {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let handled = py.check_signals();
        if !home.is_here() {
            // As the helper's channel.
            std::mem::forget(answered);
            let message =
                "a signal's handler forked this process while the call waited: the call is the parent's";
            return Err(handled.err().unwrap_or_else(|| exception(py, "Forked", message, None, None)));
        }
        if let Err(raised) = handled {
            stop.0.given_up.store(true, Ordering::Relaxed);
            match detached(py, move || answered.recv_timeout(GRACE)) {
                // The caller gets neither: the helper drops the value, and this thread, with the lock, the objects.
                Ok((value, _objects)) => _ = helper.send(Box::new(move || drop(value))),
                Err(_) => stop.leave(),
            }
            return Err(raised);
        }
    }
}

/// An idle helper, or a new one; none where the process gets no thread. One that an interrupted call has left ends when
/// its work does.
fn helper() -> Option<Sender<Job>> {
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).take();
    match idle {
        Some((helper, home)) if home.is_here() => Some(helper),
        of_parent => {
            // A child of fork has not got its parent's threads. The channel's lock may be taken: by the helper, which
            // was about to sleep.
            std::mem::forget(of_parent);
            let (helper, jobs) = channel::<Job>();
            let thread = std::thread::Builder::new().name("mangrove-wait".into());
            let work = move || jobs.into_iter().for_each(|job| job());
            // Signals are for the program's own threads.
            without_signals(|| thread.spawn(work)).ok().map(|_| helper)
        }
    }
}

/// Whether Python runs signal handlers on this thread.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    // The thread that forks is the main thread of the child, whatever it was in the parent.
    thread_local! { static IS_MAIN: Cell<Option<(bool, ProcessMark)>> = const { Cell::new(None) }; }
    if let Some((known, home)) = IS_MAIN.get()
        && home.is_here()
    {
        return Ok(known);
    }
    let is_main = calling(py, || {
        let threading = py.import("threading")?;
        let (main, ident) = (threading.call_method0("main_thread")?, threading.call_method0("get_ident")?);
        main.getattr("ident")?.eq(ident)
    })?;
    IS_MAIN.set(Some((is_main, ProcessMark::here())));
    Ok(is_main)
}

/// Drops what may close a map, without the interpreter's lock, which the caller has.
pub(crate) fn let_go<T: Send>(value: T) {
    let mut value = Some(value);
    // An interpreter that shuts down attaches no one.
    Python::try_attach(|py| {
        let value = value.take();
        detached(py, move || drop(value));
    });
    drop(value);
}
