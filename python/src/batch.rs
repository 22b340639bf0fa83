//! Writes that happen together.

use crate::arguments::{bytes, optional_bytes};
use crate::map::Map;
use crate::open_map::{OpenMap, locked};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PySlice;
use std::sync::{Arc, Mutex};

/// Collects writes; as a context manager it applies them when its block ends without an exception.
#[pyclass(frozen, module = "mangrove")]
pub(crate) struct Batch {
    map: Arc<OpenMap>,
    collected: Mutex<mangrove::Batch>,
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
        locked(&self.collected).put(&key, &value);
        Ok(())
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        refuse_slice(key)?;
        let key = bytes(key, "key")?;
        locked(&self.collected).delete(&key);
        Ok(())
    }

    fn expect(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, value) = (bytes(key, "key")?, optional_bytes(value, "value")?);
        locked(&self.collected).expect(&key, value.as_deref());
        Ok(())
    }

    fn clear(&self) {
        locked(&self.collected).clear();
    }

    fn __len__(&self) -> usize {
        locked(&self.collected).len()
    }

    /// Applies what was collected, all of it or nothing, and begins anew.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let batch = std::mem::take(&mut *locked(&self.collected));
        self.map.write(py, (), move |map, ()| map.write(batch))
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

fn refuse_slice(key: &Bound<'_, PyAny>) -> PyResult<()> {
    if key.is_instance_of::<PySlice>() {
        return Err(PyTypeError::new_err("a batch takes single keys; delete a slice of the map itself"));
    }
    Ok(())
}
