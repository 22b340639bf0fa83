//! Bad pools, bad arguments, bad records: each gets its message and its exit code, and what was good
//! stays good.

use crate::support::{HEEDING, Mount, Yard, command_in, finish, signal, spawn};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Stdio;

/// Exit code for usage.
const USAGE: i32 = 2;
/// Exit code for a pool or I/O error.
const POOL: i32 = 3;

#[test]
fn what_is_no_pool_says_so() {
    let yard = Yard::new();
    let get = |pool: &str| yard.run(&["map", "get", pool, "k"]);
    get("nothing").is(POOL, "there is no pool at nothing", "missing");
    fs::write(yard.path("file"), "hello").unwrap();
    get("file").is(POOL, "is not a Mangrove pool", "a file");
    fs::create_dir(yard.path("empty")).unwrap();
    get("empty").is(POOL, "no pool", "an empty directory");
    fs::create_dir_all(yard.path("nested/pool")).unwrap();
    get("nested").is(POOL, "nested", "a directory where the superblock should be");
    fs::create_dir(yard.path("foreign")).unwrap();
    fs::write(yard.path("foreign/pool"), vec![b'x'; 8192]).unwrap();
    get("foreign").is(POOL, "is not a Mangrove pool", "foreign bytes");
    yard.fails(&["map", "put", "file", "k", "v"], POOL, "is not a Mangrove pool");
    yard.fails(&["map", "put", "foreign", "k", "v"], POOL, "is not a Mangrove pool");
    assert_eq!(fs::read(yard.path("foreign/pool")).unwrap(), vec![b'x'; 8192], "a foreign file was changed");
    yard.fails(&["map", "put", "no/such/folder", "k", "v"], POOL, "no/such");
}

#[test]
fn newer_wrong_endian_and_empty_superblocks_say_so() {
    let yard = Yard::new();
    yard.sample();
    let good = fs::read(yard.path("p/pool")).unwrap();
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = good.clone();
        bytes.chunks_exact_mut(4096).for_each(change);
        fs::write(yard.path("p/pool"), bytes).unwrap();
        yard.run(&["map", "get", "p", "k0001"])
    };
    with(&|copy| copy[8] = 99).is(POOL, "format version 99", "newer");
    with(&|copy| copy[12..16].reverse()).is(POOL, "other byte order", "wrong-endian");
    with(&|copy| copy.fill(0)).is(POOL, "not a Mangrove pool", "blank");
    with(&|copy| copy[64] ^= 1).is(POOL, "damaged at byte", "both copies flipped");
    with(&|copy| copy[100] ^= 0).is(0, "", "untouched");
    fs::write(yard.path("p/pool"), "").unwrap();
    yard.fails(&["map", "get", "p", "k0001"], POOL, "p");
}

#[test]
fn truncated_and_missing_files_are_found() {
    let yard = Yard::new();
    let sample = yard.sample();
    yard.ok(&["map", "scan", "p"]);
    for file in ["pool", "image", "sums", "log"] {
        let path = yard.path("p").join(file);
        let good = fs::read(&path).unwrap();
        for len in [0, 1, good.len() / 2 / 4096 * 4096, good.len() - 1] {
            fs::write(&path, &good[..len]).unwrap();
            let said = yard.run(&["map", "scan", "p"]);
            assert!(!said.err.contains("panicked"), "{file} cut to {len}: {}", said.err);
            // A closed pool does not need its log; everything else must be missed.
            if said.code == 0 {
                assert!(said.out == sample, "{file} cut to {len} bytes: wrong answers");
            } else {
                said.is(POOL, "p", &format!("{file} cut to {len} bytes"));
            }
        }
        fs::remove_file(&path).unwrap();
        let said = yard.run(&["map", "scan", "p"]);
        assert!(said.code == POOL || said.out == sample, "{file} removed: {}", said.err);
        fs::write(&path, good).unwrap();
    }
    assert_eq!(yard.run(&["map", "scan", "p"]).out, sample, "the restored pool");
}

#[test]
fn a_flipped_bit_in_a_closed_pool_is_never_served() {
    let yard = Yard::new();
    let sample = yard.sample();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let (mut found, mut harmless) = (0, 0);
    for file in ["pool", "image", "sums"] {
        let path = yard.path("p").join(file);
        let len = path.metadata().unwrap().len();
        let open = fs::File::options().read(true).write(true).open(&path).unwrap();
        for _ in 0..25 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let (at, bit) = (state % len, state >> 60 & 7);
            let mut byte = [0];
            open.read_exact_at(&mut byte, at).unwrap();
            open.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
            let said = yard.run(&["map", "scan", "p"]);
            match said.code {
                0 => {
                    assert!(said.out == sample, "{file} byte {at} bit {bit}: wrong answers");
                    harmless += 1;
                }
                _ => {
                    said.is(POOL, "damaged", &format!("{file} byte {at} bit {bit}"));
                    // A page and its sum that disagree: either may be the damaged one.
                    let named = said.err.contains(file) || (file == "sums" && said.err.contains("image"));
                    assert!(named, "{file} byte {at}: {}", said.err);
                    found += 1;
                }
            }
            open.write_all_at(&byte, at).unwrap();
        }
    }
    assert!(found >= 25, "only {found} of 75 flips were found, {harmless} were harmless");
    assert_eq!(yard.run(&["map", "scan", "p"]).out, sample, "the restored pool");
}

#[test]
fn pool_check_names_the_damage_and_exits_1() {
    let yard = Yard::new();
    yard.sample();
    let image = fs::File::options().write(true).open(yard.path("p/image")).unwrap();
    let at = image.metadata().unwrap().len() / 2;
    image.write_all_at(b"damage", at).unwrap();
    let said = yard.run(&["pool", "check", "p"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(String::from_utf8_lossy(&said.out).contains("image"), "{}", String::from_utf8_lossy(&said.out));
}

#[test]
fn a_busy_pool_says_so_and_goes_on() {
    let yard = Yard::new();
    yard.sample();
    let mut holder = spawn(yard.command(&["map", "load", "p", "-"]).stdin(Stdio::piped()));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !yard.ok(&["pool", "info", "p", "--json"]).contains("\"busy\": true") {
        assert!(std::time::Instant::now() < until, "the holder never opened the pool");
    }
    yard.fails(&["map", "put", "p", "k", "v"], POOL, "in use by process");
    yard.fails(&["map", "put", "p", "k", "v", "--wait", "0.01"], POOL, &format!("process {} ", holder.id()));
    // One that waits gets the pool when the other has closed it.
    let waiting = spawn(&mut yard.command(&["map", "put", "p", "k", "v", "--wait", "600"]));
    drop(holder.stdin.take());
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    assert_eq!(waiting.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(yard.ok(&["map", "get", "p", "k"]), "v\n");
    yard.fails(&["map", "get", "p", "k", "--wait", "soon"], USAGE, "no number of seconds");
    yard.fails(&["map", "get", "p", "k", "--wait=-1"], USAGE, "no time to wait");
}

#[test]
fn keys_and_values_over_the_limit_change_nothing() {
    let yard = Yard::new();
    let longest = "k".repeat(1024);
    yard.ok(&["map", "put", "p", &longest, "v"]);
    yard.fails(&["map", "put", "p", &format!("{longest}k"), "v"], USAGE, "a key has at most 1024 bytes");
    yard.fails(&["map", "put", "q", &format!("{longest}k"), "v"], USAGE, "a key has at most 1024 bytes");
    yard.fails(&["map", "get", "p", &format!("{longest}k")], USAGE, "a key has at most 1024 bytes");
    let tsv = format!("a\t1\nb\t2\n{longest}k\t3\nd\t4\n");
    let said = yard.feed(&["map", "load", "p", "--format", "tsv", "--threads", "1"], tsv.as_bytes());
    said.is(USAGE, "line 3: a key has at most 1024 bytes", "load");
    said.is(USAGE, "2 records were acknowledged and stay", "load");
    assert_eq!(yard.ok(&["map", "get", "p", "b"]), "2\n");
    let values = fs::File::create(yard.path("long")).unwrap();
    values.set_len((1 << 30) + 1).unwrap();
    yard.fails(&["map", "put", "p", "k", "--file", "long"], USAGE, "a value has at most 1073741824 bytes");
    assert_eq!(yard.ok(&["map", "count", "p"]), "3\n");
}

#[test]
fn bad_records_name_their_line() {
    let yard = Yard::new();
    let tsv = yard.feed(&["map", "load", "p", "--format", "tsv"], b"a\t1\nno tab here\n");
    tsv.is(USAGE, "line 2: no tab between key and value", "tsv");
    let escape = yard.feed(&["map", "load", "p", "--format", "tsv"], b"a\\q\t1\n");
    escape.is(USAGE, "line 1: 'a\\q' has an escape other than", "escape");
    let hex = yard.feed(&["map", "load", "p", "--format", "hex"], b"0g\t00\n");
    hex.is(USAGE, "line 1: '0g' is not hexadecimal", "hex");
    hex.is(USAGE, "correct the file and load it again", "hex");
    // What is wrong is shown with escapes, and not whole.
    let hostile = [&b"\x1b]0;title\x07"[..], &[b'x'; 5000], b"\t00\n"].concat();
    let hex = yard.feed(&["map", "load", "p", "--format", "hex"], &hostile);
    hex.is(USAGE, r"line 1: '\x1b]0;title\x07xxx", "hostile");
    assert!(hex.err.len() < 400 && !hex.err.contains('\x1b'), "{}", hex.err);
    for spelling in ["--hex", "--escape"] {
        let said = yard.run(&["map", "get", "p", &format!("\x1b\\q{}", "x".repeat(5000)), spelling]);
        said.is(USAGE, r"'\x1b\", spelling);
        assert!(said.err.len() < 400 && !said.err.contains('\x1b'), "{}", said.err);
    }
    yard.fails(&["map", "load", "p", "no-such-file"], POOL, "cannot read no-such-file");
    yard.fails(&["map", "load", "p", "."], USAGE, "is a directory");
}

#[test]
fn a_load_tells_of_a_last_line_that_may_be_cut_off() {
    let yard = Yard::new();
    let told = "line 2, the last one, has no newline";
    let loads: [(&str, &[&str]); 3] = [("p", &["--format", "tsv"]), ("new", &["--bulk"]), ("q", &[])];
    for (pool, options) in loads {
        let load = [&["map", "load", pool, "-"][..], options].concat();
        yard.feed(&load, b"a\t1\nb\t2").is(0, told, pool);
        assert_eq!(yard.ok(&["map", "get", pool, "b"]), "2\n");
    }
    yard.feed(&["map", "load", "p", "--format", "hex"], b"61\t31\n62\t32").is(0, told, "hex");
    let whole: [(&str, &[u8]); 3] = [("tsv", b"a\t1\nb\t2\n"), ("tsv", b""), ("lines", b"a\nb")];
    for (format, input) in whole {
        let said = yard.feed(&["map", "load", "p", "--format", format], input);
        said.is(0, "", format);
        assert!(!said.err.contains("newline"), "{format}: {}", said.err);
    }
}

#[test]
fn a_command_says_what_it_was_refused() {
    let yard = Yard::new();
    yard.fails(&["map", "put", "p", "k", "v", "--expect", "x"], POOL, "there is no pool at p");
    assert!(yard.names().is_empty(), "a pool was made for nothing");
    yard.ok(&["map", "put", "p", "k", "v"]);
    yard.fails(&["map", "put", "p", "new", "v", "--expect", "x"], 1, "'new' is not there");
    yard.fails(&["map", "put", "p", "k", "w", "--expect", "x"], 1, "'k' has another value");
    assert_eq!(yard.ok(&["map", "scan", "p"]), "k\tv\n");
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut probe = std::process::Command::new(nobody[0]);
    if !probe.args(&nobody[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        return println!("skipped, because this process cannot become another user");
    }
    // That user may enter the directory of the test.
    fs::set_permissions(yard.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(yard.path("p/pool"), fs::Permissions::from_mode(0o600)).unwrap();
    finish(yard.command_behind(&nobody, &["pool", "info", "p"])).is(POOL, "cannot read p/pool", "unreadable");
    let put = ["map", "put", "q", "k", "v"];
    finish(yard.command_behind(&nobody, &put)).is(POOL, "or its directory's", "an unwritable directory");
}

#[test]
fn bad_options_are_usage_errors() {
    let yard = Yard::new();
    for (args, sentence) in [
        (["--durability", "eventually"], "no durability"),
        (["--durability", "interval=0"], "no durability"),
        (["--medium", "paper"], "no medium"),
        (["--capacity", "many"], "not a number of bytes"),
        (["--domain", "moon"], "no persistence domain"),
    ] {
        yard.fails(&["map", "put", "p", "k", "v", args[0], args[1]], USAGE, sentence);
    }
    yard.fails(&["map", "put", "p", "k", "v", "--log", "1K"], USAGE, "log");
    assert!(!yard.path("p").exists(), "a refused option left a pool behind");
    yard.fails(&["map", "put", "p", "k", "v", "--medium", "dax"], USAGE, "dax");
    yard.ok(&["map", "put", "p", "k", "v"]);
}

#[test]
fn a_process_killed_inside_create_leaves_nothing_in_the_way() {
    let yard = Yard::new();
    for round in 0..40u64 {
        let _ = fs::remove_dir_all(yard.path("p"));
        let mut child = spawn(&mut yard.command(&["map", "put", "p", "k", "v", "--log", "1M"]));
        // From before its first name to a little after its last: the directory, and the four files of a pool.
        let names = round % 6;
        let made = || fs::read_dir(yard.path("p")).map_or(0, |names| 1 + names.count() as u64);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while made() < names {
            assert!(std::time::Instant::now() < until, "round {round}: the pool is not made");
        }
        std::thread::sleep(std::time::Duration::from_micros(round * 20));
        child.kill().unwrap();
        child.wait().unwrap();
        let seen = yard.run(&["map", "get", "p", "k"]);
        assert!(matches!(seen.code, 0 | 1 | POOL), "round {round}: {}", seen.err);
        yard.ok(&["map", "put", "p", "again", "v"]);
        assert_eq!(yard.ok(&["map", "get", "p", "again"]), "v\n", "round {round}");
    }
}

#[test]
fn ctrl_c_stops_in_order_and_says_what_stays() {
    let yard = Yard::new();
    let load = ["map", "load", "p", "-", "--threads", "2", "--report"];
    let mut child = spawn(yard.command_behind(&HEEDING, &load).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        use std::io::Write;
        // Until the loader stops reading.
        for i in 0u64.. {
            if writeln!(stdin, "word{i}").is_err() {
                return;
            }
        }
    });
    // Once the first record is acknowledged, it listens to signals.
    let mut reports = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut reports, &mut [0; 8]).unwrap();
    child.stdout = Some(reports);
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let err = String::from_utf8_lossy(&output.stderr);
    let told: u64 = err
        .split("stopped; ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|n| n.replace(',', "").parse().ok())
        .unwrap_or_else(|| panic!("no count in: {err}"));
    assert_eq!(told, 1 + output.stdout.len() as u64 / 8);
    let there: u64 = yard.ok(&["map", "count", "p"]).trim().parse().unwrap();
    assert_eq!(there, told, "{err}");
    assert!(yard.ok(&["pool", "info", "p"]).contains("closed in order"));
}

#[test]
fn a_full_file_system_fails_the_write_and_keeps_what_was_acknowledged() {
    let yard = Yard::new();
    let mount = match Mount::tmpfs(&yard.path("small"), 24 << 20) {
        Ok(mount) => mount,
        Err(why) => return println!("skipped, because a tmpfs cannot be mounted here: {why}"),
    };
    let small = yard.path("small");
    let run = |args: &[&str]| finish(command_in(&small, args));
    // The log grows only as far as there is space.
    run(&["map", "put", "big", "k", "v", "--log", "64M"]).is(0, "", "create");
    run(&["map", "get", "big", "k"]).is(0, "", "get");
    fs::remove_dir_all(small.join("big")).unwrap();
    let tsv: String = (0..60_000).map(|i| format!("k{i:06}\t{}\n", "v".repeat(900))).collect();
    fs::write(yard.path("in.tsv"), tsv).unwrap();
    let input = yard.path("in.tsv");
    let said =
        run(&["map", "load", "p", input.to_str().unwrap(), "--log", "1M", "--threads", "4", "--report"]);
    said.is(POOL, "no space left", "load");
    assert!(said.out.len() > 8 * 1000, "only {} records fitted", said.out.len() / 8);
    let there = run(&["map", "scan", "p", "--keys"]);
    assert_eq!(there.code, 0, "{}", there.err);
    let keys: std::collections::BTreeSet<&[u8]> = there.out.split(|&b| b == b'\n').collect();
    for line in said.out.chunks_exact(8) {
        let number = u64::from_le_bytes(line.try_into().unwrap()) - 1;
        assert!(keys.contains(format!("k{number:06}").as_bytes()), "acknowledged k{number:06} is lost");
    }
    run(&["map", "check", "p"]).is(0, "", "check");
    // Deleting single records takes no new room and makes some. (A long range first writes down what it
    // deletes, and says so when that does not fit.)
    let keys: Vec<String> = (0..500).map(|i| format!("k{i:06}")).collect();
    let mut del = vec!["map", "del", "p"];
    del.extend(keys.iter().map(String::as_str));
    run(&del).is(0, "500 deleted", "delete");
    run(&["map", "put", "p", "one", "more"]).is(0, "", "put");
    drop(mount);
}

#[test]
fn a_read_only_file_system_is_read_and_not_written() {
    let yard = Yard::new();
    let mount = match Mount::tmpfs(&yard.path("small"), 24 << 20) {
        Ok(mount) => mount,
        Err(why) => return println!("skipped, because a tmpfs cannot be mounted here: {why}"),
    };
    let small = yard.path("small");
    let run = |args: &[&str]| finish(command_in(&small, args));
    run(&["map", "put", "p", "k", "v", "--log", "1M"]).is(0, "", "put");
    mount.read_only();
    let said = run(&["map", "get", "p", "k"]);
    said.is(0, "", "get");
    assert_eq!(said.out, b"v\n");
    run(&["map", "put", "p", "k", "w"]).is(POOL, "cannot be written", "put");
    run(&["map", "put", "q", "k", "w"]).is(POOL, "q", "create");
    drop(mount);
}

#[test]
fn a_value_that_is_too_long_is_not_read_and_makes_no_pool() {
    let yard = Yard::new();
    // No longer than a hole; and one whose length nobody knows.
    fs::File::create(yard.path("long")).unwrap().set_len(5 << 30).unwrap();
    let little = ["sh", "-c", "ulimit -v 6291456; exec \"$@\"", "sh"];
    for file in ["long", "/dev/zero"] {
        let put = ["map", "put", "p", "k", "--file", file];
        finish(yard.command_behind(&little, &put)).is(USAGE, "a value has at most", file);
    }
    let zeros = fs::File::open("/dev/zero").unwrap();
    let mut put = yard.command_behind(&little, &["map", "put", "p", "k", "--file", "-"]);
    put.stdin(zeros);
    finish(put).is(USAGE, "a value has at most", "standard input");
    assert_eq!(yard.names(), ["long"], "a pool was made for nothing");
}
