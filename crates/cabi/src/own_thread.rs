//! Runs work on a thread of its own.
//!
//! Opening a pool starts threads, and Rust then allocates 48 bytes for the thread that starts them, which it frees
//! when that thread ends. A main thread of C never ends, and every run under memcheck would report them. So a new
//! thread opens pools while the caller waits. It does not run handlers of the program's signals.

use mangrove_sys::without_signals;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Runs `work` on a new thread and returns its result. If no thread can be started, runs it here.
///
/// # Panics
/// When `work` does.
pub fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Clone + Send + 'static) -> T {
    // Not a scoped thread: a scope allocates for the calling thread too.
    match without_signals(|| Builder::new().spawn(work.clone())) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => work(),
    }
}

/// As [`on_own_thread`], for work that asks questions on its way; `answer` runs on the caller's thread.
///
/// # Panics
/// When `work` or `answer` does.
pub fn on_own_thread_asking<Q: Send + 'static, T: Send + 'static>(
    work: impl FnOnce(&mut dyn FnMut(Q) -> ControlFlow<()>) -> T + Clone + Send + 'static,
    mut answer: impl FnMut(Q) -> ControlFlow<()>,
) -> T {
    let relay = Arc::new(Relay { turn: Mutex::new(Turn::Working), changed: Condvar::new() });
    let (worker, its_work) = (End(Arc::clone(&relay)), work.clone());
    let asking = move || its_work(&mut |question| worker.0.ask(question));
    let Ok(thread) = without_signals(|| Builder::new().spawn(asking)) else {
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

/// The worker's hold on the relay: however the work ends, the caller is woken.
struct End<Q>(Arc<Relay<Q>>);

impl<Q> Drop for End<Q> {
    fn drop(&mut self) {
        self.0.put(Turn::Ended);
    }
}

impl<Q> Relay<Q> {
    fn lock(&self) -> MutexGuard<'_, Turn<Q>> {
        // A turn is always whole, also after a panic under the lock.
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
        let (worker, stopped) = on_own_thread_asking(work, |question| {
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
        let asking =
            std::panic::catch_unwind(|| on_own_thread_asking::<u32, ()>(bad, |_| ControlFlow::Continue(())));
        assert_eq!(asking.unwrap_err().downcast_ref::<&str>(), Some(&"half way"));
        assert!(std::panic::catch_unwind(|| on_own_thread(|| panic!("at once"))).is_err());
    }
}
