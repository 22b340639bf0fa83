//! What stands in front of the C library's functions in the whole process, and what runs before main.

pub(super) mod constructor;
mod fork;
pub(super) mod heap;
pub(super) mod interpose;
mod next_symbol;
mod unload;
