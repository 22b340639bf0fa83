//! What tracking costs programs (execution only): the same functions of the same libraries, native and tracked.

use super::context::DurableBench;
use crate::report::report::FigureUnit;
use anyhow::{Context as _, bail, ensure};
use mangrove_tracker::{Recompiler, Tracker, WriteSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

pub(super) const PROGRAMS: &str = "programs";
pub(super) const SLOWDOWN: &str = "tracked / native";

type Function = unsafe extern "C" fn(*mut c_void);

/// A shared library; never closed.
struct Library(*mut c_void);

impl Library {
    fn open(file: &Path) -> anyhow::Result<Self> {
        let name = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: a NUL-terminated name; a library that is loaded may do anything in its constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure dlerror returns a C string that belongs to this thread.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            bail!("cannot load {}: {why}", file.display());
        }
        Ok(Self(handle))
    }

    /// # Safety
    /// `F` is the type of a pointer to that very function.
    unsafe fn get<F: Copy>(&self, name: &str) -> anyhow::Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let text = CString::new(name)?;
        // SAFETY: an open library and a NUL-terminated name.
        let found = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        ensure!(!found.is_null(), "the library has no {name}");
        // SAFETY: a pointer to a function, of the caller's type.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }
}

/// A program: a function, its argument, and how often it is called in one slice.
struct Program {
    name: String,
    function: Function,
    arg: *mut c_void,
    calls: usize,
}

/// Alternates native and tracked slices and returns the ratio of the fastest of each.
fn slowdown(b: &DurableBench, program: &Program) -> anyhow::Result<f64> {
    let tracker = Recompiler::new()?;
    let mut writes = Box::new(WriteSet::new(32)?);
    let calls = b.size(program.calls, 1);
    let mut best = [f64::MAX; 2];
    for slice in 0..b.size(24, 4) {
        let tracked = slice % 2 == 1;
        let begin = Instant::now();
        for _ in 0..calls {
            if tracked {
                writes.clear();
                // SAFETY: the programs take their argument, on one thread.
                unsafe { tracker.call(&mut writes, program.function, program.arg) }?;
            } else {
                // SAFETY: as above.
                unsafe { (program.function)(program.arg) };
            }
        }
        let time = begin.elapsed().as_secs_f64();
        let of = &mut best[usize::from(tracked)];
        *of = of.min(time);
    }
    Ok(best[1] / best[0])
}

pub(super) fn run(b: &mut DurableBench) -> anyhow::Result<()> {
    let mut programs = Vec::new();
    let mut missing = Vec::new();
    for found in [containers(b), zlib(), sqlite()] {
        match found {
            Ok(found) => programs.extend(found),
            Err(error) => missing.push(format!("{error:#}")),
        }
    }
    for why in missing {
        b.report.note(format!("Not measured among the programs: {why}."));
    }
    for program in programs {
        let ratio = slowdown(b, &program).with_context(|| program.name.clone())?;
        b.add(PROGRAMS, "", &program.name, SLOWDOWN, 1, FigureUnit::Count, ratio);
    }
    Ok(())
}

/// The structures of the tracker's own tests, built as a user builds: -O2, no further options.
fn containers(b: &DurableBench) -> anyhow::Result<Vec<Program>> {
    let source = b.sources().join("crates/tracker/tests/programs/maps.cc");
    let library = b.args.dir.canonicalize()?.join(format!("maps-{}.so", std::process::id()));
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let built = Command::new(compiler)
        .args(["-std=c++17", "-O2", "-fPIC", "-shared", "-o"])
        .args([&library, &source])
        .status()
        .context("the containers (no C++ compiler)")?;
    ensure!(built.success(), "the containers ({} does not compile here)", source.display());
    let maps = Library::open(&library)?;
    std::fs::remove_file(&library)?;
    // SAFETY: all of them take a number as their argument.
    unsafe {
        maps.get::<Function>("hash_map_open")?(std::ptr::null_mut());
        maps.get::<Function>("sort_fill")?(std::ptr::without_provenance_mut(100_000));
    }
    let program = |name: &str, function: &str, arg: usize, calls| -> anyhow::Result<Program> {
        // SAFETY: as above.
        let function = unsafe { maps.get(function)? };
        Ok(Program { name: name.into(), function, arg: std::ptr::without_provenance_mut(arg), calls })
    };
    Ok(vec![
        program("hash map, 100 B values, 1,000 puts a call", "hash_map_puts", 1_000, 100)?,
        program("hash map, 100 B values, one put a call", "hash_map_puts", 1, 50_000)?,
        program("std::map, 1,000 puts a call", "plain_map_puts", 1_000, 100)?,
        program("std::map of strings, 1,000 puts a call", "map_puts", 1_000, 100)?,
        program("std::unordered_map, 1,000 puts a call", "unordered_puts", 1_000, 50)?,
        program("qsort of 100,000", "sort_ints", 0, 2)?,
    ])
}

type Compress = unsafe extern "C" fn(*mut u8, *mut u64, *const u8, u64, c_int) -> c_int;

/// What `deflate` needs; never freed.
struct Deflating {
    compress: Compress,
    input: Vec<u8>,
    output: Vec<u8>,
}

unsafe extern "C" fn deflate(arg: *mut c_void) {
    // SAFETY: `zlib` passes a `Deflating`.
    unsafe {
        let d = &mut *arg.cast::<Deflating>();
        let mut len = d.output.len() as u64;
        (d.compress)(d.output.as_mut_ptr(), &raw mut len, d.input.as_ptr(), d.input.len() as u64, 6);
    }
}

fn zlib() -> anyhow::Result<Vec<Program>> {
    let library = Library::open(Path::new("libz.so.1"))?;
    // SAFETY: compress2's type, on machines with 64-bit long.
    let compress = unsafe { library.get("compress2")? };
    let mut dice = super::kv::Dice::new(3);
    let words: Vec<u8> = (0..200_000).flat_map(|_| [b"mangrove"[dice.next() as usize % 8], b'e']).collect();
    let d = Deflating { compress, output: vec![0; words.len() + 1_000], input: words };
    let arg = Box::into_raw(Box::new(d)).cast();
    Ok(vec![Program { name: "zlib, 400 KB at level 6".into(), function: deflate, arg, calls: 1 }])
}

type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Exec =
    unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, *mut c_void, *mut *mut c_char) -> c_int;
type Prepare =
    unsafe extern "C" fn(*mut c_void, *const c_char, c_int, *mut *mut c_void, *mut *const c_char) -> c_int;
type OfStatement = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A prepared INSERT; never freed.
struct Inserting {
    step: OfStatement,
    reset: OfStatement,
    statement: *mut c_void,
    rows: usize,
}

unsafe extern "C" fn insert(arg: *mut c_void) {
    // SAFETY: `sqlite` passes an `Inserting`.
    unsafe {
        let i = &*arg.cast::<Inserting>();
        for _ in 0..i.rows {
            (i.step)(i.statement);
            (i.reset)(i.statement);
        }
    }
}

fn sqlite() -> anyhow::Result<Vec<Program>> {
    const SCHEMA: &CStr = c"CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value BLOB)";
    const INSERT: &CStr = c"INSERT INTO t (name, value) VALUES (hex(random()), zeroblob(100))";
    let library = Library::open(Path::new("libsqlite3.so.0"))?;
    // SAFETY: SQLite's types; the database and the statement are never closed.
    unsafe {
        let (mut db, mut statement) = (std::ptr::null_mut(), std::ptr::null_mut());
        let null = std::ptr::null_mut();
        ensure!(library.get::<Open>("sqlite3_open")?(c":memory:".as_ptr(), &raw mut db) == 0, "no database");
        let exec: Exec = library.get("sqlite3_exec")?;
        ensure!(exec(db, SCHEMA.as_ptr(), null, null, std::ptr::null_mut()) == 0, "no table");
        let prepare: Prepare = library.get("sqlite3_prepare_v2")?;
        ensure!(
            prepare(db, INSERT.as_ptr(), -1, &raw mut statement, std::ptr::null_mut()) == 0,
            "no statement"
        );
        let program = |name: &str, rows: usize, calls| -> anyhow::Result<Program> {
            let step = library.get("sqlite3_step")?;
            let i = Inserting { step, reset: library.get("sqlite3_reset")?, statement, rows };
            let arg = Box::into_raw(Box::new(i)).cast();
            Ok(Program { name: name.into(), function: insert, arg, calls })
        };
        Ok(vec![
            program("SQLite, 100 inserts a call", 100, 20)?,
            program("SQLite, one insert a call", 1, 2_000)?,
        ])
    }
}
