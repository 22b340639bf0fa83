//! The server: listeners, event loops, the syncer, and their orderly end.

use super::accept;
use super::address::Listener;
use super::options::ServerOptions;
use super::service::Service;
use super::stream::Stream;
use super::syncer::{Listener as DurabilityListener, Syncer};
use super::worker::{BELL, Worker};
use crate::{Error, Result, Runtime};
use mangrove_shadow::Ticket;
use mangrove_sys::without_signals;
use mio::{Poll, Waker};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Sockets with an application and its runtime behind them.
///
/// Not dropping, but [`Server::serve`] ends it: it returns after a [`Stopper`] was used.
pub struct Server {
    runtime: Arc<Runtime>,
    service: Box<dyn Service>,
    options: ServerOptions,
    poll: Poll,
    listeners: Vec<Listener>,
    stop: Arc<Stop>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStat {
    /// Clients that were taken in.
    pub clients: u64,
    /// Clients that were refused.
    pub refused: u64,
    /// Clients that were cut off because they were silent, or took no answer, for too long.
    pub cut_off: u64,
    /// Reads that ran.
    pub reads: u64,
    /// Writes that were asked for.
    pub writes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) clients: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cut_off: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Stop {
    stopped: AtomicBool,
    waker: Waker,
}

impl Stop {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Stops a server from anywhere, signal handlers included.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

impl Stopper {
    /// No new clients; what was received in full is processed and answered; then `serve` returns.
    /// Async-signal-safe: a store and a write(2).
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        // It can fail only when its descriptor is gone, and with it the server.
        let _ = self.0.waker.wake();
    }
}

/// What others need of an event loop.
pub(super) struct Loop {
    waker: Waker,
    /// True while clients of it wait for durability.
    pub(super) listening: DurabilityListener,
    pub(super) arriving: Mutex<Vec<Stream>>,
}

impl Loop {
    pub(super) fn ring(&self) -> Result<()> {
        self.waker.wake().map_err(|e| Error::io("wake an event loop", &e))
    }
}

/// What all threads of a server share.
pub(super) struct Shared {
    pub(super) runtime: Arc<Runtime>,
    pub(super) service: Box<dyn Service>,
    pub(super) options: ServerOptions,
    pub(super) loops: Vec<Loop>,
    pub(super) syncer: Syncer,
    pub(super) stop: Arc<Stop>,
    pub(super) stopping: AtomicBool,
    pub(super) clients: AtomicUsize,
    pub(super) next_id: AtomicU64,
    pub(super) counters: Counters,
    first_error: Mutex<Option<Error>>,
}

impl Shared {
    /// Remembers what went wrong on a thread of the server, and stops it.
    pub(super) fn report(&self, error: Error) {
        self.first_error.lock().get_or_insert(error);
        Stopper(Arc::clone(&self.stop)).stop();
    }

    fn ring_listening(&self) {
        for one in &self.loops {
            if one.listening.take()
                && let Err(error) = one.ring()
            {
                self.report(error);
            }
        }
    }
}

/// Ends the server when the event loop that has it panics: clients would go on coming to it.
struct Told<'a>(&'a Shared);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.report(Error::Server { what: "an event loop panicked".into() });
        }
    }
}

impl Server {
    /// A server that listens nowhere yet.
    ///
    /// # Errors
    /// `Io` when the system has no descriptors left.
    pub fn new(runtime: Arc<Runtime>, service: Box<dyn Service>, options: ServerOptions) -> Result<Self> {
        let no_poll = |e| Error::io("make an event queue", &e);
        let poll = Poll::new().map_err(no_poll)?;
        let waker = Waker::new(poll.registry(), accept::STOP).map_err(no_poll)?;
        let stop = Arc::new(Stop { stopped: AtomicBool::new(false), waker });
        Ok(Self { runtime, service, options, poll, listeners: Vec::new(), stop })
    }

    /// Listens at `HOST:PORT` (port 0: the system chooses) or `unix:PATH` (a socket file that a crash left
    /// behind is replaced). Any number of addresses. Returns the address as clients need it.
    ///
    /// # Errors
    /// `Io` when the system refuses, `Invalid` when the address names nothing.
    pub fn listen(&mut self, address: &str) -> Result<String> {
        if crate::route::is_inside() {
            return Err(Error::Nested);
        }
        let listener = Listener::bind(address)?;
        let bound = listener.address();
        self.listeners.push(listener);
        Ok(bound)
    }

    /// Something that ends `serve`.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Serves until stopped. The calling thread accepts; event loops and the syncer have threads of their own.
    /// On return every client is gone, every answer that was given is durable, and the runtime is synced.
    ///
    /// # Errors
    /// `Io` when the system refuses threads or event queues; `Server` when the service panicked; the medium's error at the
    /// last sync.
    pub fn serve(self) -> Result<ServerStat> {
        if self.listeners.is_empty() {
            return Err(Error::Server {
                what: "the server listens nowhere; give it an address first".into(),
            });
        }
        self.prepare()?.run()
    }

    /// All that can be made before there are threads.
    pub(super) fn prepare(self) -> Result<Ready> {
        let (mut polls, mut loops) = (Vec::new(), Vec::new());
        for _ in 0..self.options.workers {
            let no_poll = |e| Error::io("make an event queue", &e);
            let poll = Poll::new().map_err(no_poll)?;
            let waker = Waker::new(poll.registry(), BELL).map_err(no_poll)?;
            polls.push(poll);
            loops.push(Loop { waker, listening: DurabilityListener::new(), arriving: Mutex::default() });
        }
        let shared = Arc::new(Shared {
            runtime: self.runtime,
            service: self.service,
            options: self.options,
            loops,
            syncer: Syncer::new(),
            stop: self.stop,
            stopping: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            counters: Counters::default(),
            first_error: Mutex::new(None),
        });
        Ok(Ready { shared, polls, poll: self.poll, listeners: self.listeners })
    }
}

/// A server about to serve.
pub(super) struct Ready {
    pub(super) shared: Arc<Shared>,
    pub(super) polls: Vec<Poll>,
    poll: Poll,
    listeners: Vec<Listener>,
}

impl Ready {
    /// See [`Server::serve`].
    pub(super) fn run(mut self) -> Result<ServerStat> {
        let shared = &self.shared;
        let accepted = std::thread::scope(|scope| {
            let spawn = |name: String| std::thread::Builder::new().name(name);
            let sync = || {
                // An error latches in the runtime, where the loops find it.
                let wait = |ticket| drop(shared.runtime.wait(Ticket(ticket)));
                shared.syncer.run(wait, || shared.ring_listening());
            };
            let syncer = without_signals(|| spawn("mangrove-sync".into()).spawn_scoped(scope, sync));
            let mut workers = Vec::new();
            let mut outcome = syncer.as_ref().map(|_| ()).map_err(|e| Error::io("start a thread", e));
            for (number, poll) in self.polls.into_iter().enumerate() {
                let started = shared.runtime.client().and_then(|client| {
                    let worker = Worker::new(Arc::clone(shared), number, poll, client);
                    spawn(format!("mangrove-loop-{number}"))
                        .spawn_scoped(scope, move || {
                            let _told = Told(shared);
                            worker.run();
                        })
                        .map_err(|e| Error::io("start a thread", &e))
                });
                match started {
                    Ok(worker) => workers.push(worker),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
            }
            if outcome.is_ok() {
                outcome = accept::run(shared, &mut self.poll, &mut self.listeners);
            }
            self.listeners.clear();
            // Release, with the Acquire in the loops.
            shared.stopping.store(true, Ordering::Release);
            for one in &shared.loops {
                outcome = outcome.and(one.ring());
            }
            for worker in workers {
                // A panic was reported.
                let _ = worker.join();
            }
            shared.syncer.end();
            outcome
        });
        if let Some(error) = shared.first_error.lock().take() {
            return Err(error);
        }
        accepted?;
        shared.runtime.sync()?;
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let counters = &shared.counters;
        Ok(ServerStat {
            clients: count(&counters.clients),
            refused: count(&counters.refused),
            cut_off: count(&counters.cut_off),
            reads: count(&counters.reads),
            writes: count(&counters.writes),
        })
    }
}
