//! LevelDB's own tests, fetched from Debian's sources when the test runs (never stored here), and run with this
//! library: that of its C API, and in a longer campaign those of its classes.

mod common;

use common::{
    ENGINES, Whose, cc, classes, debian, has_cxx, has_leveldb, here, run, scratch, under_leveldbs_names,
};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn leveldbs_own_c_test_passes() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let Some(sources) = debian::sources("leveldb") else { return };
    let program = parent.path().join("c_test");
    // Warnings of LevelDB's own code do not matter here.
    run(cc().arg("-w").arg(sources.join("db/c_test.c")).arg("-o").arg(&program).arg("-lleveldb"));
    let folder = under_leveldbs_names(parent.path());
    // The test has a comparator of its own, which the default engine takes.
    for (whose, place) in [(Whose::LevelDb, "theirs"), (Whose::Ours(&folder, "durable"), "ours")] {
        let output = run(whose.command(&program).env("TEST_TMPDIR", scratch(parent.path(), place)));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.ends_with("PASS\n"), "{said}");
    }
}

/// The packages with what LevelDB's C++ tests are written with.
const GTEST: &[&str] = &["libgtest-dev", "libgmock-dev"];

/// Tests of db_test.cc that do not pass, each with what it asserts and this library does not have.
const NOT_OURS: [(&str, &str); 16] = [
    ("GetEncountersEmptyLevel", "files in levels"),
    ("MinorCompactionsHappen", "files in levels"),
    ("RecoverWithLargeLog", "files in levels"),
    ("CompactionsGenerateMultipleFiles", "files in levels"),
    ("OverlapInLevel0", "files in levels"),
    ("ManualCompaction", "files in levels"),
    ("ApproximateSizes", "sizes of files, 0 before they are written; ours are those of the records"),
    ("HiddenValuesAreRemoved", "an iterator over LevelDB's internal keys"),
    ("DeletionMarkers1", "an iterator over LevelDB's internal keys"),
    ("DeletionMarkers2", "an iterator over LevelDB's internal keys"),
    ("NonWritableFileSystem", "an environment that fails when it is called"),
    ("WriteSyncError", "an environment that fails when it is called"),
    ("ManifestWriteError", "an environment that fails when it is called"),
    ("MissingSSTFile", "table files"),
    ("StillReadSST", "table files"),
    ("BloomFilter", "an environment that counts reads of table files"),
];

/// LevelDB's own C++ tests, unchanged; `tests/cpp/inside` answers their calls into LevelDB's inside. To compile them
/// takes a minute: `cargo test -p mangrove-leveldb --test theirs -- --ignored`.
#[test]
#[ignore = "a campaign of minutes"]
fn leveldbs_own_cpp_tests_pass() {
    if !has_leveldb() || !has_cxx() {
        return;
    }
    let Some(sources) = debian::sources("leveldb") else { return };
    let Some(gtest) = debian::packages("gtest", GTEST) else { return };
    let parent = tempfile::tempdir().expect("a scratch directory");
    for name in [
        "status_test",
        "cache_test",
        "bloom_test",
        "env_test",
        "issue178_test",
        "issue200_test",
        "issue320_test",
        "db_test",
    ] {
        let program = suite(name, &sources, &gtest, parent.path());
        let mut list = ours(&program, &scratch(parent.path(), &format!("{name}-list")));
        let list = String::from_utf8(run(list.arg("--gtest_list_tests")).stdout).expect("UTF-8");
        let mut group = "";
        let (mut passed, mut failed) = (0, Vec::new());
        for line in list.lines() {
            let Some(test) = line.strip_prefix("  ") else {
                group = line;
                continue;
            };
            let data = scratch(parent.path(), &format!("{name}-{test}"));
            let output =
                ours(&program, &data).arg(format!("--gtest_filter={group}{test}")).output().expect("a test");
            if output.status.success() {
                passed += 1;
            } else {
                failed.push(test);
            }
        }
        eprintln!("{name}: {passed} pass, {failed:?} do not");
        let expected: Vec<_> =
            if name == "db_test" { NOT_OURS.iter().map(|n| n.0).collect() } else { Vec::new() };
        let lost: Vec<_> = failed.iter().filter(|test| !expected.contains(test)).collect();
        assert!(lost.is_empty() && (name != "db_test" || passed >= 41), "{name}: {lost:?}");
    }
}

/// LevelDB's own benchmark, unchanged, with all the measurements of its default list.
#[test]
fn leveldbs_own_benchmark_runs_with_both_engines() {
    if !has_leveldb() || !has_cxx() {
        return;
    }
    let Some(sources) = debian::sources("leveldb") else { return };
    let Some(gtest) = debian::packages("gtest", GTEST) else { return };
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = parent.path().join("db_bench");
    let mut build = compiler(&sources, &gtest);
    build.arg(sources.join("benchmarks/db_bench.cc"));
    for file in ["crc32c", "histogram", "testutil"] {
        build.arg(sources.join(format!("util/{file}.cc")));
    }
    link(build.arg("-o").arg(&program), &gtest);
    let bench = |engine: &str, name: &str| {
        let mut command = ours(&program, &scratch(parent.path(), name));
        let place = format!("--db={}", parent.path().join(name).join("db").display());
        command.env("MANGROVE_LEVELDB_ENGINE", engine).args(["--num=1000", &place]);
        command
    };
    for engine in ENGINES {
        let output = run(&mut bench(engine, engine));
        let text = [output.stdout, output.stderr].concat();
        // It writes its progress over itself.
        let text = String::from_utf8_lossy(&text).replace('\r', "\n");
        for what in ["fillseq ", "fillsync ", "readrandom ", "readreverse ", "compact ", "fill100K "] {
            let line = text.lines().find(|line| line.starts_with(what));
            assert!(line.is_some_and(|line| line.contains("micros/op")), "{engine}: no {what}in {text}");
        }
        assert!(!text.to_lowercase().contains("error"), "{engine}: {text}");
        // Where it cannot work it ends otherwise, with the word that is looked for above.
        let mut refused = bench(engine, &format!("{engine}-refused"));
        let output = refused.env("MANGROVE_LEVELDB_MEMORY_MAX", "1000").output().expect("db_bench");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains("error"), "{engine}: {text}");
    }
}

/// A program of LevelDB's tests, to be run with this library.
fn ours(program: &Path, data: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("600").arg(program).env("LD_LIBRARY_PATH", classes()).env("TEST_TMPDIR", data);
    command.env("MANGROVE_LEVELDB_ENV", "ignore");
    command
}

/// The compiler for programs of LevelDB's sources.
fn compiler(sources: &Path, gtest: &Path) -> Command {
    let mut build = Command::new("c++");
    build.args([
        "-std=c++17",
        "-w",
        "-O0",
        "-DLEVELDB_PLATFORM_POSIX=1",
        "-DHAVE_SNAPPY=0",
        "-DHAVE_CRC32C=0",
    ]);
    build.args(["-ffunction-sections", "-Wl,--gc-sections", "-I"]).arg(here().join("tests/cpp/inside"));
    build.arg("-I").arg(sources).arg("-I").arg(sources.join("include"));
    build.arg("-I").arg(gtest.join("usr/include"));
    build
}

/// Links such a program with this library.
fn link(build: &mut Command, gtest: &Path) {
    build.arg("-L").arg(gtest.join("usr/lib/x86_64-linux-gnu")).arg("-L").arg(classes());
    run(build.args(["-lgmock", "-lgtest", "-lleveldb", "-pthread"]));
}

/// Compiles one of LevelDB's tests.
fn suite(name: &str, sources: &Path, gtest: &Path, folder: &Path) -> PathBuf {
    let (inside, program) = (here().join("tests/cpp/inside"), folder.join(name));
    let place = ["db", "util", "issues"].map(|part| sources.join(part).join(format!("{name}.cc")));
    let mut build = compiler(sources, gtest);
    build.arg(place.iter().find(|file| file.exists()).expect("the test"));
    build.arg(inside.join("inside.cc"));
    for file in ["db/dbformat", "db/filename", "util/coding", "util/logging", "util/hash", "util/testutil"] {
        build.arg(sources.join(format!("{file}.cc")));
    }
    build.arg("-o").arg(&program);
    let text =
        std::fs::read_to_string(place.iter().find(|file| file.exists()).expect("the test")).expect("read");
    if !text.contains("int main(") {
        build.arg("-lgtest_main");
    }
    link(&mut build, gtest);
    program
}
