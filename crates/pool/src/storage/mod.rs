//! The one way to files: the traits, the operating system's files, and a storage that fails on demand.

pub(super) mod faulty;
pub(super) mod os;
mod os_map;
pub(super) mod traits;
mod wide_sectors;
