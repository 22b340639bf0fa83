//! `mangrove bench leveldb`: LevelDB's API over Mangrove, compared with LevelDB and RocksDB, with the workloads of
//! LevelDB's own benchmark as in the Mangosteen paper (Fig. 8 and 9).

mod api;
mod args;
mod classes;
mod goals;
mod lines;
mod run;
mod workloads;

pub use args::LeveldbArgs;
pub use run::run;
