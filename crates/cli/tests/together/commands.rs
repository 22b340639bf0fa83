//! The commands as a user or a script sees them: output, exit codes, any bytes as keys and values.

use crate::support::Yard;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn put_get_and_delete_one_record() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "tide", "low"]);
    assert_eq!(yard.ok(&["map", "get", "p", "tide"]), "low\n");
    assert_eq!(yard.ok(&["map", "get", "p", "tide", "--raw"]), "low");
    yard.ok(&["map", "del", "p", "tide"]);
    yard.fails(&["map", "get", "p", "tide"], 1, "no key 'tide' in p");
    yard.fails(&["map", "del", "p", "tide"], 1, "0 deleted");
}

#[test]
fn conditions_decide_whether_a_put_happens() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "lock", "me", "--if-absent"]);
    yard.fails(&["map", "put", "p", "lock", "you", "--if-absent"], 1, "is there already");
    yard.fails(&["map", "put", "p", "lock", "you", "--expect", "him"], 1, "has another value");
    assert_eq!(yard.ok(&["map", "get", "p", "lock"]), "me\n");
    yard.ok(&["map", "put", "p", "lock", "you", "--expect", "me"]);
    assert_eq!(yard.ok(&["map", "get", "p", "lock"]), "you\n");
}

#[test]
fn any_bytes_go_in_and_come_out() {
    let yard = Yard::new();
    yard.ok(&["map", "put", "p", "--hex", "00ff0a09", "5c00"]);
    yard.ok(&["map", "put", "p", "", "the empty key"]);
    assert_eq!(yard.ok(&["map", "get", "p", "--hex", "00ff0a09"]), "5c00\n");
    assert_eq!(yard.ok(&["map", "get", "p", "--escape", "\\x00\\xff\\n\\t"]), "\\\\\\x00\n");
    assert_eq!(yard.ok(&["map", "scan", "p"]), "\tthe empty key\n\\x00\\xff\\n\\t\t\\\\\\x00\n");
    let export = yard.ok(&["map", "export", "p"]);
    assert_eq!(yard.feed(&["map", "load", "q", "--format", "tsv"], export.as_bytes()).code, 0);
    assert_eq!(
        yard.ok(&["map", "export", "q", "--format", "hex"]),
        yard.ok(&["map", "export", "p", "--format", "hex"])
    );
}

#[test]
fn load_understands_lines_tsv_and_hex() {
    let yard = Yard::new();
    let lines = yard.feed(&["map", "load", "lines", "-"], b"one\ntwo\n\nfour\ntwo\n");
    lines.is(0, "", "lines");
    assert_eq!(yard.ok(&["map", "scan", "lines"]), "\t3\nfour\t4\none\t1\ntwo\t5\n", "the later line wins");
    assert_eq!(yard.feed(&["map", "load", "tsv"], b"a\\tb\t1\\n2\nc\t\n").code, 0);
    assert_eq!(yard.ok(&["map", "scan", "tsv"]), "a\\tb\t1\\n2\nc\t\n");
    assert_eq!(yard.feed(&["map", "load", "hex", "--format", "hex"], b"00\tff\n").code, 0);
    assert_eq!(yard.ok(&["map", "scan", "hex", "--hex"]), "00\tff\n");
}

#[test]
fn a_threaded_and_a_batched_load_make_the_same_map() {
    let yard = Yard::new();
    let tsv: String = (0..5000).map(|i| format!("key{}\t{i}\n", i % 3000)).collect();
    std::fs::write(yard.path("in.tsv"), tsv).unwrap();
    yard.ok(&["map", "load", "one", "in.tsv", "--threads", "1"]);
    yard.ok(&["map", "load", "many", "in.tsv", "--threads", "24"]);
    let json = yard.ok(&["map", "load", "batch", "in.tsv", "--threads", "3", "--batch", "500", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["records"], 5000);
    assert_eq!(json["records_in_map"], 3000);
    let one = yard.ok(&["map", "export", "one"]);
    assert_eq!(one.lines().count(), 3000);
    assert_eq!(one, yard.ok(&["map", "export", "many"]));
    assert_eq!(one, yard.ok(&["map", "export", "batch"]));
}

#[test]
fn ranges_limits_and_counts() {
    let yard = Yard::new();
    let sample = yard.sample();
    assert_eq!(yard.run(&["map", "scan", "p"]).out, sample);
    assert_eq!(yard.ok(&["map", "count", "p"]), "1000\n");
    assert_eq!(yard.ok(&["map", "count", "p", "--prefix", "k00"]), "100\n");
    assert_eq!(yard.ok(&["map", "count", "p", "--from", "k0010", "--to", "k0020"]), "10\n");
    assert_eq!(yard.ok(&["map", "scan", "p", "--keys", "--reverse", "--limit", "2"]), "k0999\nk0998\n");
    let object: serde_json::Value =
        serde_json::from_str(&yard.ok(&["map", "scan", "p", "--json", "--limit", "1"])).unwrap();
    assert_eq!(object, serde_json::json!({ "key": "k0000", "value": "" }));
    assert_eq!(
        yard.run(&["map", "del", "p", "--from", "k0500", "--json"]).out,
        b"{\n  \"deleted\": 500\n}\n"
    );
    assert_eq!(yard.ok(&["map", "count", "p"]), "500\n");
    yard.fails(&["map", "del", "p"], 2, "which keys?");
    // Of variables without a value.
    for bound in ["--from", "--after", "--prefix"] {
        yard.fails(&["map", "del", "p", bound, ""], 2, "is empty");
    }
    yard.fails(&["map", "del", "p", "k0001", "--all"], 2, "cannot be used with");
    assert_eq!(yard.ok(&["map", "count", "p"]), "500\n");
    yard.ok(&["map", "del", "p", "--all"]);
    assert_eq!(yard.ok(&["map", "count", "p"]), "0\n");
}

#[test]
fn a_backup_is_the_same_map_in_a_new_pool() {
    let yard = Yard::new();
    let sample = yard.sample();
    yard.ok(&["map", "backup", "p", "copy"]);
    assert_eq!(yard.run(&["map", "scan", "copy"]).out, sample);
    yard.ok(&["map", "check", "copy"]);
    yard.fails(&["map", "backup", "p", "copy"], 3, "already exists");
    assert_eq!(yard.run(&["map", "scan", "copy"]).out, sample);
    yard.fails(&["map", "backup", "p", "no/such/folder"], 3, "no/such");
    let names: Vec<_> = std::fs::read_dir(yard.path(".")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!names.iter().any(|n| n.to_string_lossy().contains("part")), "{names:?}");
}

#[test]
fn a_damaged_map_is_salvaged_but_for_what_is_damaged() {
    let yard = Yard::new();
    yard.sample();
    let said = yard.ok(&["map", "salvage", "p", "whole"]);
    assert!(said.contains("1,000 records") && said.contains("0 damaged places"), "{said}");
    let image = yard.path("p/image");
    let mut bytes = std::fs::read(&image).unwrap();
    // The longest value begins where 999 letters stand together.
    let at = bytes.windows(999).position(|part| part == [b'v'; 999]).expect("the value of k0999");
    bytes[at] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    yard.fails(&["map", "count", "p"], 3, "image");
    let said = yard.run(&["map", "salvage", "p", "rest", "--json"]);
    said.is(1, "", "a salvage that left something out");
    let report: serde_json::Value = serde_json::from_slice(&said.out).unwrap();
    assert_eq!(report["records"], 999, "{report}");
    assert!(!report["damage"].as_array().unwrap().is_empty());
    assert_eq!(yard.ok(&["map", "count", "rest"]), "999\n");
    assert_eq!(yard.run(&["map", "get", "rest", "k0999"]).code, 1);
    assert_eq!(std::fs::read(&image).unwrap(), bytes, "the damaged pool stays as it is");
    yard.fails(&["map", "salvage", "p", "rest"], 3, "already exists");
    yard.fails(&["map", "salvage", "absent", "new"], 3, "absent");
    assert!(!yard.path("new").exists());
}

#[test]
fn stat_info_check_and_doctor_answer_in_json() {
    let yard = Yard::new();
    yard.sample();
    let json = |args: &[&str]| -> serde_json::Value { serde_json::from_str(&yard.ok(args)).unwrap() };
    let stat = json(&["map", "stat", "p", "--json"]);
    assert_eq!(stat["records"], 1000);
    assert_eq!(stat["key_bytes"], 5000);
    assert_eq!(stat["value_bytes"], 499_500);
    assert_eq!(stat["medium"], "file");
    assert_eq!(stat["recovery"]["clean"], true);
    let info = json(&["pool", "info", "p", "--json"]);
    assert_eq!(info["kind"], "map");
    assert_eq!((&info["clean"], &info["busy"]), (&true.into(), &false.into()));
    assert_eq!(info["uuid"].as_str().unwrap().len(), 36);
    assert_eq!(json(&["map", "check", "p", "--json"])["records"], 1000);
    assert_eq!(json(&["pool", "check", "p", "--json"])["sound"], true);
    let doctor = json(&["doctor", ".", "--measure", "20", "--json"]);
    assert!(doctor["fdatasync"]["per_second"].as_f64().unwrap() > 0.0);
    assert!(doctor["choice"]["medium"].is_string());
}

/// The machine may be of any kind; whatever it is, the parts of the answer fit together.
#[test]
fn doctor_tells_the_facts_of_the_cpus() {
    let yard = Yard::new();
    let text = yard.ok(&["doctor", ".", "--measure", "20"]);
    let row = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no row '{name}' in {text}")).trim().to_owned()
    };
    let (rtm_row, tsc_row, numa_row) =
        (row("RTM (hardware transactions)"), row("time stamp counter"), row("NUMA nodes"));
    let json: serde_json::Value =
        serde_json::from_str(&yard.ok(&["doctor", ".", "--measure", "20", "--json"])).unwrap();
    let rtm = &json["rtm"];
    let number = |key: &str| rtm[key].as_u64().unwrap();
    eprintln!("RTM of this machine: {rtm_row}; time stamp counter: {tsc_row}; NUMA nodes: {numa_row}");
    assert_eq!(rtm["commits"], number("committed") > 0);
    assert!(number("committed") <= number("tried") && (rtm["present"] == true || number("tried") == 0));
    assert_eq!(rtm["present"] == false, rtm_row.starts_with("not there"), "{rtm_row}");
    let tsc = &json["tsc"];
    assert_eq!(tsc["usable"], tsc["why"].is_null());
    assert_eq!(
        tsc["usable"],
        tsc["rdtscp"] == true && tsc["invariant"] == true && tsc["consistent"] == true,
        "{tsc}"
    );
    let nodes = json["numa_nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|node| !node["cpus"].as_array().unwrap().is_empty()));
    assert_eq!(numa_row.split("; ").count(), nodes.len(), "{numa_row}");
    for (node, said) in nodes.iter().zip(numa_row.split("; ")) {
        assert!(said.starts_with(&format!("{} with", node["node"])), "{said}");
    }
}

#[test]
fn reading_writes_nothing() {
    let yard = Yard::new();
    yard.sample();
    let files = || -> Vec<_> {
        let mut files: Vec<_> =
            std::fs::read_dir(yard.path("p")).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
            .into_iter()
            .map(|f| (f.clone(), f.metadata().unwrap().modified().unwrap(), std::fs::read(f).unwrap()))
            .collect()
    };
    let before = files();
    yard.ok(&["map", "get", "p", "k0001"]);
    yard.ok(&["map", "scan", "p"]);
    yard.ok(&["map", "count", "p"]);
    yard.ok(&["map", "export", "p", "out.tsv"]);
    yard.ok(&["map", "stat", "p"]);
    yard.ok(&["map", "check", "p"]);
    yard.ok(&["map", "backup", "p", "copy"]);
    yard.ok(&["pool", "info", "p"]);
    yard.ok(&["pool", "check", "p"]);
    assert!(before == files(), "a reading command changed the pool");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let yard = Yard::new();
    yard.sample();
    for args in [["map", "scan", "p"], ["map", "export", "p"]] {
        let mut child = yard.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut some = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_full_standard_output_is_told() {
    let yard = Yard::new();
    yard.sample();
    let commands: [&[&str]; 9] = [
        &["map", "scan", "p"],
        &["map", "get", "p", "k0001"],
        &["map", "count", "p"],
        &["map", "stat", "p"],
        &["map", "check", "p"],
        &["map", "backup", "p", "copy"],
        &["map", "load", "p", "sample.tsv"],
        &["pool", "info", "p"],
        &["pool", "check", "p", "--json"],
    ];
    for args in commands {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = yard.command(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
        assert!(
            said.starts_with("mangrove: cannot write standard output: No space left"),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn a_standard_error_that_cannot_be_written_changes_nothing() {
    let yard = Yard::new();
    yard.sample();
    std::fs::write(yard.path("bad.hex"), "0g\t00\n").unwrap();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let unread = || std::io::pipe().unwrap().1;
    for (key, stderr) in [("k0001", OwnedFd::from(full())), ("k0002", unread().into())] {
        let commands: [(&[&str], i32); 8] = [
            (&["map", "get", "nothing", key], 3),
            (&["map", "get", "p", "no such key"], 1),
            (&["map", "put", "p", key, "v", "--if-absent"], 1),
            (&["map", "del", "p", key], 0),
            (&["map", "del", "p", key], 1),
            (&["map", "load", "p", "bad.hex", "--format", "hex"], 2),
            (&["map", "export", "p", "out.tsv"], 0),
            (&["map", "get"], 2),
        ];
        for (args, code) in commands {
            let status = yard.command(args).stderr(stderr.try_clone().unwrap()).status().unwrap();
            assert_eq!(status.code(), Some(code), "{args:?}");
        }
        assert_eq!(yard.run(&["map", "get", "p", key]).code, 1, "{key} was deleted");
    }
}

#[test]
fn a_check_that_nobody_reads_keeps_its_exit_code() {
    let yard = Yard::new();
    yard.sample();
    let image = yard.path("p/image");
    let mut bytes = std::fs::read(&image).unwrap();
    bytes.fill(7);
    std::fs::write(&image, bytes).unwrap();
    yard.ok(&["map", "put", "whole", "k", "v"]);
    let commands: [&[&str]; 4] = [
        &["pool", "check", "p"],
        &["pool", "check", "p", "--json"],
        &["map", "get", "whole", "absent", "--json"],
        &["map", "del", "whole", "absent", "--json"],
    ];
    for args in commands {
        let unread = std::io::pipe().unwrap().1;
        let output = yard.command(args).stdout(unread).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
    }
    for args in [["map", "stat", "whole"], ["map", "get", "whole"]] {
        let unread = std::io::pipe().unwrap().1;
        let status = yard.command(&args).args(args[1].eq("get").then_some("k")).stdout(unread).status();
        assert_eq!(status.unwrap().code(), Some(0), "{args:?}");
    }
}

#[test]
fn a_folder_whose_name_is_no_text_is_told() {
    let yard = Yard::new();
    let name = OsStr::from_bytes(b"d\xff");
    std::fs::create_dir(yard.path(".").join(name)).unwrap();
    let mut doctor = yard.command(&["doctor", "--measure", "20", "--json"]);
    let output = doctor.arg(name).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["dir"], "d\u{fffd}");
}

#[test]
fn a_loaded_batch_has_as_many_records_as_were_asked_for() {
    let yard = Yard::new();
    let lines: String = (0..1280).map(|i| format!("k{i}\n")).collect();
    std::fs::write(yard.path("lines"), lines).unwrap();
    for batch in [33, 40, 64] {
        // What is written at once to a socket of this kind is read at once: a report is a batch.
        let (reports, stdout) = UnixDatagram::pair().unwrap();
        reports.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let (pool, batch_option) = (format!("p{batch}"), format!("--batch={batch}"));
        let args = ["map", "load", &pool, "lines", "--report", "--threads=1", &batch_option];
        let mut child = yard.command(&args).stdout(OwnedFd::from(stdout)).spawn().unwrap();
        let (mut sizes, mut report) = (Vec::new(), [0; 4096]);
        while sizes.iter().sum::<usize>() < 1280 {
            sizes.push(reports.recv(&mut report).unwrap() / 8);
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let last = sizes.pop().unwrap();
        assert!(sizes.iter().all(|&size| size == batch) && last <= batch, "{batch}: {sizes:?} {last}");
    }
}

#[test]
fn a_load_whose_reports_nobody_reads_stops_with_an_error() {
    let yard = Yard::new();
    std::fs::write(yard.path("lines"), "one\ntwo\nthree\n").unwrap();
    let unread = std::io::pipe().unwrap().1;
    let load = ["map", "load", "p", "lines", "--report", "--threads=1"];
    let output = yard.command(&load).stdout(unread).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("stopped; 1 records were acknowledged"), "{said}");
    assert!(said.contains("cannot report an acknowledged line: Broken pipe"), "{said}");
}

#[test]
fn every_help_text_has_an_example() {
    let yard = Yard::new();
    for command in [
        "load", "get", "put", "del", "apply", "scan", "count", "export", "stat", "check", "backup", "salvage",
    ] {
        assert!(yard.ok(&["map", command, "--help"]).contains("mangrove map"), "map {command}");
    }
    for args in [["pool", "info", "--help"], ["pool", "check", "--help"]] {
        assert!(yard.ok(&args).contains("mangrove pool"), "{args:?}");
    }
    assert!(yard.ok(&["--help"]).contains("Exit codes"));
}

/// Completions and man pages name every command, and the shells that are here can read theirs.
#[test]
fn shells_and_man_are_told_of_every_command() {
    let yard = Yard::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = yard.ok(&["completions", shell]);
        for word in ["mangrove", "doctor", "backup", "prefix"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    std::fs::write(yard.path("bash"), yard.ok(&["completions", "bash"])).unwrap();
    let checked = Command::new("bash").arg("-n").arg(yard.path("bash")).status().unwrap();
    assert!(checked.success(), "bash cannot read its completions");
    yard.fails(&["completions", "elvish"], 2, "for bash, zsh and fish");

    std::fs::create_dir(yard.path("man1")).unwrap();
    yard.ok(&["man", "man1"]);
    for page in ["mangrove.1", "mangrove-map-apply.1", "mangrove-pool-check.1", "mangrove-leveldb-import.1"] {
        let text = std::fs::read_to_string(yard.path("man1").join(page)).unwrap();
        assert!(text.contains(".SH OPTIONS"), "{page}");
    }
    yard.fails(&["man", "nowhere"], 3, "nowhere");
}

/// `mangrove bench` and `mangrove redis` are programs of their own beside this one: they get the arguments as they are,
/// and their exit code is the command's.
#[test]
fn programs_beside_this_one_are_executed() {
    let yard = Yard::new();
    let mangrove = yard.path("mangrove");
    std::fs::copy(env!("CARGO_BIN_EXE_mangrove"), &mangrove).unwrap();
    for (command, remedy) in
        [("bench", "build it with `cargo build"), ("redis", "build it with `make redis`")]
    {
        let run = |args: &[&str]| Command::new(&mangrove).arg(command).args(args).output().unwrap();

        let missing = run(&["map", "--all"]);
        let said = String::from_utf8_lossy(&missing.stderr);
        assert_eq!(missing.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("mangrove-{command}; {remedy}")), "{said}");

        let script = yard.path(&format!("mangrove-{command}"));
        std::fs::write(&script, "#!/bin/sh\nfor word; do echo \"[$word]\"; done\nexit 7\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let ran = run(&["map", "--only", "a b", "--help", "--", "-x"]);
        assert_eq!(ran.status.code(), Some(7));
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "[map]\n[--only]\n[a b]\n[--help]\n[--]\n[-x]\n");
    }
}
