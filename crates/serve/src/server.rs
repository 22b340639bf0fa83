//! The server: listeners, event loops, the syncer, and their orderly end.

use crate::address::ListeningSocket;
use crate::io_error::io_error;
use crate::options::ServerOptions;
use crate::service::Service;
use crate::shared::{Loop, ServerCounters, ServerShared, StopFlag, Stopper};
use crate::threads::accept;
use crate::threads::syncer::{DurabilityListener, Syncer};
use crate::threads::worker::{WAKER, Worker};
use mangrove_durable::Ticket;
use mangrove_durable::{Error, Result, Runtime};
use mangrove_sys::{make_above_standard, without_signals};
use mio::{Poll, Waker};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Listening sockets in front of an application and its runtime.
///
/// [`Server::serve`] runs until a [`Stopper`] ends it.
pub struct Server {
    runtime: Arc<Runtime>,
    service: Box<dyn Service>,
    options: ServerOptions,
    poll: Poll,
    listeners: Vec<ListeningSocket>,
    stop: Arc<StopFlag>,
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
    /// Clients that were accepted.
    pub clients: u64,
    /// Clients that were refused.
    pub refused: u64,
    /// Clients that were cut off because they were silent, or took no answer, for too long.
    pub cut_off: u64,
    /// Reads that ran.
    pub reads: u64,
    /// Writes that were requested.
    pub writes: u64,
}

/// Ends the server when one of its event loops panics, since new clients would still be handed to it.
struct PanicReport<'a>(&'a ServerShared);

impl Drop for PanicReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.report(Error::Server { what: "an event loop panicked".into() });
        }
    }
}

impl Server {
    /// A server without a listening socket yet.
    ///
    /// # Errors
    /// `Io` when the system has no descriptors left.
    pub fn new(runtime: Arc<Runtime>, service: Box<dyn Service>, options: ServerOptions) -> Result<Self> {
        let no_poll = |e| io_error("make an event queue", &e);
        let poll = make_above_standard(Poll::new).map_err(no_poll)?;
        let waker = make_above_standard(|| Waker::new(poll.registry(), accept::STOP)).map_err(no_poll)?;
        let stop = Arc::new(StopFlag { stopped: AtomicBool::new(false), waker });
        Ok(Self { runtime, service, options, poll, listeners: Vec::new(), stop })
    }

    /// Listens at `HOST:PORT` (port 0: the system chooses) or `unix:PATH` (a socket file that a crash left
    /// is replaced). Any number of addresses. Returns the address in the form for clients.
    ///
    /// # Errors
    /// `Io` when the system refuses, `Invalid` when the address leads nowhere.
    pub fn listen(&mut self, address: &str) -> Result<String> {
        if mangrove_durable::route::is_inside() {
            return Err(Error::Nested);
        }
        let listener = ListeningSocket::bind(address)?;
        let bound = listener.address();
        self.listeners.push(listener);
        Ok(bound)
    }

    /// A handle that ends `serve`.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Serves until stopped. The calling thread accepts; event loops and the syncer have threads of their own. On
    /// return every client is gone, every answer that was sent is durable, and the runtime is synced.
    ///
    /// # Errors
    /// `Io` when the system refuses threads or event queues; `Server` when the service panicked; the medium's error
    /// at the last sync.
    pub fn serve(self) -> Result<ServerStat> {
        if self.listeners.is_empty() {
            return Err(Error::Server {
                what: "the server listens nowhere; give it an address first".into(),
            });
        }
        self.prepare()?.run()
    }

    /// Makes everything that can be made before there are threads.
    pub(crate) fn prepare(self) -> Result<Ready> {
        let (mut polls, mut loops) = (Vec::new(), Vec::new());
        for _ in 0..self.options.workers {
            let no_poll = |e| io_error("make an event queue", &e);
            let poll = make_above_standard(Poll::new).map_err(no_poll)?;
            let waker = make_above_standard(|| Waker::new(poll.registry(), WAKER)).map_err(no_poll)?;
            polls.push(poll);
            loops.push(Loop { waker, listening: DurabilityListener::new(), arriving: Mutex::default() });
        }
        let shared = Arc::new(ServerShared {
            runtime: self.runtime,
            service: self.service,
            options: self.options,
            loops,
            syncer: Syncer::new(),
            stop: self.stop,
            stopping: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            counters: ServerCounters::default(),
            first_error: Mutex::new(None),
        });
        Ok(Ready { shared, polls, poll: self.poll, listeners: self.listeners })
    }
}

/// A server about to serve.
pub(crate) struct Ready {
    pub(crate) shared: Arc<ServerShared>,
    pub(crate) polls: Vec<Poll>,
    poll: Poll,
    listeners: Vec<ListeningSocket>,
}

impl Ready {
    /// See [`Server::serve`].
    pub(crate) fn run(mut self) -> Result<ServerStat> {
        let shared = &self.shared;
        let accepted = std::thread::scope(|scope| {
            let spawn = |name: String| std::thread::Builder::new().name(name);
            let sync = || {
                // The runtime keeps the error, and the loops find it there.
                let wait = |ticket| drop(shared.runtime.wait(Ticket(ticket)));
                shared.syncer.run(wait, || shared.wake_listening());
            };
            let syncer = without_signals(|| spawn("mangrove-sync".into()).spawn_scoped(scope, sync));
            let mut workers = Vec::new();
            let mut outcome = syncer.as_ref().map(|_| ()).map_err(|e| io_error("start a thread", e));
            for (number, poll) in self.polls.into_iter().enumerate() {
                let started = shared.runtime.client().and_then(|client| {
                    let worker = Worker::new(Arc::clone(shared), number, poll, client);
                    spawn(format!("mangrove-loop-{number}"))
                        .spawn_scoped(scope, move || {
                            let _report = PanicReport(shared);
                            worker.run();
                        })
                        .map_err(|e| io_error("start a thread", &e))
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
                outcome = outcome.and(one.wake());
            }
            for worker in workers {
                // If it panicked, that was reported.
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
