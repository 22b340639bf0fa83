//! What the tests of this crate share: the built library under LevelDB's name, LevelDB itself, the
//! system's compiler, valgrind.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

mod library;
mod program;

pub(crate) use library::{ENGINES, HEADER, has_leveldb, here, libraries, scratch, under_leveldbs_names};
pub(crate) use mangrove_testkit::command::run;
pub(crate) use program::{Whose, build, cc};
