//! The thread that makes batches durable for a program that does not wait, and tells it by a descriptor.
//!
//! Invariants:
//! 1. A ticket that was wanted becomes durable without another call, or the medium fails.
//! 2. The descriptor becomes readable after a wanted ticket has become durable that was not when it was wanted, and
//!    after the medium has failed, whether a ticket was wanted or not; never else.
//! 3. The thread has ended before the executor moves or ends.

use crate::alloc::split_allocation;
use crate::runtime::batch::BatchExecutor;
use crate::{Error, Result};
use mangrove_shadow::Ticket;
use mangrove_sys::{EventCount, ProcessMark, open_above_standard};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// With durability by interval: how often the thread looks what has become durable.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// While nothing is wanted: how often the thread looks whether the medium has failed. An error in the background does
/// not wake it.
const LOOK_AT_MEDIUM_EVERY: Duration = Duration::from_secs(1);

/// What the thread shares with its users.
struct Wanted {
    descriptor: OwnedFd,
    /// The newest ticket that was wanted.
    ticket: AtomicU64,
    /// The thread sleeps, or is about to.
    sleeps: AtomicBool,
    stops: AtomicBool,
    event: EventCount,
}

/// The running thread. Dropping it ends it.
pub(crate) struct Notifier {
    wanted: Arc<Wanted>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: ProcessMark,
    /// See [`split_allocation::forks`].
    forks: usize,
}

/// The executor, for the thread.
struct Executing(*const BatchExecutor);

// SAFETY: an executor is Sync, and the thread ends before the executor does (invariant 3).
unsafe impl Send for Executing {}

impl Notifier {
    /// Starts the thread. `gated`: results wait for durability, so the thread causes it.
    ///
    /// # Errors
    /// `Io`, when the system has no descriptor or no thread.
    ///
    /// # Safety
    /// The executor stays where it is until the notifier is dropped.
    pub(crate) unsafe fn start(executor: *const BatchExecutor, gated: bool) -> Result<Self> {
        let wanted = Arc::new(Wanted {
            descriptor: event_descriptor().map_err(|e| refused("make an eventfd", &e))?,
            ticket: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            event: EventCount::new(),
        });
        let (shared, executing) = (Arc::clone(&wanted), Executing(executor));
        let thread = std::thread::Builder::new().name("mangrove-durable".into());
        let run = move || {
            let executing = executing;
            // SAFETY: the caller's promise.
            shared.run(unsafe { &*executing.0 }, gated);
        };
        let thread = mangrove_sys::without_signals(|| thread.spawn(run))
            .map_err(|e| refused("start the thread mangrove-durable", &e))?;
        let (process, forks) = (ProcessMark::here(), split_allocation::forks());
        Ok(Self { wanted, thread: Some(thread), process, forks })
    }

    /// The descriptor; it stays the notifier's.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.wanted.descriptor.as_raw_fd()
    }

    /// Has the thread make `ticket` durable, and tell.
    #[inline]
    pub(crate) fn want(&self, ticket: Ticket) {
        // SeqCst, and the swap below: the thread sees the ticket, or this sees that it sleeps (`sleep`). The greatest:
        // the thread that committed next may have been here before this one.
        self.wanted.ticket.fetch_max(ticket.0, Ordering::SeqCst);
        if self.wanted.sleeps.load(Ordering::SeqCst) && self.wanted.sleeps.swap(false, Ordering::SeqCst) {
            self.wanted.event.notify_all();
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // Release, with the Acquire in `run`.
        self.wanted.stops.store(true, Ordering::Release);
        self.wanted.event.notify_all();
        // A forked child does not have the thread, and would wait for ever.
        if let Some(thread) = self.thread.take()
            && self.process.is_here()
            && self.forks == split_allocation::forks()
        {
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

impl Wanted {
    fn run(&self, executor: &BatchExecutor, gated: bool) {
        let (mut told, mut told_failure) = (0, false);
        loop {
            let event = self.event.ticket();
            // Acquire, with the Release in `drop`.
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            // SeqCst: see `want`.
            let wanted = self.ticket.load(Ordering::SeqCst);
            if wanted <= told {
                if !told_failure && medium_failed(executor) {
                    told_failure = true;
                    self.tell();
                }
                self.sleep(event, told, (!told_failure).then_some(LOOK_AT_MEDIUM_EVERY));
                continue;
            }
            if gated {
                if let Err(error) = executor.backing().wait(Ticket(wanted)) {
                    executor.fail_medium(error);
                    self.tell();
                    return;
                }
            } else if executor.durable().0 <= told {
                // After a refused commit the ones before it still become durable.
                if medium_failed(executor) {
                    self.tell();
                    return;
                }
                self.event.wait_for(event, LOOK_EVERY);
                continue;
            }
            told = executor.durable().0;
            self.tell();
        }
    }

    /// Sleeps until a ticket beyond `told` is wanted, the thread shall end, or `limit` has passed.
    fn sleep(&self, event: u32, told: u64, limit: Option<Duration>) {
        // SeqCst: see `want`.
        self.sleeps.store(true, Ordering::SeqCst);
        if self.ticket.load(Ordering::SeqCst) <= told {
            match limit {
                Some(limit) => _ = self.event.wait_for(event, limit),
                None => self.event.wait(event),
            }
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// Makes the descriptor readable.
    fn tell(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of this function. It fails only when 2^64 - 2 events were never read.
        let _ = unsafe { libc::write(self.descriptor.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// Whether the medium has failed, though no call may have met that; from now on each does.
fn medium_failed(executor: &BatchExecutor) -> bool {
    let has_failed = executor.medium_failed() || executor.backing().poisoned().is_some();
    has_failed && executor.refusal().is_some()
}

fn event_descriptor() -> io::Result<OwnedFd> {
    open_above_standard(|| {
        // SAFETY: makes a descriptor.
        let made = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and known only here.
        Ok(unsafe { OwnedFd::from_raw_fd(made) })
    })
}

fn refused(doing: &str, error: &io::Error) -> Error {
    Error::Io { doing: doing.into(), code: error.raw_os_error(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_ticket_takes_no_newer_one_back() {
        let wanted = Arc::new(Wanted {
            descriptor: event_descriptor().unwrap(),
            ticket: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            event: EventCount::new(),
        });
        let (process, forks) = (ProcessMark::here(), split_allocation::forks());
        let notifier = Notifier { wanted: Arc::clone(&wanted), thread: None, process, forks };
        notifier.want(Ticket(2));
        notifier.want(Ticket(1));
        assert_eq!(wanted.ticket.load(Ordering::SeqCst), 2);
    }
}
