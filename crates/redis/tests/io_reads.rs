//! Reads that the server's I/O threads execute: they answer as the main thread does, wait for what they rest on, and
//! see no half of a transaction. A thread that finds the read sections closed leaves its read to the main thread, so
//! what a thread is to answer is asked for until one has.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{POLL, POLLS, Server, comes, is_built};

/// Each client's requests go to an I/O thread, however few there are.
const THREADS: [&str; 4] = ["--io-threads", "3", "--events-per-io-thread", "0"];

/// So often is a read sent until a thread answers it.
const TRIES: usize = 500;

/// One connection, and the bytes on it.
struct Client(UnixStream);

impl Client {
    fn of(server: &Server) -> Self {
        let stream = UnixStream::connect(server.dir.join("s")).unwrap();
        stream.set_read_timeout(Some(POLL * POLLS)).unwrap();
        Self(stream)
    }

    /// The answers to lines that come as one piece: only the first is parsed by an I/O thread.
    fn pipeline(&mut self, lines: &str) -> Vec<u8> {
        const END: &[u8] = b"$3\r\nend\r\n";
        self.0.write_all(format!("{lines}\r\nECHO end\r\n").as_bytes()).unwrap();
        let mut answers = Vec::new();
        while !answers.ends_with(END) {
            let mut some = [0; 4096];
            let count = self.0.read(&mut some).unwrap();
            assert!(count > 0, "the connection ends after {answers:?}");
            answers.extend_from_slice(&some[..count]);
        }
        answers.truncate(answers.len() - END.len());
        answers
    }

    /// The main thread's answer.
    fn on_main(&mut self, line: &str) -> Vec<u8> {
        self.pipeline(&format!("ECHO begin\r\n{line}")).split_off(b"$5\r\nbegin\r\n".len())
    }

    /// The answer to a line that comes alone, which has so many bytes.
    fn alone(&mut self, line: &str, len: usize) -> Vec<u8> {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut answer = vec![0; len];
        self.0.read_exact(&mut answer).unwrap();
        answer
    }

    /// A number of INFO.
    fn count(&mut self, section: &str, field: &str) -> u64 {
        let info = String::from_utf8(self.on_main(&format!("INFO {section}"))).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in {info}")).parse().unwrap()
    }

    fn on_threads(&mut self) -> u64 {
        self.count("mangrove", "mangrove_reads_on_io_threads")
    }
}

/// Sends the line alone until an I/O thread has answered it, and compares each answer with the main thread's.
fn is_answered_on_a_thread(client: &mut Client, line: &str, tries: usize) -> bool {
    for _ in 0..tries {
        let before = client.on_threads();
        let first = client.on_main(line);
        let found = client.alone(line, first.len());
        // A time to live may have ticked, more than once where the machine is busy.
        let last = client.on_main(line);
        let has_ticked = line.starts_with("TTL") && (&last..=&first).contains(&&found);
        assert!(
            found == first || found == last || has_ticked,
            "{line}: {} and on the main thread {}",
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(&last)
        );
        match client.on_threads() - before {
            0 => {}
            1 => return true,
            more => panic!("{line}: {more} reads on I/O threads"),
        }
    }
    false
}

/// Values of each encoding: `small` ones are packed.
fn fill(client: &mut Client) {
    let long = "l".repeat(3000);
    let mut lines =
        format!("SET text hello\r\nSET number 123\r\nSET real 1.5\r\nSET long {long}\r\nSET empty \"\"\r\n");
    lines += "SET mortal 1 EX 90000\r\nSET short 1 PX 1\r\n";
    for (kind, count) in [("small", 5), ("large", 700)] {
        for j in 0..count {
            lines += &format!(
                "RPUSH list:{kind} {j} e{j}\r\nHSET hash:{kind} f{j} v{j} {j} {j}\r\nZADD zset:{kind} {}.5 m{j}\r\n\
                 SADD set:{kind} m{j}\r\nSADD ints:{kind} {j}\r\n",
                j % 7
            );
        }
    }
    lines += &format!("HSET hash:large long {long}\r\nRPUSH list:large {long}");
    let answers = client.pipeline(&lines);
    assert!(!answers.contains(&b'-'), "{}", String::from_utf8_lossy(&answers));
}

#[test]
fn a_read_on_an_io_thread_answers_as_the_main_thread_does() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving_with(
        dir.path(),
        &[&THREADS[..], &["--enable-debug-command", "yes", "--medium", "emulated=0/0"]].concat(),
        &[("MANGROVE_REDIS_FENCE", "1")],
    );
    let mut client = Client::of(&server);
    assert_eq!(client.on_main("DEBUG SET-ACTIVE-EXPIRE 0"), b"+OK\r\n");
    fill(&mut client);
    let mut reads: Vec<String> = [
        "GET text",
        "GET number",
        "GET real",
        "GET long",
        "GET empty",
        "GET mortal",
        "GET absent",
        "get text",
        "MGET text absent number list:small long",
        "STRLEN long",
        "STRLEN number",
        "STRLEN absent",
        "EXISTS text text absent hash:small",
        "EXISTS absent",
        "TTL mortal",
        "TTL text",
        "TTL absent",
    ]
    .map(String::from)
    .to_vec();
    for kind in ["small", "large", "absent"] {
        for read in [
            "HGET hash: f3",
            "HGET hash: 3",
            "HGET hash: none",
            "HGET hash: long",
            "HMGET hash: f3 none 3 long",
            "HGETALL hash:",
            "LRANGE list: 0 -1",
            "LRANGE list: -3 -1",
            "LRANGE list: 5 2",
            "ZSCORE zset: m3",
            "ZSCORE zset: none",
            "ZRANGE zset: 0 -1",
            "ZRANGE zset: 1 3 WITHSCORES",
            "ZRANGE zset: 0 2 REV WITHSCORES",
            "ZRANGE zset: (1 +inf BYSCORE LIMIT 1 2",
            "ZRANGE zset: - + BYLEX LIMIT 0 2",
            "SISMEMBER set: m3",
            "SISMEMBER set: none",
            "SISMEMBER ints: 3",
            "SISMEMBER ints: none",
        ] {
            reads.push(read.replacen(':', &format!(":{kind}"), 1));
        }
    }
    // What a thread leaves to the main thread: errors, what is no plain read, and a key that is to be deleted.
    let others = [
        "GET hash:small",
        "HGET text f",
        "LRANGE list:small 0 x",
        "ZRANGE zset:small 0 1 LIMIT 0 1",
        "GET",
        "GET a b",
        "PING",
        "DBSIZE",
        "SET text hello",
    ];
    for protocol in ["HELLO 2", "HELLO 3"] {
        client.on_main(protocol);
        for read in &reads {
            assert!(is_answered_on_a_thread(&mut client, read, TRIES), "{read} after {protocol}");
        }
        for other in others {
            assert!(!is_answered_on_a_thread(&mut client, other, 3), "{other} after {protocol}");
        }
    }
    // Counts and notes are those of the main thread.
    for (read, hits, misses) in
        [("GET text", 1, 0), ("MGET text absent absent", 1, 2), ("EXISTS absent", 0, 1)]
    {
        let seen = |client: &mut Client| {
            ["keyspace_hits", "keyspace_misses"].map(|field| client.count("stats", field))
        };
        let before = seen(&mut client);
        let len = client.on_main(read).len();
        (0..9).for_each(|_| drop(client.alone(read, len)));
        assert_eq!(seen(&mut client), [before[0] + 10 * hits, before[1] + 10 * misses], "{read}");
    }
    // Nothing but what the fence lets pass was written to the state, which is on threads the note of a value's use.
    let log = server.log();
    assert!(!log.contains("write fence"), "{log}");
}

#[test]
fn a_read_that_the_main_thread_must_know_of_is_its_own() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serving(dir.path(), &[&THREADS[..], &["--enable-debug-command", "yes"]].concat());
    let mut client = Client::of(&server);
    assert_eq!(client.pipeline("DEBUG SET-ACTIVE-EXPIRE 0\r\nSET text hello"), b"+OK\r\n+OK\r\n");
    // A key whose time has come is deleted by the lookup.
    for _ in 0..3 {
        client.on_main("SET short 1 PX 1");
        std::thread::sleep(POLL);
        let before = client.on_threads();
        assert_eq!(client.alone("GET short", 5), b"$-1\r\n");
        assert_eq!(client.on_threads(), before);
    }
    // The notification of a key that is not there.
    assert!(is_answered_on_a_thread(&mut client, "GET absent", TRIES));
    client.on_main("CONFIG SET notify-keyspace-events Em");
    assert!(!is_answered_on_a_thread(&mut client, "GET absent", 3));
    assert!(is_answered_on_a_thread(&mut client, "GET text", TRIES));
    // A transaction queues its reads.
    assert_eq!(client.alone("MULTI", 5), b"+OK\r\n");
    assert_eq!(client.alone("GET text", 9), b"+QUEUED\r\n");
    assert_eq!(client.alone("EXEC", 15), b"*1\r\n$5\r\nhello\r\n");
    // A user without the right to a key.
    client.on_main("ACL SETUSER default resetkeys ~open:*");
    let refused = client.on_main("GET text");
    assert!(refused.starts_with(b"-NOPERM"), "{refused:?}");
    assert!(!is_answered_on_a_thread(&mut client, "GET text", 3));
    client.on_main("ACL SETUSER default allkeys");
    // The server tells a client that caches (CLIENT TRACKING) when a value changes that it has sent to it.
    client.on_main("HELLO 3");
    assert_eq!(client.on_main("CLIENT TRACKING ON"), b"+OK\r\n");
    let before = client.on_threads();
    assert_eq!(client.alone("GET text", 11), b"$5\r\nhello\r\n");
    assert_eq!(client.on_threads(), before);
    assert_eq!(Client::of(&server).on_main("SET text other"), b"+OK\r\n");
    let push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$4\r\ntext\r\n";
    assert_eq!(client.alone("PING", push.len() + 7), [&push[..], b"+PONG\r\n"].concat());
}

/// What came of reads beside a change that is not durable.
#[derive(Debug, Default)]
struct Seen {
    /// Reads that had the new value before it was durable.
    leaked: usize,
    /// Reads that had it, and no sooner.
    held: usize,
    on_threads: u64,
}

/// Takes the answers that are there.
fn take_answers(asked: &mut Vec<(&'static str, UnixStream)>, is_early: bool, seen: &mut Seen) {
    asked.retain_mut(|(key, stream)| {
        let mut answer = [0; 64];
        if stream.read(&mut answer).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            return true;
        }
        // A read may come before the change: then it finds nothing.
        let is_new = *key == "new" && answer.starts_with(b"$1\r\n");
        seen.leaked += usize::from(is_new && is_early);
        seen.held += usize::from(is_new && !is_early);
        false
    });
}

/// Reads of the key that a change makes, each by a client of its own, and reads of another key in between.
fn reads_beside_a_change(without: &[(&str, &str)]) -> Seen {
    const READERS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    // While it is there no batch counts as durable.
    let hold = dir.path().join("hold");
    // The server's timer makes batches, too, and threads read only between batches.
    let server = Server::serving_with(
        dir.path(),
        &[&THREADS[..], &["--hz", "1"]].concat(),
        &[&[("MANGROVE_REDIS_HOLD_FILE", hold.to_str().unwrap())], without].concat(),
    );
    assert_eq!(server.ask(&[b"SET", b"same", b"1"]).as_deref(), Some("+OK\r\n"));
    std::fs::write(&hold, "").unwrap();
    let mut change = server.send("SET new 1");
    std::thread::sleep(Duration::from_millis(100));
    let mut asked = Vec::new();
    for j in 0..READERS {
        asked.push(("new", server.send("GET new")));
        asked.push(("same", server.send(if j % 2 == 0 { "GET same" } else { "MGET same same" })));
        std::thread::sleep(Duration::from_millis(2));
    }
    asked.iter().for_each(|(_, stream)| stream.set_nonblocking(true).unwrap());
    let mut seen = Seen::default();
    let have_passed = (0..POLLS).any(|_| {
        std::thread::sleep(POLL / 4);
        take_answers(&mut asked, true, &mut seen);
        asked.iter().all(|(key, _)| *key == "new")
    });
    assert!(have_passed, "a read waits for a change of another key: {asked:?}");
    std::fs::remove_file(&hold).unwrap();
    let are_answered = (0..POLLS).any(|_| {
        std::thread::sleep(POLL / 4);
        take_answers(&mut asked, false, &mut seen);
        asked.is_empty()
    });
    assert!(are_answered, "unanswered: {asked:?}");
    change.read_exact(&mut [0; 5]).unwrap();
    seen.on_threads = Client::of(&server).on_threads();
    seen
}

#[test]
fn a_read_on_an_io_thread_waits_for_the_unit_that_changed_its_key_and_for_no_other() {
    if !is_built() {
        return;
    }
    // On a busy machine all reads may come before the change.
    let have_met = comes(|| {
        let seen = reads_beside_a_change(&[]);
        assert_eq!(seen.leaked, 0, "{seen:?}");
        seen.held > 0 && seen.on_threads > 40
    });
    assert!(have_met, "no read on an I/O thread came between the change and its durability");
    // The injected fault: an answer does not know what it rests on.
    let has_leaked = comes(|| reads_beside_a_change(&[("MANGROVE_REDIS_WITHOUT", "io-batch")]).leaked > 0);
    assert!(has_leaked, "nothing leaks");
}

/// How long the reads of a transaction's keys go on at most.
const READING_MAX: Duration = Duration::from_secs(60);

/// Reads keys that transactions set to the same value, until I/O threads have answered so many reads or one has seen
/// different values: whether one has. `None`: the server ended.
fn sees_half_of_a_transaction(without: &[(&str, &str)], enough: u64) -> Option<bool> {
    const KEYS: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    let medium = ["--medium", "emulated=0/0"];
    let mut server = Server::serving_with(dir.path(), &[&THREADS[..], &medium].concat(), without);
    let keys: Vec<String> = (0..KEYS).map(|j| format!("key:{j}")).collect();
    let transaction = |value: u64| {
        let sets: Vec<String> = keys.iter().map(|key| format!("SET {key} {value:040}\r\n")).collect();
        format!("MULTI\r\n{}EXEC\r\n", sets.concat())
    };
    Client::of(&server).pipeline(transaction(0).trim_end());
    let is_over = AtomicBool::new(false);
    let is_torn = AtomicBool::new(false);
    let dir = server.dir.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = UnixStream::connect(dir.join("s")).unwrap();
            let mut drain = [0; 65536];
            for value in 1.. {
                let asked =
                    writer.write_all(transaction(value).as_bytes()).and_then(|()| writer.read(&mut drain));
                if is_over.load(Relaxed) || !asked.is_ok_and(|count| count > 0) {
                    return;
                }
            }
        });
        for _ in 0..3 {
            scope.spawn(|| {
                let Ok(mut reader) = UnixStream::connect(dir.join("s")) else { return };
                let read = format!("MGET {}\r\n", keys.join(" "));
                let one = b"$40\r\n".len() + 42;
                let mut answer = vec![0; b"*64\r\n".len() + KEYS * one];
                while !is_over.load(Relaxed) {
                    if reader
                        .write_all(read.as_bytes())
                        .and_then(|()| reader.read_exact(&mut answer))
                        .is_err()
                    {
                        return;
                    }
                    let values: Vec<_> = answer[b"*64\r\n".len()..].chunks(one).collect();
                    if values.iter().any(|value| *value != values[0]) {
                        is_torn.store(true, Relaxed);
                        is_over.store(true, Relaxed);
                    }
                }
            });
        }
        let begun = Instant::now();
        let mut has_ended = false;
        while !is_over.load(Relaxed) && !has_ended {
            std::thread::sleep(POLL * 5);
            has_ended = server.child.try_wait().unwrap().is_some();
            let info = if has_ended { None } else { server.ask(&[b"INFO", b"mangrove"]) };
            let count = info.as_deref().and_then(|info| {
                info.lines()
                    .find_map(|line| line.strip_prefix("mangrove_reads_on_io_threads:")?.parse::<u64>().ok())
            });
            if count.is_some_and(|count| count >= enough) || begun.elapsed() > READING_MAX {
                is_over.store(true, Relaxed);
                assert!(count.is_none_or(|count| count > 0), "no read was on an I/O thread");
            }
        }
        is_over.store(true, Relaxed);
        (!has_ended).then(|| is_torn.load(Relaxed))
    })
}

#[test]
fn a_read_on_an_io_thread_sees_no_half_of_a_transaction() {
    if !is_built() {
        return;
    }
    assert_eq!(sees_half_of_a_transaction(&[], 2_000), Some(false));
    // The injected fault: threads read while the main thread writes. Some thousand reads are enough for it. A read of
    // what was just freed may end the server before that; then another server is asked.
    let without = [("MANGROVE_REDIS_WITHOUT", "sections")];
    assert!(comes(|| sees_half_of_a_transaction(&without, u64::MAX) == Some(true)), "no read was torn");
}
