//! Chores about the Redis-compatible server: kills, Valkey's own test suite, replication, Cluster and Sentinel.

mod client;
mod kill9;
mod model;
mod operation;
mod resp;
mod server;
pub(crate) mod suite;
mod survey;

pub(crate) use kill9::{Campaign, KEYS_DIVISOR};
pub(crate) use server::{Kind, Programs};
