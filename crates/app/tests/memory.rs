//! C and C++ programs whose memory survives: every way to allocate, ordinary containers under SIGKILL, variables,
//! addresses of functions; and what is refused.

mod common;

use common::{cc, compile, compile_plugin, here, libraries, output, run, says, told};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[test]
fn every_way_to_get_memory_survives() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (compile("c/memory.c", scratch.path(), "memory", &[]), scratch.path().join("s"));
    run(Command::new(&program).arg(&state).arg("make"));
    for _ in 0..3 {
        run(Command::new(&program).arg(&state).arg("verify"));
    }
    for how in ["double", "wild"] {
        let output = output(&program, &[how], &state);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{how}: {}", told(&output));
        assert!(told(&output).contains("mangrove: free: 0x"), "{how}: {}", told(&output));
        run(Command::new(&program).arg(&state).arg("verify"));
    }
    for (how, text) in [
        ("brk", "let the allocator use mmap"),
        ("shared", "ask for private memory"),
        ("execute", "code that is made at run time"),
        ("over", "let the system choose it"),
    ] {
        says(&output(&program, &[how], &state), 3, text);
        run(Command::new(&program).arg(&state).arg("verify"));
    }
}

/// Kills the program while it makes commands, several times, and checks what it finds.
fn killed_and_restarted(flags: &[&str], rounds: u32) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    killed_and_checked(&compile("cpp/containers.cc", scratch.path(), "containers", flags), rounds);
}

fn killed_and_checked(program: &Path, rounds: u32) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("s");
    let mut acknowledged = 0u64;
    for round in 0..rounds {
        let mut child = Command::new(program)
            .arg(&state)
            .args(["run", "1000000"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let target = acknowledged + 60 + u64::from(round * 37 % 100);
        for line in lines {
            acknowledged = line.expect("a line").parse().expect("a number");
            if acknowledged == target {
                child.kill().expect("killed");
            }
        }
        let status = child.wait().expect("ended");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "round {round}, after {acknowledged}: {status}");
        let found = run(Command::new(program).arg(&state).args(["check", &acknowledged.to_string()]));
        let found: u64 = String::from_utf8_lossy(&found.stdout).trim().parse().expect("a number");
        // At most the one that was under way.
        assert!(found <= acknowledged + 1, "{found} commands, {acknowledged} acknowledged");
        acknowledged = found;
    }
    assert!(acknowledged > 100, "{acknowledged}");
}

#[test]
fn containers_survive_kills() {
    killed_and_restarted(&[], 5);
}

#[test]
fn containers_survive_kills_in_a_program_without_pie() {
    killed_and_restarted(&["-no-pie"], 3);
}

#[test]
fn containers_survive_kills_in_a_program_with_the_static_library() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = scratch.path().join("containers");
    run(Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()))
        .args(["-std=c++17", "-O2", "-pthread", "-I"])
        .arg(here().join("include"))
        .arg(here().join("tests/cpp/containers.cc"))
        .arg("-o")
        .arg(&program)
        .arg(libraries().join("libmangrove_app.a"))
        .args(["-ldl", "-lm"]));
    killed_and_checked(&program, 2);
}

/// A state grows and opens within the memory that the process may have; beyond it there is an error.
#[test]
fn a_state_opens_and_grows_within_its_limit_only() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let (program, state) = (compile("c/limited.c", scratch.path(), "limited", &[]), scratch.path().join("s"));
    let mib = |said: &Output| {
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let number =
            text.split("MiB ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{}", told(said)))
    };
    let full = output(&program, &["128", "1000"], &state);
    says(&full, 0, "malloc returned NULL");
    assert!((20..128).contains(&mib(&full)), "{}", told(&full));
    let grown = output(&program, &["4096", "200"], &state);
    assert_eq!(mib(&grown), mib(&full) + 200, "{}", told(&grown));
    says(&output(&program, &["64", "0"], &state), 1, "MANGROVE_APP_ERR_NO_MEMORY");
    says(&output(&program, &["64", "0"], &state), 1, "memory_bytes_max");
    assert_eq!(mib(&output(&program, &["4096", "0"], &state)), mib(&grown));
}

/// What libc draws anew for each process is on a stack (the protector's canary) and in a jmp_buf (the pointer guard).
#[test]
fn a_suspended_stack_goes_on_without_the_stack_protector_and_a_jmp_buf_does_not() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let build = |name, flag| compile("c/suspended.c", scratch.path(), name, &[flag]);
    let plain = build("plain", "-fno-stack-protector");
    let state = scratch.path().join("plain.state");
    for step in 0..4 {
        says(&output(&plain, &["go"], &state), 0, &format!("step {step}"));
    }
    says(&output(&plain, &["set"], &state), 0, "step 4");
    let jumped = output(&plain, &["jump"], &state);
    assert_eq!(jumped.status.signal(), Some(libc::SIGSEGV), "{}", told(&jumped));
    says(&output(&plain, &["go"], &state), 0, "step 5");
    let (guarded, state) = (build("guarded", "-fstack-protector-all"), scratch.path().join("guarded.state"));
    says(&output(&guarded, &["go", "go"], &state), 0, "step 1");
    for _ in 0..2 {
        let smashed = output(&guarded, &["go"], &state);
        assert_eq!(smashed.status.signal(), Some(libc::SIGABRT), "{}", told(&smashed));
        says(&output(&guarded, &[], &state), 0, "step 1");
    }
}

#[test]
fn a_program_keeps_an_allocator_of_its_own() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/own_heap.c", scratch.path(), "own_heap", &[]);
    let state = scratch.path().join("s");
    for round in 1..5 {
        let output = run(Command::new(&program).arg(&state).arg("40"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        assert!(numbers[0] == 40 * round && numbers[1] >= 2, "{text}");
    }
}

#[test]
fn what_the_library_takes_for_itself_in_a_command_is_the_processs() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/library_memory.c", scratch.path(), "library_memory", &[]);
    run(Command::new(&program).arg(scratch.path().join("s")));
}

/// A library with a malloc of its own, and an operator new that does not call malloc; a program that uses either.
#[test]
fn an_operator_new_that_does_not_call_malloc_is_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let allocator = scratch.path().join("liballocator.so");
    let source = here().join("tests/c/past_malloc.c");
    run(cc().args(["-DALLOCATOR", "-shared", "-fPIC"]).arg(source).arg("-o").arg(&allocator));
    let program = compile("c/past_malloc.c", scratch.path(), "past", &[]);
    let (state, with) = (scratch.path().join("s"), |how: &str| {
        Command::new(&program)
            .arg(scratch.path().join("s"))
            .arg(how)
            .env("LD_PRELOAD", preloaded(&allocator))
            .output()
    });
    says(&with("malloc").expect("runs"), 0, "1 there");
    says(&with("new").expect("runs"), 3, "link libstdc++ before that allocator");
    says(&with("malloc").expect("runs"), 0, "2 there");
    says(&output(&program, &["malloc"], &state), 0, "3 there");
}

#[test]
fn memory_of_libc_past_the_librarys_malloc_is_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/past_malloc.c", scratch.path(), "past_libc", &[]);
    let state = scratch.path().join("s");
    says(&output(&program, &["malloc"], &state), 0, "1 there");
    says(&output(&program, &["libc"], &state), 3, "call malloc, or name the caller");
    says(&output(&program, &["malloc"], &state), 0, "2 there");
}

fn preloaded(library: &Path) -> String {
    format!("{}:{}", libraries().join("libmangrove_app.so").display(), library.display())
}

#[test]
fn what_libc_loads_in_a_command_is_missed_by_nobody() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/first_use.c", scratch.path(), "first_use", &[]);
    let state = scratch.path().join("s");
    for found in ["1 converted", "2 converted", "3 converted"] {
        says(&output(&program, &["convert"], &state), 0, found);
    }
}

#[test]
fn a_key_for_thread_specific_data_that_a_command_makes_is_there_again() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/first_use.c", scratch.path(), "first_use", &[]);
    let state = scratch.path().join("s");
    for found in ["1 converted", "2 converted", "3 converted"] {
        let output = output(&program, &["key"], &state);
        says(&output, 0, found);
        assert!(told(&output).contains("dropped"), "the key's destructor ran: {}", told(&output));
    }
    says(&output(&program, &["taken"], &state), 2, "which somebody else made in this process before");
    says(&output(&program, &["key"], &state), 0, "4 converted");
    let other = scratch.path().join("other");
    says(&output(&program, &["early"], &other), 0, "1 converted");
    says(&output(&program, &["early"], &other), 0, "2 converted");
    says(&output(&program, &["tss"], &other), 3, "use pthread_key_create, or make it before opening");
}

#[test]
fn a_state_opens_with_fewer_addresses_than_it_was_made_with() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/past_malloc.c", scratch.path(), "few", &[]);
    let state = scratch.path().join("s");
    says(&output(&program, &["malloc"], &state), 0, "1 there");
    let limited = Command::new("sh")
        .args(["-c", "ulimit -v 8000000 && exec \"$0\" \"$@\""])
        .arg(&program)
        .args([state.as_os_str(), "malloc".as_ref()])
        .output();
    says(&limited.expect("runs"), 0, "2 there");
    says(&output(&program, &["malloc"], &state), 0, "3 there");
}

#[test]
fn a_program_with_libc_in_itself_is_told_so() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = scratch.path().join("whole");
    let built = cc()
        .args(["-static", "-w"])
        .arg(here().join("tests/c/past_malloc.c"))
        .arg("-o")
        .arg(&program)
        .arg(libraries().join("libmangrove_app.a"))
        .args(["-lm", "-ldl"])
        .output();
    if !built.expect("a compiler").status.success() {
        return println!("skipped: no static libc here");
    }
    let output = output(&program, &["malloc"], &scratch.path().join("s"));
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", told(&output));
    assert!(told(&output).contains("link it dynamically"), "{}", told(&output));
}

/// Destructors of globals run while the state is open: what they free is in use durably.
#[test]
fn what_the_end_of_the_process_destroys_is_there_at_the_next_start() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("cpp/at_exit.cc", scratch.path(), "at_exit", &[]);
    let state = scratch.path().join("s");
    for found in ["400 entries, 0 late", "800 entries, 1 late", "1200 entries, 2 late"] {
        says(&output(&program, &[], &state), 0, found);
    }
}

#[test]
fn the_audit_tells_of_memory_that_was_made_too_early() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("cpp/transient.cc", scratch.path(), "transient", &[]);
    let state = scratch.path().join("s");
    for found in ["300", "600"] {
        let output = Command::new(&program).arg(&state).env("MANGROVE_AUDIT", "1").output().expect("runs");
        says(&output, 0, found);
        assert!(!told(&output).contains("points to"), "{}", told(&output));
    }
    let early =
        Command::new(&program).arg(scratch.path().join("t")).arg("early").env("MANGROVE_AUDIT", "1").output();
    says(&early.expect("runs"), 0, "memory of this run only; make what it points to in init_state");
}

#[test]
fn an_environment_of_another_size_or_another_stack_limit_moves_nothing() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/addresses.c", scratch.path(), "addresses", &["-DBUILD=1", "-pie", "-fPIE"]);
    let state = scratch.path().join("s");
    run(Command::new(&program).arg(&state).arg("libc"));
    for bytes in [0, 5000, 100_000] {
        let output = run(Command::new(&program).arg(&state).arg("open").env("LARGE", "x".repeat(bytes)));
        assert!(told(&output).contains("fixed 1"), "{}", told(&output));
    }
    for limit in ["unlimited", "65536", "1024"] {
        let command = format!("ulimit -S -s {limit} && exec \"$0\" \"$@\"");
        let output = Command::new("sh").args(["-c", &command]).arg(&program).arg(&state).arg("open").output();
        says(&output.expect("runs"), 0, "fine");
    }
}

#[test]
fn another_build_is_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("s");
    let program = compile("c/addresses.c", scratch.path(), "one", &["-DBUILD=1"]);
    let other = compile("c/addresses.c", scratch.path(), "other", &["-DBUILD=2"]);
    run(Command::new(&program).arg(&state).arg("own"));
    says(&output(&other, &["open"], &state), 2, "start the build that wrote it");
    // Nothing was damaged; a copy under another name is the same build.
    std::fs::rename(&program, scratch.path().join("renamed")).expect("renamed");
    says(&output(&scratch.path().join("renamed"), &["open"], &state), 0, "fine");
}

#[test]
fn a_library_that_is_missing_is_asked_for() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let library = scratch.path().join("plugin.so");
    compile_plugin(&library, &[]);
    let program = compile("c/addresses.c", scratch.path(), "addresses", &["-DBUILD=1"]);
    let state = scratch.path().join("s");
    let library = library.to_str().expect("UTF-8");
    says(&output(&program, &["plugin", library], &state), 0, "fine");
    says(&output(&program, &["open"], &state), 2, "load it before opening");
    says(&output(&program, &["plugin", library], &state), 0, "fine");
}

/// A variable of a library of the program's own is part of the state wherever the linker put it.
#[test]
fn variables_that_a_program_shares_with_its_library_survive() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let library = scratch.path().join("libborrowed.so");
    let source = here().join("tests/c/borrowed.c");
    run(cc().args(["-DLIBRARY", "-shared", "-fPIC"]).arg(source).arg("-o").arg(&library));
    let links = ["-L", scratch.path().to_str().expect("UTF-8"), "-lborrowed"];
    let finds = format!("-Wl,-rpath,{}", scratch.path().display());
    for (name, how) in [("pie", "-fPIE"), ("fixed", "-no-pie"), ("named", "-fPIC")] {
        let flags = [&["-O1", how][..], &links, &[&finds]].concat();
        let program = compile("c/borrowed.c", scratch.path(), name, &flags);
        let state = scratch.path().join(format!("{name}.state"));
        for round in 0..3 {
            let output = output(&program, &[], &state);
            assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", told(&output));
            // Ten rounds, in each of which the library adds one and the program one.
            let found = format!("shared {} own {}", 5 + 20 * round, 10 * round);
            assert!(told(&output).contains(&found), "{name}, not '{found}': {}", told(&output));
        }
    }
}

#[test]
fn commands_run_right_under_a_debugger_and_without_descriptors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/surroundings.c", scratch.path(), "surroundings", &["-lz"]);
    for how in ["breakpoint", "descriptors"] {
        for _ in 0..2 {
            let output = output(&program, &[how], &scratch.path().join(how));
            says(&output, 0, "added 20000000001");
        }
    }
}

/// What libc keeps in a state outlives it: another state can be opened in the same process, but not that state
/// again.
#[test]
fn states_are_opened_one_after_the_other() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/again.c", scratch.path(), "again", &[]);
    for how in ["none", "stream", "time", "environment", "locale", "exit"] {
        let [one, other] = ["one", "other"].map(|name| scratch.path().join(format!("{how}.{name}")));
        let run = |states: &[&Path]| {
            let mut command = Command::new(&program);
            command.arg(how).args(states).env("TZ", "Europe/Berlin").output().expect("runs")
        };
        for _ in 0..2 {
            says(&run(&[&one, &other]), 0, "fine");
        }
        if how == "none" {
            says(&run(&[&one, &one]), 0, "fine");
        } else {
            says(&run(&[&one, &one]), 2, "open it in a new process");
        }
    }
}

#[test]
fn what_a_refused_initialisation_left_in_the_process_is_still_there() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/refused.c", scratch.path(), "refused", &[]);
    for _ in 0..2 {
        let output = output(&program, &[], &scratch.path().join("s"));
        says(&output, 0, "refused, a name, the initialisation returned 1");
    }
}

/// Libraries of the program's own under names like the system's, several under one name; and one that a command
/// loads.
#[test]
fn variables_of_libraries_survive_whatever_their_names() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/libraries.c", scratch.path(), "libraries", &["-ldl"]);
    let plugin = |name: &str, start: u32| {
        let library = scratch.path().join(name);
        std::fs::create_dir_all(library.parent().expect("a directory")).expect("a directory");
        compile_plugin(&library, &[&format!("-DSTART={start}")]);
        library.to_str().expect("UTF-8").to_owned()
    };
    for (name, libraries, starts) in [
        ("names", [plugin("libutils.so", 0), plugin("libutil.so", 0), plugin("librtmp.so.1", 0)], [0, 0, 0]),
        ("builds", [plugin("a/p.so", 100), plugin("b/p.so", 5000), plugin("c/p.so", 7)], [100, 5000, 7]),
        ("copies", [plugin("d/p.so", 100), plugin("e/p.so", 100), plugin("f/p.so", 100)], [100, 100, 100]),
    ] {
        let arguments: Vec<&str> = libraries.iter().map(String::as_str).collect();
        for round in 0..4 {
            let output = output(&program, &arguments, &scratch.path().join(name));
            assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{name}: {}", told(&output));
            let counts = starts.map(|start: u32| format!(" {}", start + 10 * round)).concat();
            let found = format!("own {} loaded 0{counts}.", 10 * round);
            assert!(told(&output).contains(&found), "{name}, not '{found}': {}", told(&output));
        }
    }
}

/// A program that runs `plugins.c`'s steps, with a library; each run begins a state or continues with it.
struct Plugins {
    scratch: tempfile::TempDir,
    program: PathBuf,
}

impl Plugins {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let program = compile("c/plugins.c", scratch.path(), "plugins", &["-ldl"]);
        compile_plugin(&scratch.path().join("one.so"), &[]);
        compile_plugin(&scratch.path().join("other.so"), &["-DSTEP=2"]);
        Self { scratch, program }
    }

    #[track_caller]
    fn does(&self, steps: &str) -> String {
        let output = self.steps(steps);
        let is_killed = output.status.signal() == Some(libc::SIGKILL);
        assert!(is_killed || output.status.success(), "{steps:?}: {}", told(&output));
        told(&output)
    }

    /// As `does`, and the opening fails.
    #[track_caller]
    fn is_refused(&self, steps: &str) -> String {
        let output = self.steps(steps);
        assert_eq!(output.status.code(), Some(2), "{steps:?}: {}", told(&output));
        told(&output)
    }

    fn steps(&self, steps: &str) -> Output {
        let load = |step: &str| match step.split_once(':') {
            Some((what, name)) => format!("{what}:{}", self.scratch.path().join(name).display()),
            None => step.to_owned(),
        };
        let steps: Vec<String> = steps.split(' ').map(load).collect();
        let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
        output(&self.program, &steps, &self.scratch.path().join("s"))
    }
}

#[test]
fn what_the_first_command_writes_to_a_library_that_came_after_opening_survives() {
    let plugins = Plugins::new();
    plugins.does("open idle load:one.so call kill");
    let told = plugins.does("load:one.so open read");
    assert!(told.contains("read 1"), "{told}");
    // Next to one that was there before, the third time as the second.
    let plugins = Plugins::new();
    plugins.does("load:other.so open idle load:one.so call call idle call kill");
    let told = plugins.does("load:other.so load:one.so open read");
    assert!(told.contains("read 3"), "{told}");
}

#[test]
fn what_commands_write_to_a_library_that_is_there_only_at_reopening_survives() {
    let plugins = Plugins::new();
    plugins.does("open idle kill");
    plugins.does("load:one.so open call call kill");
    for count in [2, 3] {
        let told = plugins.does("load:one.so open read call kill");
        assert!(told.contains(&format!("read {count}")), "{told}");
    }
    // It went and came back elsewhere, beside another that comes now.
    plugins.does("load:other.so load:one.so open call call kill");
    let told = plugins.does("load:one.so open read kill");
    assert!(told.contains("read 6"), "{told}");
}

/// Whatever the program does first, what commands wrote to the library's variables comes back with it.
#[test]
fn variables_of_a_library_that_is_loaded_after_opening_wait_for_it() {
    let plugins = Plugins::new();
    plugins.does("open load:one.so call call kill");
    // The first call after loading is a read, or a command.
    let told = plugins.does("open idle load:one.so read call kill");
    assert!(told.contains("read 2") && told.contains("call 3"), "{told}");
    let told = plugins.does("open load:one.so call read kill");
    assert!(told.contains("call 4") && told.contains("read 4"), "{told}");
    // Commits without the library, and beside another one, keep them; so does a start that only closes.
    plugins.does("open idle idle kill");
    let told = plugins.does("load:other.so open call idle load:one.so read kill");
    assert!(told.contains("call 2") && told.contains("read 4"), "{told}");
    let told = plugins.does("open load:other.so call load:one.so call kill");
    assert!(told.contains("call 4") && told.contains("call 5"), "{told}");
    // Loaded first, it is no different; nor does it come twice.
    let told = plugins.does("load:one.so open read call unload idle kill");
    assert!(told.contains("read 5") && told.contains("call 6"), "{told}");
    let told = plugins.does("open load:one.so read unload idle load:one.so read");
    assert!(told.contains("read 6\n"), "{told}");
    assert!(told.contains("read 0\n"), "a library that went begins anew: {told}");
}

#[test]
fn another_build_of_a_library_that_is_awaited_is_refused_by_commands_and_reads() {
    let plugins = Plugins::new();
    plugins.does("open load:one.so call kill");
    let one = plugins.scratch.path().join("one.so");
    let build = std::fs::read(&one).expect("the library");
    compile_plugin(&one, &["-DSTEP=3"]);
    for steps in ["open load:one.so read", "open load:one.so call", "open idle load:one.so idle"] {
        let told = plugins.is_refused(steps);
        assert!(told.contains("start the build that wrote it"), "{steps}: {told}");
    }
    plugins.does("open idle kill");
    std::fs::write(&one, build).expect("the library");
    let told = plugins.does("open load:one.so read");
    assert!(told.contains("read 1"), "{told}");
}

/// The next start could not open such a state, as the library may come elsewhere.
#[test]
fn a_pointer_into_a_library_that_came_after_opening_is_refused_at_the_commit() {
    let plugins = Plugins::new();
    plugins.does("open load:one.so call kill");
    for steps in ["open load:one.so keep", "open idle load:one.so call keep"] {
        let told = plugins.is_refused(steps);
        let why = "one.so was loaded after the state was opened";
        assert!(told.contains(why) && told.contains("load it before opening"), "{steps}: {told}");
    }
    // Nothing of it is there, and the state opens in any order.
    let told = plugins.does("open load:one.so read");
    assert!(told.contains("read 2"), "{told}");
    plugins.does("load:one.so open keep kept kill");
    let told = plugins.does("load:one.so open kept");
    assert!(told.contains("kept 2"), "{told}");
    let told = plugins.is_refused("open idle");
    assert!(told.contains("load it before opening") && !told.contains("damaged"), "{told}");
}

/// The commit of that command looks for it, too.
#[test]
fn a_pointer_into_a_library_that_comes_while_the_command_runs_is_refused_at_its_commit() {
    let plugins = Plugins::new();
    plugins.does("open idle kill");
    let told = plugins.is_refused("open meet:one.so");
    assert!(told.contains("one.so was loaded after the state was opened"), "{told}");
    plugins.does("open idle kill");
}

/// The table of modules never forgets a library, but where it was.
#[test]
fn a_library_may_lie_where_one_was_that_is_not_loaded_any_more() {
    let plugins = Plugins::new();
    let place = |told: &str| told.lines().find(|line| line.starts_with("loaded at")).map(str::to_owned);
    let one = plugins.does("load:one.so open call kill");
    let other = plugins.does("load:other.so open keep kill");
    assert_eq!(place(&one), place(&other), "the second lies where the first was");
    let told = plugins.does("load:other.so open kept");
    assert!(told.contains("kept 0"), "{told}");
}

#[test]
fn another_build_of_a_library_that_was_there_only_at_reopening_is_refused() {
    let plugins = Plugins::new();
    plugins.does("open idle kill");
    plugins.does("load:one.so open keep kill");
    let told = plugins.does("load:one.so open kept");
    assert!(told.contains("kept 0"), "{told}");
    compile_plugin(&plugins.scratch.path().join("one.so"), &["-DSTEP=3"]);
    let told = plugins.is_refused("load:one.so open kept");
    assert!(told.contains("start the build that wrote it"), "{told}");
    // Nor may it be missing.
    let told = plugins.is_refused("open idle");
    assert!(told.contains("one.so is not loaded now; load it before opening"), "{told}");
}

/// A reopening whose commands change nothing leaves the table as it is.
#[test]
fn a_library_that_no_command_saw_may_be_another_build() {
    let plugins = Plugins::new();
    plugins.does("open idle kill");
    plugins.does("load:one.so open read");
    compile_plugin(&plugins.scratch.path().join("one.so"), &["-DSTEP=3"]);
    let told = plugins.does("load:one.so open call");
    assert!(told.contains("call 3"), "{told}");
}

#[test]
fn a_library_that_is_there_at_opening_stays() {
    let plugins = Plugins::new();
    let told = plugins.does("load:one.so open call unload idle load:one.so call kill");
    assert!(told.contains("call 2"), "{told}");
    let told = plugins.does("load:one.so open read");
    assert!(told.contains("read 2"), "{told}");
}

#[test]
fn a_library_that_came_after_opening_may_go_and_come_back_elsewhere() {
    let plugins = Plugins::new();
    plugins.does("open load:one.so call wait call unload over load:one.so call wait call call kill");
    let told = plugins.does("load:one.so open read call kill");
    assert!(told.contains("read 3"), "{told}");
    let told = plugins.does("load:one.so open read");
    assert!(told.contains("read 4"), "{told}");
}

#[test]
fn memory_where_a_library_was_is_no_variable_of_it() {
    let plugins = Plugins::new();
    plugins.does("open load:one.so idle wait idle unload over fill wait fill kill");
    plugins.does("open idle");
    let told = plugins.does("load:one.so open read");
    assert!(told.contains("read 0"), "{told}");
}

#[test]
fn code_of_a_library_that_went_is_not_run_for_another_in_its_place() {
    let plugins = Plugins::new();
    let told =
        plugins.does("open load:one.so call call unload load:other.so call call unload load:one.so call");
    let places: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("loaded at ")).collect();
    assert!(places.len() == 3 && places.iter().all(|place| *place == places[0]), "{told}");
    let answers: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("call ")).collect();
    assert_eq!(answers, ["1", "2", "2", "4", "1"], "{told}");
}

/// Both states run the same translation of it.
#[test]
fn code_of_a_library_that_went_is_not_run_by_a_state_that_never_knew_it() {
    let plugins = Plugins::new();
    let told = plugins.does("open openB load:one.so call unload load:other.so callB unload load:one.so call");
    let places: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("loaded at ")).collect();
    assert!(places.len() == 3 && places.iter().all(|place| *place == places[0]), "{told}");
    let answers: Vec<&str> = told.lines().filter(|line| line.starts_with("call")).collect();
    assert_eq!(answers, ["call 1", "callB 2", "call 1"], "{told}");
}

#[test]
fn a_command_may_unload_a_library() {
    let plugins = Plugins::new();
    let told = plugins.does("open load:one.so call drop idle load:one.so idle kill");
    assert!(told.contains("drop 0"), "{told}");
    // What the command wrote before was unloaded with the library.
    let told = plugins.does("load:one.so open read call drop kill");
    assert!(told.contains("read 1"), "{told}");
}

/// Its destructor frees what its variable leads to, and that variable stays part of the state.
#[test]
fn what_a_library_frees_when_it_is_unloaded_is_there_when_it_comes_back() {
    for how in ["unload", "drop"] {
        let plugins = Plugins::new();
        compile_plugin(&plugins.scratch.path().join("holder.so"), &["-DHOLDS"]);
        plugins.does(&format!("open load:holder.so call {how} idle grow kill"));
        let told = plugins.does("open load:holder.so read kill");
        assert!(told.contains("read 1"), "{how}: {told}");
    }
}

#[test]
fn what_a_late_library_frees_at_the_end_of_the_process_is_there_at_the_next_start() {
    let plugins = Plugins::new();
    compile_plugin(&plugins.scratch.path().join("holder.so"), &["-DHOLDS"]);
    plugins.does("last open load:holder.so call");
    let told = plugins.does("open load:holder.so read kill");
    assert!(told.contains("read 1"), "{told}");
}

#[test]
fn addresses_that_are_taken_are_told() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = compile("c/addresses.c", scratch.path(), "addresses", &["-DBUILD=1"]);
    let state = scratch.path().join("s");
    let first = run(Command::new(&program).arg(&state).arg("own"));
    let text = String::from_utf8_lossy(&first.stdout).into_owned();
    let address = text.split_whitespace().nth(1).expect("an address").trim_start_matches("0x");
    let page = usize::from_str_radix(address, 16).expect("hexadecimal") & !4095;
    let output = output(&program, &["taken", &format!("{page:x}")], &state);
    says(&output, 2, "POOL");
    assert!(told(&output).contains("address"), "{}", told(&output));
}

#[test]
fn a_library_that_comes_late_says_that_it_is_not_the_programs_malloc() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = scratch.path().join("late");
    run(cc().arg(here().join("tests/c/late.c")).arg("-o").arg(&program).arg("-ldl"));
    let output = Command::new(&program)
        .arg(libraries().join("libmangrove_app.so"))
        .arg(scratch.path().join("s"))
        .output()
        .expect("runs");
    says(&output, 0, "link mangrove_app before it");
    // Preloaded, it is.
    let output = Command::new(&program)
        .env("LD_PRELOAD", libraries().join("libmangrove_app.so"))
        .arg(libraries().join("libmangrove_app.so"))
        .arg(scratch.path().join("s"))
        .output()
        .expect("runs");
    says(&output, 0, "0 ");
}
