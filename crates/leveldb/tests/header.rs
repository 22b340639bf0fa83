//! This library's entry points against LevelDB's own header: the same names, the same types.

mod common;

use common::{HEADER, cc, has_leveldb, here, libraries, run};
use std::collections::BTreeSet;
use std::process::Command;

/// The functions that LevelDB's header declares.
fn declared() -> BTreeSet<String> {
    let text = std::fs::read_to_string(HEADER).expect("LevelDB's header");
    let names = text.split("LEVELDB_EXPORT").skip(1).filter_map(|rest| {
        let before = rest.split('(').next()?;
        Some(before.split(|c: char| !c.is_alphanumeric() && c != '_').rfind(|w| !w.is_empty())?.to_owned())
    });
    names.collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    if !has_leveldb() {
        return;
    }
    let library = libraries().join("libmangrove_leveldb.so");
    let table = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).stdout;
    let table = String::from_utf8(table).expect("UTF-8");
    let names = table.lines().filter_map(|l| Some(l.split_whitespace().nth(2)?.to_owned()));
    // Symbols that the crates below need have a prefix of their own, and clash with no other library's.
    let exported: BTreeSet<String> = names.filter(|name| !name.starts_with("mangrove_")).collect();
    let declared = declared();
    assert!(declared.len() >= 68, "{declared:?}");
    assert_eq!(exported, declared);
}

/// One C file includes LevelDB's header and then this library's declarations, generated from the source: the compiler
/// refuses the second where they differ.
#[test]
fn the_compiler_agrees_that_the_types_are_the_same() {
    if !has_leveldb() {
        return;
    }
    let mut config = cbindgen::Config { language: cbindgen::Language::C, ..Default::default() };
    config.no_includes = true;
    config.style = cbindgen::Style::Type;
    config.usize_is_size_t = true;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["batch", "api/db", "api/handles", "api/iter", "api/manage", "objects", "api/options"] {
        builder = builder.with_src(here().join(format!("src/{file}.rs")));
    }
    let mut ours = Vec::new();
    builder.generate().expect("declarations").write(&mut ours);
    let ours = String::from_utf8(ours).expect("UTF-8");
    // Macros define some entry points; cbindgen sees the others.
    let seen = declared().iter().filter(|name| ours.contains(&format!("{name}("))).count();
    assert!(seen >= 45, "only {seen} declarations:\n{ours}");
    let folder = tempfile::tempdir().expect("a scratch directory");
    let compiles = |ours: &str| {
        let file = folder.path().join("both.c");
        let text = format!("#include <leveldb/c.h>\n{ours}\n");
        std::fs::write(&file, text).expect("write");
        cc().args(["-fsyntax-only", "-Wno-error"]).arg(&file).output().expect("cc")
    };
    let output = compiles(&ours);
    assert!(output.status.success(), "{}\n{ours}", String::from_utf8_lossy(&output.stderr));
    // The comparison can fail.
    let wrong = ours.replace("uint64_t *sizes", "uint32_t *sizes");
    assert_ne!(wrong, ours);
    assert!(!compiles(&wrong).status.success());
}
