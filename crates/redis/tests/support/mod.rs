//! What the tests of the server share.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod server;

pub(crate) use server::{CLUSTER, POLL, POLLS, Server, builds, cluster_node, comes, is_built};
