//! Writes that happen together.

use crate::arguments::{bytes, optional_bytes};
use crate::errors::{checked, exception};
use crate::map::Map;
use crate::open_map::{OpenMap, locked};
use mangrove::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PySlice;
use std::sync::{Arc, Mutex};

/// A batch of at most so many bytes is copied before it is written, so that it can be written again.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Collects writes; as a context manager it applies them when its block ends without an exception.
#[pyclass(frozen, module = "mangrove")]
pub(crate) struct Batch {
    map: Arc<OpenMap>,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    writes: mangrove::Batch,
    /// A write of this batch failed or was interrupted, and what it was to write is not here any more.
    is_lost: bool,
}

impl Collected {
    /// Whether nothing was collected, conditions included.
    fn is_blank(&self) -> bool {
        self.writes.is_empty() && self.writes.bytes() == 0
    }
}

#[pymethods]
impl Batch {
    #[new]
    fn new(of: &Bound<'_, Map>) -> PyResult<Self> {
        let map = Arc::clone(of.as_super().get().source.open_map());
        map.share(of.py())?;
        Ok(Self { map, collected: Mutex::default() })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_slice(key)?;
        let (key, value) = (bytes(key, "key")?, bytes(value, "value")?);
        locked(&self.collected).writes.put(&key, &value);
        Ok(())
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_slice(key)?;
        let key = bytes(key, "key")?;
        locked(&self.collected).writes.delete(&key);
        Ok(())
    }

    fn expect(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key, "key")?, optional_bytes(value, "value")?);
        locked(&self.collected).writes.expect(&key, value.as_deref());
        Ok(())
    }

    fn clear(&self) {
        *locked(&self.collected) = Collected::default();
    }

    fn __len__(&self) -> usize {
        locked(&self.collected).writes.len()
    }

    /// Applies what was collected, all of it or nothing, and begins anew. If it raises, the batch has what it had, to
    /// be written again; where that is not known to be right, a further write raises until `clear`.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        self.map.share(py)?;
        let taken = {
            let mut collected = locked(&self.collected);
            if collected.is_lost { None } else { Some(std::mem::take(&mut collected.writes)) }
        };
        let Some(writes) = taken else {
            let message = "an earlier write of this batch failed or was interrupted, and may have happened; look at \
                           the map, and clear the batch to collect anew";
            return Err(exception(py, "Error", message, Some(self.map.path()), None));
        };
        let kept = (writes.bytes() <= KEPT_BYTES_MAX).then(|| writes.clone());
        // An error here is that of a signal's handler: the batch may be written all the same.
        let written = self.map.write(py, (), move |map, ()| Ok(map.write(writes)));
        if !matches!(written, Ok(Ok(()))) {
            let mut collected = locked(&self.collected);
            match (&written, kept) {
                // What another thread has collected meanwhile belongs behind these writes.
                (Ok(Err(error)), Some(kept)) if changed_nothing(error) && collected.is_blank() => {
                    collected.writes = kept;
                }
                _ => collected.is_lost = true,
            }
        }
        checked(py, written?)
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __exit__(
        &self,
        class: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if class.is_none() {
            return self.write(class.py());
        }
        self.clear();
        Ok(())
    }
}

/// Whether nothing of a batch with this error was written, or no further write succeeds.
fn changed_nothing(error: &Error) -> bool {
    matches!(
        error,
        Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::Mismatch { .. }
            | Error::NoMemory { .. }
            | Error::ReadOnly { .. }
            | Error::NoSpace { .. }
            | Error::FileLimit { .. }
            | Error::MemoryLimit { .. }
            | Error::Full { .. }
            | Error::Poisoned { .. }
    )
}

fn refuse_slice(key: &Bound<'_, PyAny>) -> PyResult<()> {
    if key.is_instance_of::<PySlice>() {
        return Err(PyTypeError::new_err("a batch takes single keys; delete a slice of the map itself"));
    }
    Ok(())
}
