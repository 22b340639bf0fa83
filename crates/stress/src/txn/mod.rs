//! `mangrove-stress txn`: the same two roles over durable transactions. Threads transfer between the accounts of a
//! bank in a heap, or enter operations into collections; what a kill left is compared with what was acknowledged and
//! what was seen.

mod bank;
mod check;
mod command;
mod ledger;
mod register;
mod write;

pub(crate) use command::{Command, run};
