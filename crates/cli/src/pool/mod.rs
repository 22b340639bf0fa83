//! `mangrove pool`: one file a subcommand.

mod check;
mod dispatch;
mod info;

pub(crate) use check::verdict;
pub(crate) use dispatch::{Command, run};
