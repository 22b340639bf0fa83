//! What a reader reads from: the map as it is, or one instant of it.

use crate::arguments::Bounds;
use crate::errors::{checked, exception};
use crate::iterator::Walk;
use crate::open_map::{Borrower, OpenMap, locked};
use crate::wait::{wait, wait_with};
use mangrove::Snapshot;
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

impl ReadSource {
    pub(crate) fn open_map(&self) -> &Arc<OpenMap> {
        match self {
            Self::Now(map) | Self::At(map, _) => map,
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
                Ok(value.map(|value| PyBytes::new(py, &value)))
            }
            Self::Now(open) => {
                let map = open.share(py)?;
                checked(py, map.get_with(&key, |value| PyBytes::new(py, value)))
            }
            Self::At(open, instant) => {
                let instant = Self::instant(py, open, instant)?;
                checked(py, instant.get_with(&key, |value| PyBytes::new(py, value)))
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
                checked(py, wait_with(py, keys, move |keys, _| map.get_many(keys))?)?
            }
            Self::At(open, instant) => {
                let instant = Self::instant(py, open, instant)?;
                checked(py, wait_with(py, keys, move |keys, _| instant.get_many(keys))?)?
            }
        };
        Ok(values.into_iter().map(|value| value.map(|value| PyBytes::new(py, &value))).collect())
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
            Self::Now(open) if open.reads_may_wait() => open.read(py, (), |map, ()| map.len()),
            Self::Now(open) => checked(py, open.share(py)?.len()),
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
                checked(py, open.share(py)?.range_owned::<&[u8]>(bounds.ends()))
            }
            Self::At(open, instant) => {
                let instant = Self::instant(py, open, instant)?;
                checked(py, instant.range::<&[u8]>(bounds.ends()))
            }
        }
    }
}
