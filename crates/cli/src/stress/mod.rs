//! `mangrove stress` (hidden): the writer and the checker of `cargo xtask kill9` and `powercut`.

mod check;
mod dispatch;
mod value;
mod write;

pub(crate) use dispatch::{Command, run};
