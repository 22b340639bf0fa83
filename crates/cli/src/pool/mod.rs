//! `mangrove pool`: one file a subcommand.

mod check;
mod dispatch;
mod info;

pub(crate) use dispatch::{Command, run};
