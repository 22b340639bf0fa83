//! The steps of a C user: install, build the example through pkg-config as its README says, shared and static.

mod common;

use common::{libraries, root, run, shell};
use std::process::Command;

/// The build line in the README of examples/kv, without the compiler's other flags.
const BUILD: &str = "cc -O2 -pthread kv.c local.c $(pkg-config --cflags --libs mangrove_app) -o kv_local";

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
