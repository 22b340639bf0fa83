//! The thread that recovers a map, and the gets that do not wait for it.

use crate::opening::engine::Engine;
use crate::{Error, MapOptions, Result};
use mangrove_hart::ClosedMap;
use mangrove_pool::Opening;
use mangrove_sys::{LeftInChild, set_cancelable, without_signals};
use parking_lot::{Mutex, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// What a map becomes: the engine, or why there is none.
pub(crate) type Outcome = Arc<OnceLock<Result<Engine>>>;

/// The map as it was closed, until it is recovered.
type Closed = Arc<RwLock<Option<ClosedMap>>>;

/// A recovery in the background. Dropped, it ends.
pub(crate) struct BackgroundRecovery {
    outcome: Outcome,
    closed: Closed,
    ended: Arc<AtomicBool>,
    thread: LeftInChild<Option<JoinHandle<()>>>,
}

impl BackgroundRecovery {
    /// Recovers the map in the pool that `opening` has begun to open, which is `closed`, in a thread. Where the process
    /// gets no thread it has been recovered when this returns.
    pub(crate) fn start(
        closed: ClosedMap,
        mut opening: Opening,
        path: PathBuf,
        options: MapOptions,
        started: Instant,
    ) -> (Self, Outcome) {
        let (outcome, ended) = (Outcome::default(), Arc::new(AtomicBool::new(false)));
        let closed: Closed = Arc::new(RwLock::new(Some(closed)));
        opening.until(Arc::clone(&ended));
        let opening = Arc::new(Mutex::new(Some(opening)));
        let recover = {
            let (outcome, closed, ended) = (Arc::clone(&outcome), Arc::clone(&closed), Arc::clone(&ended));
            let opening = Arc::clone(&opening);
            move || {
                let Some(opening) = opening.lock().take() else { return };
                let open = || Engine::open(opening, &path, &options, started, Some(ended));
                // A bug that ends the thread must not leave other threads waiting for it.
                let engine = catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| {
                    Err(Error::Poisoned { first: "the thread that recovers the map panicked".to_owned() })
                });
                outcome.get_or_init(|| engine);
                *closed.write() = None;
            }
        };
        let again = recover.clone();
        let builder = Builder::new().name("mangrove-recover".to_owned());
        let thread = without_signals(|| builder.spawn(recover)).ok();
        if thread.is_none() {
            again();
        }
        let recovery =
            Self { outcome: Arc::clone(&outcome), closed, ended, thread: LeftInChild::new(thread) };
        (recovery, outcome)
    }

    /// The value of `key`, if the files tell it.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        // In a child of fork a thread that is not there may hold the lock.
        if !self.thread.is_here() {
            return None;
        }
        let closed = self.closed.read();
        let map = closed.as_ref()?;
        // It reads files, at which pthread_cancel would end the thread: where C calls, by unwinding through this.
        let was_cancelable = set_cancelable(false);
        let value = map.get(key);
        set_cancelable(was_cancelable);
        value
    }

    /// Waits for the outcome. `None` in a child of fork, which does not have the thread.
    pub(crate) fn wait(&self) -> Option<&Result<Engine>> {
        if self.thread.is_here() { Some(self.outcome.wait()) } else { self.outcome.get() }
    }

    /// Ends the recovery. True if there was no outcome yet.
    pub(crate) fn end(&mut self) -> bool {
        let is_early = self.outcome.get().is_none();
        // Relaxed: the thread reads nothing that this one wrote before.
        self.ended.store(true, Ordering::Relaxed);
        if self.thread.is_here()
            && let Some(thread) = self.thread.take()
        {
            // It catches its panics.
            let _ = thread.join();
        }
        is_early
    }
}

impl Drop for BackgroundRecovery {
    fn drop(&mut self) {
        self.end();
    }
}
