//! Refuses subinterpreters: what is static here, as the helper of the main thread, belongs to one interpreter.

#![expect(unsafe_code, reason = "the interpreter's number is asked for in C")]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The number of the interpreter that a process begins with.
const MAIN: i64 = 0;

/// Fails in all interpreters but the main one.
pub(crate) fn refuse(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: both functions ask that the caller is attached to an interpreter, which the argument proves.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "mangrove does not work in a subinterpreter; import it in the main interpreter",
    ))
}
