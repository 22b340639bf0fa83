//! What the tests of the executors share.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod checker;
pub(crate) mod recorder;
pub(crate) mod words;
