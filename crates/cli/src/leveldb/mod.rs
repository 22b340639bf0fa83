//! `mangrove leveldb`: moving LevelDB databases in and out.

mod dispatch;
mod export;
mod import;
mod transfer;

pub(crate) use dispatch::{Command, run};
