//! The built library, and programs that are linked with it.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

use mangrove_testkit::c_library;
use mangrove_testkit::c_library::CLibrary;
pub(crate) use mangrove_testkit::c_library::{root, shell};
pub(crate) use mangrove_testkit::command::{run, told};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) static LIBRARY: CLibrary = c_library!("libmangrove_app.so", Some("libmangrove_app.so.0"));

/// Which C the header is for.
pub(crate) const FLAGS: [&str; 5] = ["-std=c11", "-D_GNU_SOURCE", "-Wpedantic", "-O2", "-pthread"];

pub(crate) fn here() -> &'static Path {
    LIBRARY.here()
}

pub(crate) fn libraries() -> &'static Path {
    LIBRARY.folder()
}

pub(crate) fn cc() -> Command {
    LIBRARY.cc(&FLAGS)
}

/// Builds C sources of this crate's tests against the shared library.
pub(crate) fn build(name: &str, folder: &Path) -> PathBuf {
    link(&[here().join("tests/c").join(format!("{name}.c"))], &folder.join(name))
}

/// Builds sources of an example.
pub(crate) fn build_example(example: &str, sources: &[&str], folder: &Path) -> PathBuf {
    let from = root().join("examples").join(example);
    let sources: Vec<PathBuf> = sources.iter().map(|s| from.join(s)).collect();
    link(&sources, &folder.join(example))
}

fn link(sources: &[PathBuf], program: &Path) -> PathBuf {
    run(cc()
        .args(sources)
        .arg("-o")
        .arg(program)
        .arg(LIBRARY.shared())
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    program.to_owned()
}
