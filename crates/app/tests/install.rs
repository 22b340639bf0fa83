//! The steps of a C user: install, build the example through pkg-config as its README says, shared and static.

mod common;

use common::{LIBRARY, libraries, root, run, shell};
use mangrove_testkit::command::said;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The build line in the README of examples/kv, without the compiler's other flags.
const BUILD: &str = "cc -O2 -pthread kv.c local.c $(pkg-config --cflags --libs mangrove_app) -o kv_local";

/// A function that the static library lacks is the C library's there, which cannot free a block of the state.
#[test]
fn both_libraries_stand_in_front_of_the_same_functions() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    run(Command::new(root().join("scripts/install.sh"))
        .arg(scratch.path())
        .arg(libraries())
        .env_remove("DESTDIR"));
    let names = |option: &str, library: &Path| -> BTreeSet<String> {
        let table = said(Command::new("nm").args([option, "--defined-only"]).arg(library));
        let names = table.lines().filter_map(|l| l.split_whitespace().nth(2));
        let names = names.map(|name| name.split('@').next().unwrap_or(name).to_owned());
        names.filter(|name| !name.starts_with("mangrove_")).collect()
    };
    let shared = names("-D", &LIBRARY.shared());
    assert!(shared.contains("malloc") && shared.contains("fork"), "{shared:?}");
    assert_eq!(names("-g", &scratch.path().join("lib/libmangrove_app.a")), shared);
}

#[test]
fn what_is_installed_builds_and_runs_the_example() {
    let readme = std::fs::read_to_string(root().join("examples/kv/README.md")).expect("the README");
    assert!(readme.contains(BUILD), "the README says another line");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let prefix = scratch.path().join("prefix");
    run(Command::new(root().join("scripts/install.sh")).arg(&prefix).arg(libraries()).env_remove("DESTDIR"));
    for file in ["kv.c", "kv.h", "glue.h", "local.c"] {
        std::fs::copy(root().join("examples/kv").join(file), scratch.path().join(file)).expect("the example");
    }
    let linking_static = BUILD.replace("--libs", "--static --libs").replace(
        "$(pkg-config --cflags --static --libs mangrove_app)",
        "$(pkg-config --cflags mangrove_app) prefix/lib/libmangrove_app.a $(pkg-config --static --libs-only-l mangrove_app | sed s/-lmangrove_app//)",
    );
    for (way, line) in [("shared", BUILD), ("static", &linking_static)] {
        run(&mut shell(line, scratch.path(), &prefix));
        for (command, expected) in [("put 7 seven", "OK 1\n"), ("get 7", "seven\n")] {
            let output = run(&mut shell(&format!("./kv_local {way} {command}"), scratch.path(), &prefix));
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{way}: {command}");
        }
    }
}
