//! Iterators over records.

use crate::arguments::to_python;
use crate::errors::{checked, exception};
use crate::open_map::{Borrower, OpenMap, locked};
use crate::wait::let_go;
use mangrove::Range;
use pyo3::prelude::*;
use std::sync::Arc;

/// A walk that shares its map.
pub(crate) type Walk = Range<'static>;

/// What an iterator returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemPart {
    Keys,
    Values,
    Items,
}

/// An iterator over the records of one instant.
#[pyclass(frozen, module = "mangrove._native")]
pub(crate) struct Records {
    map: Arc<OpenMap>,
    walk: Arc<Borrower<Walk>>,
    part: ItemPart,
    reverse: bool,
}

impl Records {
    pub(crate) fn new(
        py: Python<'_>,
        map: &Arc<OpenMap>,
        walk: Walk,
        part: ItemPart,
        reverse: bool,
    ) -> PyResult<Self> {
        Ok(Self { map: Arc::clone(map), walk: map.lend(py, walk)?, part, reverse })
    }
}

#[pymethods]
impl Records {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.map.refuse_child(py)?;
        let mut guard = locked(&self.walk);
        let Some(walk) = guard.as_mut() else {
            drop(guard);
            return Err(exception(py, "Closed", "the map is closed", Some(self.map.path()), None));
        };
        let next = if self.reverse { walk.next_back_borrowed() } else { walk.next_borrowed() };
        let Some(record) = next else { return Ok(None) };
        // To make bytes runs no Python code; to make a tuple may.
        let part = self.part;
        let record = record.map(|(key, value)| {
            let key = (part != ItemPart::Values).then(|| to_python(py, key)).transpose()?;
            let value = (part != ItemPart::Keys).then(|| to_python(py, value)).transpose()?;
            Ok::<_, PyErr>((key, value))
        });
        drop(guard);
        match checked(py, record)?? {
            (Some(key), Some(value)) => Ok(Some((key, value).into_pyobject(py)?.into_any())),
            (one, other) => Ok(one.or(other).map(Bound::into_any)),
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.map.is_forked() {
            // Another thread of the parent may have the lock. What lies behind it is left alone.
            std::mem::forget(Arc::clone(&self.walk));
            return;
        }
        let walk = locked(&self.walk).take();
        let_go(walk);
    }
}
