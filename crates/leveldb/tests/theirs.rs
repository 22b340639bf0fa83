//! LevelDB's own test of its C API, fetched from Debian's sources when the test runs (never stored here), built
//! against LevelDB's header and run with this library.

mod common;

use common::{Whose, cc, has_leveldb, run, scratch, under_leveldbs_names};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                       http://deb.debian.org/debian bookworm main\n";

/// LevelDB's db/c_test.c, if apt can fetch it; none where there is no apt or no network.
fn fetch(folder: &Path) -> Option<PathBuf> {
    let lists = folder.join("lists");
    std::fs::create_dir_all(lists.join("partial")).expect("a folder");
    std::fs::create_dir_all(folder.join("cache/archives/partial")).expect("a folder");
    std::fs::write(folder.join("src.list"), SOURCES).expect("write");
    let apt = |words: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", "apt-get", "-qq"]).current_dir(folder);
        for (option, value) in
            [("Dir::Etc::SourceList", "src.list"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")]
        {
            command.arg("-o").arg(format!("{option}={}", folder.join(value).display()));
        }
        command.args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User=root"]);
        command.args(words).output().is_ok_and(|o| o.status.success())
    };
    let archive = "leveldb_1.23.orig.tar.gz";
    if !apt(&["update"]) || !apt(&["source", "--download-only", "leveldb"]) || !folder.join(archive).exists()
    {
        return None;
    }
    run(Command::new("tar").args(["xzf", archive]).current_dir(folder));
    let file = folder.join("leveldb-1.23/db/c_test.c");
    file.exists().then_some(file)
}

#[test]
fn leveldbs_own_c_test_passes() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch folder");
    let Some(file) = fetch(&scratch(parent.path(), "source")) else {
        eprintln!("apt cannot fetch LevelDB's sources here: this test does nothing");
        return;
    };
    let program = parent.path().join("c_test");
    // Warnings of LevelDB's own code do not matter here.
    run(cc().arg("-w").arg(&file).arg("-o").arg(&program).arg("-lleveldb"));
    let folder = under_leveldbs_names(parent.path());
    // The test has a comparator of its own, which the default engine takes.
    for (whose, place) in [(Whose::LevelDb, "theirs"), (Whose::Ours(&folder, "durable"), "ours")] {
        let output = run(whose.command(&program).env("TEST_TMPDIR", scratch(parent.path(), place)));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.ends_with("PASS\n"), "{said}");
    }
}
