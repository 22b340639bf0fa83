//! Work on a thread of its own.
//!
//! Opening a pool starts threads, and Rust then notes 48 bytes about the thread that starts them,
//! which it frees when that thread ends. For a main thread of C's that is never, and every run under
//! memcheck would report them. So what opens pools runs aside, while the caller waits. The
//! program's signals do not go there.

use mangrove_sys::without_signals;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Runs `work` on a new thread and returns its answer; here, when there is no thread to be had.
pub(crate) fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Clone + Send + 'static) -> T {
    match without_signals(|| Builder::new().spawn(work.clone())) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => work(),
    }
}

/// As [`aside`], for work that asks questions on its way; `answer` runs on the caller's thread.
pub(crate) fn aside_asking<Q: Send + 'static, T: Send + 'static>(
    work: impl FnOnce(&mut dyn FnMut(Q) -> ControlFlow<()>) -> T + Clone + Send + 'static,
    mut answer: impl FnMut(Q) -> ControlFlow<()>,
) -> T {
    let relay = Arc::new(Relay { turn: Mutex::new(Turn::Working), changed: Condvar::new() });
    let (worker, its_work) = (End(Arc::clone(&relay)), work.clone());
    let aside = move || its_work(&mut |question| worker.0.ask(question));
    let Ok(thread) = without_signals(|| Builder::new().spawn(aside)) else {
        return work(&mut answer);
    };
    while let Some(question) = relay.next() {
        relay.put(Turn::Answered(answer(question)));
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Whose turn it is.
enum Turn<Q> {
    Working,
    Asked(Q),
    Answered(ControlFlow<()>),
    Ended,
}

/// One question at a time from the worker to the caller, and the answer back.
struct Relay<Q> {
    turn: Mutex<Turn<Q>>,
    changed: Condvar,
}

/// The worker's hold on the relay: however the work ends, the caller hears of it.
struct End<Q>(Arc<Relay<Q>>);

impl<Q> Drop for End<Q> {
    fn drop(&mut self) {
        self.0.put(Turn::Ended);
    }
}

impl<Q> Relay<Q> {
    fn lock(&self) -> MutexGuard<'_, Turn<Q>> {
        // A turn is always whole, whoever panicked while he held the lock.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, turn: Turn<Q>) {
        *self.lock() = turn;
        self.changed.notify_one();
    }

    fn wait<R>(&self, mut take: impl FnMut(&mut Turn<Q>) -> Option<R>) -> R {
        let mut turn = self.lock();
        loop {
            if let Some(taken) = take(&mut turn) {
                return taken;
            }
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The worker's side.
    fn ask(&self, question: Q) -> ControlFlow<()> {
        self.put(Turn::Asked(question));
        self.wait(|turn| match *turn {
            Turn::Answered(answer) => {
                *turn = Turn::Working;
                Some(answer)
            }
            _ => None,
        })
    }

    /// The caller's side: the next question, or `None` when the work has ended.
    fn next(&self) -> Option<Q> {
        self.wait(|turn| match std::mem::replace(turn, Turn::Working) {
            Turn::Asked(question) => Some(Some(question)),
            Turn::Ended => Some(None),
            other => {
                *turn = other;
                None
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_on_the_callers_thread() {
        let caller = std::thread::current().id();
        let mut asked = vec![];
        let work = |ask: &mut dyn FnMut(u32) -> ControlFlow<()>| {
            let stopped = (0..10).find(|&i| ask(i).is_break());
            (std::thread::current().id(), stopped)
        };
        let (worker, stopped) = aside_asking(work, |question| {
            assert_eq!(std::thread::current().id(), caller);
            asked.push(question);
            if question == 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(stopped, Some(6));
        assert_eq!(asked, [0, 1, 2, 3, 4, 5, 6]);
        assert_ne!(worker, caller);
    }

    #[test]
    fn a_panic_of_the_work_reaches_the_caller() {
        let bad = |_: &mut dyn FnMut(u32) -> ControlFlow<()>| panic!("half way");
        let asking = std::panic::catch_unwind(|| aside_asking::<u32, ()>(bad, |_| ControlFlow::Continue(())));
        assert_eq!(asking.unwrap_err().downcast_ref::<&str>(), Some(&"half way"));
        assert!(std::panic::catch_unwind(|| aside(|| panic!("at once"))).is_err());
    }
}
