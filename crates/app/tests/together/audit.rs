//! What `MANGROVE_AUDIT` finds in a port: reads that write, and what the state depends on that a next run has not. And
//! that it is silent about correct programs.

use crate::common::{compile, here, libraries, root, run, told};
use std::path::Path;
use std::process::Command;

/// What the program says on standard error with this level.
fn audited(program: &Path, level: &str, arguments: &[&str]) -> String {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let output = Command::new(program)
        .arg(scratch.path().join("s"))
        .args(arguments)
        .env("MANGROVE_AUDIT", level)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{arguments:?}: {}", told(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn program(scratch: &Path) -> std::path::PathBuf {
    compile("c/audit.c", scratch, "audit", &["-fno-optimize-sibling-calls"])
}

#[test]
fn a_read_that_writes_is_reported_with_the_names_of_the_functions() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = program(scratch.path());
    for level in ["2", "3"] {
        let said = audited(&program, level, &["put", "get", "count", "put", "count", "get"]);
        // Static functions, innermost first, and once for all its writes.
        let writer = said.find("write fence: a write outside commands to 0x").expect(&said);
        let inner = said.find(" count_lookup+0x").expect(&said);
        let outer = said.find(" process+0x").expect(&said);
        assert!(writer < inner && inner < outer, "{said}");
        assert_eq!(said.matches("write fence").count(), 1, "{said}");
        assert!(said.contains("must be a write command"), "{said}");
    }
    assert_eq!(audited(&program, "2", &["put", "get", "put", "get"]), "");
    // Not asked for, it is not there.
    assert_eq!(audited(&program, "1", &["put", "get", "count"]), "");
}

#[test]
fn what_the_next_run_has_not_is_reported_with_what_to_do() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = program(scratch.path());
    for (step, parts) in [
        ("heap", ["memory of this run only", "in init_state or in a command"]),
        ("stack", ["memory of this run only", "in init_state or in a command"]),
        ("map", ["a mapping of ", "map the file in a command or again in on_recover"]),
        ("stream", ["_IO_2_1_stdout_+0x0 in ", "set the pointer in on_recover"]),
        ("open", ["a stream of libc (FILE)", "open it in on_recover"]),
        ("locale", ["a locale of libc (locale_t)", "make it in on_recover"]),
        ("seeded", [" drawn_hash_seed+0x0 in ", "draw it in init_state"]),
    ] {
        let said = audited(&program, "1", &[step]);
        assert!(parts.iter().all(|part| said.contains(part)), "{step}: {said}");
        assert!(step == "seeded" || !said.contains("seed"), "{step}: {said}");
    }
}

#[test]
fn correct_programs_give_no_line() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let small = program(scratch.path());
    assert_eq!(audited(&small, "1", &["put", "get", "put"]), "");
    let bank = scratch.path().join("bank");
    run(Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-O2", "-I"])
        .arg(here().join("include"))
        .arg(root().join("examples/cpp/main.cc"))
        .arg("-o")
        .arg(&bank)
        .arg(libraries().join("libmangrove_app.so"))
        .arg(format!("-Wl,-rpath,{}", libraries().display())));
    // A bitmap of its accounts has words like addresses.
    assert_eq!(audited(&bank, "1", &["run", "5000"]), "");
    let containers = compile("cpp/transient.cc", scratch.path(), "transient", &[]);
    assert_eq!(audited(&containers, "3", &[]), "");
}

#[test]
fn glib_is_told_to_use_malloc_unless_the_user_says_otherwise() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = program(scratch.path());
    let started = |slices: Option<&str>| {
        let mut command = Command::new(&program);
        command.arg(scratch.path().join(slices.unwrap_or("none"))).arg("put").env_remove("G_SLICE");
        told(&run(command.envs(slices.map(|value| ("G_SLICE", value)))))
    };
    assert!(started(None).contains("G_SLICE is always-malloc"));
    assert!(started(Some("debug-blocks")).contains("G_SLICE is debug-blocks"));
}
