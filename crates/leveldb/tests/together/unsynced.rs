//! A program that writes without sync, and ends in every way that a process can: the next one finds all that returned.

use crate::common::{ENGINES, Whose, build, has_leveldb, scratch, under_leveldbs_names};
use std::os::unix::process::ExitStatusExt;

/// Records that one run writes.
const COUNT: usize = 1_000;
const SIGKILL: i32 = 9;

#[test]
fn what_returned_without_sync_survives_the_process() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("unsynced", parent.path());
    let folder = under_leveldbs_names(parent.path());
    let ours = ENGINES.map(|engine| (Whose::Ours(&folder, engine), scratch(parent.path(), engine)));
    // LevelDB itself shows that the test demands no more than it does.
    for (whose, data) in [(Whose::LevelDb, scratch(parent.path(), "leveldb"))].into_iter().chain(ours) {
        for (n, how) in
            ["kill", "_exit", "kill", "exec", "exit", "return", "close", "kill"].iter().enumerate()
        {
            let mut command = whose.command(&program);
            let output =
                command.arg(&data).arg((n * COUNT).to_string()).arg(how).output().expect("the program");
            let killed = output.status.signal() == Some(SIGKILL);
            assert!(output.status.success() || killed && *how == "kill", "{whose:?}, {how}: {output:?}");
        }
        let all = (8 * COUNT).to_string();
        let output = whose.command(&program).arg(&data).args([&all, "close"]).output().expect("the program");
        assert!(output.status.success(), "{whose:?}: {output:?}");
    }
}
