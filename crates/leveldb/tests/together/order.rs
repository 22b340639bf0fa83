//! The order in which files become durable, as system calls show it.

use crate::common::{ENGINES, Whose, build, cc, has_leveldb, here, run, scratch, under_leveldbs_names};

/// A power cut loses everything in a directory whose name it loses.
#[test]
fn the_name_of_a_databases_folder_is_durable_before_there_is_a_database() {
    if !has_leveldb() {
        return;
    }
    let parent = tempfile::tempdir().expect("a scratch directory");
    let program = build("open", parent.path());
    let watch = parent.path().join("watch.so");
    run(cc().args(["-shared", "-fPIC"]).arg(here().join("tests/c/watch.c")).arg("-o").arg(&watch));
    let folder = under_leveldbs_names(parent.path());
    for engine in ENGINES {
        let data = scratch(parent.path(), engine).canonicalize().expect("its path");
        let output = run(Whose::Ours(&folder, engine).command(&program).env("LD_PRELOAD", &watch).arg(&data));
        let said = String::from_utf8_lossy(&output.stderr);
        let line = |line: String| said.lines().position(|said| said == line);
        let synced = line(format!("sync {}", data.display()));
        let made = line(format!("rename {}/db/MANGROVE", data.display()));
        assert!(synced.is_some() && made.is_some() && synced < made, "{engine}: {said}");
    }
}
