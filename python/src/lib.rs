//! `mangrove._native`: what the Python package `mangrove` is made of.
//!
//! Invariants:
//! 1. A call that may wait releases the interpreter's lock first. On the main thread it waits for a helper thread, and
//!    looks for signals meanwhile (`wait`).
//! 2. No lock of ours is held while Python code could run: a collection of garbage may call any method of any object.
//! 3. In a child of fork every method fails before it takes a lock (`open_map`).

// `interpreter` has the only exception.
#![deny(unsafe_code)]

mod arguments;
mod batch;
mod errors;
mod interpreter;
mod iterator;
mod load;
mod map;
mod open_map;
mod range;
mod reader;
mod shutdown;
mod snapshot;
mod source;
mod wait;

use pyo3::prelude::*;

#[pymodule(name = "_native", gil_used = true)]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::refuse_subinterpreter(module.py())?;
    shutdown::register(module)?;
    module.add("KEY_BYTES_MAX", mangrove::KEY_BYTES_MAX)?;
    module.add("VALUE_BYTES_MAX", mangrove::VALUE_BYTES_MAX)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(load::load, module)?)?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<iterator::Records>()?;
    module.add_class::<map::Map>()?;
    module.add_class::<range::Range>()?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<snapshot::Snapshot>()
}
