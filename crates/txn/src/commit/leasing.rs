//! Who has which log of a shadow between commits. A thread keeps one of its own while there are enough; the others
//! take one for each commit, and wait while none is free. A thread that has one in a commit waits for no lock, so
//! each comes back.
//!
//! The last log in eight is never kept, so that a thousand threads share two logs and none waits for one that sleeps.

use super::collect::log_bytes;
use crate::sink::UnitSize;
use crate::sync::{AtomicUsize, Ordering};
use mangrove_shadow::{LogLease, Shadow};
use std::sync::Arc;

/// The logs of a shadow.
#[derive(Debug)]
pub(super) struct Logs {
    shadow: Arc<Shadow>,
    /// Logs that threads may still keep. At least one stays for the threads that keep none.
    keepable: AtomicUsize,
}

impl Logs {
    pub(super) fn new(shadow: Arc<Shadow>) -> Self {
        let logs = shadow.stat().logs;
        Self { shadow, keepable: AtomicUsize::new(logs - logs.div_ceil(8)) }
    }

    #[inline(always)]
    pub(super) fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// The calling thread's way to a log; it has none yet.
    pub(super) fn user(&self) -> LogUser<'_> {
        // Relaxed: only a count.
        let left =
            self.keepable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        LogUser { logs: self, lease: None, keeps: left.is_ok() }
    }
}

/// One thread's way to a log.
#[derive(Debug)]
pub(super) struct LogUser<'log> {
    logs: &'log Logs,
    lease: Option<LogLease>,
    /// The lease stays between commits.
    keeps: bool,
}

impl LogUser<'_> {
    /// The shadow whose logs they are.
    pub(super) fn shadow(&self) -> &Shadow {
        self.logs.shadow()
    }

    /// The thread's lease; takes one, and may wait for it.
    #[inline(always)]
    pub(super) fn lease(&mut self) -> &mut LogLease {
        self.lease.get_or_insert_with(|| self.logs.shadow.lease())
    }

    /// The lease that the thread has already.
    #[inline(always)]
    pub(super) fn kept(&mut self) -> Option<&mut LogLease> {
        self.lease.as_mut()
    }

    /// The lease that was taken for this commit.
    #[inline(always)]
    pub(super) fn leased(&mut self) -> &mut LogLease {
        self.lease.as_mut().expect("the calls come in the trait's order")
    }

    /// Whether an atomic group of this size needs no space but that which `make_room` makes.
    pub(super) fn has_room(&self, size: UnitSize) -> bool {
        self.lease.as_ref().is_none_or(|lease| log_bytes(size) <= lease.room_max())
    }

    /// Forgets what was put, if anything.
    pub(super) fn clear(&mut self) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.is_empty()) {
            lease.clear();
        }
    }

    /// The commit is over.
    #[inline(always)]
    pub(super) fn give_back(&mut self) {
        if !self.keeps {
            self.lease = None;
        }
    }
}

impl Drop for LogUser<'_> {
    fn drop(&mut self) {
        if self.keeps {
            // Relaxed: only a count.
            self.logs.keepable.fetch_add(1, Ordering::Relaxed);
        }
    }
}
