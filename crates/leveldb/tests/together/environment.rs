//! Programs that are started once with LevelDB itself, by mistake: it makes no database inside ours.

use crate::common;
use crate::common::{ENGINES, Whose, has_leveldb, here, run, under_leveldbs_names};
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

/// Writes a line with the diary.
fn write(whose: Whose<'_>, program: &Path, folder: &Path) -> Output {
    let mut command = whose.command(program);
    let mut child = command
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it reads.
    let _ = child.stdin.take().unwrap().write_all(b"tide\n");
    child.wait_with_output().unwrap()
}

fn kept(output: &Output, number: u32) {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("kept {number}\n")), "{output:?}");
}

#[test]
fn leveldb_itself_is_kept_out_and_what_it_made_before_is_named() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let program = parent.path().join("diary");
    let source = here().join("../../examples/leveldb/main.c");
    run(common::cc().arg(source).arg("-o").arg(&program).arg("-lleveldb"));
    let ours = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        let ours = Whose::Ours(&ours, engine);
        let folder = parent.path().join(engine);
        kept(&write(ours, &program, &folder), 1);
        let theirs = write(Whose::LevelDb, &program, &folder);
        let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
        assert!(
            !theirs.status.success() && said.contains("Mangrove") && said.contains("LD_LIBRARY_PATH"),
            "{said}"
        );
        kept(&write(ours, &program, &folder), 2);
        // A database of an earlier version has no such protection; LevelDB made its own there.
        std::fs::remove_file(folder.join("CURRENT")).unwrap();
        kept(&write(Whose::LevelDb, &program, &folder), 1);
        let both = write(ours, &program, &folder);
        let said = String::from_utf8_lossy(&both.stderr).into_owned();
        let names = said.trim().rsplit_once("move these away: ").unwrap_or_else(|| panic!("{said}")).1;
        assert!(names.contains("CURRENT") && names.contains("MANIFEST-"), "{said}");
        for name in names.split(' ') {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        kept(&write(ours, &program, &folder), 3);
        assert!(folder.join("CURRENT").exists(), "now it is protected");
    }
    // A database of LevelDB's own is refused as before.
    let folder = parent.path().join("theirs");
    kept(&write(Whose::LevelDb, &program, &folder), 1);
    let refused = write(Whose::Ours(&ours, "map"), &program, &folder);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("does not read"), "{refused:?}");
}
