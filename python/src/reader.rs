//! What maps, snapshots and ranges have in common: reading.

use crate::arguments::{Bounds, bytes, to_python};
use crate::iterator::{ItemPart, Records};
use crate::shutdown::calling;
use crate::source::ReadSource;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyType};
use pyo3::{PyClass, PyClassInitializer};

/// Reads the records of a source between bounds.
#[pyclass(frozen, subclass, module = "mangrove._native")]
pub(crate) struct Reader {
    pub(crate) source: ReadSource,
    pub(crate) bounds: Bounds,
}

impl Reader {
    pub(crate) fn all(source: ReadSource) -> Self {
        Self { source, bounds: Bounds::default() }
    }

    /// This reader as the base of `more`.
    pub(crate) fn with<T: PyClass<BaseType = Self>>(self, more: T) -> PyClassInitializer<T> {
        PyClassInitializer::from(self).add_subclass(more)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Before the map that it shares: the last share closes the map, and this one has the interpreter's lock.
        self.source.let_go();
    }
}

/// The `mangrove.Range` of a reader's records between `bounds`.
fn range<'py>(reader: &Bound<'py, Reader>, bounds: &Bounds) -> PyResult<Bound<'py, PyAny>> {
    static RANGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = reader.py();
    let start = bounds.start.as_deref().map(|start| to_python(py, start)).transpose()?;
    let stop = bounds.stop.as_deref().map(|stop| to_python(py, stop)).transpose()?;
    calling(py, || RANGE.import(py, "mangrove", "Range")?.call1((reader, start, stop)))
}

#[pymethods]
impl Reader {
    fn __getitem__<'py>(this: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        if let Some(bounds) = Bounds::of_slice(key)? {
            return range(this, &bounds);
        }
        let reader = this.get();
        let wanted = bytes(key, "key")?;
        let value = if reader.bounds.contain(&wanted) { reader.source.get(py, wanted)? } else { None };
        value.map(Bound::into_any).ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let wanted = bytes(key, "key")?;
        if !self.bounds.contain(&wanted) {
            return Ok(default);
        }
        Ok(self.source.get(key.py(), wanted)?.map(Bound::into_any).or(default))
    }

    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let py = keys.py();
        let keys =
            calling(py, || keys.try_iter()?.map(|key| bytes(&key?, "key")).collect::<PyResult<Vec<_>>>())?;
        if self.bounds.are_all() {
            return self.source.get_many(py, keys);
        }
        let within: Vec<bool> = keys.iter().map(|key| self.bounds.contain(key)).collect();
        let values = self.source.get_many(py, keys)?;
        Ok(values.into_iter().zip(within).map(|(value, within)| value.filter(|_| within)).collect())
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let wanted = bytes(key, "key")?;
        Ok(self.bounds.contain(&wanted) && self.source.contains(key.py(), wanted)?)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = self.source.len(py, &self.bounds)?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        if self.bounds.are_all() {
            return Ok(self.source.len(py, &self.bounds)? > 0);
        }
        let mut walk = self.source.walk(py, &self.bounds)?;
        let first = walk.next_borrowed().transpose().map(|record| record.is_some());
        crate::errors::checked(py, first)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Records> {
        self.records(py, "keys", false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Records> {
        self.records(py, "keys", true)
    }

    /// An iterator over the "keys", "values" or "items" of one instant.
    #[pyo3(name = "_records")]
    fn records(&self, py: Python<'_>, part: &str, reverse: bool) -> PyResult<Records> {
        let part = match part {
            "keys" => ItemPart::Keys,
            "values" => ItemPart::Values,
            _ => ItemPart::Items,
        };
        let walk = self.source.walk(py, &self.bounds)?;
        Records::new(py, self.source.open_map(), walk, part, reverse)
    }

    fn prefix<'py>(this: &Bound<'py, Self>, prefix: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        range(this, &Bounds::prefix(&bytes(prefix, "prefix")?))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.source.is_closed()
    }
}
