//! A map that is open, as all objects of Python share it.
//!
//! `close` is to close the map, whoever still holds an iterator: iterators and snapshots are registered here, and
//! closing empties them.

use crate::errors::{checked, exception};
use crate::shutdown::detached;
use crate::wait::{GivenUp, let_go, wait, wait_with};
use mangrove::Map;
use mangrove_sys::ProcessMark;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Registered iterators and snapshots between two looks for those that are gone.
const PRUNE_AT: usize = 64;

/// Something that borrows from a map and shares it: empty after the map was closed.
pub(crate) type Borrower<T> = Mutex<Option<T>>;

/// A borrower of any type.
trait Release: Send + Sync {
    fn release(&self);
}

impl<T: Send> Release for Borrower<T> {
    fn release(&self) {
        let borrowed = locked(self).take();
        drop(borrowed);
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The borrowers, and how many there may be before those that are gone are looked for.
struct Borrowers {
    all: Vec<Weak<dyn Release>>,
    prune_at: usize,
}

/// An open map.
pub(crate) struct OpenMap {
    /// `None` after `close`.
    map: Mutex<Option<Arc<Map>>>,
    path: PathBuf,
    home: ProcessMark,
    borrowers: Mutex<Borrowers>,
    /// Writes that have not returned, and those that returned before they were durable: while there are any, a read
    /// may wait for one to become durable.
    undurable: Arc<AtomicU64>,
}

/// Counts a write while it lasts.
struct Writing(Arc<AtomicU64>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenMap {
    pub(crate) fn new(map: Map, path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            map: Mutex::new(Some(Arc::new(map))),
            path,
            home: ProcessMark::here(),
            borrowers: Mutex::new(Borrowers { all: Vec::new(), prune_at: PRUNE_AT }),
            undurable: Arc::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The map, for a call.
    pub(crate) fn share(&self, py: Python<'_>) -> PyResult<Arc<Map>> {
        self.refuse_child(py)?;
        let shared = locked(&self.map).clone();
        shared.ok_or_else(|| exception(py, "Closed", "the map is closed", Some(&self.path), None))
    }

    pub(crate) fn is_closed(&self) -> bool {
        locked(&self.map).is_none()
    }

    /// Whether this is a child of fork, whose parent has the map.
    pub(crate) fn is_forked(&self) -> bool {
        !self.home.is_here()
    }

    /// Fails in a child of fork.
    pub(crate) fn refuse_child(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_forked() {
            return Ok(());
        }
        let message = format!(
            "{} was opened before this process was forked; use it in the parent, or start processes with \
             multiprocessing's method 'spawn'",
            self.path.display()
        );
        Err(exception(py, "Forked", &message, Some(&self.path), None))
    }

    /// Whether a read of a record may wait. (What the map's own compaction moves is as durable as it was.)
    pub(crate) fn reads_may_wait(&self) -> bool {
        // Relaxed: a hint. Who reads what another thread has just begun to write waits with the lock held, once.
        self.undurable.load(Ordering::Relaxed) != 0
            || locked(&self.map).as_ref().is_some_and(|map| !map.is_recovered())
    }

    /// Does a write of Python's `objects` that returns when it is durable.
    pub(crate) fn write<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        py: Python<'_>,
        objects: A,
        work: impl FnOnce(&Map, &A) -> mangrove::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (map, undurable) = (self.share(py)?, Arc::clone(&self.undurable));
        let result = wait_with(py, objects, move |objects, _| {
            undurable.fetch_add(1, Ordering::Relaxed);
            let _writing = Writing(undurable);
            let result = work(&map, objects);
            drop(map);
            result
        })?;
        checked(py, result)
    }

    /// Does a write that returns before it is durable. (It may wait for space in the log, and first until the map is
    /// recovered.)
    pub(crate) fn write_nowait<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Map) -> mangrove::Result<T> + Send,
    ) -> PyResult<T> {
        let mut map = self.share(py)?;
        if !map.is_recovered() {
            // A signal handler that closes the map waits for all shares.
            drop(map);
            self.wait(py, |map, _| map.wait_recovered())?;
            map = self.share(py)?;
        }
        // Never taken back: what was not waited for may be undurable at any later time.
        self.undurable.fetch_add(1, Ordering::Relaxed);
        let result = detached(py, move || work(&map));
        checked(py, result)
    }

    /// Does a read on Python's `objects` without the interpreter's lock. In a recovered map it waits for a device write
    /// that is under way, at most: no helper is worth its price.
    pub(crate) fn read<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        py: Python<'_>,
        objects: A,
        work: impl FnOnce(&Arc<Map>, &A) -> mangrove::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let map = self.share(py)?;
        let result = if map.is_recovered() {
            // The share ends with the work: the thread may never get the lock back, and `close` waits for all shares.
            let shared = move || {
                let result = work(&map, &objects);
                drop(map);
                (result, objects)
            };
            detached(py, shared).0
        } else {
            wait_with(py, objects, move |objects, _| work(&map, objects))?
        };
        checked(py, result)
    }

    /// Does what may wait long, and writes nothing.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Arc<Map>, &GivenUp) -> mangrove::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let map = self.share(py)?;
        let result = wait(py, move |stop| work(&map, stop))?;
        checked(py, result)
    }

    /// Registers what borrows from the map, so that `close` can take it.
    pub(crate) fn lend<T: Send + 'static>(&self, py: Python<'_>, borrowed: T) -> PyResult<Arc<Borrower<T>>> {
        let borrower = Arc::new(Mutex::new(Some(borrowed)));
        let weak: Weak<dyn Release> = Arc::downgrade(&(Arc::clone(&borrower) as Arc<dyn Release>));
        let mut borrowers = locked(&self.borrowers);
        if borrowers.all.len() >= borrowers.prune_at {
            borrowers.all.retain(|one| one.strong_count() > 0);
            borrowers.prune_at = (2 * borrowers.all.len()).max(PRUNE_AT);
        }
        borrowers.all.push(weak);
        drop(borrowers);
        if self.is_closed() {
            // `close` may have come and gone before the registration.
            borrower.release();
            return Err(exception(py, "Closed", "the map is closed", Some(&self.path), None));
        }
        Ok(borrower)
    }

    /// Closes the map, once calls under way have ended.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_forked() {
            // It is the parent's.
            return Ok(());
        }
        let taken = locked(&self.map).take();
        let Some(mut map) = taken else { return Ok(()) };
        let borrowers = std::mem::take(&mut locked(&self.borrowers).all);
        let result = wait(py, move |_| {
            borrowers.iter().filter_map(Weak::upgrade).for_each(|one| one.release());
            loop {
                match Arc::try_unwrap(map) {
                    Ok(map) => return map.close(),
                    Err(shared) => map = shared,
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
        checked(py, result)
    }
}

impl Drop for OpenMap {
    fn drop(&mut self) {
        let map = locked(&self.map).take();
        if self.is_forked() {
            // The parent's threads are not here: nothing can be waited for.
            std::mem::forget(map);
        } else {
            let_go(map);
        }
    }
}
