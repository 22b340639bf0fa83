//! The built library, and programs that are linked with it.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

use mangrove_testkit::c_library;
use mangrove_testkit::c_library::CLibrary;
pub(crate) use mangrove_testkit::c_library::{root, shell};
pub(crate) use mangrove_testkit::command::{run, told};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

pub(crate) fn link(sources: &[PathBuf], program: &Path) -> PathBuf {
    run(cc()
        .args(sources)
        .arg("-o")
        .arg(program)
        .arg(LIBRARY.shared())
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    program.to_owned()
}

/// Builds a C or C++ source of this crate's tests, with more flags.
pub(crate) fn compile(source: &str, folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let mut compiler = if source.ends_with(".cc") {
        let mut cxx = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        cxx.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-g", "-O2", "-pthread", "-I"]);
        cxx.arg(here().join("include"));
        cxx
    } else {
        cc()
    };
    run(compiler
        .arg(here().join("tests").join(source))
        .arg("-o")
        .arg(&program)
        .args(flags)
        .arg(libraries().join("libmangrove_app.so"))
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    program
}

pub(crate) fn output(program: &Path, arguments: &[&str], state: &Path) -> Output {
    Command::new(program).arg(state).args(arguments).output().expect("runs")
}

/// The program ended with this code, and said this.
#[track_caller]
pub(crate) fn says(output: &Output, code: i32, text: &str) {
    assert!(
        output.status.code() == Some(code) && told(output).contains(text),
        "not '{text}': {}",
        told(output)
    );
}

/// A library that the test programs load themselves.
pub(crate) fn compile_plugin(library: &Path, flags: &[&str]) {
    run(cc()
        .args(["-shared", "-fPIC"])
        .args(flags)
        .arg(here().join("tests/c/plugin.c"))
        .arg("-o")
        .arg(library));
}
