//! The committed header says what the code does, and compilers take it.

mod common;

use common::{cc, here, libraries, run};
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn the_committed_header_is_what_the_code_generates() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).expect("cbindgen.toml");
    let mut generated = Vec::new();
    cbindgen::generate_with_config(here(), config).expect("the header").write(&mut generated);
    let generated = String::from_utf8(generated).expect("UTF-8");
    let path = here().join("include/mangrove_app.h");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &generated).expect("write the header");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let line = committed.lines().zip(generated.lines()).position(|(a, b)| a != b);
    assert!(
        committed == generated,
        "include/mangrove_app.h differs from the code at line {}; renew it with\n    BLESS=1 cargo test -p mangrove-app --test header",
        line.map_or(committed.lines().count().min(generated.lines().count()), |l| l) + 1
    );
}

#[test]
fn the_header_alone_compiles_as_c99_and_as_cxx17() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let source = scratch.path().join("alone.c");
    std::fs::write(&source, "#include <mangrove_app.h>\n#include <mangrove_app.h>\nint alone;\n")
        .expect("write");
    run(cc().arg("-fsyntax-only").arg(&source));
    let cxx = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    run(Command::new(cxx)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++", "-I"])
        .arg(here().join("include"))
        .arg(&source));
}

#[test]
fn the_version_in_the_header_is_the_crates() {
    let header = std::fs::read_to_string(here().join("include/mangrove_app.h")).expect("the header");
    let expected = format!("#define MANGROVE_APP_VERSION \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(header.contains(&expected), "cbindgen.toml must say: {expected}");
}

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(here().join("include/mangrove_app.h")).expect("the header");
    let code = header.split("#ifndef MANGROVE_APP_H").nth(1).expect("the include guard");
    code.lines()
        .filter(|l| l.contains("mangrove_") && !l.starts_with([' ', '#', '/']) && !l.starts_with("typedef"))
        .filter_map(|l| l.split_once('(')?.0.rsplit([' ', '*']).next().map(str::to_owned))
        .collect()
}

/// The process's malloc and its family, which the library stands in front of, and what they are made of.
const INTERPOSED: [&str; 13] = [
    "fork",
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "cfree",
];

/// The shared library exports exactly what the header declares, and the family of malloc: nothing of
/// Rust's own, nothing forgotten.
#[test]
fn the_shared_library_exports_what_the_header_declares() {
    let said = |command: &mut Command| String::from_utf8(run(command).stdout).expect("UTF-8");
    let table =
        said(Command::new("nm").args(["-D", "--defined-only"]).arg(libraries().join("libmangrove_app.so")));
    let exported: BTreeSet<String> = table
        .lines()
        .filter_map(|l| l.rsplit(' ').next())
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .filter(|name| !INTERPOSED.contains(&name.as_str()))
        // What native leaves are made of, and what programs that clang instrumented call.
        .filter(|name| !name.starts_with("mangrove_arena_") && !name.starts_with("mangrove_tracker_"))
        .collect();
    assert_eq!(exported, declared());
    assert!(exported.len() > 40 && exported.iter().all(|n| n.starts_with("mangrove_app_")), "{exported:?}");
    let dynamic = said(Command::new("readelf").arg("-d").arg(libraries().join("libmangrove_app.so")));
    assert!(dynamic.contains("soname: [libmangrove_app.so.0]"), "{dynamic}");
}

/// An entry point that can panic runs inside the guard; the few that cannot say so.
#[test]
fn every_entry_point_is_guarded() {
    let mut seen = 0;
    for file in std::fs::read_dir(here().join("src")).expect("src") {
        let path = file.expect("an entry").path();
        if path.ends_with("interpose.rs") || path.ends_with("processes.rs") {
            continue; // the C library's own names, which run where nothing may allocate
        }
        let source = std::fs::read_to_string(&path).expect("UTF-8");
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            seen += 1;
            let body = part.split("\n}\n").next().unwrap_or_default();
            let name = body.split('(').next().unwrap_or_default().trim();
            let guarded = ["guard(", "unsafe { set_all(", "unsafe { set_server("];
            let harmless = ["Nothing here can panic", "Box::into_raw", "Box::from_raw"];
            let constant = ["concat!(", "LAST.try_with"];
            assert!(
                guarded.iter().chain(&harmless).chain(&constant).any(|w| body.contains(w)),
                "{}: {name} runs outside the guard",
                path.display()
            );
        }
    }
    assert_eq!(seen, declared().len(), "each entry point was looked at");
}
