//! Debian's programs that use LevelDB from C++, fetched when the test runs and never stored here: whether they find
//! what they need in this library, and plyvel's own tests.

mod common;

use common::{Whose, classes, debian, has_cxx, has_leveldb, run, scratch};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages with those programs.
const PACKAGES: [&str; 8] = [
    "python3-plyvel",
    "minetest-server",
    "litecoind",
    "librime1",
    "lomiri-thumbnailer-service",
    "stenographer",
    "ceph-mon",
    "ceph-osd",
];
/// How many files in them need LevelDB: one in each of the first six, Ceph's two daemons, and four tools beside these.
const PROGRAMS: usize = 12;
/// What runs plyvel's tests, in the system's own Python.
const PYTEST: [&str; 6] = [
    "python3-pytest",
    "python3-pluggy",
    "python3-iniconfig",
    "python3-packaging",
    "python3-attr",
    "python3-py",
];
const PYTHON: &str = "/usr/bin/python3";
/// The version of Debian's plyvel, whose tests are in the Python registry.
const PLYVEL: &str = "1.5.0";
/// A version of plyvel whose wheels have the strings from before C++11.
const WHEEL: &str = "1.5.1";

fn can_run() -> bool {
    has_leveldb() && has_cxx()
}

/// The names in namespace leveldb that a program or a library needs, or that it defines.
fn names(file: &Path, which: &str) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", which]).arg(file).output().expect("nm");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = table.lines().filter_map(|line| line.split_whitespace().last());
    names.filter(|name| name.contains("7leveldb")).map(str::to_owned).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry"));
    let (folders, files): (Vec<_>, Vec<_>) = entries
        .filter(|e| !e.file_type().expect("a type").is_symlink())
        .map(|e| e.path())
        .partition(|p| p.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| self::files(folder))).collect()
}

#[test]
fn every_symbol_that_debians_programs_need_is_defined() {
    if !can_run() {
        return;
    }
    let Some(place) = debian::packages("eight-programs", &PACKAGES) else { return };
    let ours = names(&classes().join("libleveldb.so.1d"), "--defined-only");
    let (mut needed, mut programs) = (BTreeSet::new(), 0);
    for file in files(&place) {
        let needs = names(&file, "--undefined-only");
        programs += usize::from(!needs.is_empty());
        needed.extend(needs);
    }
    let is_of_tables = |name: &String| name.contains("TableBuilder");
    let missing: Vec<_> = needed.iter().filter(|name| !is_of_tables(name) && !ours.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let count = needed.iter().filter(|name| !is_of_tables(name)).count();
    assert!(programs == PROGRAMS && count >= 22, "only {count} symbols of {programs} programs");
}

/// The tests of plyvel's suite that pass.
fn passed(whose: Whose<'_>, folder: &Path, python_path: &Path, data: &Path) -> BTreeSet<String> {
    let output = whose
        .command(Path::new(PYTHON))
        .args(["-m", "pytest", "-v", "-p", "no:cacheprovider", "test_plyvel.py"])
        .current_dir(folder)
        .env("PYTHONPATH", python_path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TMPDIR", data)
        .output()
        .expect("python3");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed: BTreeSet<String> =
        told.lines().filter_map(|line| Some(line.split_once(" PASSED")?.0.to_owned())).collect();
    assert!(passed.len() > 40, "{whose:?}: {told}");
    passed
}

#[test]
fn plyvels_own_tests_pass_as_with_leveldb() {
    if !can_run() {
        return;
    }
    let Some(python) = debian::packages("pytest", &[&PYTEST[..], &["python3-plyvel"]].concat()) else {
        return;
    };
    let Some(sources) = debian::python_sources("plyvel", PLYVEL) else { return };
    let path = python.join("usr/lib/python3/dist-packages");
    let loads = Command::new(PYTHON).args(["-c", "import plyvel, pytest"]).env("PYTHONPATH", &path).output();
    if !loads.is_ok_and(|o| o.status.success()) {
        eprintln!("the system's Python is not the one of Debian's plyvel: its tests are not run");
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let tests = scratch(parent.path(), "tests");
    run(Command::new("cp").arg(sources.join("test/test_plyvel.py")).arg(&tests));
    let with = |whose: Whose<'_>, name: &str| passed(whose, &tests, &path, &scratch(parent.path(), name));
    let theirs = with(Whose::LevelDb, "theirs");
    let ours = with(Whose::Ours(classes(), "durable"), "ours");
    let lost: Vec<_> = theirs.difference(&ours).collect();
    assert!(lost.is_empty(), "with LevelDB these pass: {lost:#?}");
}

/// The wheel has a LevelDB of its own and the older std::string. This library, preloaded, comes before its own.
#[test]
fn plyvels_wheel_with_this_library_preloaded_gets_a_sentence() {
    if !has_leveldb() || !has_cxx() {
        return;
    }
    let Some(wheel) = debian::python_wheel("plyvel", WHEEL) else { return };
    let parent = tempfile::tempdir().expect("a scratch directory");
    let text = "import plyvel
for use in plyvel.DB, plyvel.repair_db, plyvel.destroy_db:
    try:
        use('db', create_if_missing=True) if use is plyvel.DB else use('db')
        print('done')
    except plyvel.Error as error:
        print(error)
";
    let said = |preload: Option<&Path>| {
        let data = scratch(parent.path(), if preload.is_some() { "ours" } else { "its own" });
        let mut python = Command::new("python3");
        python.args(["-c", text]).env("PYTHONPATH", &wheel).current_dir(data);
        if let Some(library) = preload {
            python.env("LD_PRELOAD", library);
        }
        String::from_utf8(run(&mut python).stdout).expect("UTF-8")
    };
    assert_eq!(said(None), "done\ndone\ndone\n");
    let told = said(Some(&classes().join("libleveldb.so.1d")));
    assert_eq!(told.matches("Not implemented: the program was built with std::string").count(), 3, "{told}");
}
