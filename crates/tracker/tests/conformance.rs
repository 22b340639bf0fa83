//! One suite over all trackers: the same program, the same calls, every changed byte reported, and the same rules
//! about turns, batches and exact ranges.

#[expect(dead_code, reason = "other tests use the rest")]
mod suite;

use mangrove_tracker::{Compiler, Error, Explicit, Tracker, WriteSet, will_write};
use std::ffi::c_void;
use suite::differential::Watch;
use suite::library::{Library, compile, sources};

const CALLS: [&str; 3] = ["conformance_small", "conformance_list", "conformance_copies"];

extern "C" fn mark(addr: *const u8, len: usize) {
    will_write(addr, len);
}

fn main() {
    let (mut passed, mut failed) = (0, 0);
    let mut count = |name: &str, wrong: &[String]| {
        println!("{name}: {}", if wrong.is_empty() { "ok" } else { "FAILED" });
        wrong.iter().take(10).for_each(|line| println!("    {line}"));
        if wrong.is_empty() { passed += 1 } else { failed += 1 }
    };
    let source = sources().join("conformance.c");
    let silent = compile("cc", &source, &["-O2"]).expect("cc compiles the program");
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let tracker = mangrove_tracker::Recompiler::new().expect("this machine can host the recompiler");
        count("recompiler", &check(&tracker, &silent));
        count("recompiler, exact ranges", &exact(&tracker, &silent));
        count("recompiler, turns", &turns(&tracker, &silent));
    }
    // The suite must notice a tracker that no store reports to.
    let blind = check(&Explicit, &silent);
    count(
        "planted: nothing is said",
        &if blind.len() >= CALLS.len() { vec![] } else { vec!["it passed".into()] },
    );
    let marked = copy_as("explicit", &["-O2", "-DEXPLICIT"], "cc").expect("cc compiles the program");
    // SAFETY: a pointer variable of the program.
    unsafe { marked.address("conformance_mark").cast::<extern "C" fn(*const u8, usize)>().write(mark) };
    count("explicit", &check(&Explicit, &marked));
    count("explicit, exact ranges", &exact(&Explicit, &marked));
    count("explicit, turns", &turns(&Explicit, &marked));
    let clang = ["clang", "clang-19", "clang-16", "clang-14"]
        .into_iter()
        .find(|name| std::process::Command::new(name).arg("--version").output().is_ok());
    match clang {
        Some(clang) => {
            let flags = ["-O2", "-DCOMPILER", "-fno-builtin", "-fsanitize-coverage=func,trace-stores"];
            let rebuilt = copy_as("compiler", &flags, clang).expect("clang compiles the program");
            // SAFETY: pointer variables of the program.
            unsafe {
                let (thread, store) = Compiler::hooks();
                rebuilt.address("conformance_thread").cast::<*const usize>().write(thread);
                rebuilt
                    .address("conformance_store")
                    .cast::<unsafe extern "C" fn(*const u8, usize)>()
                    .write(store);
            }
            count("compiler", &check(&Compiler, &rebuilt));
            count("compiler, exact ranges", &exact(&Compiler, &rebuilt));
            count("compiler, turns", &turns(&Compiler, &rebuilt));
        }
        None => println!("compiler: not covered, clang is not installed"),
    }
    println!("test result: {passed} passed; {failed} failed");
    let _ = std::fs::remove_dir_all(suite::library::scratch());
    std::process::exit(i32::from(failed > 0));
}

/// The program under another name, so that each tracker has its own variables.
fn copy_as(name: &str, flags: &[&str], compiler: &str) -> Result<Library, String> {
    let copy = suite::library::scratch().join(format!("conformance_{name}.c"));
    std::fs::copy(sources().join("conformance.c"), &copy).map_err(|error| error.to_string())?;
    compile(compiler, &copy, flags)
}

fn check(tracker: &dyn Tracker, library: &Library) -> Vec<String> {
    let mut wrong = Vec::new();
    for block_bytes in [16, 32, 64, 128] {
        let mut watch = Watch::new(block_bytes);
        for symbol in CALLS {
            for _ in 0..2 {
                let (result, verdict) = watch.call(tracker, library.function(symbol), 0);
                if result.is_err() || verdict.missed > 0 || verdict.changed == 0 {
                    wrong.push(format!("{symbol}, blocks of {block_bytes}: {result:?}, {verdict:?}"));
                }
            }
        }
    }
    wrong
}

/// Inside exact ranges exactly the written bytes are reported.
fn exact(tracker: &dyn Tracker, library: &Library) -> Vec<String> {
    let area = library.address("conformance_area").addr();
    let mut writes = WriteSet::new(32).expect("a block size");
    writes.set_exact(&[(area, 8192)]);
    let mut wrong = Vec::new();
    for round in 0..3 {
        writes.clear();
        for _ in 0..=round {
            // SAFETY: a test program's function.
            let result =
                unsafe { tracker.call(&mut writes, library.function(CALLS[0]), std::ptr::null_mut()) };
            if let Err(error) = result {
                wrong.push(error.to_string());
            }
        }
        let inside: Vec<_> = writes
            .ranges()
            .iter()
            .filter(|range| range.0 < area + 8192 && area < range.0 + range.1)
            .map(|&(addr, len)| (addr - area, len))
            .collect();
        let expected = [(5, 1), (100, 2), (200, 4), (300, 8), (318, 8)];
        if inside != expected {
            wrong.push(format!("round {round}: {inside:?}, not {expected:?}"));
        }
    }
    wrong
}

/// One call at a time; calls of a batch add up; an emptied set is empty.
fn turns(tracker: &dyn Tracker, library: &Library) -> Vec<String> {
    struct Nested<'a> {
        tracker: &'a dyn Tracker,
        inner: Option<Error>,
    }
    unsafe extern "C" fn nested(arg: *mut c_void) {
        // SAFETY: the pointer passed below.
        let nested = unsafe { &mut *arg.cast::<Nested<'_>>() };
        let mut writes = WriteSet::new(32).expect("a block size");
        // SAFETY: the tracker refuses before it calls anything.
        nested.inner = unsafe { nested.tracker.call(&mut writes, nested_again, arg) }.err();
    }
    unsafe extern "C" fn nested_again(_: *mut c_void) {}
    let mut wrong = Vec::new();
    let mut writes = WriteSet::new(32).expect("a block size");
    let mut state = Nested { tracker, inner: None };
    // SAFETY: `nested` gets the type it expects.
    let result = unsafe { tracker.call(&mut writes, nested, std::ptr::from_mut(&mut state).cast()) };
    if result.is_err() || state.inner != Some(Error::Busy) {
        wrong.push(format!("a call in a call: {result:?}, {:?}", state.inner));
    }
    writes.clear();
    let mut sizes = Vec::new();
    for symbol in [CALLS[0], CALLS[1], CALLS[0]] {
        // SAFETY: a test program's function.
        let _ = unsafe { tracker.call(&mut writes, library.function(symbol), std::ptr::null_mut()) };
        sizes.push(writes.ranges().iter().map(|range| range.1).sum::<usize>());
    }
    if !(sizes[0] < sizes[1] && sizes[1] == sizes[2]) {
        wrong.push(format!("calls of one batch do not add up: {sizes:?}"));
    }
    writes.clear();
    if !writes.is_empty() || !writes.ranges().is_empty() {
        wrong.push("an emptied set is not empty".into());
    }
    wrong
}
