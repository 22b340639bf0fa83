//! Exports to a file: whole or not at all, beside others, over what was there.

use crate::support::{HEEDING, SMALL_FILES, Yard, end_of, finish, signal, spawn};
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// A pool that takes a while to export.
fn large(yard: &Yard, pool: &str) -> String {
    let tsv: String = (0..200_000).map(|i| format!("k{i:06}\t{pool}{pool}{pool}\n")).collect();
    let load = ["map", "load", pool, "--format=tsv", "--log=1M", "--batch=1000", "--durability=interval=100"];
    yard.feed(&load, tsv.as_bytes()).is(0, "", "load");
    tsv
}

#[test]
fn an_export_replaces_files_and_nothing_else() {
    let yard = Yard::new();
    let sample = yard.sample();
    fs::write(yard.path("old.tsv"), "old").unwrap();
    let links =
        [("device", "/dev/null"), ("full", "/dev/full"), ("link", "old.tsv"), ("to_nothing", "new.tsv")];
    for (link, to) in links {
        symlink(to, yard.path(link)).unwrap();
    }
    yard.ok(&["map", "export", "p", "device"]);
    yard.fails(&["map", "export", "p", "full"], 3, "cannot write full: No space left");
    for (link, to) in [("link", "old.tsv"), ("to_nothing", "new.tsv")] {
        yard.ok(&["map", "export", "p", link]);
        assert_eq!(fs::read(yard.path(to)).unwrap(), sample, "{link}");
    }
    for (link, to) in links {
        assert_eq!(fs::read_link(yard.path(link)).unwrap(), std::path::Path::new(to), "{link}");
    }
    fs::create_dir(yard.path("folder")).unwrap();
    let before = yard.names();
    yard.fails(&["map", "export", "p", "folder"], 3, "cannot write folder");
    yard.fails(&["map", "export", "nothing", "new.tsv"], 3, "there is no pool at nothing");
    yard.fails(&["map", "export", "p", "no/such/folder"], 3, "cannot write no/such/folder");
    assert_eq!(yard.names(), before, "something is left behind");
}

#[test]
fn an_export_replaces_no_file_of_a_pool() {
    let yard = Yard::new();
    let sample = yard.sample();
    yard.ok(&["map", "put", "q", "k", "v"]);
    symlink("q/image", yard.path("link")).unwrap();
    for file in ["p/image", "q/image", "q/new.tsv", "link"] {
        yard.fails(&["map", "export", "p", file], 2, "in a pool's directory");
    }
    // A damaged one may still be salvaged.
    let image = fs::read(yard.path("q/image")).unwrap();
    let pool = fs::read(yard.path("p/pool")).unwrap();
    let torn: Vec<u8> = pool.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at % 4096 == 64)).collect();
    fs::write(yard.path("q/pool"), torn).unwrap();
    yard.fails(&["map", "export", "p", "q/image"], 2, "in a pool's directory");
    assert_eq!(fs::read(yard.path("q/image")).unwrap(), image);
    assert_eq!(yard.run(&["map", "scan", "p"]).out, sample);
}

#[test]
fn the_file_that_is_standard_output_keeps_what_is_in_it() {
    let yard = Yard::new();
    let sample = yard.sample();
    for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        fs::write(yard.path("all.tsv"), "before\n").unwrap();
        let out = fs::File::options().append(true).open(yard.path("all.tsv")).unwrap();
        let status = yard.command(&["map", "export", "p", name]).stdout(out).status().unwrap();
        assert_eq!(status.code(), Some(0), "{name}");
        let all = fs::read(yard.path("all.tsv")).unwrap();
        assert!(all == [&b"before\n"[..], &sample[..]].concat(), "{name}: {} bytes", all.len());
    }
}

#[test]
fn an_export_fails_whose_standard_output_cannot_be_kept() {
    let strace =
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO"];
    if !Command::new(strace[0]).args(&strace[1..]).arg("true").status().is_ok_and(|done| done.success()) {
        eprintln!("strace cannot trace here");
        return;
    }
    let yard = Yard::new();
    yard.sample();
    // As a network's file system may, that has taken the bytes.
    let mut export = yard.command_behind(&strace, &["map", "export", "p"]);
    let [out, err] = ["out", "err"].map(|name| fs::File::create(yard.path(name)).unwrap());
    let status = export.stdout(out).stderr(err).status().unwrap();
    let said = fs::read_to_string(yard.path("err")).unwrap();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("cannot write standard output: Input/output error"), "{said}");
    // A pipe cannot be synced, and need not be.
    finish(yard.command_behind(&strace, &["map", "export", "p"])).is(0, "", "a pipe");
}

#[test]
fn exports_to_one_file_at_a_time_are_each_whole() {
    let yard = Yard::new();
    let whole = [large(&yard, "p"), large(&yard, "q")];
    for round in 0..3 {
        let mut exports =
            ["p", "q"].map(|pool| spawn(&mut yard.command(&["map", "export", pool, "out.tsv"])));
        let codes = exports.each_mut().map(end_of);
        assert_eq!(codes, [Some(0), Some(0)], "round {round}");
        let out = fs::read(yard.path("out.tsv")).unwrap();
        assert!(whole.iter().any(|tsv| tsv.as_bytes() == out), "round {round}: a mixture");
    }
    assert_eq!(yard.names(), ["out.tsv", "p", "q"]);
}

#[test]
fn an_export_keeps_the_permissions_of_what_it_replaces() {
    let yard = Yard::new();
    yard.sample();
    let mode = |name: &str| fs::metadata(yard.path(name)).unwrap().permissions().mode() & 0o7777;
    for bits in [0o600, 0o640, 0o666, 0o444] {
        fs::write(yard.path("old.tsv"), "old").unwrap();
        fs::set_permissions(yard.path("old.tsv"), Permissions::from_mode(bits)).unwrap();
        yard.ok(&["map", "export", "p", "old.tsv"]);
        assert_eq!(mode("old.tsv"), bits, "{bits:o} became {:o}", mode("old.tsv"));
        fs::remove_file(yard.path("old.tsv")).unwrap();
    }
    for (umask, bits) in [("022", 0o644), ("027", 0o640)] {
        let script = format!("umask {umask}; exec \"$@\"");
        let export = ["map", "export", "p", "new.tsv"];
        finish(yard.command_behind(&["sh", "-c", &script, "sh"], &export)).is(0, "", "export");
        assert_eq!(mode("new.tsv"), bits, "a new file, umask {umask}");
        fs::remove_file(yard.path("new.tsv")).unwrap();
    }
}

#[test]
fn an_export_touches_no_other_file() {
    let yard = Yard::new();
    let sample = yard.sample();
    fs::write(yard.path("mine"), "mine").unwrap();
    fs::write(yard.path("out.tsv.part"), "mine too").unwrap();
    symlink("mine", yard.path("other.tsv.part")).unwrap();
    let before = yard.names();
    for out in ["out.tsv", "other.tsv"] {
        yard.ok(&["map", "export", "p", out]);
        assert_eq!(fs::read(yard.path(out)).unwrap(), sample);
        assert!(!yard.path(out).is_symlink());
        fs::remove_file(yard.path(out)).unwrap();
    }
    assert_eq!(fs::read(yard.path("mine")).unwrap(), b"mine");
    assert_eq!(fs::read(yard.path("out.tsv.part")).unwrap(), b"mine too");
    assert_eq!(yard.names(), before);
}

#[test]
fn an_export_that_fails_or_is_stopped_leaves_what_was_there() {
    let yard = Yard::new();
    large(&yard, "p");
    fs::write(yard.path("out.tsv"), "old").unwrap();
    let export = ["map", "export", "p", "out.tsv", "--format", "hex"];
    finish(yard.command_behind(&SMALL_FILES, &export)).is(3, "File too large", "a file size limit");
    let mut stopped = 0;
    for _ in 0..10 {
        let mut child = spawn(&mut yard.command_behind(&HEEDING, &export));
        while yard.names().len() == 2 && child.try_wait().unwrap().is_none() {}
        signal(&child, "TERM");
        let code = end_of(&mut child);
        assert_eq!(yard.names(), ["out.tsv", "p"], "{code:?}: something is left behind");
        if code == Some(130) {
            assert_eq!(fs::read(yard.path("out.tsv")).unwrap(), b"old");
            stopped += 1;
        } else {
            assert_eq!(code, Some(0));
            fs::write(yard.path("out.tsv"), "old").unwrap();
        }
    }
    assert!(stopped > 0, "no signal came before the end");
}

#[test]
fn an_export_through_a_link_to_nothing_is_whole_or_nothing() {
    let yard = Yard::new();
    large(&yard, "p");
    let links = [("link", "new.tsv"), ("one", "two"), ("two", "one")];
    for (link, to) in links {
        symlink(to, yard.path(link)).unwrap();
    }
    let before = yard.names();
    let export = ["map", "export", "p", "link", "--format", "hex"];
    finish(yard.command_behind(&SMALL_FILES, &export)).is(3, "File too large", "a file size limit");
    yard.fails(&["map", "export", "nothing", "link"], 3, "there is no pool at nothing");
    yard.fails(&["map", "export", "p", "one"], 3, "cannot write one");
    assert_eq!(yard.names(), before, "something is left behind");
    for (link, to) in links {
        assert_eq!(fs::read_link(yard.path(link)).unwrap(), std::path::Path::new(to), "{link}");
    }
}

#[test]
fn a_named_pipe_that_nobody_reads_to_the_end_is_told() {
    let yard = Yard::new();
    large(&yard, "p");
    assert!(Command::new("mkfifo").arg(yard.path("fifo")).status().unwrap().success());
    let mut child = spawn(&mut yard.command(&["map", "export", "p", "fifo"]));
    let mut some = [0; 10];
    fs::File::open(yard.path("fifo")).unwrap().read_exact(&mut some).unwrap();
    assert_eq!(end_of(&mut child), Some(3));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("cannot write fifo: Broken pipe"), "{said}");
}
