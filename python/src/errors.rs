//! The engine's errors as exceptions. The classes are those of `mangrove/_errors.py`.

use crate::shutdown::calling;
use mangrove::Error;
use pyo3::prelude::*;
use std::path::Path;

/// The exception of `name` with `message`, and with the file and the offset that it is about.
pub(crate) fn exception(
    py: Python<'_>,
    name: &str,
    message: &str,
    path: Option<&Path>,
    offset: Option<u64>,
) -> PyErr {
    let build = || -> PyResult<Bound<'_, PyAny>> {
        let value = py.import("mangrove._errors")?.getattr(name)?.call1((message,))?;
        value.setattr("path", path)?;
        value.setattr("offset", offset)?;
        Ok(value)
    };
    match calling(py, build) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// The system's number of an error that Python has as an `OSError`.
fn errno(error: &Error) -> Option<i32> {
    // Linux's numbers.
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    match error {
        Error::NotFound { .. } => Some(ENOENT),
        Error::Exists { .. } => Some(EEXIST),
        Error::Io { code, .. } => *code,
        _ => None,
    }
}

/// The exception of an error of the engine.
#[cold]
pub(crate) fn of_engine(py: Python<'_>, error: &Error) -> PyErr {
    let (name, path, offset) = match error {
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => ("TooLong", None, None),
        Error::Mismatch { .. } => ("Mismatch", None, None),
        Error::Busy { path, .. } => ("PoolBusy", Some(path), None),
        Error::NotFound { path } => ("NotFound", Some(path), None),
        Error::Exists { path } => ("Exists", Some(path), None),
        Error::Foreign { path, .. } | Error::Newer { path, .. } | Error::WrongKind { path, .. } => {
            ("NotAMap", Some(path), None)
        }
        Error::Corrupt { path, offset, .. } => ("Corruption", Some(path), Some(*offset)),
        Error::NoMemory { .. } => ("NoMemory", None, None),
        Error::MemoryLimit { path, .. } => ("NoMemory", Some(path), None),
        Error::ReadOnly { path } => ("ReadOnly", Some(path), None),
        Error::NoSpace { path, .. } | Error::FileLimit { path, .. } | Error::Full { path, .. } => {
            ("Full", Some(path), None)
        }
        Error::Poisoned { .. } => ("Poisoned", None, None),
        Error::SnapshotExpired => ("SnapshotExpired", None, None),
        Error::Io { path, .. } => ("InputOutput", Some(path), None),
        _ => ("Error", None, None),
    };
    let raised = exception(py, name, &error.to_string(), path.map(|path| path.as_path()), offset);
    match errno(error).map(|number| raised.value(py).setattr("errno", number)) {
        Some(Err(other)) => other,
        // `str` of it is the message as long as it has no `strerror`.
        _ => raised,
    }
}

/// Converts an engine's result.
pub(crate) fn checked<T>(py: Python<'_>, result: mangrove::Result<T>) -> PyResult<T> {
    result.map_err(|error| of_engine(py, &error))
}
