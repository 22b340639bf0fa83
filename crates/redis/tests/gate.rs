//! When replies leave: around slow scripts, to reads whose keys the command does not name, and to other servers. With
//! the real server; where `make redis` has not built it there is nothing to run.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use support::{CLUSTER, POLL, POLLS, Server, cluster_node, is_built};

/// After so long a script is slow: rounds of the event loop come inside of it.
const SLOW: [&str; 2] = ["--busy-reply-threshold", "10"];

/// The server's time stands still in a script until a round comes inside of it.
const AWAIT_ROUND: &str = "local t = redis.call('TIME')[2] while redis.call('TIME')[2] == t do end";

const LOAD: &str = r##"FUNCTION LOAD "#!lua name=mine\nredis.register_function('f', function() end)""##;

fn reads(stream: &mut UnixStream, expected: &str) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), expected);
}

/// A client that hears what is published.
fn subscriber(server: &Server) -> UnixStream {
    let mut stream = server.send("SUBSCRIBE news");
    reads(&mut stream, "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    stream
}

/// FUNCTION LOAD is no tracked call: the batch has the library only when the glue has looked for it.
#[test]
fn a_library_that_was_acknowledged_while_a_script_ran_is_there_after_a_kill() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &[&SLOW[..], &["--enable-debug-command", "yes"]].concat());
    let [mut loading, mut running] = ["PING", "PING"].map(|ping| server.send(ping));
    reads(&mut loading, "+PONG\r\n");
    reads(&mut running, "+PONG\r\n");
    // What comes meanwhile is of one round.
    let _sleeping = server.send("DEBUG SLEEP 0.5");
    std::thread::sleep(POLL * 5);
    loading.write_all(format!("{LOAD}\r\n").as_bytes()).unwrap();
    running.write_all(b"EVAL \"while true do end\" 0\r\n").unwrap();
    reads(&mut loading, "$4\r\nmine\r\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"FUNCTION", b"LIST"]).as_deref(), Some("*1\r\n"));
}

/// The rest of a reply that its client takes slowly is sent by a write handler, in such a round, too, and with it what
/// the client was told since.
#[test]
fn a_library_that_a_slow_reader_hears_of_while_a_transaction_runs_is_there_after_a_kill() {
    /// More than a socket takes.
    const LEN: usize = 1 << 20;
    const LOADED: &[u8] = b"$4\r\nmine\r\n";
    // Other clients are answered meanwhile. With the fault, the news comes in the first ones.
    const ROUNDS: u32 = 50;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &[&SLOW[..], &["--enable-debug-command", "yes"]].concat());
    let value = vec![b'v'; LEN];
    assert_eq!(server.ask(&[b"SET", b"long", &value]).as_deref(), Some("+OK\r\n"));
    let [mut reader, mut running] = ["GET long", "PING"].map(|line| server.send(line));
    reads(&mut reader, &format!("${LEN}\r\n"));
    reads(&mut running, "+PONG\r\n");
    // What comes meanwhile is of one round.
    let _sleeping = server.send("DEBUG SLEEP 0.5");
    std::thread::sleep(POLL * 5);
    reader.write_all(format!("{LOAD}\r\n").as_bytes()).unwrap();
    running.write_all(b"MULTI\r\nEVAL \"while true do end\" 0\r\nEXEC\r\n").unwrap();
    reader.set_nonblocking(true).unwrap();
    let (mut heard, mut busy_rounds) = (Vec::<u8>::new(), 0);
    let has_ended = (0..POLLS).any(|_| {
        std::thread::sleep(POLL);
        let answer = server.ask(&[b"PING"]).expect("an answer while the script runs");
        busy_rounds += u32::from(answer.starts_with("-BUSY"));
        // It ends where nothing is to be read at present.
        let _ = reader.read_to_end(&mut heard);
        busy_rounds == ROUNDS || heard.ends_with(LOADED)
    });
    assert!(has_ended, "the server was busy {busy_rounds} times: {}", server.log());
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    let libraries = server.ask(&[b"FUNCTION", b"LIST"]);
    assert!(!heard.ends_with(LOADED) || libraries.as_deref() == Some("*1\r\n"), "{libraries:?}");
}

/// Whether a subscriber hears of a script that a kill cuts off, of which therefore nothing is left.
fn is_told_of_a_script_that_never_ends(environment: &[(&str, &str)]) -> bool {
    // Other clients are answered meanwhile. With the fault, news come in the first or second round.
    const ROUNDS: u32 = 50;
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving_with(dir.path(), &SLOW, environment);
    let mut subscriber = subscriber(&server);
    subscriber.set_nonblocking(true).unwrap();
    let _caller = server.send(&format!(
        "EVAL \"redis.call('SET', 'key', '1') {AWAIT_ROUND} redis.call('PUBLISH', 'news', 'key') while true do end\" 0"
    ));
    let mut busy_rounds = 0;
    let is_told = (0..POLLS).any(|_| {
        std::thread::sleep(POLL);
        let answer = server.ask(&[b"PING"]).expect("an answer while the script runs");
        busy_rounds += u32::from(answer.starts_with("-BUSY"));
        busy_rounds == ROUNDS || subscriber.read_exact(&mut [0]).is_ok()
    });
    assert!(is_told, "the server was busy {busy_rounds} times: {}", server.log());
    let is_told = busy_rounds < ROUNDS;
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"EXISTS", b"key"]).as_deref(), Some(":0\r\n"));
    is_told
}

#[test]
fn nobody_is_told_of_a_script_before_it_is_durable() {
    if !is_built() {
        return;
    }
    assert!(!is_told_of_a_script_that_never_ends(&[]));
    // The injected fault: what a script tells others leaves with the replies that clients get meanwhile.
    assert!(is_told_of_a_script_that_never_ends(&[("MANGROVE_REDIS_WITHOUT", "inner")]));
}

#[test]
fn what_a_slow_script_has_told_is_there_after_a_kill() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &SLOW);
    let mut subscriber = subscriber(&server);
    // Before its first change a round comes inside, too: what was told before the script is let go there.
    let _caller = server.send(&format!(
        "EVAL \"do {AWAIT_ROUND} end redis.call('SET', 'key', '1') do {AWAIT_ROUND} end \
         redis.call('PUBLISH', 'news', 'key') {AWAIT_ROUND}\" 0"
    ));
    reads(&mut subscriber, "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\nkey\r\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"GET", b"key"]).as_deref(), Some("1"));
}

/// The keys of BY and GET are made from what is sorted.
#[test]
fn a_sort_waits_for_the_batches_that_changed_what_it_sorts_by_or_gets() {
    /// How long a batch counts as not durable.
    const HOLD_MS: u64 = 1_000;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let hold = HOLD_MS.to_string();
    let server = Server::serving_with(dir.path(), &[], &[("MANGROVE_REDIS_HOLD_MS", hold.as_str())]);
    let mut prepared = server.send("RPUSH list a b\r\nMSET w_a 1 w_b 2");
    reads(&mut prepared, ":2\r\n+OK\r\n");
    for (change, sort, changed) in [
        ("SET w_a 3", "SORT_RO list BY w_*", "*2\r\n$1\r\nb\r\n$1\r\na\r\n"),
        ("SET w_a 4", "SORT_RO list BY nosort GET w_*", "*2\r\n$1\r\n4\r\n$1\r\n2\r\n"),
    ] {
        // No reply that rests on the change leaves earlier.
        let released = Instant::now() + Duration::from_millis(HOLD_MS);
        let mut changing = server.send(change);
        let sees_the_change = (0..POLLS).any(|_| {
            let mut found = vec![0; changed.len()];
            server.send(sort).read_exact(&mut found).unwrap();
            found == changed.as_bytes()
        });
        assert!(sees_the_change && Instant::now() >= released, "{sort}");
        reads(&mut changing, "+OK\r\n");
    }
}

/// What comes over a connection until these bytes do.
fn hears(from: &mut impl Read, expected: &[u8]) {
    let (mut heard, mut some) = (Vec::<u8>::new(), [0; 4096]);
    while !heard.windows(expected.len()).any(|bytes| bytes == expected) {
        let count = from.read(&mut some).unwrap();
        assert!(count > 0, "the connection ends after {} bytes", heard.len());
        heard.extend_from_slice(&some[..count]);
    }
}

/// The node, which is this program, would tell its subscribers at once.
#[test]
fn another_node_of_a_cluster_hears_what_is_published_when_it_is_durable() {
    /// How long a batch counts as not durable.
    const HOLD_MS: u64 = 1_000;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = node.local_addr().unwrap().port();
    let nodes = cluster_node("1", "myself,master", 0, "0-16383") + &cluster_node("2", "master", port, "");
    std::fs::write(dir.path().join("nodes.conf"), nodes).unwrap();
    let hold = HOLD_MS.to_string();
    let server = Server::serving_with(dir.path(), &CLUSTER, &[("MANGROVE_REDIS_HOLD_MS", hold.as_str())]);
    node.set_nonblocking(true).unwrap();
    let accepted = (0..POLLS).find_map(|_| {
        std::thread::sleep(POLL);
        node.accept().ok()
    });
    let (mut bus, _) = accepted.expect("the server connects to the other node");
    bus.set_read_timeout(Some(POLL * POLLS)).unwrap();
    // The signature of the first message.
    hears(&mut bus, b"RCmb");
    server.awaits_cluster();
    // Nothing that rests on the change leaves earlier.
    let released = Instant::now() + Duration::from_millis(HOLD_MS);
    let mut caller = server.send("MULTI\r\nSET key 1\r\nPUBLISH news changed\r\nEXEC");
    hears(&mut bus, b"newschanged");
    assert!(Instant::now() >= released);
    reads(&mut caller, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:0\r\n");
}

/// The other server, which is this program, has the value then, and may have made it durable.
#[test]
fn what_migrate_has_sent_is_there_after_a_kill() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    other.set_nonblocking(true).unwrap();
    let port = other.local_addr().unwrap().port();
    // The server makes nothing durable by itself.
    let mut server = Server::serving(dir.path(), &["--durability", "interval=60000"]);
    assert_eq!(server.ask(&[b"SET", b"key", b"value"]).as_deref(), Some("+OK\r\n"));
    let _caller = server.send(&format!("MIGRATE 127.0.0.1 {port} key 0 60000"));
    let accepted = (0..POLLS).find_map(|_| {
        std::thread::sleep(POLL);
        other.accept().ok()
    });
    let (mut sent, _) = accepted.expect("the server connects to the other one");
    sent.set_read_timeout(Some(POLL * POLLS)).unwrap();
    hears(&mut sent, b"RESTORE");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"GET", b"key"]).as_deref(), Some("value"));
}

/// A thread would write to all of them one after the other, and the process ends meanwhile.
#[test]
fn a_shutdown_sends_what_io_threads_would_send() {
    const SUBSCRIBERS: usize = 300;
    /// Less than a socket takes.
    const LEN: usize = 1 << 16;
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &["--io-threads", "3", "--events-per-io-thread", "0"]);
    let subscribers: Vec<UnixStream> = (0..SUBSCRIBERS).map(|_| subscriber(&server)).collect();
    let publish = format!("EVAL \"redis.call('PUBLISH', 'news', string.rep('x', {LEN}))\" 0");
    let _caller = server.send(&format!("{publish}\r\nSHUTDOWN NOSAVE"));
    assert!(server.child.wait().unwrap().success(), "{}", server.log());
    let expected = format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n${LEN}\r\n{}\r\n", "x".repeat(LEN));
    for mut subscriber in subscribers {
        let mut heard = String::new();
        subscriber.read_to_string(&mut heard).unwrap();
        assert!(heard == expected, "a subscriber has {} bytes of {}", heard.len(), expected.len());
    }
}

/// A client whose request an I/O thread has read is the thread's until the main thread comes to that request.
#[test]
fn a_shutdown_sends_the_reply_to_a_client_whose_next_request_was_read() {
    /// Longer than the test takes: until then the batch counts as not durable.
    const HOLD_MS: &str = "60000";
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // One thread reads all requests, in the order in which they come, and each command is executed by itself.
    let arguments =
        "--io-threads 2 --events-per-io-thread 0 --prefetch-batch-max-size 0 --enable-debug-command yes";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut server = Server::serving_with(dir.path(), &arguments, &[("MANGROVE_REDIS_HOLD_MS", HOLD_MS)]);
    let [mut waiting, mut stopping, mut sleeping] = ["PING", "PING", "PING"].map(|ping| server.send(ping));
    for client in [&mut waiting, &mut stopping, &mut sleeping] {
        reads(client, "+PONG\r\n");
    }
    waiting.write_all(b"SET key 1\r\n").unwrap();
    std::thread::sleep(POLL * 5);
    // What comes meanwhile is of one round.
    sleeping.write_all(b"DEBUG SLEEP 0.5\r\n").unwrap();
    std::thread::sleep(POLL * 5);
    stopping.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
    // Where the server was so quick that it has ended, there is no next request.
    let _ = waiting.write_all(b"PING\r\n");
    assert!(server.child.wait().unwrap().success(), "{}", server.log());
    reads(&mut waiting, "+OK\r\n");
}

/// The script's own changes are in no batch then.
#[test]
fn a_shutdown_that_cuts_a_script_off_keeps_what_was_acknowledged_before() {
    /// The server makes nothing durable by itself.
    const INTERVAL: [&str; 2] = ["--durability", "interval=60000"];
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serving(dir.path(), &[&SLOW[..], &INTERVAL].concat());
    assert_eq!(server.ask(&[b"SET", b"before", b"1"]).as_deref(), Some("+OK\r\n"));
    let _caller = server.send("EVAL \"redis.call('SET', 'key', '1') while true do end\" 0");
    let is_busy = (0..POLLS).any(|_| {
        std::thread::sleep(POLL);
        server.ask(&[b"PING"]).is_some_and(|answer| answer.starts_with("-BUSY"))
    });
    assert!(is_busy, "{}", server.log());
    let _stopping = server.send("SHUTDOWN NOSAVE");
    assert!(server.child.wait().unwrap().success(), "{}", server.log());
    let server = Server::serving(dir.path(), &[]);
    assert_eq!(server.ask(&[b"GET", b"before"]).as_deref(), Some("1"));
    assert_eq!(server.ask(&[b"EXISTS", b"key"]).as_deref(), Some(":0\r\n"));
}
