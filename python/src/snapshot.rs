//! One instant of a map.

use crate::map::Map;
use crate::open_map::{Borrower, locked};
use crate::reader::Reader;
use crate::source::{Instant, ReadSource};
use crate::wait::let_go;
use pyo3::PyClassInitializer;
use pyo3::prelude::*;
use std::sync::Arc;

/// One instant of a map, to read from while it changes.
#[pyclass(frozen, subclass, extends = Reader, module = "mangrove._native")]
pub(crate) struct Snapshot {
    instant: Arc<Borrower<Instant>>,
}

#[pymethods]
impl Snapshot {
    #[new]
    fn new(of: &Bound<'_, Map>) -> PyResult<PyClassInitializer<Self>> {
        let py = of.py();
        let open = of.as_super().get().source.open_map();
        let taken = open.wait(py, |map, _| map.snapshot_owned())?;
        let instant = open.lend(py, Arc::new(taken))?;
        let source = ReadSource::At(Arc::clone(open), Arc::clone(&instant));
        Ok(Reader::all(source).with(Self { instant }))
    }

    fn close(this: &Bound<'_, Self>) {
        if this.as_super().get().source.open_map().is_forked() {
            // It is the parent's.
            return;
        }
        // In a statement of its own, which ends the lock: `let_go` waits for the interpreter's lock, and a thread that
        // has that may wait for this one.
        let instant = locked(&this.get().instant).take();
        let_go(instant);
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __exit__(
        this: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        Self::close(this);
    }

    fn __repr__(this: &Bound<'_, Self>) -> String {
        format!("<mangrove.Snapshot of '{}'>", this.as_super().get().source.open_map().path().display())
    }
}
