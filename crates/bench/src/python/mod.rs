//! `mangrove bench python`: the Python package beside plyvel (LevelDB) and lmdb, each in a process of its own.

mod args;
mod goals;
mod lines;
mod run;

pub use args::PythonArgs;
pub use run::run;
