//! `mangrove map`: one file a subcommand.

mod apply;
mod backup;
mod bounds;
mod check;
mod compact;
mod count;
mod del;
mod dispatch;
mod export;
mod get;
pub(crate) mod input;
pub(crate) mod load;
mod put;
mod salvage;
mod scan;
mod source;
mod stat;

pub(crate) use backup::copy as backup;
pub(crate) use dispatch::{Command, run};
