//! What the tests of several crates share. Nothing that is shipped depends on this crate.
//!
//! - [`command`]: programs that must succeed or are killed, and valgrind.
//! - [`mod@c_library`]: a C library as its users find it, and the system's compilers.
//! - [`c_header`]: checks that every committed header and every entry point in it must pass.
//! - [`clock`]: the time that work takes, whatever else the machine does.
//! - [`disk`]: what files take on the disk.
//! - [`process`]: work in a child of fork, and threads that sleep.
//! - [`sandbox`]: programs that run as in a container.
//! - [`shuttle`]: locks and event counts for code that is compiled against the model checker of that name.
//! - [`stress`]: writers of an example that are killed, again and again on one state.

pub mod c_header;
pub mod c_library;
pub mod clock;
pub mod command;
pub mod disk;
pub mod process;
pub mod sandbox;
pub mod shuttle;
pub mod stress;
