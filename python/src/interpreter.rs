//! What the interpreter is asked in C: which one it is, and whether it still runs.

#![expect(unsafe_code, reason = "the questions are functions of C")]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The number of the interpreter that a process begins with.
const MAIN: i64 = 0;

/// Fails in all interpreters but the main one: what is static here, as the helper of the main thread, belongs to one
/// interpreter.
pub(crate) fn refuse_subinterpreter(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: both functions ask that the caller is attached to an interpreter, which the argument proves.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if number == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "mangrove does not work in a subinterpreter; import it in the main interpreter",
    ))
}

/// Whether the interpreter gives its lock to the threads that ask for it. When it ends, Python changes this with the
/// lock held, after the functions of `atexit` and before anything goes.
pub(crate) fn is_running() -> bool {
    // SAFETY: any thread may ask this at any time.
    unsafe { ffi::Py_IsInitialized() != 0 }
}
