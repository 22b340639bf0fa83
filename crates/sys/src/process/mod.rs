//! The process, its threads and its modules.

pub(crate) mod kept_from_children;
pub(crate) mod modules;
pub(crate) mod process;
pub(crate) mod thread;
