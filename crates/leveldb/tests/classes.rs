//! C++ programs: what LevelDB's classes answer, with LevelDB and with this library. The programs are compiled against
//! LevelDB's own headers, so that what is compiled into them (the order of virtual functions, the places of fields) is
//! LevelDB's.

mod common;

use common::{Whose, build_cxx, classes, cxx, has_cxx, has_leveldb, here, make_classes, run, scratch};
use mangrove_testkit::command::told;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn can_run() -> bool {
    has_leveldb() && has_cxx()
}

/// What a program prints with that library, in a directory of its own.
fn said(whose: Whose<'_>, program: &Path, data: &Path) -> String {
    String::from_utf8(run(whose.command(program).arg(data)).stdout).expect("UTF-8")
}

#[track_caller]
fn compare(theirs: &str, ours: &str, what: &str) {
    let same = theirs.lines().zip(ours.lines()).take_while(|(a, b)| a == b).count();
    let tail = |text: &str| text.lines().skip(same.saturating_sub(5)).take(8).collect::<Vec<_>>().join("\n");
    assert!(
        theirs == ours,
        "{what}: line {same} differs\n--- LevelDB\n{}\n--- ours\n{}",
        tail(theirs),
        tail(ours)
    );
}

#[test]
fn every_function_of_the_classes_answers_as_leveldbs() {
    if !can_run() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    for name in ["classes", "memory"] {
        let program = build_cxx(name, parent.path());
        let place = |of: &str| scratch(parent.path(), &format!("{name}-{of}"));
        let theirs = said(Whose::LevelDb, &program, &place("theirs"));
        let least = if name == "classes" { 250 } else { 15 };
        assert!(theirs.lines().count() > least, "{name} says next to nothing:\n{theirs}");
        let ours = Whose::Ours(classes(), "durable");
        compare(&theirs, &said(ours, &program, &place("ours")), name);
        // The same program, built with the headers that this library installs.
        let own = parent.path().join(format!("{name}-built"));
        let source = here().join(format!("tests/cpp/{name}.cc"));
        let headers = here().join("cpp/include");
        run(cxx()
            .arg("-I")
            .arg(headers)
            .arg(source)
            .arg("-o")
            .arg(&own)
            .arg("-pthread")
            .arg("-L")
            .arg(classes())
            .arg("-lleveldb"));
        compare(&theirs, &said(ours, &own, &place("own")), "with this library's headers");
        if let Some(mut checked) = ours.checked(&program) {
            let known = here().join("tests/cpp/memcheck.supp");
            checked.env("VALGRIND_OPTS", format!("--suppressions={}", known.display()));
            run(checked.arg(place("checked")));
        }
    }
}

/// The names of LevelDB's that a library defines.
fn names(library: &Path) -> BTreeSet<String> {
    let table = run(Command::new("nm").args(["-D", "-C", "--defined-only"]).arg(library)).stdout;
    let table = String::from_utf8(table).expect("UTF-8");
    let names = table.lines().filter_map(|line| line.splitn(3, ' ').nth(2));
    names
        .filter(|name| name.contains("leveldb") && !name.contains("std::thread"))
        .map(str::to_owned)
        .collect()
}

/// Everything that a program can reach through the public headers, but for what reads and writes table files.
#[test]
fn the_library_defines_what_leveldbs_does() {
    if !can_run() {
        return;
    }
    let theirs = names(Path::new("/usr/lib/x86_64-linux-gnu/libleveldb.so.1d"));
    let ours = names(&classes().join("libleveldb.so.1d"));
    let is_of_tables = |name: &str| {
        ["leveldb::Table::", "leveldb::TableBuilder::", "leveldb::DumpFile("]
            .iter()
            .any(|part| name.starts_with(part))
    };
    // Pieces of the standard library that LevelDB's compiler left in it.
    let is_theirs = |name: &str| name.starts_with("leveldb") || name.contains(" for leveldb::");
    let missing: Vec<_> = theirs
        .iter()
        .filter(|name| is_theirs(name) && !is_of_tables(name) && !ours.contains(*name))
        .collect();
    assert!(theirs.len() > 150 && missing.is_empty(), "{missing:#?}");
    assert!(!ours.iter().any(|name| is_of_tables(name)), "a program that needs table files must not load");
    // And nothing that could clash with another library's.
    let all =
        run(Command::new("nm").args(["-D", "-C", "--defined-only"]).arg(classes().join("libleveldb.so.1d")));
    let all = String::from_utf8(all.stdout).expect("UTF-8");
    let strange: Vec<_> = all.lines().filter(|line| !line.contains("leveldb")).collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

/// Each of these mistakes must be found: by the compiler, or by the programs' output. A build of the same kind without
/// a mistake answers as LevelDB does.
#[test]
fn planted_faults_are_found() {
    if !can_run() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build_cxx("classes", parent.path());
    let theirs = said(Whose::LevelDb, &program, &scratch(parent.path(), "theirs"));
    let faults = [
        // Nothing is changed, and nothing may be found.
        ("none", "src/iterator.cc", "namespace leveldb {", "namespace leveldb {"),
        (
            "virtual",
            "include/leveldb/iterator.h",
            "    virtual void Next() = 0;\n    virtual void Prev() = 0;\n",
            "    virtual void Prev() = 0;\n    virtual void Next() = 0;\n",
        ),
        (
            "field",
            "include/leveldb/options.h",
            "    int max_open_files = 1000;\n",
            "    bool moved = false;\n    int max_open_files = 1000;\n    bool moved_too = false;\n    int moved_three = 0;\n",
        ),
        (
            "code",
            "include/leveldb/status.h",
            "kCorruption = 2, kNotSupported = 3",
            "kCorruption = 3, kNotSupported = 2",
        ),
        (
            "cleanup",
            "src/iterator.cc",
            "        cleanup_head_.next = new CleanupNode",
            "        new CleanupNode",
        ),
    ];
    for (name, file, right, wrong) in faults {
        let cpp = scratch(parent.path(), name);
        run(Command::new("cp").arg("-r").arg(here().join("cpp/.")).arg(&cpp));
        let text = std::fs::read_to_string(cpp.join(file)).expect("a source");
        assert!(text.contains(right), "{file} does not have the line that the fault changes");
        std::fs::write(cpp.join(file), text.replace(right, wrong)).expect("write");
        // One file that includes all is quicker to compile, and the one with the older strings is left out.
        let all: String = std::fs::read_dir(cpp.join("src"))
            .expect("the sources")
            .filter_map(|entry| {
                let path = entry.expect("an entry").path();
                let is_source = path.extension().is_some_and(|e| e == "cc");
                let line = format!("#include {:?}\n", path.with_extension("inc"));
                is_source
                    .then(|| std::fs::rename(&path, path.with_extension("inc")).expect("rename"))
                    .and_then(|()| (!path.ends_with("old_strings.cc")).then_some(line))
            })
            .collect();
        std::fs::write(cpp.join("src/all.cc"), all).expect("write");
        let out = scratch(parent.path(), &format!("{name}-out"));
        let built = make_classes(&cpp, &out, "-O0");
        if !built.status.success() {
            let why = told(&built);
            assert!(name != "none" && why.contains("static assertion failed"), "{name}: {why}");
            continue;
        }
        let data = scratch(parent.path(), &format!("{name}-data"));
        let output = Whose::Ours(&out, "durable").command(&program).arg(data).output().expect("the program");
        let is_found = !output.status.success() || output.stdout != theirs.as_bytes();
        assert_eq!(is_found, name != "none", "{name}: {}", told(&output));
    }
}

/// Other environments, comparators that throw, options with garbage: refused with a message, or not looked at.
#[test]
fn what_the_page_promises_beyond_leveldb_is_so() {
    if !can_run() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build_cxx("rules", parent.path());
    let ours = Whose::Ours(classes(), "durable");
    let output = run(ours.command(&program).arg(scratch(parent.path(), "rules-data")));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("own environment is not called").count(), 1, "{said}");
    if let Some(mut checked) = ours.checked(&program) {
        run(checked.arg(scratch(parent.path(), "rules-checked")));
    }
}

/// A program with the older std::string is told so, and does not crash.
#[test]
fn programs_with_the_older_string_get_a_sentence() {
    if !can_run() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = parent.path().join("old_strings");
    let source = here().join("tests/cpp/old_strings.cc");
    let mut build = cxx();
    build.arg("-D_GLIBCXX_USE_CXX11_ABI=0").arg("-I").arg(here().join("cpp/include")).arg(source);
    run(build.arg("-o").arg(&program).arg("-L").arg(classes()).arg("-lleveldb"));
    let told = said(Whose::Ours(classes(), "durable"), &program, &scratch(parent.path(), "old-data"));
    assert!(told.starts_with("Not implemented: the program was built with std::string as it was"), "{told}");
    assert!(told.ends_with("1 1 1\n"), "{told}");
}
