//! The Lua example: whatever an interpreter acknowledged is back after SIGKILL, and nothing of a chunk that it did not.

use crate::common::{libraries, root, run, told};
use mangrove_testkit::stress::kill_writers;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// By the example's own script, which links a program at a fixed address.
fn build(folder: &Path) -> PathBuf {
    let program = folder.join("lua");
    run(Command::new(root().join("examples/lua/build")).arg(libraries()).arg(&program));
    program
}

fn output(program: &Path, state: &Path, chunks: &[&str]) -> Output {
    Command::new(program).arg(state).args(chunks).output().expect("runs")
}

#[track_caller]
fn says(program: &Path, state: &Path, chunks: &[&str], text: &str) {
    let output = output(program, state, chunks);
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(String::from_utf8(output.stdout).expect("UTF-8"), text, "{chunks:?}");
}

/// An interpreter that reads lines.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn start(program: &Path, state: &Path) -> Self {
        let mut child = Command::new(program)
            .arg(state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout }
    }

    fn send(&mut self, text: &str) {
        writeln!(self.stdin, "{text}").expect("takes it");
    }

    /// Sends a chunk, and returns what the next line of output is: it is acknowledged then.
    fn ask(&mut self, text: &str) -> String {
        self.send(text);
        let mut answer = String::new();
        assert!(self.stdout.read_line(&mut answer).expect("says") > 0, "the interpreter ended at {text}");
        answer.trim_end().to_owned()
    }

    fn kill(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("ends");
    }
}

#[test]
fn globals_functions_and_suspended_coroutines_are_back() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    let mut shell = Shell::start(&program, &state);
    for chunk in [
        "names = {'ada', 'bob', nested = {deep = true}}",
        "do local hidden = 40 function add(n) hidden = hidden + n return hidden end end",
        "steps = coroutine.create(function(a) for i = a, 1e9 do coroutine.yield(i, names) end end)",
        "function long(n)",
        "  if n == 0 then return 'the end' end",
        "  return long(n - 1)",
        "end",
        "names = setmetatable(names, {__index = function(_, k) return k .. '?' end, __gc = function() gone = 1 end})",
        "keys = {} for i = 1, 2000 do keys[print] = i keys[names] = i keys[i .. ''] = i end",
        "math.randomseed(7) drawn = math.random(1e9)",
    ] {
        shell.send(chunk);
    }
    assert_eq!(shell.ask("coroutine.resume(steps, 5)"), "true\t5\t".to_owned() + &shell.ask("names"));
    assert_eq!(shell.ask("add(1)"), "41");
    shell.kill();
    for round in 0..4 {
        let mut shell = Shell::start(&program, &state);
        assert_eq!(shell.ask("#names, names[2], names.nested.deep, names.carl"), "2\tbob\ttrue\tcarl?");
        assert_eq!(shell.ask("add(1)"), (42 + round).to_string());
        assert_eq!(
            shell.ask("select(2, coroutine.resume(steps)), long(500)"),
            format!("{}\tthe end", 6 + round)
        );
        assert_eq!(shell.ask("keys[print], keys[names], keys['77']"), "2000\t2000\t77");
        assert_eq!(shell.ask("collectgarbage() return gone"), "nil");
        shell.kill();
    }
    // The generator of random numbers goes on where it was.
    says(&program, &state, &["next_drawn = math.random(1e9)", "do math.randomseed(7) end"], "");
    says(&program, &state, &["drawn == math.random(1e9)", "next_drawn == math.random(1e9)"], "true\ntrue\n");
    // A finaliser of a former process runs.
    says(&program, &state, &["names, keys, steps = nil collectgarbage() collectgarbage()", "gone"], "1\n");
}

/// The shell writes faster than it is read from: the kill finds chunks in every stage.
#[test]
fn an_acknowledged_assignment_is_never_lost() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    says(&program, &state, &["n, all = 0, {}"], "");
    let mut least = 0;
    for round in 1..=12 {
        let mut child = Command::new(&program)
            .arg(&state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut stdin = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || {
            let mut sent = 0;
            while writeln!(stdin, "n = n + 1 all[n] = ('x'):rep(n % 3000) print(n)").is_ok() {
                sent += 1;
            }
            sent
        });
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let last = lines.by_ref().take(40 + 13 * round).last();
        let acknowledged: u64 = last.expect("says").parse().expect("a number");
        child.kill().expect("SIGKILL");
        child.wait().expect("ends");
        let sent: u64 = writer.join().expect("writes");
        let whole = "for i = 1, n do assert(#all[i] == i % 3000) end assert(#all == n) return n";
        let found = output(&program, &state, &[whole]);
        assert!(found.status.success(), "round {round}: {}", told(&found));
        let found: u64 = String::from_utf8_lossy(&found.stdout).trim().parse().expect("a number");
        assert!((acknowledged..=least + sent).contains(&found), "{acknowledged} {found} {least} {sent}");
        least = found;
    }
}

#[test]
fn an_error_keeps_what_came_before_it_and_a_kill_nothing_of_the_chunk() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    for (chunk, sentence) in [
        ("before = 1 error('on purpose') after = 1", "on purpose"),
        ("local function deep() return 1 + deep() end deep()", "stack overflow"),
        ("error({})", "table: 0x"),
        ("coroutine.wrap(function() inside = 1 error('in a coroutine') end)()", "in a coroutine"),
        ("x = = 1", "unexpected symbol"),
        ("for i = 1, 2 do", "'end' expected"),
        ("('x'):rep(1 << 40)", "resulting string too large"),
    ] {
        let output = output(&program, &state, &[chunk]);
        assert_eq!(output.status.code(), Some(1), "{chunk}: {}", told(&output));
        assert!(told(&output).contains(sentence), "{chunk}: {}", told(&output));
    }
    says(&program, &state, &["before, after, inside"], "1\tnil\t1\n");
    // The chunk has assigned when it opens the pipe, and never ends.
    let pipe = scratch.path().join("pipe");
    run(Command::new("mkfifo").arg(&pipe));
    let mut shell = Shell::start(&program, &state);
    shell.send(&format!("half, before = {{}}, 2 dofile('{}')", pipe.display()));
    let held = std::fs::OpenOptions::new().write(true).open(&pipe).expect("opens when the chunk does");
    shell.kill();
    drop(held);
    says(&program, &state, &["half, before"], "nil\t1\n");
}

#[test]
fn what_no_restart_would_find_is_not_there() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    says(
        &program,
        &state,
        &["io.open, io.popen, os.exit, os.execute, package.loadlib"],
        "nil\tnil\tnil\tnil\tnil\n",
    );
    let output = output(&program, &state, &["require('socket')"]);
    assert!(told(&output).contains("module 'socket' not found"), "{}", told(&output));
    // Modules of Lua are found, and stay loaded.
    std::fs::write(scratch.path().join("modest.lua"), "return {answer = 42}").expect("written");
    let path = format!("package.path = '{}/?.lua'", scratch.path().display());
    says(&program, &state, &[&path, "modest = require('modest')", "modest.answer"], "42\n");
    std::fs::remove_file(scratch.path().join("modest.lua")).expect("removed");
    says(&program, &state, &["require('modest') == modest, modest.answer"], "true\t42\n");
    says(
        &program,
        &state,
        &["io.write('a', 1, '\\n')", "type(os.date()), os.time() > 0"],
        "a1\nstring\ttrue\n",
    );
}

/// The limit on the size of files stands for a medium that fails.
#[test]
fn what_a_chunk_prints_that_is_not_durable_is_not_shown() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    let mut shell = Shell::start(&program, &state);
    assert_eq!(shell.ask("n = 0 print(n)"), "0");
    let pid = shell.child.id().to_string();
    run(Command::new("prlimit").args(["--pid", &pid, "--fsize=16384"]));
    for _ in 0..200 {
        // It may have ended.
        let _ = writeln!(shell.stdin, "n = n + 1 print(n)");
    }
    drop(shell.stdin);
    let mut text = String::new();
    shell.stdout.read_to_string(&mut text).expect("UTF-8");
    assert_eq!(shell.child.wait().expect("ends").code(), Some(3));
    says(&program, &state, &["n"], &format!("{}\n", text.lines().last().unwrap_or("0")));
}

/// As where a container refuses personality(2): libc lies elsewhere at each start.
#[test]
fn a_state_opens_again_where_libraries_move() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    for round in 0..4 {
        let chunk = "n = (n or -1) + 1 printer = printer or print printer(n, os.date():len() > 0)";
        let output = Command::new(&program)
            .env("MANGROVE_RANDOM_ADDRESSES", "1")
            .arg(&state)
            .arg(chunk)
            .output()
            .expect("runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{round}\ttrue\n"), "{}", told(&output));
    }
}

#[test]
fn writers_that_are_killed_leave_a_sound_state() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (build(scratch.path()), scratch.path().join("state"));
    kill_writers(&program, &state);
}
