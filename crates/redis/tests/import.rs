//! The import of an append-only file that does not come to its end, with the real server. Where `make redis` has not
//! built it there is nothing to run.

mod support;

use std::path::Path;
use support::{Server, is_built};

const KEYS: usize = 1_000;

/// The directory of an append-only file that sets so many keys, and the file in it that has the commands.
fn append_only_file(dir: &Path) -> (std::path::PathBuf, Vec<u8>) {
    let folder = dir.join("appendonlydir");
    std::fs::create_dir(&folder).unwrap();
    let name = "appendonly.aof.1.incr.aof";
    std::fs::write(folder.join("appendonly.aof.manifest"), format!("file {name} seq 1 type i\n")).unwrap();
    let set = |key| {
        let key = format!("key:{key}");
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\n1\r\n", key.len())
    };
    let commands: String = (0..KEYS).map(set).collect();
    std::fs::write(folder.join(name), &commands).unwrap();
    (folder.join(name), commands.into_bytes())
}

/// In its middle: what is damaged at the end is cut off and the rest imported.
fn damage(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..][..5].fill(b'#');
    std::fs::write(file, bytes).unwrap();
}

/// What the server says that does not start, and its exit code.
fn refused(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let before = std::fs::read_to_string(dir.join("log")).unwrap_or_default().len();
    let mut server = Server::start(dir, more);
    assert!(!server.is_up(), "the server serves");
    (server.child.wait().unwrap().code(), server.log()[before..].to_owned())
}

#[test]
fn an_append_only_file_whose_import_was_cut_short_is_imported_again_and_no_state_without_it_counts() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let (file, sound) = append_only_file(dir);
    damage(&file);
    let appendonly = ["--appendonly", "yes"];
    let (code, said) = refused(dir, &appendonly);
    assert!(code == Some(1) && said.contains("Bad file format"), "{code:?}: {said}");
    // Without the directive the state would count with nothing in it.
    let (code, said) = refused(dir, &[]);
    assert!(code == Some(2) && said.contains("start with appendonly yes"), "{code:?}: {said}");
    std::fs::write(&file, sound).unwrap();
    let server = Server::serving(dir, &appendonly);
    assert!(server.log().contains("begins again"), "{}", server.log());
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
    drop(server);
    // Now it counts, and the file is not needed.
    let (code, said) = refused(dir, &appendonly);
    let expected = "remove `appendonly yes` from the command line";
    assert!(code == Some(2) && said.contains(expected), "{code:?}: {said}");
    let server = Server::serving(dir, &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]), Some(format!(":{KEYS}\r\n")));
}

#[test]
fn a_state_starts_empty_when_the_file_of_its_import_has_been_taken_away() {
    if !is_built() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    damage(&append_only_file(dir).0);
    refused(dir, &["--appendonly", "yes"]);
    std::fs::remove_dir_all(dir.join("appendonlydir")).unwrap();
    let server = Server::serving(dir, &[]);
    assert_eq!(server.ask(&[b"DBSIZE"]).as_deref(), Some(":0\r\n"));
}
