//! Several keys a call, batches of changes, pages of a scan, and what export and load hand to each other.

use crate::support::{Yard, finish, signal, spawn};
use mangrove_sys::file::try_lock;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::process::Command;

#[test]
fn several_keys_are_printed_as_a_scan_prints_them() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "a", "one"]);
    yard.ok(&["map", "put", "p", "--hex", "6209", "0a5c"]);
    assert_eq!(yard.ok(&["map", "get", "p", "a"]), "one\n");
    assert_eq!(yard.ok(&["map", "get", "p", "--escape", "b\\t", "a"]), "b\\t\t\\n\\\\\na\tone\n");
    assert_eq!(yard.ok(&["map", "get", "p", "--hex", "61", "6209"]), "61\t6f6e65\n6209\t0a5c\n");
    let said = yard.run(&["map", "get", "p", "x", "a", "y"]);
    said.is(1, "no key 'x' in p", "missing");
    said.is(1, "no key 'y' in p", "missing");
    assert_eq!(said.out, b"a\tone\n");
    let said = yard.run(&["map", "get", "p", "x", "a", "--json"]);
    assert_eq!(said.code, 1);
    let lines: Vec<Value> = String::from_utf8(said.out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = [
        json!({ "key": "x", "found": false, "value": null }),
        json!({ "key": "a", "found": true, "value": "one" }),
    ];
    assert_eq!(lines, expected);
    yard.fails(&["map", "get", "p", "x", "a", "--raw"], 2, "the value of one key");
    yard.fails(&["map", "get", "p"], 2, "required");
}

#[test]
fn changes_are_applied_all_or_none() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "from", "40"]);
    let apply = ["map", "apply", "p"];
    yard.feed(&apply, b"put\tto\\n\t40\ndel\tfrom\ndel\tnever\n").is(0, "1 put, 2 deleted", "a batch");
    assert_eq!(yard.ok(&["map", "scan", "p"]), "to\\n\t40\n");
    // Of two changes to one key the later one counts.
    yard.feed(&apply, b"put\ta\t1\ndel\ta\nput\tb\t1\nput\tb\t2").is(0, "", "one key");
    assert_eq!(yard.ok(&["map", "scan", "p"]), "b\t2\nto\\n\t40\n");
    let before = yard.ok(&["map", "scan", "p"]);
    for (lines, sentence) in [
        ("put\tc\t1\nput\td\n", "line 2: a line is 'put'"),
        ("put\tc\t1\ndel\tb\tvalue\n", "line 2: a line is 'put'"),
        ("put\tc\t1\nb\t2\n", "line 2: a line is 'put'"),
        ("put\tc\t1\n\n", "line 2: a line is 'put'"),
        ("put\tc\t\\q\n", "line 1: '\\q' has an escape"),
    ] {
        yard.feed(&apply, lines.as_bytes()).is(2, sentence, lines);
    }
    let long = format!("put\tc\t1\nput\t{}\t1\n", "k".repeat(1025));
    yard.feed(&apply, long.as_bytes()).is(2, "lines 1 to 2: ", "a key that is too long");
    assert_eq!(yard.ok(&["map", "scan", "p"]), before, "half of a batch");
    yard.feed(&["map", "apply", "new"], b"nonsense\n").is(2, "line 1", "no pool");
    assert!(!yard.path("new").exists());
    yard.feed(&["map", "apply", "p", "--hex"], b"put\t00\tff\n").is(0, "", "hex");
    assert_eq!(yard.ok(&["map", "get", "p", "--hex", "00"]), "ff\n");
    yard.feed(&["map", "apply", "empty"], b"").is(0, "0 put", "no line");
    assert_eq!(yard.ok(&["map", "count", "empty"]), "0\n");
}

#[test]
fn batches_of_changes_that_were_applied_stay() {
    let yard = Yard::new();
    fs::write(yard.path("in"), "put\ta\t1\nput\tb\t2\ndel\ta\nput\tc\t3\nput\td\n").unwrap();
    let said = yard.run(&["map", "apply", "p", "in", "--batch", "2"]);
    said.is(2, "line 5: a line is 'put'", "the fifth line");
    said.is(2, "stopped; 2 batches (3 put, 1 deleted) were applied and stay", "the rest");
    assert_eq!(yard.ok(&["map", "scan", "p"]), "b\t2\nc\t3\n");
    fs::write(yard.path("in"), "put\ta\t1\nput\tb\t5\ndel\tc\n").unwrap();
    let told = yard.ok(&["map", "apply", "p", "in", "--batch", "2", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told, json!({ "puts": 2, "deletes": 1, "batches": 2, "complete": true }));
    assert_eq!(yard.ok(&["map", "scan", "p"]), "a\t1\nb\t5\n");
}

#[test]
fn a_scan_goes_on_after_a_key() {
    let yard = Yard::new();
    yard.feed(&["map", "load", "p"], b"a\nb\nba\nbb\nc\n").is(0, "", "load");
    let keys = |args: &[&str]| {
        let all = [&["map", "scan", "p", "--keys"], args].concat();
        yard.ok(&all).lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&["--after", "b"]), "ba bb c");
    assert_eq!(keys(&["--after", "az"]), "b ba bb c");
    assert_eq!(keys(&["--after", ""]), "a b ba bb c");
    assert_eq!(keys(&["--after", "c"]), "");
    assert_eq!(keys(&["--after", "b", "--to", "bb"]), "ba");
    for to in ["a", "b"] {
        assert_eq!(keys(&["--after", "b", "--to", to]), "");
    }
    assert_eq!(keys(&["--after", "ba", "--prefix", "b"]), "bb");
    assert_eq!(keys(&["--after", "a", "--prefix", "b"]), "b ba bb");
    assert_eq!(keys(&["--after", "c", "--prefix", "b"]), "");
    assert_eq!(keys(&["--after", "b", "--reverse", "--limit", "2"]), "c bb");
    assert_eq!(yard.ok(&["map", "count", "p", "--after", "b"]), "3\n");
    yard.fails(&["map", "scan", "p", "--after", "b", "--from", "b"], 2, "cannot be used with");
    yard.ok(&["map", "del", "p", "--after", "ba"]);
    assert_eq!(keys(&[]), "a b ba");
}

#[test]
fn a_key_that_is_too_long_deletes_no_other() {
    let yard = Yard::new();
    for key in ["a", "b"] {
        yard.ok(&["map", "put", "p", key, "1"]);
    }
    let long = "k".repeat(1025);
    yard.fails(&["map", "del", "p", "a", "b", &long], 2, "this one has 1025");
    yard.fails(&["map", "put", "p", &long, "1"], 2, "this one has 1025");
    assert_eq!(yard.ok(&["map", "count", "p"]), "2\n");
    yard.ok(&["map", "del", "p", "a", "b"]);
}

#[test]
fn load_knows_what_export_wrote() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "--hex", "00ff", "0a"]);
    yard.ok(&["map", "put", "p", "plain", "text"]);
    let hex = yard.ok(&["map", "export", "p", "-", "--format", "hex"]);
    assert_eq!(hex, "#mangrove hex\n00ff\t0a\n706c61696e\t74657874\n");
    assert!(!yard.path("-").exists(), "- is standard output");
    assert_eq!(yard.ok(&["map", "export", "p", "--format", "hex"]), hex);
    for format in ["auto", "hex"] {
        yard.feed(&["map", "load", format, "--format", format], hex.as_bytes()).is(0, "", format);
        assert_eq!(yard.ok(&["map", "scan", format]), yard.ok(&["map", "scan", "p"]), "{format}");
    }
    // Where the file was cut, also between two digits.
    for cut in 1..=8 {
        let said = yard.feed(&["map", "load", "cut"], &hex.as_bytes()[..hex.len() - cut]);
        said.is(2, "line 3: the file ends inside of this line", &format!("{cut} bytes less"));
        yard.fails(&["map", "get", "cut", "plain"], 1, "no key 'plain'");
    }
    // Elsewhere the same words are a key.
    let lines = b"one\n#mangrove hex\n";
    yard.feed(&["map", "load", "lines"], lines).is(0, "", "lines");
    assert_eq!(yard.ok(&["map", "scan", "lines"]), "#mangrove hex\t2\none\t1\n");
}

#[test]
fn what_killed_exports_left_goes_and_what_others_write_stays() {
    let yard = Yard::new();
    yard.sample();
    let name = |end: &str| yard.path(&format!(".mangrove-export-{end}"));
    fs::write(name("killed"), "half").unwrap();
    fs::write(name("written"), "half").unwrap();
    fs::write(yard.path(".mangrove-exports"), "mine").unwrap();
    let written = File::options().write(true).open(name("written")).unwrap();
    assert!(try_lock(&written, true).unwrap());
    yard.ok(&["map", "export", "p", "out.tsv"]);
    let left: Vec<_> = yard.names().into_iter().filter(|name| name.starts_with(".mangrove")).collect();
    assert_eq!(left, [".mangrove-export-written", ".mangrove-exports"]);
    drop(written);
    // An export that is killed, wherever it is.
    for _ in 0..5 {
        let mut export = spawn(&mut yard.command(&["map", "export", "p", "killed.tsv"]));
        signal(&export, "KILL");
        export.wait().unwrap();
    }
    yard.ok(&["map", "export", "p", "out.tsv"]);
    let left: Vec<_> = yard.names().into_iter().filter(|name| name.starts_with(".mangrove")).collect();
    assert_eq!(left, [".mangrove-exports"]);
}

#[test]
fn a_terminal_is_shown_no_control_characters() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "--escape", "red", "\\x1b[31m\\\\"]);
    yard.ok(&["map", "put", "p", "plain", "back\\slash"]);
    assert_eq!(yard.ok(&["map", "get", "p", "red"]), "\u{1b}[31m\\\n", "a pipe gets the bytes");
    let on_terminal = |args: &str| {
        let line = format!("{} {args}", env!("CARGO_BIN_EXE_mangrove"));
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .current_dir(yard.path(""))
            .stdin(std::process::Stdio::null());
        let said = finish(script);
        assert_eq!(said.code, 0, "{}", said.err);
        String::from_utf8(said.out).unwrap().replace('\r', "")
    };
    assert_eq!(on_terminal("map get p red"), "\\x1b[31m\\\\\n");
    assert_eq!(on_terminal("map get p plain"), "back\\slash\n");
    assert_eq!(on_terminal("map get p red --raw"), "\u{1b}[31m\\");
}

#[test]
fn a_pool_that_is_too_damaged_to_open_is_told_in_json() {
    let yard = Yard::new();
    yard.sample();
    let sound: Value = serde_json::from_str(&yard.ok(&["map", "check", "p", "--json"])).unwrap();
    assert_eq!(sound["sound"], true);
    let image = fs::read(yard.path("p/image")).unwrap();
    fs::write(yard.path("p/image"), &image[..image.len() / 2]).unwrap();
    for (command, code) in [("map", 3), ("pool", 1)] {
        let said = yard.run(&[command, "check", "p", "--json"]);
        assert_eq!(said.code, code, "{command}: {}", said.err);
        let told: Value = serde_json::from_slice(&said.out).expect("an object");
        assert_eq!(told["sound"], false, "{command}");
        assert!(told["problems"][0].as_str().unwrap().contains("p/image"), "{command}: {told}");
    }
    yard.fails(&["map", "check", "nothing", "--json"], 3, "there is no pool at nothing");
}

#[test]
fn a_greater_capacity_is_given_in_place_and_a_smaller_one_refused() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "a", "1", "--capacity", "64M", "--log", "1M"]);
    let info = |name: &str| {
        let told: serde_json::Value =
            serde_json::from_str(&yard.ok(&["pool", "info", "p", "--json"])).unwrap();
        told[name].as_u64().unwrap()
    };
    assert_eq!((info("capacity"), info("log_bytes_max")), (64 << 20, 1 << 20));
    let less = ["map", "put", "p", "a", "2", "--capacity", "32M"];
    yard.fails(&less, 2, "p: its capacity is 67108864 bytes and can only become greater, not 33554432");
    yard.ok(&["map", "put", "p", "b", "2", "--capacity", "128M", "--log", "2M"]);
    assert_eq!((info("capacity"), info("log_bytes_max")), (128 << 20, 2 << 20));
    yard.ok(&["map", "put", "p", "c", "3"]);
    assert_eq!((info("capacity"), info("log_bytes_max")), (128 << 20, 2 << 20));
    yard.fails(&["map", "put", "p", "a", "2", "--log", "16K"], 2, "does not become shorter");
    assert_eq!(yard.ok(&["map", "scan", "p"]), "a\t1\nb\t2\nc\t3\n");
}
