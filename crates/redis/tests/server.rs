//! The launcher with the real server: scrapes, and slow batches in the log. `make redis` builds the server; where it is
//! not built these tests have nothing to run, and `cargo xtask ci` runs them after it has built it.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;
use support::{POLL, POLLS, Server, comes, is_built};

/// The answer to a scrape; none when no process listens at the port.
fn scrape(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn value(answer: &str, metric: &str) -> f64 {
    let line = answer.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {metric} in {answer}")).parse().unwrap()
}

/// A server that answers scrapes, at a port that was free a moment ago: another process may have taken it since.
fn scraped(dir: &Path, more: &[&str]) -> (Server, u16) {
    for _ in 0..20 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Server::start(dir, &[&["--metrics-port", &port.to_string()], more].concat());
        if server.is_up() {
            return (server, port);
        }
        assert!(server.log().contains("cannot listen for scrapes"), "{}", server.log());
    }
    panic!("no port stays free");
}

#[test]
fn a_scrape_has_the_servers_numbers_and_ends_with_it() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut server, port) = scraped(dir.path(), &["--requirepass", "sesame"]);
    let before = scrape(port).expect("somebody listens");
    assert!(before.starts_with("HTTP/1.1 200 OK\r\n"), "{before}");
    for line in [
        "# HELP mangrove_batches Batches committed since the start",
        "# TYPE mangrove_batches counter",
        "# TYPE valkey_connected_clients gauge",
    ] {
        assert!(before.lines().any(|of| of == line), "no '{line}' in {before}");
    }
    let mut stream = UnixStream::connect(dir.path().join("s")).unwrap();
    stream.write_all(b"AUTH sesame\r\nSET a 1\r\n").unwrap();
    let mut answers = [0; 10];
    stream.read_exact(&mut answers).unwrap();
    assert_eq!(&answers, b"+OK\r\n+OK\r\n");
    let after = scrape(port).expect("somebody listens");
    assert!(value(&after, "mangrove_batches") > value(&before, "mangrove_batches"));
    assert_eq!(value(&after, "valkey_db_keys{db=\"0\"}"), 1.0);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let is_gone = (0..POLLS).any(|_| {
        std::thread::sleep(POLL);
        scrape(port).is_none()
    });
    assert!(is_gone, "scrapes are answered although the server has ended");
}

#[test]
fn a_server_that_cannot_be_asked_is_refused_with_scrapes() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--unixsocket", "", "--metrics-port", "9"]);
    assert_eq!(server.child.wait().unwrap().code(), Some(2), "{}", server.log());
    assert!(server.log().contains("needs a way to ask the server"), "{}", server.log());
}

#[test]
fn a_slow_batch_is_in_the_log_with_its_size_and_its_times() {
    if !is_built() {
        return;
    }
    // 32 MB take more than a millisecond to the log of any machine.
    let value = vec![b'v'; 32 << 20];
    for (limit, is_wanted) in [("1", true), ("0", false)] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::serving(dir.path(), &["--slow-batch-ms", limit]);
        assert_eq!(server.ask(&[b"SET", b"large", &value]).as_deref(), Some("+OK\r\n"));
        let info = server.ask(&[b"INFO", b"mangrove"]).expect("INFO is answered");
        let counted = info.lines().find_map(|line| line.strip_prefix("mangrove_slow_batches:"));
        assert_eq!(counted.map(|count| count.trim() != "0"), Some(is_wanted), "{info}");
        let log = server.log();
        let line = log
            .lines()
            // Another command, of the server's own, may share the batch.
            .find(|line| line.contains("mangrove: slow batch") && line.contains(" commands, 33"));
        assert_eq!(line.is_some(), is_wanted, "{log}");
        if let Some(line) = line {
            assert!(
                line.contains("ms for the commands") && line.contains("ms until it was durable"),
                "{line}"
            );
        }
    }
}

#[test]
fn what_a_script_stores_is_there_after_a_kill() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &[]);
    // The interpreter keeps the arguments of a call for later ones. This command leaves one of 51 digits in their
    // place, in the state's memory, and the value of the second call is written into it.
    let counts: &[u8] = b"return redis.call('hincrbyfloat', 'h', 'f', ARGV[1])";
    let stores: &[u8] = b"return redis.call('setex', 'key', '1000', ARGV[1])";
    for (script, argument) in [(counts, b"1e50".as_slice()), (stores, &[b'c'; 57])] {
        let answer = server.ask(&[b"EVAL", script, b"0", argument]).expect("an answer");
        assert!(!answer.starts_with('-'), "{answer}");
    }
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"GET", b"key"]).unwrap(), "c".repeat(57));
}

#[test]
fn a_list_that_was_compressed_is_read_inside_a_command_whatever_the_depth_is_now() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving_with(
        dir.path(),
        &["--list-compress-depth", "1", "--list-max-listpack-size", "5", "--medium", "emulated=0/0"],
        &[("MANGROVE_REDIS_FENCE", "1")],
    );
    let element = [b'e'; 80];
    let push = [&[b"RPUSH", b"list".as_slice()][..], &[&element[..]; 100]].concat();
    assert_eq!(server.ask(&push).unwrap(), ":100\r\n");
    assert_eq!(server.ask(&[b"CONFIG", b"SET", b"list-compress-depth", b"0"]).unwrap(), "+OK\r\n");
    assert_eq!(server.ask(&[b"LRANGE", b"list", b"0", b"-1"]).unwrap(), "*100\r\n");
    assert_eq!(server.ask(&[b"LINDEX", b"list", b"50"]).unwrap().as_bytes(), element);
    assert!(server.ask(&[b"SORT_RO", b"list", b"ALPHA"]).unwrap().starts_with("*100"));
    // A node that is unpacked outside of a command lies on the process's heap, and the state would lead to it.
    let log = server.log();
    assert!(!log.contains("write fence"), "{log}");
}

/// The server asks in each round whether keys are to be expired, and the glue passes that on once a millisecond.
#[test]
fn a_round_in_which_nothing_is_to_be_expired_makes_no_batch() {
    const ROUNDS: u64 = 1000;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving(dir.path(), &["--medium", "emulated=0/0"]);
    assert_eq!(server.ask(&[b"SET", b"key", b"value", b"EX", b"1000"]).unwrap(), "+OK\r\n");
    let tracked_calls = || -> u64 {
        let info = server.ask(&[b"INFO", b"mangrove"]).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("mangrove_commands:"));
        line.expect("the count of tracked calls").parse().unwrap()
    };
    // Where rounds take as long as a millisecond, one call in each is no more than there may be. On a busy machine many
    // thousand of them do, and then a thousand are quick.
    let first = Instant::now();
    let mut can_tell = false;
    while !can_tell && first.elapsed() < POLL * POLLS {
        let begun = Instant::now();
        let before = tracked_calls();
        let mut stream = UnixStream::connect(dir.path().join("s")).unwrap();
        for _ in 0..ROUNDS {
            stream.write_all(b"PING\r\n").unwrap();
            stream.read_exact(&mut [0; 7]).unwrap();
        }
        let calls = tracked_calls() - before;
        // Some more come from the server's timer, ten times a second.
        let calls_max = u64::try_from(begun.elapsed().as_millis()).unwrap() * 6 / 5 + 100;
        assert!(calls <= calls_max, "{calls} tracked calls in a time for {calls_max}");
        can_tell = calls_max < ROUNDS;
    }
    assert!(can_tell, "rounds of a server that is asked nothing take a millisecond each");
}

/// Also where the time for a replica that is not there runs out.
#[test]
fn waitaof_counts_the_server_itself() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _server = Server::serving(dir.path(), &[]);
    let mut stream = UnixStream::connect(dir.path().join("s")).unwrap();
    stream.write_all(b"SET key value\r\nWAITAOF 1 0 100\r\nWAITAOF 1 1 100\r\n").unwrap();
    let expected = b"+OK\r\n*2\r\n:1\r\n:0\r\n*2\r\n:1\r\n:0\r\n";
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    assert!(found == expected, "{}", String::from_utf8_lossy(&found));
}

/// Its reply is the only one that waits for the medium then. Without the gate it does not, and the injected kill shows
/// that the test can tell.
#[test]
fn what_waitaof_counted_is_there_after_a_kill_with_interval_durability_too() {
    if !is_built() {
        return;
    }
    for (environment, is_kept) in [(&[][..], true), (&[("MANGROVE_REDIS_WITHOUT", "gate")][..], false)] {
        let dir = tempfile::tempdir().unwrap();
        let interval = ["--durability", "interval=60000"];
        let mut server = Server::serving_with(dir.path(), &interval, environment);
        let mut stream = UnixStream::connect(dir.path().join("s")).unwrap();
        // The last one comes in a round that changes nothing.
        for (command, expected) in [
            ("SET first 1\r\nWAITAOF 1 0 0\r\n", "+OK\r\n*2\r\n:1\r\n:0\r\n"),
            ("SET second 2\r\n", "+OK\r\n"),
            ("WAITAOF 1 1 50\r\n", "*2\r\n:1\r\n:0\r\n"),
        ] {
            stream.write_all(command.as_bytes()).unwrap();
            let mut found = vec![0; expected.len()];
            stream.read_exact(&mut found).unwrap();
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let server = Server::serving(dir.path(), &[]);
        for (key, value) in [(b"first".as_slice(), "1"), (b"second", "2")] {
            assert_eq!(server.ask(&[b"GET", key]).as_deref(), is_kept.then_some(value), "{environment:?}");
        }
    }
}

/// The command line alone says when replies leave.
#[test]
fn replies_wait_for_the_medium_whatever_the_environment_says_of_an_interval() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving_with(dir.path(), &[], &[("MANGROVE_REDIS_INTERVAL_MS", "60000")]);
    let info = server.ask(&[b"INFO", b"mangrove"]).expect("INFO is answered");
    assert!(info.contains("mangrove_durability:sync\r\n"), "{info}");
}

/// Keys are looked up ahead of their commands: of keys of any length, of keys that are not there or come meanwhile,
/// and where a command has no key or is not whole yet.
#[test]
fn a_pipeline_is_answered_as_its_commands_one_by_one_are() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving(dir.path(), &[]);
    let words = |words: &[&[u8]]| -> Vec<u8> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        command
    };
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for len in [0, 1, 16, 254, 255, 256, 1000] {
        let key: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        let value = vec![b'v'; len + 30];
        for (command, answer) in [
            (words(&[b"GET", &key]), b"$-1\r\n".to_vec()),
            (words(&[b"SET", &key, &value]), b"+OK\r\n".to_vec()),
            (words(&[b"PING"]), b"+PONG\r\n".to_vec()),
            (words(&[b"GET", &key]), words(&[&value])[4..].to_vec()),
            (words(&[b"DEL", &key]), b":1\r\n".to_vec()),
            (words(&[b"HSET", &key, b"f", &value]), b":1\r\n".to_vec()),
            (words(&[b"HGET", &key, b"f"]), words(&[&value])[4..].to_vec()),
        ] {
            sent.extend(command);
            expected.extend(answer);
        }
    }
    let looked_ahead = || -> u64 {
        let info = server.ask(&[b"INFO", b"Mangrove"]).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("mangrove_hook_ahead:"));
        line.expect("the count of the hook").parse().unwrap()
    };
    // A database without keys has no table to look into.
    assert!(server.ask(&[b"SET", b"some", b"value"]).unwrap().starts_with("+OK"));
    // A hash and a set that have tables of their own.
    let (long, missing) = ([b'l'; 100], [b'm'; 100]);
    assert_eq!(server.ask(&[b"HSET", b"hash", b"f", &long, &long, b"1"]).unwrap(), ":2\r\n");
    assert_eq!(server.ask(&[b"SADD", b"set", b"member", &long]).unwrap(), ":2\r\n");
    for (command, answer) in [
        (words(&[b"HGET", b"hash", b"f"]), words(&[&long])[4..].to_vec()),
        (words(&[b"HGET", b"hash", &missing]), b"$-1\r\n".to_vec()),
        (words(&[b"HSET", b"hash", &long, b"2"]), b":0\r\n".to_vec()),
        (words(&[b"SISMEMBER", b"set", &long]), b":1\r\n".to_vec()),
        (words(&[b"SISMEMBER", b"set", &missing]), b":0\r\n".to_vec()),
        (words(&[b"SREM", b"set", b"member"]), b":1\r\n".to_vec()),
    ] {
        sent.splice(0..0, command);
        expected.splice(0..0, answer);
    }
    assert_eq!(looked_ahead(), 0, "single commands have nothing to look ahead for");
    let mut stream = UnixStream::connect(dir.path().join("s")).unwrap();
    // The last command comes in two parts.
    let (most, rest) = sent.split_at(sent.len() - 40);
    let mut found = vec![0; expected.len()];
    stream.write_all(most).unwrap();
    std::thread::sleep(POLL);
    stream.write_all(rest).unwrap();
    stream.read_exact(&mut found).unwrap();
    assert!(found == expected, "{}", String::from_utf8_lossy(&found));
    let count = looked_ahead();
    assert!(count >= 20, "{count} keys were looked up ahead");
}

/// The reads that overtake a change of other keys, and those that the change holds back, of a server with this hook
/// left out. The change is held back until those that are awaited have overtaken it.
fn reads_beside_a_change(
    without: &[(&str, &str)],
    awaited: &[&'static str],
) -> (Vec<&'static str>, Vec<&'static str>) {
    const PREPARE: &str = "MSET same 1 deleted 1 {t}a 1\r\nRPUSH list a b\r\nHSET hash f 1\r\nXADD stream 1-1 f 1\r\n\
                           XGROUP CREATE stream group 0\r\nSET short 1 PX 1\r\nSET here 1";
    const CHANGE: &str = "MULTI\r\nSET new 1\r\nDEL deleted\r\nRPUSH list c\r\nHSET hash f 2\r\n\
                          XREADGROUP GROUP group me STREAMS stream >\r\nEXPIRE here 1000\r\nEXEC";
    const READS: [&str; 17] = [
        "GET new",
        "EXISTS deleted",
        "LRANGE list 0 -1",
        "HGET hash f",
        "XPENDING stream group",
        "TTL here",
        "MGET same new",
        "GET short",
        "DBSIZE",
        "RANDOMKEY",
        "SORT_RO list by w_*",
        "EVAL return{redis.call('get','same')} 0",
        // Keys that no batch under way changes.
        "GET same",
        "MGET same same",
        "STRLEN same",
        "GET absent",
        "HGETALL {t}none",
    ];
    let dir = tempfile::tempdir().unwrap();
    // While it is there no batch counts as durable.
    let hold = dir.path().join("hold");
    let server = Server::serving_with(
        dir.path(),
        &["--enable-debug-command", "yes"],
        &[&[("MANGROVE_REDIS_HOLD_FILE", hold.to_str().unwrap())], without].concat(),
    );
    let mut prepared = server.send(&format!("DEBUG SET-ACTIVE-EXPIRE 0\r\n{PREPARE}\r\nPING"));
    let mut answers = String::new();
    while !answers.contains("+PONG") {
        let mut some = [0; 512];
        let count = prepared.read(&mut some).unwrap();
        assert!(count > 0, "{answers}");
        answers.push_str(std::str::from_utf8(&some[..count]).unwrap());
    }
    assert!(!answers.contains('-') || answers.contains("1-1"), "{answers}");
    // The time of `short` ends.
    std::thread::sleep(POLL);
    std::fs::write(&hold, "").unwrap();
    let mut change = server.send(CHANGE);
    let mut asked: Vec<_> = READS.iter().map(|read| (*read, server.send(read))).collect();
    asked.iter().for_each(|(_, stream)| stream.set_nonblocking(true).unwrap());
    let mut overtaking = Vec::new();
    let have_overtaken = (0..POLLS).any(|_| {
        std::thread::sleep(POLL / 4);
        let answered = asked.extract_if(.., |(_, stream)| stream.read_exact(&mut [0]).is_ok());
        overtaking.extend(answered.map(|(read, _)| read));
        awaited.iter().all(|read| overtaking.contains(read))
    });
    assert!(have_overtaken, "of {awaited:?} only {overtaking:?} have overtaken the change");
    std::fs::remove_file(&hold).unwrap();
    for stream in asked.iter_mut().map(|(_, stream)| stream).chain([&mut change]) {
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(POLL * POLLS)).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    (overtaking, asked.into_iter().map(|(read, _)| read).collect())
}

#[test]
fn a_read_waits_for_the_units_that_changed_its_keys_and_for_no_other() {
    if !is_built() {
        return;
    }
    let free = ["GET absent", "GET same", "HGETALL {t}none", "MGET same same", "STRLEN same"];
    let (mut overtaking, held) = reads_beside_a_change(&[], &free);
    overtaking.sort_unstable();
    assert_eq!(overtaking, free, "held: {held:?}");
    // The injected faults: a change that is not noted. `short` is deleted by the read itself, and no command names it.
    for (without, leaks) in [("blind", "GET new"), ("touch", "GET short")] {
        reads_beside_a_change(&[("MANGROVE_REDIS_WITHOUT", without)], &[leaks]);
    }
}

/// Replaces a long value by SET, kills the server, and starts it again: whether the long value is freed then, and the
/// short one there. SET exchanges the contents of the old value's object and the request's, and frees the latter later.
fn frees_after_a_kill_what_set_replaced(environment: &[(&str, &str)]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving_with(dir.path(), &[], environment);
    for round in 0..200 {
        let fields: Vec<Vec<u8>> = (0..1000).map(|field| format!("{round} {field}").into_bytes()).collect();
        let mut command = vec![&b"HSET"[..], b"key"];
        fields.iter().for_each(|field| command.extend([field.as_slice(), b"v"]));
        assert_eq!(server.ask(&command).unwrap(), ":1000\r\n");
    }
    let replaced = server.ask(&[b"SET", b"key", &[b's'; 100]]);
    if replaced.as_deref() != Some("+OK\r\n") {
        return Err(format!("SET: {replaced:?}: {}", server.log()));
    }
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let mut server = Server::start(dir.path(), &[]);
    if !server.is_up() {
        return Err(server.log());
    }
    for _ in 0..POLLS {
        std::thread::sleep(POLL);
        if server.child.try_wait().unwrap().is_some() {
            break;
        }
        let info = server.ask(&[b"INFO"]).unwrap_or_default();
        if info.contains("mangrove_grave_objects:0\r\n") {
            let kept = server.ask(&[b"GET", b"key"]);
            return if kept == Some("s".repeat(100)) { Ok(()) } else { Err(format!("GET: {kept:?}")) };
        }
    }
    Err(server.log())
}

#[test]
fn a_long_value_that_set_has_replaced_is_freed_after_a_kill() {
    if !is_built() {
        return;
    }
    frees_after_a_kill_what_set_replaced(&[]).unwrap();
    // The injected fault: the request's object itself waits to be freed, and is gone with the process. Where all was
    // freed before the kill, nothing is seen of it.
    let fault = [("MANGROVE_REDIS_WITHOUT", "grave-of-requests")];
    let is_caught = comes(|| frees_after_a_kill_what_set_replaced(&fault).is_err());
    assert!(is_caught, "a server that finds an object of a dead process in its state serves on");
}

/// A command that changes a key tells the clients that watch it; for that the server looks the key up natively.
#[test]
fn a_watched_key_that_had_expired_moves_no_other_key() {
    const WATCHED: u32 = 50;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path(), &["--activerehashing", "no", "--enable-debug-command", "yes"]);
    assert!(server.is_up(), "{}", server.log());
    assert_eq!(server.ask(&[b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0"]).unwrap(), "+OK\r\n");
    let name = |kind: &str, number: u32| format!("{kind}{number}").into_bytes();
    for number in 0..WATCHED {
        assert_eq!(server.ask(&[b"SET", &name("watched", number), b"1", b"PX", b"1"]).unwrap(), "+OK\r\n");
    }
    let mut keys = 0;
    // Until the table grows, which then moves entries with each look that may.
    while server.ask(&[b"INFO", b"memory"]).unwrap().contains("mem_overhead_db_hashtable_rehashing:0\r\n") {
        for number in keys..keys + 200 {
            assert_eq!(server.ask(&[b"SET", &name("key", number), b"1"]).unwrap(), "+OK\r\n");
        }
        keys += 200;
        assert!(keys < 200_000, "the table never grew");
    }
    let all: Vec<String> = (0..WATCHED).map(|number| format!("watched{number}")).collect();
    let mut watching = server.send(&format!("WATCH {}", all.join(" ")));
    watching.read_exact(&mut [0; 5]).unwrap();
    for number in 0..WATCHED {
        assert_eq!(server.ask(&[b"SET", &name("watched", number), b"2"]).unwrap(), "+OK\r\n");
    }
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    let lost: Vec<u32> =
        (0..keys).filter(|key| server.ask(&[b"GET", &name("key", *key)]).unwrap() != "1").collect();
    assert!(lost.is_empty(), "{} of {keys} keys: {lost:?}", lost.len());
}
