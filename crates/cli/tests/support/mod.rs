//! What the tests of the command share.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod yard;

pub(crate) use yard::{
    HEEDING, Mount, SMALL_FILES, Said, WAIT_MAX, Yard, command_in, end_of, finish, signal, spawn,
};
