//! The example with an event loop of its own, killed at random instants under load and started again: every reply that
//! left still holds, and no transfer is there in part.

use crate::common::{build_example, link, root, told};
use mangrove_testkit::command::wait_until;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where the dice begin: the same in every run.
const SEED: u64 = 88_172_645_463_325_252;
const CLIENTS: usize = 6;
/// Requests that a client has under way.
const PIPELINE: usize = 8;

fn dice(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

struct Serving {
    child: Child,
    door: PathBuf,
}

impl Serving {
    fn start(program: &Path, scratch: &Path) -> Self {
        let door = scratch.join("door");
        let mut child = Command::new(program)
            .args([&scratch.join("s"), &door])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("says that it serves");
        if line.is_empty() {
            panic!("the server did not start: {}", told(&child.wait_with_output().expect("ends")));
        }
        Self { child, door }
    }

    fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        let output = self.child.wait_with_output().expect("ends");
        assert!(output.stderr.is_empty(), "{}", told(&output));
    }

    fn connect(&self) -> Connection {
        let stream = UnixStream::connect(&self.door).expect("connects");
        Connection { replies: BufReader::new(stream.try_clone().expect("a descriptor")), stream }
    }
}

struct Connection {
    stream: UnixStream,
    replies: BufReader<UnixStream>,
}

impl Connection {
    /// The next reply; none when the server is gone.
    fn reply(&mut self) -> Option<i64> {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => Some(line.trim().parse().expect("a number")),
            _ => None,
        }
    }

    fn ask(&mut self, request: &str) -> i64 {
        writeln!(self.stream, "{request}").expect("sends");
        self.reply().expect("answers")
    }
}

/// Raises the client's own account by one at a time, with transfers between, until the server is gone. Returns the
/// account's last acknowledged balance, and how often it was raised in all.
fn work(
    mut connection: Connection,
    client: usize,
    from: i64,
    seed: &mut u64,
    replies: &AtomicU64,
) -> (i64, i64) {
    let (mut acknowledged, mut sent) = (from, from);
    // For each request under way: the balance that its reply must tell.
    let mut under_way = VecDeque::new();
    loop {
        while under_way.len() < PIPELINE {
            let request = if dice(seed).is_multiple_of(2) {
                sent += 1;
                under_way.push_back(Some(sent));
                format!("add own{client} 1\n")
            } else {
                under_way.push_back(None);
                let [a, b] = [dice(seed) % 10, dice(seed) % 10];
                format!("move shared{a} shared{b} {}\n", dice(seed) % 100)
            };
            if connection.stream.write_all(request.as_bytes()).is_err() {
                return (acknowledged, sent);
            }
        }
        let Some(reply) = connection.reply() else { return (acknowledged, sent) };
        if let Some(expected) = under_way.pop_front().flatten() {
            assert_eq!(reply, expected, "client {client}");
            acknowledged = reply;
        }
        replies.fetch_add(1, Ordering::Relaxed);
    }
}

/// One start, load, and SIGKILL. `balances` are those of the clients' own accounts, which the start must find.
fn round(
    program: &Path,
    scratch: &Path,
    balances: &mut [(i64, i64); CLIENTS],
    seed: &mut u64,
) -> Result<(), String> {
    let serving = Serving::start(program, scratch);
    let mut look = serving.connect();
    let mut found = [0; CLIENTS];
    for (client, found) in found.iter_mut().enumerate() {
        *found = look.ask(&format!("get own{client}"));
        let (acknowledged, sent) = balances[client];
        if !(acknowledged..=sent).contains(found) {
            serving.kill();
            return Err(format!("client {client}: {found}, acknowledged {acknowledged}, sent {sent}"));
        }
    }
    let shared: i64 = (0..10).map(|n| look.ask(&format!("get shared{n}"))).sum();
    if shared != 0 || look.ask("sum") != found.iter().sum::<i64>() {
        serving.kill();
        return Err(format!("a transfer is there in part: {shared}"));
    }
    let replies = AtomicU64::new(0);
    let enough = 200 + dice(seed) % 3000;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (connection, replies, from) = (serving.connect(), &replies, found[client]);
                let mut seed = dice(seed) | 1;
                scope.spawn(move || work(connection, client, from, &mut seed, replies))
            })
            .collect();
        wait_until("replies", || replies.load(Ordering::Relaxed) >= enough);
        serving.kill();
        for (worker, balance) in workers.into_iter().zip(balances) {
            *balance = worker.join().expect("works");
        }
    });
    Ok(())
}

/// Up to `rounds` rounds, and the first fault.
fn rounds(program: &Path, scratch: &Path, rounds: usize) -> Result<(), String> {
    let (mut balances, mut seed) = ([(0, 0); CLIENTS], SEED);
    (0..rounds).try_for_each(|_| round(program, scratch, &mut balances, &mut seed))
}

#[test]
fn every_reply_that_left_still_holds() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build_example("loop", &["server.c"], scratch.path());
    rounds(&program, scratch.path(), 10).unwrap();
    // An orderly end.
    let mut serving = Serving::start(&program, scratch.path());
    let before = serving.connect().ask("sum");
    let term = Command::new("kill").args(["-TERM", &serving.child.id().to_string()]).status().expect("kill");
    assert!(term.success() && serving.child.wait().expect("ends").success(), "an orderly end");
    let serving = Serving::start(&program, scratch.path());
    assert_eq!(serving.connect().ask("sum"), before);
    serving.kill();
}

/// As `printf ... | nc -N` does: the end of the requests comes before the first of them is durable.
#[test]
fn a_client_that_ends_its_requests_gets_every_reply() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build_example("loop", &["server.c"], scratch.path());
    let serving = Serving::start(&program, scratch.path());
    for round in 1..=10 {
        let Connection { mut stream, mut replies } = serving.connect();
        let requests = format!("add end{round} 5\nmove end{round} all 2\nget end{round}\nget all\n");
        stream.write_all(requests.as_bytes()).expect("sends");
        stream.shutdown(Shutdown::Write).expect("ends");
        let mut text = String::new();
        replies.read_to_string(&mut text).expect("reads to the end");
        assert_eq!(text, format!("5\n{}\n3\n{}\n", 2 * round, 2 * round));
    }
    serving.kill();
}

/// Replies are longer than requests: the server has no room for them, then none for requests, until the client reads.
#[test]
fn a_client_that_reads_late_gets_every_reply() {
    /// 1 MB of them.
    const REQUESTS: usize = 175_000;
    const TOGETHER: usize = 100;
    let limit = Some(Duration::from_secs(120));
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build_example("loop", &["server.c"], scratch.path());
    let serving = Serving::start(&program, scratch.path());
    let balance = 1_000_000_000_000_000_000;
    assert_eq!(serving.connect().ask(&format!("add a {balance}")), balance);
    for ends in [false, true] {
        let Connection { mut stream, mut replies } = serving.connect();
        stream.set_write_timeout(limit).expect("a limit");
        stream.set_read_timeout(limit).expect("a limit");
        let sent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let requests = "get a\n".repeat(TOGETHER);
                for _ in 0..REQUESTS / TOGETHER {
                    stream.write_all(requests.as_bytes()).expect("sends");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                if ends {
                    stream.shutdown(Shutdown::Write).expect("ends");
                }
            });
            // Until nothing moves any more. A reader that begins earlier finds less, and no fault.
            let mut before = None;
            while before != Some(sent.load(Ordering::Relaxed)) {
                before = Some(sent.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(200));
            }
            let expected = format!("{balance}\n").repeat(REQUESTS);
            let mut text = vec![0; expected.len()];
            replies.read_exact(&mut text).expect("every reply");
            assert!(text == expected.as_bytes());
            if ends {
                assert_eq!(replies.read(&mut text).expect("the end"), 0);
            }
        });
    }
    serving.kill();
}

/// The example with one part changed, in `scratch`.
fn changed(part: &str, other: &str, scratch: &Path) -> PathBuf {
    let source = std::fs::read_to_string(root().join("examples/loop/server.c")).expect("UTF-8");
    assert_eq!(source.matches(part).count(), 1, "{part}");
    let changed = scratch.join("server.c");
    std::fs::write(&changed, source.replace(part, other)).expect("writes");
    link(&[changed], &scratch.join("loop"))
}

/// SIGTERM comes just before the server waits for events, of which there are none.
#[test]
fn a_server_that_is_told_to_end_before_it_waits_ends() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = changed("epoll_wait(poller,", "raise(SIGTERM) ? -1 : epoll_wait(poller,", scratch.path());
    let mut serving = Serving::start(&program, scratch.path());
    wait_until("an end", || serving.child.try_wait().expect("a child").is_some());
    assert!(serving.child.wait().expect("ends").success(), "an orderly end");
}

/// The example with one line changed for the worse. How many kills a fault needs depends on the machine; each ends the
/// search that meets it.
fn planted(good: &str, bad: &str) -> Result<(), String> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = changed(good, bad, scratch.path());
    rounds(&program, scratch.path(), 300)
}

#[test]
fn replies_that_do_not_wait_are_found_lost() {
    let found = planted("c->ticket > durable", "durable > UINT64_MAX - 1");
    assert!(found.as_ref().is_err_and(|why| why.contains("acknowledged")), "{found:?}");
}

/// The server sleeps while half of a transfer is durable, so that it is there for nearly all of its time.
#[test]
fn a_transfer_of_two_batches_is_found_torn() {
    let found = planted(
        "        tracked(run_move, &r);",
        "        (void)run_move;
        r.amount = -r.amount;
        char to[NAME_BYTES];
        memcpy(to, r.to, NAME_BYTES), memcpy(r.to, r.from, NAME_BYTES);
        tracked(run_add, &r);
        OK_OR_DIE(mangrove_app_batch_commit(app, &newest));
        OK_OR_DIE(mangrove_app_wait(app, newest));
        usleep(1000);
        r.amount = -r.amount, memcpy(r.to, to, NAME_BYTES);
        tracked(run_add, &r);",
    );
    assert!(found.as_ref().is_err_and(|why| why.contains("in part")), "{found:?}");
}
