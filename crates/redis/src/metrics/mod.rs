//! `--metrics-port`: the server's INFO as Prometheus text, from a process beside the server.

mod beside;
mod http;
mod info;
mod text;

pub(crate) use beside::{COMMAND, run, start};
