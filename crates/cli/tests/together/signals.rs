//! Signals: the ones that were ignored stay ignored, the others stop a command at once, also where it waits.

use crate::support::{HEEDING, SMALL_FILES, WAIT_MAX, Yard, end_of, finish, signal, spawn};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A loader, the way to its input, and the lines that it acknowledges.
struct Load {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<u64>,
}

impl Load {
    fn start(command: &mut Command) -> Self {
        let mut child = spawn(command);
        let mut reports = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = [0; 8];
            while reports.read_exact(&mut line).is_ok() && sender.send(u64::from_le_bytes(line)).is_ok() {}
        });
        Self { input: child.stdin.take(), child, lines }
    }

    fn feed(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits until so many more lines are acknowledged.
    fn acknowledges(&self, lines: usize) {
        for _ in 0..lines {
            self.lines.recv_timeout(WAIT_MAX).expect("an acknowledged line");
        }
    }
}

const LOAD: [&str; 6] = ["map", "load", "p", "-", "--report", "--threads=4"];

#[test]
fn an_ignored_signal_stays_ignored() {
    for name in ["HUP", "INT", "TERM"] {
        let yard = Yard::new();
        let ignoring = ["env", "--default-signal", &format!("--ignore-signal={name}")];
        let mut load = Load::start(yard.command_behind(&ignoring, &LOAD).stdin(Stdio::piped()));
        load.feed("before\n");
        load.acknowledges(1);
        signal(&load.child, name);
        load.feed("after\n");
        load.acknowledges(1);
        load.input = None;
        assert_eq!(end_of(&mut load.child), Some(0), "{name}");
        assert_eq!(yard.ok(&["map", "count", "p"]), "2\n", "{name}");
    }
}

#[test]
fn a_load_whose_input_pauses_is_stopped_and_has_written_what_it_read() {
    for name in ["HUP", "INT", "TERM"] {
        let yard = Yard::new();
        let mut load = Load::start(yard.command_behind(&HEEDING, &LOAD).stdin(Stdio::piped()));
        load.feed("one\ntwo\nthree\nfo");
        load.acknowledges(3);
        signal(&load.child, name);
        assert_eq!(end_of(&mut load.child), Some(130), "{name}");
        let mut said = String::new();
        load.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("stopped; 3 records"), "{name}: {said}");
        assert_eq!(yard.ok(&["map", "count", "p"]), "3\n", "{name}");
        assert!(yard.ok(&["pool", "info", "p"]).contains("closed in order"), "{name}");
    }
}

#[test]
fn a_command_that_waits_has_the_exit_code_of_one_that_works() {
    let yard = Yard::new();
    for name in ["HUP", "INT", "TERM"] {
        let put = ["map", "put", "p", "k", "--file", "-"];
        let mut child = spawn(yard.command_behind(&HEEDING, &put).stdin(Stdio::piped()));
        let input = child.stdin.take();
        // It waits for its input once it catches the signal.
        wait_until_caught(&child, name);
        signal(&child, name);
        assert_eq!(end_of(&mut child), Some(130), "{name}");
        drop(input);
        assert!(!yard.path("p").exists(), "{name}");
    }
}

fn wait_until_caught(child: &Child, name: &str) {
    let status = format!("/proc/{}/status", child.id());
    let catches = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        let number = match name {
            "HUP" => 1,
            "INT" => 2,
            _ => 15,
        };
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1) & 1 == 1
    };
    let until = Instant::now() + WAIT_MAX;
    while !catches(&fs::read_to_string(&status).unwrap()) {
        assert!(Instant::now() < until, "{name}: it is never caught");
    }
}

#[test]
fn a_command_that_waits_for_a_pool_ends_at_once_and_changes_nothing() {
    let yard = Yard::new();
    fs::write(yard.path("changes"), "put\tnew\t1\ndel\tbefore\n").unwrap();
    // Readers wait for the owner of an emulated pool, too.
    let load = [&LOAD[..], &["--medium=emulated"]].concat();
    let mut owner = Load::start(yard.command_behind(&HEEDING, &load).stdin(Stdio::piped()));
    owner.feed("before\n");
    owner.acknowledges(1);
    let before = yard.names();
    for args in [
        &["map", "apply", "p", "changes"][..],
        &["map", "export", "p"],
        &["map", "export", "p", "out"],
        &["map", "export", "p", "/dev/null"],
    ] {
        // One that waits on does so for longer than `end_of`.
        let mut child = spawn(&mut yard.command_behind(&HEEDING, &[args, &["--wait=3600"]].concat()));
        wait_until_caught(&child, "TERM");
        // Long enough for it to come to where it waits.
        std::thread::sleep(Duration::from_millis(500));
        signal(&child, "TERM");
        assert_eq!(end_of(&mut child), Some(130), "{args:?}");
        assert_eq!(yard.names(), before, "{args:?}");
    }
    owner.input = None;
    assert_eq!(end_of(&mut owner.child), Some(0));
    assert_eq!(yard.ok(&["map", "scan", "p"]), "before\t1\n");
}

#[test]
fn a_pipe_with_a_name_may_pause_as_well() {
    let yard = Yard::new();
    assert!(Command::new("mkfifo").arg(yard.path("fifo")).status().unwrap().success());
    let args = ["map", "load", "p", "fifo", "--report"];
    let mut load = Load::start(&mut yard.command_behind(&HEEDING, &args));
    let mut fifo = fs::File::options().write(true).open(yard.path("fifo")).unwrap();
    fifo.write_all(b"one\n").unwrap();
    load.acknowledges(1);
    signal(&load.child, "TERM");
    assert_eq!(end_of(&mut load.child), Some(130));
}

#[test]
fn a_line_that_comes_in_parts_is_one_line() {
    let yard = Yard::new();
    let mut load = Load::start(yard.command(&LOAD).stdin(Stdio::piped()));
    load.feed("one\ntw");
    load.acknowledges(1);
    std::thread::sleep(Duration::from_millis(200));
    load.feed("o\nth");
    load.acknowledges(1);
    std::thread::sleep(Duration::from_millis(200));
    load.feed("ree");
    load.input = None;
    assert_eq!(end_of(&mut load.child), Some(0));
    assert_eq!(yard.ok(&["map", "scan", "p"]), "one\t1\nthree\t3\ntwo\t2\n");
}

#[test]
fn a_file_size_limit_is_told() {
    let yard = Yard::new();
    fs::write(yard.path("value"), vec![b'v'; 8 << 20]).unwrap();
    let put = ["map", "put", "p", "k", "--file", "value", "--medium=file", "--log=1M"];
    finish(yard.command_behind(&SMALL_FILES, &put)).is(3, "p/image", "put");
    yard.ok(&put);
}
