//! The process, its threads and its modules.

pub(crate) mod above_standard;
#[cfg(test)]
mod in_child;
pub(crate) mod kept_from_children;
pub(crate) mod left_in_child;
pub(crate) mod modules;
pub(crate) mod process;
pub(crate) mod thread;
