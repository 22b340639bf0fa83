//! What the threads of a server share: its parts, its counters, and the stop that ends it.

use crate::client::stream::Stream;
use crate::io_error::io_error;
use crate::options::ServerOptions;
use crate::service::Service;
use crate::threads::syncer::{DurabilityListener, Syncer};
use mangrove_durable::{Error, Result, Runtime};
use mio::Waker;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    pub(crate) clients: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) cut_off: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct StopFlag {
    pub(crate) stopped: AtomicBool,
    pub(crate) waker: Waker,
}

impl StopFlag {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Stops a server from anywhere, signal handlers included.
#[derive(Clone, Debug)]
pub struct Stopper(pub(crate) Arc<StopFlag>);

impl Stopper {
    /// Accepts no new clients, has everything processed and answered that was received in full, then lets `serve`
    /// return. Async-signal-safe: a store and a write(2).
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        // It fails only when its descriptor is gone, and with it the server.
        let _ = self.0.waker.wake();
    }
}

/// What other threads need of an event loop.
pub(crate) struct Loop {
    pub(crate) waker: Waker,
    /// True while clients of it wait for durability.
    pub(crate) listening: DurabilityListener,
    pub(crate) arriving: Mutex<Vec<Stream>>,
}

impl Loop {
    pub(crate) fn wake(&self) -> Result<()> {
        self.waker.wake().map_err(|e| io_error("wake an event loop", &e))
    }
}

/// What all threads of a server share.
pub(crate) struct ServerShared {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) service: Box<dyn Service>,
    pub(crate) options: ServerOptions,
    pub(crate) loops: Vec<Loop>,
    pub(crate) syncer: Syncer,
    pub(crate) stop: Arc<StopFlag>,
    pub(crate) stopping: AtomicBool,
    pub(crate) clients: AtomicUsize,
    pub(crate) next_id: AtomicU64,
    pub(crate) counters: ServerCounters,
    pub(crate) first_error: Mutex<Option<Error>>,
}

impl ServerShared {
    /// Keeps the first error of a thread of the server, and stops the server.
    pub(crate) fn report(&self, error: Error) {
        self.first_error.lock().get_or_insert(error);
        Stopper(Arc::clone(&self.stop)).stop();
    }

    pub(crate) fn wake_listening(&self) {
        for one in &self.loops {
            if one.listening.take()
                && let Err(error) = one.wake()
            {
                self.report(error);
            }
        }
    }
}
