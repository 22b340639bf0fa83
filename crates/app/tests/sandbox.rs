//! Where personality(2) is refused, as in Docker: programs at fixed addresses have states as anywhere, of the others
//! those that promise to need no address; nothing is acknowledged that would not open again.

mod common;

use common::{LIBRARY, cc, compile, compile_plugin, here, output, root, run, says, told};
use mangrove_testkit::sandbox::{Personality, Sandbox, furnish, may_chroot, open_to_all};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const FILTERS: [Personality; 2] = [Personality::AsInDocker, Personality::Refused];

/// The same program linked to lie anywhere and at a fixed address, and a sandbox to run it in.
struct Programs {
    scratch: tempfile::TempDir,
    sandbox: Sandbox,
    pie: PathBuf,
    fixed: PathBuf,
}

impl Programs {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let sandbox = Sandbox::build(scratch.path());
        let pie = compile("c/addresses.c", scratch.path(), "pie", &["-DBUILD=1", "-pie", "-fPIE"]);
        let fixed = compile("c/addresses.c", scratch.path(), "fixed", &["-DBUILD=1", "-no-pie", "-fno-pie"]);
        Self { scratch, sandbox, pie, fixed }
    }

    fn state(&self, name: &str) -> PathBuf {
        self.scratch.path().join(format!("{name}.state"))
    }

    fn boxed(&self, filter: Personality, program: &Path, state: &Path, arguments: &[&str]) -> Output {
        self.sandbox.runs(filter).arg(program).arg(state).args(arguments).output().expect("runs")
    }
}

#[test]
fn a_program_at_a_fixed_address_has_states_that_open_again() {
    let all = Programs::new();
    for filter in FILTERS {
        let state = all.state(&format!("{filter:?}"));
        for _ in 0..4 {
            says(&all.boxed(filter, &all.fixed, &state, &["own"]), 0, "fixed 0");
        }
        // Where nothing is filtered, too.
        says(&output(&all.fixed, &["open"], &state), 0, "fine");
    }
}

#[test]
fn a_program_that_moves_makes_no_state_unless_it_says_that_it_needs_no_address() {
    let all = Programs::new();
    for filter in FILTERS {
        let state = all.state(&format!("{filter:?}"));
        for _ in 0..2 {
            let refused = all.boxed(filter, &all.pie, &state, &["none"]);
            says(&refused, 2, "MANGROVE_APP_ERR_MOVED: no state is made here");
            for text in
                [&*all.pie.display().to_string(), "forbids personality(2)", "-no-pie", "set_random_addresses"]
            {
                says(&refused, 2, text);
            }
        }
        for _ in 0..4 {
            says(&all.boxed(filter, &all.pie, &state, &["none", "known"]), 0, "fixed 0");
        }
        // Not even then are pointers acknowledged that lead elsewhere at the next start.
        let state = all.state(&format!("{filter:?}.own"));
        for what in ["own", "libc"] {
            let refused = all.boxed(filter, &all.pie, &state, &[what, "known"]);
            says(&refused, 3, "MANGROVE_APP_ERR_MOVED: a command made the state point at");
            says(&refused, 3, "nothing of its batch is durable");
        }
        says(&all.boxed(filter, &all.pie, &state, &["none", "known"]), 0, "fine");
    }
    // The user may promise it instead.
    let state = all.state("user");
    let mut known = all.sandbox.runs(Personality::AsInDocker);
    known.env("MANGROVE_RANDOM_ADDRESSES", "1").arg(&all.pie).arg(&state).arg("none");
    for _ in 0..2 {
        says(&known.output().expect("runs"), 0, "fixed 0");
    }
}

#[test]
fn a_state_that_was_made_elsewhere_opens_or_says_what_to_do() {
    let all = Programs::new();
    let filter = Personality::AsInDocker;
    let [none, own, fixed, libc] = ["none", "own", "fixed", "libc"].map(|name| all.state(name));
    says(&output(&all.pie, &["none"], &none), 0, "fixed 1");
    says(&output(&all.pie, &["own"], &own), 0, "fixed 1");
    says(&output(&all.fixed, &["own"], &fixed), 0, "fixed 1");
    says(&output(&all.fixed, &["libc"], &libc), 0, "fixed 1");
    for _ in 0..2 {
        let refused = all.boxed(filter, &all.pie, &none, &["open"]);
        for text in
            ["MANGROVE_APP_ERR_MOVED: the state cannot be used here", "seccomp=", "set_random_addresses"]
        {
            says(&refused, 2, text);
        }
        says(&all.boxed(filter, &all.pie, &none, &["open", "known"]), 0, "fine");
        let refused = all.boxed(filter, &all.pie, &own, &["open", "known"]);
        for text in ["MANGROVE_APP_ERR_MOVED: the durable state at", "was at", "seccomp="] {
            says(&refused, 2, text);
        }
        says(&all.boxed(filter, &all.fixed, &fixed, &["open"]), 0, "fine");
        says(&all.boxed(filter, &all.fixed, &libc, &["open"]), 2, "libc.so.6 was at");
    }
    // Nothing was changed meanwhile.
    for (program, state) in [(&all.pie, &none), (&all.pie, &own), (&all.fixed, &fixed), (&all.fixed, &libc)] {
        says(&output(program, &["open"], state), 0, "fine");
    }
}

#[test]
fn libraries_of_a_program_at_a_fixed_address_count_too() {
    let all = Programs::new();
    let library = all.scratch.path().join("plugin.so");
    compile_plugin(&library, &[]);
    let (library, state) = (library.to_str().expect("UTF-8"), all.state("s"));
    let filter = Personality::AsInDocker;
    says(
        &all.boxed(filter, &all.fixed, &state, &["plugin", library]),
        2,
        "plugin.so lies elsewhere at each start",
    );
    let refused = all.boxed(filter, &all.fixed, &state, &["plugin", library, "known"]);
    says(&refused, 3, "plugin.so lies elsewhere at each start");
    // Nor may it come later.
    let plugins = compile("c/plugins.c", all.scratch.path(), "plugins", &["-no-pie", "-ldl"]);
    let (state, load) = (all.state("late"), format!("load:{library}"));
    let refused = all.boxed(filter, &plugins, &state, &["open", "idle", &load, "idle"]);
    says(&refused, 2, "no command runs any more");
    says(&refused, 2, "idle 0");
    says(&all.boxed(filter, &plugins, &state, &["open", "idle"]), 0, "idle 0");
    says(&all.boxed(filter, &plugins, &state, &[&load, "open"]), 2, "the state cannot be used here");
    // libc moves, and the state may point there no more than to the library.
    let state = all.state("libc");
    says(&all.boxed(filter, &all.fixed, &state, &["libc"]), 3, "libc.so.6 lies elsewhere at each start");
    says(&all.boxed(filter, &all.fixed, &state, &["own"]), 0, "fine");
}

/// Builds an example in `folder` with a copy of the library, so that an unprivileged user can run both.
fn example(folder: &Path, name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    let shared = folder.join("libmangrove_app.so.0");
    if !shared.exists() {
        std::fs::copy(LIBRARY.shared(), &shared).expect("a copy of the library");
    }
    let program = folder.join(format!("{name}-{}", flags.first().unwrap_or(&"")));
    let sources = sources.iter().map(|source| root().join("examples").join(source));
    let mut compiler = if name == "bank" {
        let mut cxx = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
        cxx.args(["-std=c++17", "-O2", "-pthread", "-I"]).arg(here().join("include"));
        cxx
    } else {
        cc()
    };
    run(compiler.args(sources).arg("-o").arg(&program).arg(&shared).args(flags).arg("-Wl,-rpath,$ORIGIN"));
    program
}

/// Kills a program when it has said `lines` lines; returns the last.
fn killed(mut command: Command, lines: usize) -> String {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let last = said.take(lines).last();
    child.kill().expect("SIGKILL");
    let output = child.wait_with_output().expect("ends");
    last.unwrap_or_else(|| panic!("it said nothing: {}", told(&output)))
}

#[test]
fn the_examples_run_as_an_unprivileged_user_in_another_directory() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sandbox = Sandbox::build(scratch.path());
    let folder = scratch.path().join("work");
    std::fs::create_dir(&folder).expect("a directory");
    open_to_all(&folder);
    let runs = |program: &Path, arguments: &[&str]| {
        let mut command = sandbox.runs_as_nobody(Personality::AsInDocker);
        command.current_dir(&folder).arg(program).args(arguments);
        command
    };
    let said = |program: &Path, arguments: &[&str]| runs(program, arguments).output().expect("runs");

    let kv = example(scratch.path(), "kv", &["kv/kv.c", "kv/local.c"], &["-no-pie"]);
    let last = killed(runs(&kv, &["kv", "run", "2", "100000000"]), 200);
    let (thread, number) = last.split_once(' ').expect("two numbers");
    let found = said(&kv, &["kv", "dump", "2"]);
    let found = String::from_utf8_lossy(&run_ok(found)).into_owned();
    let found = found.lines().find_map(|line| line.strip_prefix(&format!("{thread} "))?.parse::<u64>().ok());
    assert!(found >= number.parse().ok(), "{found:?} of thread {thread}, {number} told");

    let bank = example(scratch.path(), "bank", &["cpp/main.cc"], &["-no-pie"]);
    killed(runs(&bank, &["bank", "run", "0", "7"]), 200);
    says(&said(&bank, &["bank", "check"]), 0, "all is well");

    let sources = ["durable_sqlite.c", "main.c", "stress.c", "bench.c"].map(|file| format!("sqlite/{file}"));
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let shared = example(scratch.path(), "sqlite", &sources, &["-Wl,--as-needed", "-no-pie", "-lsqlite3"]);
    says(&said(&shared, &["sql", "CREATE TABLE t (a)"]), 3, "libsqlite3.so.0 lies elsewhere at each start");
    if Path::new("/usr/lib/x86_64-linux-gnu/libsqlite3.a").exists() {
        let flags = ["-no-pie", "-l:libsqlite3.a", "-lm"];
        let fixed = example(scratch.path(), "sqlite", &sources, &flags);
        says(&said(&fixed, &["sql", "CREATE TABLE t (a)", "INSERT INTO t VALUES ('here')"]), 0, "");
        says(&said(&fixed, &["sql", "SELECT a FROM t"]), 0, "here");
    }

    for (name, sources) in [("kv", &["kv/kv.c", "kv/local.c"][..]), ("bank", &["cpp/main.cc"])] {
        let pie = example(scratch.path(), name, sources, &["-pie", "-fPIE"]);
        let refused = said(&pie, &["pie", "run", "1", "1"]);
        assert!(
            !refused.status.success() && told(&refused).contains("no state is made here"),
            "{}",
            told(&refused)
        );
    }
}

fn run_ok(output: Output) -> Vec<u8> {
    assert!(output.status.success(), "{}", told(&output));
    output.stdout
}

/// With another root directory, with /proc and without.
#[test]
fn an_example_runs_in_a_directory_as_its_root_if_that_has_proc() {
    let may_mount = run_mounted(Path::new("/"), Command::new("true")).output();
    if !may_chroot() || !may_mount.is_ok_and(|output| output.status.success()) {
        return println!("skipped: this user may not chroot and mount");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (sandbox, room) = (Sandbox::build(scratch.path()), scratch.path().join("room"));
    for folder in ["data", "proc"] {
        std::fs::create_dir_all(room.join(folder)).expect("directories");
    }
    open_to_all(&room.join("data"));
    let kv = example(scratch.path(), "kv", &["kv/kv.c", "kv/local.c"], &["-no-pie"]);
    furnish(&room, &kv);
    let bare = |arguments: &[&str]| {
        let mut command = sandbox.runs_as_nobody(Personality::AsInDocker);
        // $ORIGIN means nothing without /proc.
        command.env("LD_LIBRARY_PATH", scratch.path());
        command.arg(format!("root={}", room.display())).arg(&kv).arg("data/kv").args(arguments);
        command
    };
    says(&bare(&["put", "7", "seven"]).output().expect("runs"), 1, "mount /proc");
    let runs = |arguments: &[&str]| run_mounted(&room, bare(arguments));
    says(&runs(&["put", "7", "seven"]).output().expect("runs"), 0, "OK 1");
    says(&runs(&["get", "7"]).output().expect("runs"), 0, "seven");
}

/// Runs a command where /proc is mounted in `room` too, seen by that command alone.
fn run_mounted(room: &Path, command: Command) -> Command {
    let mut mounted = Command::new("unshare");
    mounted.args(["--mount", "sh", "-c", "mount -t proc proc \"$0/proc\" && exec \"$@\""]).arg(room);
    mounted.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        mounted.env(name, value.unwrap_or_default());
    }
    mounted
}
