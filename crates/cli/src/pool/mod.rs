//! `mangrove pool`: one file a subcommand.

mod backup;
mod check;
mod dispatch;
mod info;

pub(crate) use check::verdict;
pub(crate) use dispatch::{Command, run};
