//! The collections: against models from std, growing and shrinking, under threads.

mod bytes;
mod growth;
mod models;
mod subject;
mod threads;
#[path = "../support/ways.rs"]
mod ways;
