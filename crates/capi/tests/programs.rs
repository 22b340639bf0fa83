//! The C programs of tests/c, built with the system's compiler against the shared and the static
//! library, run as they are and under valgrind memcheck.

mod common;

use common::{cc, cxx, here, libraries, libs_private, run, valgrind};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

enum Linking {
    Shared,
    Static,
}

/// Builds tests/c/`name`.c or `name`.cpp into `folder`.
fn build(name: &str, linking: &Linking, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = here().join(format!("tests/c/{name}.c"));
    let (mut cc, source) =
        if source.exists() { (cc(), source) } else { (cxx(), source.with_extension("cpp")) };
    cc.arg(source).arg("-o").arg(&program).arg("-pthread");
    match linking {
        Linking::Shared => {
            cc.arg(libraries().join("libmangrove_c.so")).arg(format!("-Wl,-rpath,{}", libraries().display()));
        }
        Linking::Static => {
            cc.arg(libraries().join("libmangrove_c.a")).args(libs_private());
        }
    }
    run(&mut cc);
    program
}

fn scratch(parent: &TempDir, name: &str) -> PathBuf {
    let path = parent.path().join(name);
    std::fs::create_dir(&path).expect("a scratch directory");
    path
}

/// Runs one program with either library. Returns the one linked with the shared library.
fn with_either_library(name: &str, parent: &TempDir) -> PathBuf {
    let run_with = |linking: &Linking, way: &str| {
        let program = build(name, linking, &scratch(parent, way));
        run(Command::new(&program).arg(scratch(parent, &format!("{way}-data"))));
        program
    };
    run_with(&Linking::Static, "static");
    run_with(&Linking::Shared, "shared")
}

/// Runs one program in all the ways.
fn all_ways(name: &str) {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = with_either_library(name, &parent);
    // Once is enough under the checker: the code is the same.
    if let Some(mut checked) = valgrind(&program) {
        run(checked.arg(scratch(&parent, "valgrind-data")));
    }
}

#[test]
fn basics() {
    all_ways("basics");
}

#[test]
fn forked() {
    // Not under the checker: memory that the parent's threads hold is lost to a child, as it must be.
    with_either_library("forked", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn forked_and_closed() {
    with_either_library("forked_and_closed", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn cancelled() {
    with_either_library("cancelled", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn closed_output() {
    with_either_library("closed_output", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn unclosed() {
    with_either_library("unclosed", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn signals() {
    with_either_library("signals", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn no_memory() {
    with_either_library("no_memory", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn limits() {
    with_either_library("limits", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn misuse() {
    all_ways("misuse");
}

#[test]
fn iterate() {
    all_ways("iterate");
}

#[test]
fn batch() {
    all_ways("batch");
}

#[test]
fn threads() {
    all_ways("threads");
}

#[test]
fn reopen() {
    all_ways("reopen");
}

#[test]
fn load() {
    all_ways("load");
}

#[test]
fn inspect() {
    all_ways("inspect");
}

#[test]
fn heap_basics() {
    all_ways("heap_basics");
}

#[test]
fn heap_errors() {
    all_ways("heap_errors");
}

#[test]
fn heap_forked() {
    // Not under the checker: see `forked`.
    with_either_library("heap_forked", &tempfile::tempdir().expect("a scratch directory"));
}

#[test]
fn heap_left() {
    all_ways("heap_left");
}

#[test]
fn heap_left_cxx() {
    all_ways("heap_left_cxx");
}

/// A thread's end passes the C++ header also in a program that looks for its own mistakes.
#[test]
fn heap_left_cxx_under_a_sanitizer() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = parent.path().join("program");
    let sanitized = || {
        let mut compile = cxx();
        compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread", "-o"]);
        compile.arg(&program);
        compile
    };
    let empty = parent.path().join("empty.cpp");
    std::fs::write(&empty, "int main() { return 0; }\n").expect("write");
    if !sanitized().arg(&empty).output().expect("the compiler").status.success() {
        return println!("skipped, because the compiler has no sanitizers here");
    }
    let mut compile = sanitized();
    compile.arg(here().join("tests/c/heap_ended_cxx.cpp")).arg(libraries().join("libmangrove_c.so"));
    run(compile.arg(format!("-Wl,-rpath,{}", libraries().display())));
    let data = scratch(&parent, "data");
    // What the library holds until the end of the process is no leak of the program.
    run(Command::new(&program).arg(&data).env("ASAN_OPTIONS", "detect_leaks=0"));
}

#[test]
fn heap_threads() {
    all_ways("heap_threads");
}

#[test]
fn heap_tickets() {
    all_ways("heap_tickets");
}

#[test]
fn heap_cxx() {
    all_ways("heap_cxx");
}

/// What a heap cannot hold, and what a type mistake would damage, does not compile.
#[test]
fn mistakes_of_type_do_not_compile() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let compiles = |mut compiler: Command, file: &str, text: &str| {
        let source = parent.path().join(file);
        std::fs::write(&source, text).expect("write");
        compiler.arg("-fsyntax-only").arg(source).output().expect("the compiler").status.success()
    };
    let c = |access: &str| {
        let text = format!(
            "#include <mangrove.h>\n#include <stdint.h>\ntypedef struct {{ uint64_t a; uint32_t b; }} pair;\n\
             int f(mangrove_tx *tx, pair *p, uint64_t *a) {{ (void)p, (void)a; return {access}; }}\n"
        );
        compiles(cc(), "access.c", &text)
    };
    assert!(c("MANGROVE_TX_LOAD(tx, &p->a, a)") && c("MANGROVE_TX_STORE(tx, p, {1, 2})"));
    assert!(!c("MANGROVE_TX_LOAD(tx, &p->b, a)"), "of another size");
    assert!(!c("MANGROVE_TX_LOAD(tx, p, a)"), "of another type");
    assert!(!c("MANGROVE_TX_STORE(tx, p, *a)"), "of another type");
    let cpp = |access: &str| {
        let text = format!(
            "#include <mangrove_heap.hpp>\nstruct pair {{ std::uint64_t a; std::string b; }};\n\
             void f(mangrove::tx &tx, pair *p, std::uint64_t *a) {{ (void)tx, (void)p, (void)a; {access}; }}\n"
        );
        compiles(cxx(), "access.cpp", &text)
    };
    assert!(cpp("tx.store(&p->a, tx.load(a))"));
    assert!(!cpp("tx.load(p)"), "it holds a std::string");
    assert!(!cpp("tx.store(p, {1, {}})"), "it holds a std::string");
    assert!(!cpp("tx.store(a, p)"), "of another type");
}

/// A program that leaks or reads freed memory fails here: the checker can fail.
#[test]
fn the_checker_catches_planted_misuse() {
    let parent = tempfile::tempdir().expect("a scratch directory");
    let leak = "mangrove_batch *b = mangrove_batch_new(); b = NULL; return b != NULL;";
    let stale =
        "mangrove_batch *b = mangrove_batch_new(); mangrove_batch_free(b); return mangrove_batch_len(b) > 9;";
    for (name, body) in [("leak", leak), ("stale", stale)] {
        let source = parent.path().join(format!("{name}.c"));
        std::fs::write(&source, format!("#include <mangrove.h>\nint main(void) {{ {body} }}\n"))
            .expect("write");
        let program = parent.path().join(name);
        run(cc()
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .arg(libraries().join("libmangrove_c.so"))
            .arg(format!("-Wl,-rpath,{}", libraries().display())));
        let Some(mut checked) = valgrind(&program) else { return };
        let output = checked.output().expect("valgrind runs");
        assert_eq!(output.status.code(), Some(99), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
