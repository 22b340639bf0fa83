//! A database that is copied by `cp -r` while a program writes to it: the copy has the records as of one write, or is
//! refused with a message.

use crate::common::{ENGINES, Whose, build, has_leveldb, under_leveldbs_names};
use mangrove_testkit::command::{LineCount, told};
use std::path::Path;
use std::process::{Command, Stdio};

const COPIES: u64 = 8;

#[test]
fn a_copy_of_an_open_database_is_one_instant_or_refused() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("copied", parent.path());
    let folder = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        let whose = Whose::Ours(&folder, engine);
        let data = parent.path().join(engine);
        let mut child = whose
            .command(&program)
            .arg("write")
            .arg(&data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let out = child.stdout.take().expect("its output");
        let said = LineCount::default();
        let counted = said.clone();
        let reader = std::thread::spawn(move || counted.of(out).for_each(drop));
        let running = |what: &str, place: &Path| {
            whose.command(&program).arg(what).arg(place).output().expect("the program")
        };
        let verified = |place: &Path| {
            let output = running("verify", place);
            assert!(output.status.success(), "{engine}: {}", told(&output));
            String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
        };
        for number in 0..COPIES {
            // The log is as long as it gets, and begins anew, after some of these.
            said.reaches(1 + 14 * number);
            let copy = parent.path().join(format!("{engine}-{number}"));
            // It may meet a file that is just being removed.
            let copied = Command::new("cp").arg("-r").arg(&data).arg(&copy).output().expect("cp");
            let what = verified(&copy);
            eprintln!("{engine}, copy {number}: {what} ({})", copied.status);
            assert!(
                what.starts_with("the writes to ") || what.starts_with("Corruption: "),
                "{engine}: {what}"
            );
            std::fs::remove_dir_all(&copy).expect("remove");
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        reader.join().expect("the reader");
        assert!(verified(&data).starts_with("the writes to "), "{engine}");
        // The check can fail: one key is older than it may be.
        assert!(running("spoil", &data).status.success(), "{engine}");
        assert!(!running("verify", &data).status.success(), "{engine}: the check finds nothing");
    }
}
