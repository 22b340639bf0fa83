//! A user's steps: install, then run a program that was built with LevelDB, or build one with this library.

mod common;

use common::{has_cxx, has_leveldb, here, libraries, run, scratch};
use mangrove_testkit::c_library::{root, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs the library from a directory whose name has a space, as that of a checkout may.
fn installed(parent: &Path) -> PathBuf {
    let (prefix, built) = (parent.join("prefix"), scratch(parent, "built here"));
    for file in ["libmangrove_leveldb.so", "libmangrove_leveldb.a"] {
        std::fs::copy(libraries().join(file), built.join(file)).expect("copy the library");
    }
    run(Command::new(root().join("scripts/install.sh")).arg(&prefix).arg(&built).env_remove("DESTDIR"));
    prefix
}

/// Writes a line with the diary that `build` makes. True when Mangrove stored it.
fn is_kept_by_mangrove(parent: &Path, name: &str, build: &str, run_with: &str) -> bool {
    let folder = scratch(parent, name);
    std::fs::copy(here().join("../../examples/leveldb/main.c"), folder.join("main.c")).expect("the example");
    let prefix = parent.join("prefix");
    run(&mut shell(build, &folder, &prefix));
    let output = run(&mut shell(&format!("echo tide | {run_with} ./diary pages"), &folder, &prefix));
    assert!(String::from_utf8_lossy(&output.stdout).contains("kept 1\n"), "{output:?}");
    folder.join("pages/MANGROVE").exists()
}

#[test]
fn what_is_installed_serves_programs_of_leveldb() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let prefix = installed(parent.path());
    let links = prefix.join("lib/mangrove_leveldb");
    let linked = "cc main.c $(pkg-config --cflags --libs mangrove_leveldb) -o diary";
    assert!(is_kept_by_mangrove(parent.path(), "shared", linked, ""));
    let whole = format!(
        "cc main.c {}/lib/libmangrove_leveldb.a -lgcc_s -lpthread -lm -ldl -o diary",
        prefix.display()
    );
    assert!(is_kept_by_mangrove(parent.path(), "static", &whole, ""));
    // The same program with LevelDB itself, and then with this library in its place.
    let theirs = "cc main.c -lleveldb -o diary";
    assert!(!is_kept_by_mangrove(parent.path(), "theirs", theirs, ""));
    let instead = format!("LD_LIBRARY_PATH={}", links.display());
    assert!(is_kept_by_mangrove(parent.path(), "instead", theirs, &instead));
    let preloaded = format!("LD_PRELOAD={}/lib/libmangrove_leveldb.so", prefix.display());
    assert!(is_kept_by_mangrove(parent.path(), "preloaded", theirs, &preloaded));
    // With the installed headers and the library under LevelDB's name, for C and C++ alike.
    let names = format!("-I{0}/include/mangrove_leveldb -L{1} -lleveldb", prefix.display(), links.display());
    assert!(is_kept_by_mangrove(parent.path(), "named", &format!("cc main.c {names} -o diary"), &instead));
    if has_cxx() {
        let program = scratch(parent.path(), "cxx");
        std::fs::copy(here().join("tests/cpp/memory.cc"), program.join("memory.cc")).expect("a program");
        std::fs::copy(here().join("tests/cpp/said.h"), program.join("said.h")).expect("its header");
        run(&mut shell(
            &format!("c++ -std=c++17 memory.cc {names} -pthread -o memory && mkdir data"),
            &program,
            &prefix,
        ));
        run(&mut shell(&format!("{instead} ./memory data"), &program, &prefix));
        // As docs/leveldb.md tells users of C++.
        let told = "c++ -std=c++17 memory.cc $(pkg-config --cflags mangrove_leveldb) -pthread -o told";
        let told = format!("{told} -L{} -lleveldb && mkdir more", links.display());
        run(&mut shell(&told, &program, &prefix));
        run(&mut shell(&format!("{instead} ./told more"), &program, &prefix));
    }
}
