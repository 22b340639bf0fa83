//! A program that writes with sync is killed again and again; every acknowledged write must be there.

use crate::common::{ENGINES, Whose, build, has_leveldb, scratch, under_leveldbs_names};
use mangrove_testkit::command::LineCount;
use std::io::Write;
use std::process::Stdio;

const THREADS: &str = "6";
const KILLS: u64 = 6;

#[test]
fn what_was_acknowledged_survives_sigkill() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("acked", parent.path());
    let folder = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        let (whose, data) = (Whose::Ours(&folder, engine), scratch(parent.path(), engine));
        let mut told = Vec::new();
        for kill in 0..KILLS {
            let mut child = whose
                .command(&program)
                .args(["write".as_ref(), data.as_os_str(), THREADS.as_ref()])
                .stdout(Stdio::piped())
                .spawn()
                .expect("the program");
            let out = child.stdout.take().expect("its output");
            let said = LineCount::default();
            let counted = said.clone();
            let reader = std::thread::spawn(move || counted.of(out).collect::<Vec<_>>());
            said.reaches(50 + 70 * kill);
            child.kill().expect("SIGKILL");
            assert!(child.wait().expect("its end").code().is_none(), "{engine}: it ended by itself");
            let lines = reader.join().expect("the reader");
            told = lines.iter().flat_map(|line| [line, &b"\n"[..]].concat()).collect();
            verify(whose, &program, &data, &told);
        }
        // The check can fail: a number that was never acknowledged.
        told.extend_from_slice(b"0 99999999\n");
        assert!(!verified(whose, &program, &data, &told));
    }
}

#[track_caller]
fn verify(whose: Whose<'_>, program: &std::path::Path, data: &std::path::Path, told: &[u8]) {
    assert!(verified(whose, program, data, told), "{whose:?} lost something");
}

fn verified(whose: Whose<'_>, program: &std::path::Path, data: &std::path::Path, told: &[u8]) -> bool {
    let mut child = whose
        .command(program)
        .args(["verify".as_ref(), data.as_os_str(), THREADS.as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    child.stdin.take().expect("its input").write_all(told).expect("write");
    child.wait().expect("its end").success()
}
