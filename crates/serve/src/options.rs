//! How a server behaves: limits and times.

use std::time::Duration;

/// Most event loops.
pub(crate) const WORKERS_MAX: usize = 1024;

/// Limits and times of a server. Each limit closes or delays only the client that reaches it.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub(crate) workers: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) backlog_bytes_max: usize,
    pub(crate) clients_max: usize,
    pub(crate) stalled_max: Duration,
    pub(crate) idle_max: Option<Duration>,
    pub(crate) shutdown_max: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            request_bytes_max: 512 << 20,
            backlog_bytes_max: 1 << 20,
            clients_max: 10_000,
            stalled_max: Duration::from_secs(60),
            idle_max: None,
            shutdown_max: Duration::from_secs(10),
        }
    }
}

impl ServerOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Event loops, 1 to 1024. Default: one a CPU.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count.clamp(1, WORKERS_MAX);
        self
    }

    /// Longest request in bytes; a client that sends a longer one is cut off. Default: 512 MiB.
    #[must_use]
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes.max(1);
        self
    }

    /// Unsent answers in bytes at which a client's further requests wait (back-pressure). Default: 1 MiB.
    #[must_use]
    pub fn backlog_bytes_max(mut self, bytes: usize) -> Self {
        self.backlog_bytes_max = bytes.max(1);
        self
    }

    /// Clients at a time; more are closed as they come. Default: 10,000.
    #[must_use]
    pub fn clients_max(mut self, count: usize) -> Self {
        self.clients_max = count;
        self
    }

    /// How long a client may take none of the answer that waits for it. Default: a minute.
    #[must_use]
    pub fn stalled_max(mut self, time: Duration) -> Self {
        self.stalled_max = time;
        self
    }

    /// How long a client may be silent. Default: for ever (vanished ones are found by TCP keep-alive).
    #[must_use]
    pub fn idle_max(mut self, time: Option<Duration>) -> Self {
        self.idle_max = time;
        self
    }

    /// How long a shutdown waits for clients to take their answers. Default: ten seconds.
    #[must_use]
    pub fn shutdown_max(mut self, time: Duration) -> Self {
        self.shutdown_max = time;
        self
    }
}
