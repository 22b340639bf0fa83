//! LevelDB's own test of its C API, fetched from Debian's sources when the test runs (never stored here), built
//! against LevelDB's header and run with this library.

mod common;

use common::{Whose, cc, debian, has_leveldb, run, scratch, under_leveldbs_names};

#[test]
fn leveldbs_own_c_test_passes() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch folder");
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
