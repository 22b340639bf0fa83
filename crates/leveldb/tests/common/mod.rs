//! What the tests of this crate share: the built libraries under LevelDB's name, LevelDB itself, the
//! system's compilers, valgrind, what Debian has.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

pub(crate) mod debian;
mod library;
mod program;

pub(crate) use library::{
    ENGINES, HEADER, classes, has_cxx, has_leveldb, here, libraries, make_classes, scratch,
    under_leveldbs_names,
};
pub(crate) use mangrove_testkit::command::run;
pub(crate) use program::{Whose, build, build_cxx, cc, cxx};
