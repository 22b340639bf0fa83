//! What callers pass, and get: bytes, slices and paths.

use crate::shutdown::calling;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A key or a value: `bytes` as it is; a copy of a `bytearray` or a `memoryview`, which may change.
pub(crate) fn bytes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = object.extract() {
        return Ok(bytes);
    }
    if object.is_instance_of::<PyMemoryView>() {
        return Ok(object.call_method0("tobytes")?.extract()?);
    }
    let hint = if object.is_instance_of::<pyo3::types::PyString>() { "; encode it first" } else { "" };
    let found = object.get_type().name()?;
    Err(PyTypeError::new_err(format!("a {what} is bytes, not {found}{hint}")))
}

/// A key or a value for the caller; `MemoryError` where there is no memory for it, at which `PyBytes::new` panics.
pub(crate) fn to_python<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        Ok(())
    })
}

/// As `bytes`, with `None` for an absent one.
pub(crate) fn optional_bytes(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Option<PyBackedBytes>> {
    if object.is_none() { Ok(None) } else { bytes(object, what).map(Some) }
}

/// The keys of a slice: from `start` on, and below `stop`.
#[derive(Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) start: Option<Vec<u8>>,
    pub(crate) stop: Option<Vec<u8>>,
}

impl Bounds {
    /// The keys that begin with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        Self { start: Some(prefix.to_vec()), stop: mangrove::prefix_end(prefix) }
    }

    /// Those of a slice; `None` where `object` is no slice.
    pub(crate) fn of_slice(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Ok(slice) = object.cast::<PySlice>() else { return Ok(None) };
        if !slice.getattr("step")?.is_none() {
            return Err(PyValueError::new_err("a slice of a map has no step; walk it with reversed()"));
        }
        let bound = |name, what| -> PyResult<Option<Vec<u8>>> {
            Ok(optional_bytes(&slice.getattr(name)?, what)?.map(|bytes| bytes.to_vec()))
        };
        Ok(Some(Self { start: bound("start", "slice's start")?, stop: bound("stop", "slice's stop")? }))
    }

    /// The keys within both.
    pub(crate) fn within(self, other: &Self) -> Self {
        let start = self.start.into_iter().chain(other.start.clone()).max();
        let stop = self.stop.into_iter().chain(other.stop.clone()).min();
        Self { start, stop }
    }

    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        self.start.as_deref().is_none_or(|start| start <= key)
            && self.stop.as_deref().is_none_or(|stop| key < stop)
    }

    /// Whether they contain all keys.
    pub(crate) fn are_all(&self) -> bool {
        self.start.is_none() && self.stop.is_none()
    }

    /// For the engine.
    pub(crate) fn ends(&self) -> (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        (self.start.as_deref().map_or(Unbounded, Included), self.stop.as_deref().map_or(Unbounded, Excluded))
    }
}

/// A path as `os.fsencode` takes it.
pub(crate) fn path(object: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let py = object.py();
    let encoded = calling(py, || py.import("os")?.call_method1("fsencode", (object,)))?;
    let encoded: Vec<u8> = encoded.extract::<PyBackedBytes>()?.to_vec();
    if encoded.is_empty() {
        return Err(PyValueError::new_err("the path is empty; give the directory of the pool"));
    }
    Ok(OsString::from_vec(encoded).into())
}

/// A map's `capacity`, unless it is smaller than any can be.
pub(crate) fn allowed_capacity(bytes: Option<u64>) -> PyResult<Option<u64>> {
    const MIN: u64 = 1 << 20;
    match bytes {
        Some(bytes) if bytes < MIN => {
            Err(PyValueError::new_err(format!("capacity is at least {MIN} bytes, and {bytes} is less")))
        }
        _ => Ok(bytes),
    }
}
