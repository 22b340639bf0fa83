//! The built library, and the system's C compiler.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

use mangrove_testkit::c_library;
use mangrove_testkit::c_library::CLibrary;
pub(crate) use mangrove_testkit::c_library::{root, shell};
pub(crate) use mangrove_testkit::command::{run, said, valgrind};
use std::path::Path;
use std::process::Command;

pub(crate) static LIBRARY: CLibrary = c_library!("libmangrove_c.so", Some("libmangrove.so.0"));

/// Which C the header is for.
pub(crate) const FLAGS: [&str; 4] = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wpedantic", "-O1"];

pub(crate) fn here() -> &'static Path {
    LIBRARY.here()
}

pub(crate) fn libraries() -> &'static Path {
    LIBRARY.folder()
}

pub(crate) fn cc() -> Command {
    LIBRARY.cc(&FLAGS)
}

/// The system libraries that libmangrove.a needs, read from the pkg-config template.
pub(crate) fn libs_private() -> Vec<String> {
    let template = std::fs::read_to_string(here().join("mangrove.pc.in")).expect("the template");
    let line = template.lines().find_map(|l| l.strip_prefix("Libs.private:")).expect("Libs.private");
    line.split_whitespace().map(str::to_owned).collect()
}

/// The system's C++ compiler, as strict.
pub(crate) fn cxx() -> Command {
    let mut cxx = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    cxx.args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g", "-O1", "-I"]);
    cxx.arg(here().join("include")).arg("-I").arg(root().join("crates/testkit/include"));
    cxx
}
