//! LevelDB's C API: its entry points and handles; and the few further ones that the C++ classes need.

pub(super) mod cpp;
pub(super) mod db;
pub(super) mod fork_guard;
pub(super) mod handles;
pub(super) mod iter;
pub(super) mod manage;
pub(super) mod options;
