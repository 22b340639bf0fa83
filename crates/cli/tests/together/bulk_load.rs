//! `mangrove map load --bulk`: a new pool, whole or not at all.

use crate::support::{HEEDING, Mount, SMALL_FILES, Yard, end_of, finish, signal, spawn};
use std::fmt::Write;

const COUNT: usize = 200_000;

/// A file of records in no order, with some keys twice.
fn source(yard: &Yard) -> String {
    let mut tsv = String::new();
    for i in 0..COUNT {
        let key = (i * 7_919) % (COUNT - 100);
        writeln!(tsv, "key{key:08}\t{}", "v".repeat(i % 120)).expect("a string");
    }
    std::fs::write(yard.path("in.tsv"), &tsv).expect("write");
    tsv
}

/// Nothing but the source is there.
#[track_caller]
fn nothing_more(yard: &Yard) {
    assert_eq!(yard.names(), ["in.tsv"]);
}

const LOAD: [&str; 5] = ["map", "load", "new", "in.tsv", "--bulk"];

#[test]
fn a_bulk_load_makes_the_same_map_as_an_ordinary_one() {
    let yard = Yard::new();
    source(&yard);
    let told = yard.ok(&LOAD);
    assert!(told.contains("200,000 records") && told.contains("199,900 in the map"), "{told}");
    yard.ok(&["map", "load", "old", "in.tsv", "--durability", "interval=100", "--batch", "1000"]);
    assert!(yard.ok(&["map", "export", "new"]) == yard.ok(&["map", "export", "old"]));
    yard.ok(&["map", "check", "new"]);
    yard.ok(&["map", "put", "new", "more", "of it"]);
    assert_eq!(yard.ok(&["map", "get", "new", "more"]).trim(), "of it");
    yard.fails(&LOAD, 3, "new");
    let json = yard.ok(&["map", "load", "batches", "in.tsv", "--bulk", "--batch", "500", "--json"]);
    assert!(json.contains("\"bulk\": true") && json.contains("\"records_in_map\": 199900"), "{json}");
    // No put waits for the device: a thread for each processor at most.
    let processors = std::thread::available_parallelism().expect("processors").get().min(16);
    assert!(json.contains(&format!("\"threads\": {processors}\n")), "{json}");
    yard.fails(&["map", "load", "x", "in.tsv", "--bulk", "--durability", "sync"], 2, "cannot be used with");
    yard.fails(&["map", "load", "x", "in.tsv", "--bulk", "--report"], 2, "cannot be used with");
}

#[test]
fn a_bulk_load_that_is_killed_leaves_no_half_pool() {
    let yard = Yard::new();
    source(&yard);
    for milliseconds in [3, 20, 60, 120, 250] {
        let mut child = spawn(&mut yard.command(&LOAD));
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        // It may have come after the last step, on a machine as fast as that.
        if yard.path("new").exists() {
            yard.ok(&["map", "check", "new"]);
            assert_eq!(yard.ok(&["map", "count", "new"]).trim(), "199900", "half a pool is there");
        }
        let _ = std::fs::remove_dir_all(yard.path("new"));
    }
    // Ctrl-C ends it in order; then nothing is left, or it was done before.
    let mut child = spawn(&mut yard.command_behind(&HEEDING, &LOAD));
    std::thread::sleep(std::time::Duration::from_millis(60));
    signal(&child, "INT");
    match end_of(&mut child) {
        Some(0) => std::fs::remove_dir_all(yard.path("new")).expect("remove"),
        _ => assert!(!yard.path("new").exists()),
    }
    // It replaces what the killed ones have left.
    yard.ok(&LOAD);
    assert_eq!(yard.names(), ["in.tsv", "new"]);
    yard.ok(&["map", "check", "new"]);
}

#[test]
fn a_damaged_source_and_a_full_disk_leave_nothing() {
    let yard = Yard::new();
    let tsv = source(&yard);
    std::fs::write(yard.path("in.tsv"), tsv.clone() + "no tab\n").expect("write");
    yard.fails(&["map", "load", "new", "in.tsv", "--bulk", "--format", "tsv"], 2, "200001");
    nothing_more(&yard);
    std::fs::write(yard.path("in.tsv"), tsv).expect("write");
    let told = finish(yard.command_behind(&SMALL_FILES, &LOAD));
    told.is(3, "new", "a file size limit");
    nothing_more(&yard);
    for bytes in [600 << 10, 12 << 20] {
        let mount = match Mount::tmpfs(&yard.path("small"), bytes) {
            Ok(mount) => mount,
            Err(why) => return eprintln!("no small disk here ({why}): nothing is tested with one"),
        };
        yard.fails(&["map", "load", "small/new", "in.tsv", "--bulk"], 3, "no space left");
        assert_eq!(std::fs::read_dir(yard.path("small")).expect("the directory").count(), 0);
        drop(mount);
    }
}
