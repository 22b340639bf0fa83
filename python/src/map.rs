//! The map: opening, writing, closing.

use crate::arguments::{Bounds, allowed_capacity, bytes, optional_bytes, path as path_of, to_python};
use crate::errors::checked;
use crate::open_map::OpenMap;
use crate::reader::Reader;
use crate::source::ReadSource;
use crate::wait::wait;
use mangrove::{Create, Durability, MapOptions};
use pyo3::PyClassInitializer;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PySlice, PyString, PyTuple};
use std::sync::Arc;

/// A durable ordered map from bytes to bytes.
#[pyclass(frozen, subclass, extends = Reader, module = "mangrove._native")]
pub(crate) struct Map;

fn open_map<'a>(this: &'a Bound<'_, Map>) -> &'a Arc<OpenMap> {
    this.as_super().get().source.open_map()
}

#[pymethods]
impl Map {
    #[new]
    #[pyo3(signature = (
        path, *, create=None, read_only=false, durability=None, capacity=None, memory_bytes_max=None,
        snapshot_bytes_max=None, background_compaction=true, background_recovery=true,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        create: Option<&Bound<'_, PyAny>>,
        read_only: bool,
        durability: Option<&Bound<'_, PyAny>>,
        capacity: Option<u64>,
        memory_bytes_max: Option<u64>,
        snapshot_bytes_max: Option<u64>,
        background_compaction: bool,
        background_recovery: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let create = creation(create)?;
        if read_only && create == Create::New {
            return Err(PyValueError::new_err("read_only makes no pool; leave create=\"new\" out"));
        }
        let mut options =
            MapOptions::new().create(create).read_only(read_only).durability(durability_of(durability)?);
        if let Some(bytes) = allowed_capacity(capacity)? {
            options = options.capacity(bytes);
        }
        if let Some(bytes) = memory_bytes_max {
            options = options.memory_bytes_max(bytes);
        }
        if let Some(bytes) = snapshot_bytes_max {
            options = options.snapshot_bytes_max(bytes);
        }
        options =
            options.background_compaction(background_compaction).background_recovery(background_recovery);
        let path = path_of(path)?;
        let opened = {
            let path = path.clone();
            checked(py, wait(py, move |_| options.open(&path))?)?
        };
        Ok(Reader::all(ReadSource::Now(OpenMap::new(opened, path))).with(Self))
    }

    fn __setitem__(this: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if key.is_instance_of::<PySlice>() {
            return Err(PyTypeError::new_err("a slice of a map can be deleted, and not be set; use a batch"));
        }
        let record = (bytes(key, "key")?, bytes(value, "value")?);
        open_map(this).write(this.py(), record, |map, (key, value)| map.put(key, value))
    }

    fn __delitem__(this: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(bounds) = Bounds::of_slice(key)? {
            return open_map(this)
                .write(this.py(), (), move |map, ()| map.delete_range::<&[u8]>(bounds.ends()))
                .map(|_| ());
        }
        let wanted = bytes(key, "key")?;
        if open_map(this).write(this.py(), wanted, |map, wanted| map.delete(wanted))? {
            return Ok(());
        }
        Err(PyKeyError::new_err(key.clone().unbind()))
    }

    /// Removes the records from `start` on and below `stop`, all or nothing; returns how many there were.
    #[pyo3(signature = (start=None, stop=None))]
    fn delete_range(
        this: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let slice = |key: Option<&Bound<'_, PyAny>>| -> PyResult<Option<Vec<u8>>> {
            key.map(|key| Ok(bytes(key, "key")?.to_vec())).transpose()
        };
        let bounds = Bounds { start: slice(start)?, stop: slice(stop)? };
        open_map(this).write(this.py(), (), move |map, ()| map.delete_range::<&[u8]>(bounds.ends()))
    }

    fn clear(this: &Bound<'_, Self>) -> PyResult<()> {
        open_map(this).write(this.py(), (), |map, ()| map.delete_range::<&[u8]>(..)).map(|_| ())
    }

    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        this: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err(format!(
                "pop takes a key and at most one default, and got {} defaults",
                default.len()
            )));
        }
        let wanted = bytes(key, "key")?;
        let popped = open_map(this).write(this.py(), wanted, |map, wanted| {
            while let Some(value) = map.get(wanted)? {
                if map.compare_and_set(wanted, Some(&value), None)? {
                    return Ok(Some(value));
                }
            }
            Ok(None)
        })?;
        match popped {
            Some(value) => Ok(to_python(this.py(), &value)?.into_any()),
            None if default.is_empty() => Err(PyKeyError::new_err(key.clone().unbind())),
            None => default.get_item(0),
        }
    }

    /// The value of `key`, which is `default` afterwards if there was none.
    fn setdefault<'py>(
        this: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let record = (bytes(key, "key")?, bytes(default, "value")?);
        let found = open_map(this).write(this.py(), record, |map, (wanted, value)| {
            loop {
                if let Some(value) = map.get(wanted)? {
                    return Ok(Some(value));
                }
                if map.insert_new(wanted, value)? {
                    return Ok(None);
                }
            }
        })?;
        found.map_or_else(|| Ok(default.clone()), |value| Ok(to_python(this.py(), &value)?.into_any()))
    }

    /// Changes `key` from `old` to `new`, where `None` means absent; returns whether `old` was right.
    fn compare_and_set(
        this: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        old: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let change = (bytes(key, "key")?, optional_bytes(old, "value")?, optional_bytes(new, "value")?);
        open_map(this).write(this.py(), change, |map, (key, old, new)| {
            map.compare_and_set(key, old.as_deref(), new.as_deref())
        })
    }

    /// Sets `key` to `value` and returns before it is durable.
    fn put_nowait(this: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key, "key")?, bytes(value, "value")?);
        open_map(this).write_nowait(this.py(), |map| map.put_nowait(&key, &value))
    }

    /// Removes `key` and returns before that is durable; returns whether it was there.
    fn delete_nowait(this: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let key = bytes(key, "key")?;
        open_map(this).write_nowait(this.py(), |map| map.delete_nowait(&key))
    }

    /// Waits until every write that returned so far is durable.
    fn sync(this: &Bound<'_, Self>) -> PyResult<()> {
        open_map(this).wait(this.py(), |map, _| map.sync())
    }

    /// Copies this instant into a new pool at `path`; returns the number of records.
    fn backup(this: &Bound<'_, Self>, path: &Bound<'_, PyAny>) -> PyResult<u64> {
        let path = path_of(path)?;
        open_map(this).wait(this.py(), move |map, stop| Ok(map.backup(&path, |_| stop.look())?.records))
    }

    #[getter]
    fn path(this: &Bound<'_, Self>) -> std::path::PathBuf {
        open_map(this).path().to_owned()
    }

    fn close(this: &Bound<'_, Self>) -> PyResult<()> {
        open_map(this).close(this.py())
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __exit__(
        this: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::close(this)
    }

    fn __repr__(this: &Bound<'_, Self>) -> String {
        let open = open_map(this);
        let closed = if open.is_closed() { ", closed" } else { "" };
        format!("<mangrove.Map '{}'{closed}>", open.path().display())
    }
}

fn creation(create: Option<&Bound<'_, PyAny>>) -> PyResult<Create> {
    let Some(create) = create else { return Ok(Create::IfMissing) };
    match create.extract::<bool>() {
        Ok(true) => Ok(Create::IfMissing),
        Ok(false) => Ok(Create::Never),
        Err(_) if create.eq("new")? => Ok(Create::New),
        Err(_) => Err(PyValueError::new_err("create is True, False or \"new\"")),
    }
}

fn durability_of(durability: Option<&Bound<'_, PyAny>>) -> PyResult<Durability> {
    let wrong = || PyValueError::new_err("durability is \"sync\" or a number of milliseconds, 1 to 60000");
    let Some(durability) = durability else { return Ok(Durability::Sync) };
    if durability.is_instance_of::<PyString>() {
        return if durability.eq("sync")? { Ok(Durability::Sync) } else { Err(wrong()) };
    }
    if durability.is_instance_of::<PyBool>() {
        return Err(wrong());
    }
    match durability.extract::<u32>() {
        Ok(milliseconds @ 1..=60_000) => Ok(Durability::interval_ms(milliseconds)),
        _ => Err(wrong()),
    }
}
