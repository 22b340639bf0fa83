//! The bytes of an arena, and how they are made.

pub(crate) mod bitmap;
pub(crate) mod class;
pub(crate) mod format;
pub(crate) mod layout;
