//! What a reader reads from: the map as it is, or one instant of it.

use crate::arguments::{Bounds, to_python};
use crate::errors::{checked, exception};
use crate::iterator::Walk;
use crate::open_map::{Borrower, OpenMap, locked};
use crate::wait::{let_go, wait, wait_with};
use mangrove::{Error, Map, Snapshot};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Records between two looks at whether the caller has given up.
const LOOK_RECORDS: u64 = 4096;

/// An instant of a map.
pub(crate) type Instant = Arc<Snapshot<'static>>;

/// The map as it is, or one instant of it.
#[derive(Clone)]
pub(crate) enum ReadSource {
    Now(Arc<OpenMap>),
    At(Arc<OpenMap>, Arc<Borrower<Instant>>),
}

/// The values of many keys. `Map::get_many` ends the process where there is no memory for one.
fn values_of(map: &Map, keys: &[PyBackedBytes]) -> mangrove::Result<Vec<Option<Vec<u8>>>> {
    let (mut values, mut wanted) = (Vec::with_capacity(keys.len()), None);
    map.get_many_with(keys, |_, value| {
        let mut copy = Vec::new();
        let bytes = value.unwrap_or_default();
        if wanted.is_some() || copy.try_reserve_exact(bytes.len()).is_err() {
            wanted = wanted.or(Some(bytes.len() as u64));
            return;
        }
        copy.extend_from_slice(bytes);
        values.push(value.map(|_| copy));
    })?;
    match wanted {
        Some(wanted) => Err(Error::NoMemory { wanted }),
        None => Ok(values),
    }
}

impl ReadSource {
    pub(crate) fn open_map(&self) -> &Arc<OpenMap> {
        match self {
            Self::Now(map) | Self::At(map, _) => map,
        }
    }

    /// Whether the map, or the snapshot, is closed.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Now(map) => map.is_closed(),
            Self::At(map, instant) => map.is_closed() || locked(instant).is_none(),
        }
    }

    /// Drops an instant that has no other owner, without the interpreter's lock.
    pub(crate) fn let_go(&self) {
        let Self::At(map, instant) = self else { return };
        // In a child of fork another thread of the parent may have the lock.
        if !map.is_forked() && Arc::strong_count(instant) == 1 {
            let last = locked(instant).take();
            let_go(last);
        }
    }

    /// The instant, for a call.
    fn instant(py: Python<'_>, map: &OpenMap, instant: &Borrower<Instant>) -> PyResult<Instant> {
        map.refuse_child(py)?;
        let shared = locked(instant).clone();
        shared.ok_or_else(|| {
            let what = if map.is_closed() { "the map is closed" } else { "the snapshot is closed" };
            exception(py, "Closed", what, Some(map.path()), None)
        })
    }

    /// The value of `key`.
    pub(crate) fn get<'py>(
        &self,
        py: Python<'py>,
        key: PyBackedBytes,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        match self {
            Self::Now(open) if open.reads_may_wait() => {
                let value = open.read(py, key, |map, key| map.get(key))?;
                value.map(|value| to_python(py, &value)).transpose()
            }
            Self::Now(open) => {
                let map = open.share(py)?;
                checked(py, map.get_with(&key, |value| to_python(py, value)))?.transpose()
            }
            Self::At(open, instant) => {
                let instant = Self::instant(py, open, instant)?;
                checked(py, instant.get_with(&key, |value| to_python(py, value)))?.transpose()
            }
        }
    }

    /// The values of many keys.
    pub(crate) fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<PyBackedBytes>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let values = match self {
            Self::Now(open) => {
                let map = open.share(py)?;
                checked(py, wait_with(py, keys, move |keys, _| values_of(&map, keys))?)?
            }
            Self::At(open, instant) => {
                let instant = Self::instant(py, open, instant)?;
                checked(py, wait_with(py, keys, move |keys, _| instant.get_many(keys))?)?
            }
        };
        values.into_iter().map(|value| value.map(|value| to_python(py, &value)).transpose()).collect()
    }

    pub(crate) fn contains(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<bool> {
        match self {
            Self::Now(open) if open.reads_may_wait() => open.read(py, key, |map, key| map.contains(key)),
            Self::Now(open) => checked(py, open.share(py)?.contains(&key)),
            Self::At(open, instant) => checked(py, Self::instant(py, open, instant)?.contains(&key)),
        }
    }

    /// Records between the bounds.
    pub(crate) fn len(&self, py: Python<'_>, bounds: &Bounds) -> PyResult<u64> {
        if !bounds.are_all() {
            return self.count(py, bounds);
        }
        match self {
            // It waits for whatever the map has written, its own compaction too.
            Self::Now(open) => open.read(py, (), |map, ()| map.len()),
            Self::At(open, instant) => checked(py, Self::instant(py, open, instant)?.len()),
        }
    }

    fn count(&self, py: Python<'_>, bounds: &Bounds) -> PyResult<u64> {
        let mut walk = self.walk(py, bounds)?;
        let result = wait(py, move |stop| {
            let mut count = 0_u64;
            let end = walk.visit(|_, _| {
                count += 1;
                if count.is_multiple_of(LOOK_RECORDS) { stop.look() } else { ControlFlow::Continue(()) }
            });
            end.map(|()| count)
        })?;
        checked(py, result)
    }

    /// A walk over the records between the bounds, of one instant.
    pub(crate) fn walk(&self, py: Python<'_>, bounds: &Bounds) -> PyResult<Walk> {
        match self {
            Self::Now(open) => {
                let bounds = bounds.clone();
                if open.reads_may_wait() {
                    return open.wait(py, move |map, _| map.range_owned::<&[u8]>(bounds.ends()));
                }
                // For what the map's own compaction has written it waits all the same.
                open.read(py, (), move |map, ()| map.range_owned::<&[u8]>(bounds.ends()))
            }
            Self::At(open, instant) => {
                let instant = Self::instant(py, open, instant)?;
                checked(py, instant.range::<&[u8]>(bounds.ends()))
            }
        }
    }
}
