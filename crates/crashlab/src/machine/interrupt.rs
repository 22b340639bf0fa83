//! One operation inside another: when the outer one reaches its n-th step on the medium, the inner one
//! runs to its end on another thread. Two threads, one switch, and the same one at every replay.
//!
//! When the inner operation needs a lock that the outer one holds, it cannot end: after a while the outer
//! one goes on, and the inner one when it can.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// How long the outer operation waits for the inner one.
const PATIENCE: Duration = Duration::from_millis(30);

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The steps left, and the job to start then.
    static ARMED: RefCell<Option<(u32, Job, Receiver<()>)>> = const { RefCell::new(None) };
    /// This thread's helper: always the same one, since engines give threads numbers.
    static HELPER: RefCell<Option<Sender<Job>>> = const { RefCell::new(None) };
}

fn helper(job: Job) {
    HELPER.with_borrow_mut(|helper| {
        let sender = helper.get_or_insert_with(|| {
            let (sender, jobs) = channel::<Job>();
            std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
            sender
        });
        sender.send(job).expect("the helper lives as long as this thread");
    });
}

/// Runs `outer` here and `inner` on the helper, at the `at`-th step of `outer`, or after it.
pub(crate) fn during<A, B: Send + 'static>(
    at: u32,
    outer: impl FnOnce() -> A,
    inner: impl FnOnce() -> B + Send + 'static,
) -> (A, B) {
    let (answer, answers) = channel();
    let (ended, ends) = channel();
    let job: Job = Box::new(move || {
        let _ = answer.send(inner());
        let _ = ended.send(());
    });
    // A panic of the outer operation must not leave the trap for the next run.
    struct Disarm;
    impl Drop for Disarm {
        fn drop(&mut self) {
            ARMED.take();
        }
    }
    let disarm = Disarm;
    ARMED.set(Some((at, job, ends)));
    let a = outer();
    if let Some((_, job, _)) = ARMED.take() {
        helper(job);
    }
    drop(disarm);
    let b = answers.recv().expect("the inner operation answers, if only with its panic");
    (a, b)
}

/// The calling thread made a step on the medium; true when the inner operation ran to its end in it.
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
    helper(job);
    ends.recv_timeout(PATIENCE).is_ok()
}
