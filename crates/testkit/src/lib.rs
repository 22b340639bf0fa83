//! What the tests of several crates share. Nothing that is shipped depends on this crate.
//!
//! - [`command`]: programs that must succeed, and valgrind.
//! - [`mod@c_library`]: a C library as its users find it, and the system's compilers.
//! - [`c_header`]: what every committed header and every entry point must keep.
//! - [`shuttle`]: locks and gates for code that is compiled against the model checker of that name.

pub mod c_header;
pub mod c_library;
pub mod command;
pub mod shuttle;
