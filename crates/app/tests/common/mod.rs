//! What the tests of this crate share.

mod library;

pub(crate) use library::*;
