//! The records between two keys, as a mapping.

use crate::arguments::{Bounds, optional_bytes};
use crate::reader::Reader;
use pyo3::PyClassInitializer;
use pyo3::prelude::*;

/// The records of a map or a snapshot from `start` on and below `stop`.
#[pyclass(frozen, subclass, extends = Reader, module = "mangrove._native")]
pub(crate) struct Range;

#[pymethods]
impl Range {
    #[new]
    #[pyo3(signature = (of, start=None, stop=None))]
    fn new(
        of: &Bound<'_, Reader>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let bound = |key: Option<&Bound<'_, PyAny>>| -> PyResult<Option<Vec<u8>>> {
            let key = key.map(|key| optional_bytes(key, "key")).transpose()?.flatten();
            Ok(key.map(|key| key.to_vec()))
        };
        let of = of.get();
        let bounds = Bounds { start: bound(start)?, stop: bound(stop)? }.within(&of.bounds);
        Ok(Reader { source: of.source.clone(), bounds }.with(Self))
    }

    fn __repr__(this: &Bound<'_, Self>) -> String {
        let reader = this.as_super().get();
        let shown = |key: &Option<Vec<u8>>| match key {
            Some(key) => format!("b\"{}\"", key.escape_ascii()),
            None => String::new(),
        };
        let (start, stop) = (shown(&reader.bounds.start), shown(&reader.bounds.stop));
        format!("<mangrove.Range [{start}:{stop}] of '{}'>", reader.source.open_map().path().display())
    }
}
