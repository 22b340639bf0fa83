//! The key-value example, killed after so many acknowledgements and started again: what was acknowledged is there,
//! nothing is there in part, and the histories of clients are linearizable across the crashes.

use crate::common::{build, build_example, link, output, root, told};
use mangrove_crashlab::linear::{KeyOperation, What, explain};
use mangrove_testkit::command::{Victim, wait_until};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Where the dice begin: the same in every run.
const SEED: u64 = 88_172_645_463_325_252;

fn dice(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn dump(program: &Path, state: &Path, threads: u64) -> HashMap<u64, u64> {
    let output =
        Command::new(program).arg(state).args(["dump", &threads.to_string()]).output().expect("runs");
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(pair).collect()
}

fn pair(line: &str) -> (u64, u64) {
    let (thread, number) = line.split_once(' ').expect("two numbers");
    (thread.parse().expect("a number"), number.parse().expect("a number"))
}

#[test]
fn local_mode_loses_nothing_acknowledged() {
    const THREADS: u64 = 4;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) =
        (build_example("kv", &["kv.c", "local.c"], scratch.path()), scratch.path().join("s"));
    let mut seed = SEED;
    // What each thread had at the end of the last round: the next number is one more.
    let mut before = [0; THREADS as usize];
    for round in 0..8 {
        let mut command = Command::new(&program);
        command.arg(&state).args(["run", &THREADS.to_string(), "100000000"]);
        let victim = Victim::start(&mut command, |lines| {
            let mut last: HashMap<u64, u64> = HashMap::new();
            for line in lines {
                let (thread, number) = pair(std::str::from_utf8(&line).expect("UTF-8"));
                last.insert(thread, number);
            }
            last
        });
        // In the first round the first moment, where the state is made.
        match round {
            0 => wait_until("the state", || state.exists()),
            _ => victim.says(1 + dice(&mut seed) % 500),
        }
        let acknowledged = victim.kill();
        let found = dump(&program, &state, THREADS);
        for thread in 0..THREADS {
            let (found, before) = (found[&thread], &mut before[thread as usize]);
            let told = acknowledged.get(&thread).copied().unwrap_or(0).max(*before);
            // One more may be durable and not reported yet.
            assert!(
                found == told || found == told + 1,
                "round {round}, thread {thread}: {found}, told {told}"
            );
            *before = found;
        }
    }
}

/// Blocks and pages come and go, and every fourth command gives back what is free.
#[test]
fn a_state_that_gives_space_back_loses_nothing() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build("compacting", scratch.path()), scratch.path().join("s"));
    let number = |line: &[u8]| -> u64 { String::from_utf8_lossy(line).trim().parse().expect("a number") };
    let mut seed = SEED;
    for round in 0..12 {
        let mut command = Command::new(&program);
        let victim = Victim::start(command.arg(&state).arg("run"), move |lines| {
            lines.fold(0, |_, line| number(&line))
        });
        victim.says(1 + dice(&mut seed) % 60);
        let acknowledged = victim.kill();
        let checked = output(&program, &["check"], &state);
        assert!(checked.status.success(), "round {round}: {}", told(&checked));
        let found = number(&checked.stdout);
        assert!(found == acknowledged || found == acknowledged + 1, "round {round}: {found}, {acknowledged}");
    }
}

struct Serving {
    child: Child,
    door: PathBuf,
}

impl Serving {
    fn start(program: &Path, state: &Path, door: &Path) -> Self {
        let mut child = Command::new(program)
            .arg(state)
            .arg(format!("unix:{}", door.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("says where");
        if line.is_empty() {
            let output = child.wait_with_output().expect("ends");
            panic!("the server did not start: {}", told(&output));
        }
        Self { child, door: door.to_owned() }
    }
}

/// The same numbers as in examples/kv/kv.h.
const REQUEST_BYTES: usize = 108;
const REPLY_BYTES: usize = 128;

fn request(kind: u8, key: u64, value: u64) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0] = kind;
    let (key, value) = (key.to_string(), value.to_string());
    bytes[1..1 + key.len()].copy_from_slice(key.as_bytes());
    if kind == b'P' {
        bytes[8..8 + value.len()].copy_from_slice(value.as_bytes());
    }
    bytes
}

fn ask(stream: &mut UnixStream, request: &[u8]) -> std::io::Result<String> {
    stream.write_all(request)?;
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply)?;
    let text = reply.split(|&b| b == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[test]
fn rpc_mode_is_linearizable_across_crashes() {
    const CLIENTS: usize = 6;
    const KEYS: u64 = 5;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build_example("kv", &["kv.c", "server.c"], scratch.path());
    let (state, door) = (scratch.path().join("s"), scratch.path().join("door"));
    let begun = Instant::now();
    let clock = || begun.elapsed().as_nanos() as u64;
    let (history, values) = (Mutex::new(Vec::<(u64, KeyOperation)>::new()), AtomicU32::new(1));
    let mut seed = SEED;
    for _ in 0..6 {
        let mut serving = Serving::start(&program, &state, &door);
        let (ended, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let mut seed = dice(&mut seed) | 1;
                let (history, values, door, ended) = (&history, &values, &serving.door, &ended);
                let answers = &answers;
                scope.spawn(move || {
                    let Ok(mut stream) = UnixStream::connect(door) else { return };
                    let mut mine = Vec::new();
                    while !ended.load(Ordering::Relaxed) {
                        let key = dice(&mut seed) % KEYS;
                        let (write, value) =
                            (dice(&mut seed).is_multiple_of(2), values.fetch_add(1, Ordering::Relaxed));
                        let bytes = request(if write { b'P' } else { b'G' }, key, value.into());
                        let begin = clock();
                        let answer = ask(&mut stream, &bytes);
                        let end = answer.is_ok().then(clock);
                        let what = match &answer {
                            _ if write => What::Write(value),
                            Ok(text) if text.is_empty() => What::Read(0),
                            Ok(text) => What::Read(text.parse().unwrap_or_else(|_| panic!("{text}"))),
                            Err(_) => What::Read(0),
                        };
                        if let (true, Ok(text)) = (write, &answer) {
                            assert!(text.starts_with("OK "), "{text}");
                        }
                        mine.push((key, KeyOperation { begin, end, what }));
                        answers.fetch_add(u64::from(end.is_some()), Ordering::Relaxed);
                        if answer.is_err() {
                            break;
                        }
                    }
                    history.lock().expect("unpoisoned").append(&mut mine);
                });
            }
            let enough = 100 + dice(&mut seed) % 500;
            wait_until("answers", || answers.load(Ordering::Relaxed) >= enough);
            serving.child.kill().expect("SIGKILL");
            serving.child.wait().expect("ends");
            ended.store(true, Ordering::Relaxed);
        });
    }
    // A last look by a client of the last recovery, and an orderly close.
    let mut serving = Serving::start(&program, &state, &door);
    let history = history.into_inner().expect("unpoisoned");
    let mut stream = UnixStream::connect(&door).expect("connects");
    let mut found = Vec::new();
    for key in 0..KEYS {
        let text = ask(&mut stream, &request(b'G', key, 0)).expect("answers");
        let value = if text.is_empty() { 0 } else { text.parse().expect("a number") };
        found.push(value);
    }
    drop(stream);
    let term = Command::new("kill").args(["-TERM", &serving.child.id().to_string()]).status().expect("kill");
    assert!(term.success());
    assert!(serving.child.wait().expect("ends").success(), "an orderly end");
    for (key, &found) in (0..KEYS).zip(&found) {
        let one: Vec<KeyOperation> =
            history.iter().filter(|(k, _)| *k == key).map(|(_, access)| access.clone()).collect();
        assert_eq!(explain(0, &one, found), Ok(()), "key {key}: {} operations", one.len());
    }
}

#[test]
fn a_pipeline_is_answered_in_order_and_survives() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = build_example("kv", &["kv.c", "server.c"], scratch.path());
    let (state, door) = (scratch.path().join("s"), scratch.path().join("door"));
    let mut serving = Serving::start(&program, &state, &door);
    let mut stream = UnixStream::connect(&door).expect("connects");
    let mut all = Vec::new();
    for n in 1..=500u64 {
        all.extend_from_slice(&request(b'P', n % 7, n));
        all.extend_from_slice(&request(b'G', n % 7, 0));
    }
    stream.write_all(&all).expect("sends");
    for n in 1..=500u64 {
        for expected in [format!("OK {n}"), n.to_string()] {
            let mut reply = [0; REPLY_BYTES];
            stream.read_exact(&mut reply).expect("answers");
            let text = reply.split(|&b| b == b'\n').next().unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(text), expected);
        }
    }
    serving.child.kill().expect("SIGKILL");
    serving.child.wait().expect("ends");
    let mut serving = Serving::start(&program, &state, &door);
    let mut stream = UnixStream::connect(&door).expect("connects");
    for n in 494..=500u64 {
        assert_eq!(ask(&mut stream, &request(b'G', n % 7, 0)).expect("answers"), n.to_string());
    }
    serving.child.kill().expect("SIGKILL");
    serving.child.wait().expect("ends");
}

/// The server gets SIGTERM before it serves, and again after it has closed its application.
#[test]
fn a_second_signal_uses_nothing_that_is_closed() {
    let (scratch, kv) = (tempfile::tempdir().expect("a scratch directory"), root().join("examples/kv"));
    for header in ["kv.h", "glue.h"] {
        std::fs::copy(kv.join(header), scratch.path().join(header)).expect("copies");
    }
    let mut text = std::fs::read_to_string(kv.join("server.c")).expect("UTF-8");
    let (serve, close) = ("must(mangrove_app_serve(app));", "must(mangrove_app_close(app));");
    for (call, more) in [
        (serve, format!("raise(SIGTERM);\n    {serve}")),
        (close, format!("{close}\n    puts(\"closed\");\n    fflush(stdout);\n    raise(SIGTERM);")),
    ] {
        assert_eq!(text.matches(call).count(), 1, "{call}");
        text = text.replace(call, &more);
    }
    let server = scratch.path().join("server.c");
    std::fs::write(&server, text).expect("writes");
    let program = link(&[kv.join("kv.c"), server], &scratch.path().join("kv"));
    let address = format!("unix:{}", scratch.path().join("door").display());
    let output = output(&program, &[&address], &scratch.path().join("s"));
    assert!(output.stdout.ends_with(b"closed\n"), "{}", told(&output));
    assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{}", told(&output));
}
