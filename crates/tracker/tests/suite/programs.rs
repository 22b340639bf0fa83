//! Programs and libraries under the tracker: every changed byte must be reported, and the outcome must be that of a
//! native run.

use super::differential::{Watch, in_child};
use super::library::{Library, compile, scratch, sources};
use mangrove_tracker::Tracker;
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;

/// A source file and the calls that are made into it: (symbol, argument, how often).
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    pub(crate) compiler: &'static str,
    /// `@` stands for the directory of `needs`.
    pub(crate) flags: &'static [&'static str],
    /// A path, or one below Cargo's target directory, that must exist for the program to be covered.
    pub(crate) needs: &'static str,
    pub(crate) calls: &'static [(&'static str, usize, usize)],
    /// Further calls, whose outcome is compared with that of a native run.
    pub(crate) script: Option<Script>,
}

/// Three functions: one takes the step 0, 1, 2...; one returns how many steps there are; one returns the outcome as
/// text.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    step: &'static str,
    count: &'static str,
    said: &'static str,
}

/// Most programs are of this form.
const PLAIN: Program =
    Program { name: "", source: "", compiler: "cc", flags: &[], needs: "", calls: &[], script: None };

/// All programs.
pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "instruction classes",
        source: "classes.c",
        flags: &["-O1", "-w"],
        calls: &[
            ("class_open", 0, 1),
            ("class_plain", 0, 2),
            ("class_tls", 0, 2),
            ("class_lock", 0, 2),
            ("class_string", 0, 2),
            ("class_string_many", 0, 2),
            ("class_sse", 0, 2),
            ("class_avx", 0, 2),
            ("class_avx512", 0, 2),
            ("class_masks", 0, 2),
            ("class_direct", 0, 2),
            ("class_state", 0, 2),
            ("class_stack", 0, 2),
            ("class_foreign_stack", 0, 2),
            ("class_foreign_stack_rare", 0, 2),
            ("class_segment", 0, 2),
            ("class_flags", 0, 2),
            ("class_coroutine", 0, 2),
            ("class_longjmp", 0, 2),
            ("class_narrow", 0, 2),
            ("class_string_backward", 0, 2),
            ("class_string", 0, 1),
            ("class_string_many", 0, 1),
        ],
        ..PLAIN
    },
    Program {
        name: "libc",
        source: "libc.c",
        flags: &["-O2", "-w", "-lm"],
        calls: &[
            ("libc_strings", 0, 2),
            ("libc_heap", 0, 2),
            ("libc_qsort", 0, 1),
            ("libc_search", 0, 2),
            ("libc_files", 0, 2),
            ("libc_kernel", 0, 2),
            ("libc_code_at_an_end", 0, 2),
            ("libc_time", 0, 2),
            ("libc_maps", 0, 2),
            ("libc_locale", 0, 2),
            ("libc_locks", 0, 2),
        ],
        ..PLAIN
    },
    Program {
        name: "libstdc++",
        source: "maps.cc",
        compiler: "c++",
        flags: &["-O2"],
        calls: &[
            ("hash_map_open", 0, 1),
            ("hash_map_puts", 1, 3),
            ("hash_map_puts", 3000, 2),
            ("map_puts", 2000, 2),
            ("plain_map_puts", 2000, 2),
            ("unordered_puts", 2000, 2),
            ("sequences", 2000, 2),
            ("exceptions", 50, 2),
            ("sort_fill", 20000, 1),
            ("sort_ints", 0, 2),
        ],
        ..PLAIN
    },
    Program {
        name: "zlib",
        source: "zlib.c",
        flags: &["-O2", "-lz"],
        needs: "/usr/include/zlib.h",
        calls: &[("zlib_round_trip", 60_000, 2), ("zlib_round_trip", 1_000_000, 1)],
        ..PLAIN
    },
    Program {
        name: "SQLite",
        source: "sqlite.c",
        flags: &["-O2", "-lsqlite3"],
        needs: "/usr/include/sqlite3.h",
        calls: &[
            ("sqlite_open_memory", 0, 1),
            ("sqlite_insert", 500, 2),
            ("sqlite_update", 0, 2),
            ("sqlite_select", 0, 2),
            ("sqlite_insert", 1, 3),
            ("sqlite_errors", 0, 2),
            ("sqlite_select", 0, 1),
        ],
        ..PLAIN
    },
    Program {
        name: "CPython",
        source: "python.c",
        flags: &["-O2", "-w", "-ldl"],
        needs: "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
        calls: &[
            ("python_open", 0, 1),
            ("python_run", 0, 1),
            ("python_run", 1, 1),
            ("python_run", 2, 1),
            ("python_run", 3, 1),
            ("python_run", 4, 1),
            ("python_run", 5, 1),
        ],
        ..PLAIN
    },
    // Last, because its library exports many names.
    Program {
        name: "Redis",
        source: "redis.c",
        flags: &[
            "-O2",
            "-w",
            "-I@/src",
            "-I@/deps/lua/src",
            "-I@/deps/hiredis",
            "@/libredis.so",
            "-Wl,-rpath,@",
        ],
        needs: "redis/source/libredis.so",
        calls: &[("redis_open", 0, 1)],
        script: Some(Script { step: "redis_line", count: "redis_line_count", said: "redis_said" }),
        ..PLAIN
    },
];

/// What one program's run found.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) calls: usize,
    pub(crate) changed: usize,
    pub(crate) missed: usize,
    pub(crate) wrong: Vec<String>,
}

impl Program {
    /// Compiles the program. `Ok(None)`: what it needs is not installed.
    pub(crate) fn load(&self) -> Result<Option<Library>, String> {
        let mut folder = String::new();
        if !self.needs.is_empty() {
            let Some(found) = find(self.needs) else { return Ok(None) };
            folder = found.parent().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        }
        let flags: Vec<_> = self.flags.iter().map(|flag| flag.replace('@', &folder)).collect();
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        compile(self.compiler, &sources().join(self.source), &flags).map(Some)
    }

    /// Makes all calls, watched.
    pub(crate) fn check(&self, library: &Library, tracker: &dyn Tracker, watch: &mut Watch) -> Outcome {
        let mut outcome = Outcome::default();
        let native = self.script.map(|script| self.run_natively(script, library));
        for &(symbol, arg, times) in self.calls {
            if !cpu_has(symbol) {
                println!("    {symbol}: not covered, this CPU has no such instructions");
                continue;
            }
            for _ in 0..times {
                outcome.call(library, tracker, watch, symbol, arg);
            }
        }
        if let (Some(script), Some(native)) = (self.script, native) {
            for step in 0..script.count(library) {
                outcome.call(library, tracker, watch, script.step, step);
            }
            outcome.compare(&native, &script.said(library));
        }
        outcome
    }

    /// The output of a child that makes the same calls without a tracker.
    fn run_natively(&self, script: Script, library: &Library) -> String {
        let file = scratch().join(format!("{}.said", self.source));
        let status = in_child(|| {
            for &(symbol, arg, times) in self.calls {
                (0..times).for_each(|_| call_natively(library, symbol, arg));
            }
            (0..script.count(library)).for_each(|step| call_natively(library, script.step, step));
            i32::from(std::fs::write(&file, script.said(library)).is_err())
        });
        if status != 0 {
            return format!("the native run ended with status {status:#x}");
        }
        std::fs::read_to_string(&file).unwrap_or_default()
    }
}

fn call_natively(library: &Library, symbol: &str, arg: usize) {
    // SAFETY: a test program's function with the argument it expects.
    unsafe { library.function(symbol)(std::ptr::without_provenance_mut(arg)) };
}

impl Script {
    fn count(&self, library: &Library) -> usize {
        // SAFETY: the function's type in the program.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(library.address(self.count))()
        }
    }

    fn said(&self, library: &Library) -> String {
        // SAFETY: the function's type in the program; the text stays until its next step.
        let text = unsafe {
            let said = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(
                library.address(self.said),
            );
            CStr::from_ptr(said())
        };
        text.to_string_lossy().into_owned()
    }
}

impl Outcome {
    fn call(
        &mut self,
        library: &Library,
        tracker: &dyn Tracker,
        watch: &mut Watch,
        symbol: &str,
        arg: usize,
    ) {
        let (result, verdict) = watch.call(tracker, library.function(symbol), arg);
        self.calls += 1;
        self.changed += verdict.changed;
        self.missed += verdict.missed;
        if let Err(error) = result {
            self.wrong.push(format!("{symbol}({arg}): {error}"));
        }
        if verdict.missed > 0 {
            let at = verdict.missed_at.iter().take(4).map(|at| describe(*at)).collect::<Vec<_>>();
            self.wrong.push(format!(
                "{symbol}({arg}): missed {} of {} bytes, {}",
                verdict.missed,
                verdict.changed,
                at.join(", ")
            ));
        }
    }

    /// Both runs must have an outcome, and the same one.
    fn compare(&mut self, native: &str, tracked: &str) {
        if native == tracked && native.lines().count() > 100 {
            return;
        }
        let differs = native.lines().zip(tracked.lines()).position(|(one, other)| one != other);
        let line = |text: &str| text.lines().nth(differs.unwrap_or(0)).unwrap_or_default().to_owned();
        self.wrong.push(format!("natively: {:?}, tracked: {:?}", line(native), line(tracked)));
    }
}

/// The file itself, or one below the target directory that this program was built in.
fn find(needs: &str) -> Option<PathBuf> {
    if needs.starts_with('/') {
        return Some(PathBuf::from(needs)).filter(|path| path.exists());
    }
    let here = std::env::current_exe().ok()?;
    here.ancestors().map(|folder| folder.join(needs)).find(|path| path.exists())
}

/// Can this CPU run the class?
fn cpu_has(symbol: &str) -> bool {
    match symbol {
        "class_avx" => std::is_x86_feature_detected!("avx2"),
        "class_masks" => std::is_x86_feature_detected!("avx512f"),
        "class_avx512" => {
            std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512vl")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512vbmi2")
        }
        // Leaf 7: movdiri and movdir64b are bits 27 and 28 of ecx.
        "class_direct" => {
            // Unsafe in some of the compilers that build this, and safe in others.
            let cpuid: unsafe fn(u32, u32) -> CpuidResult = __cpuid_count;
            // SAFETY: every x86-64 CPU has the instruction, and it changes nothing.
            (unsafe { cpuid(7, 0) }).ecx >> 27 & 3 == 3
        }
        _ => true,
    }
}

/// An address, with the mapping that it lies in.
fn describe(addr: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let line = maps.lines().find(|line| {
        let mut ends = line.split([' ', '-']).filter_map(|part| usize::from_str_radix(part, 16).ok());
        matches!((ends.next(), ends.next()), (Some(lo), Some(hi)) if lo <= addr && addr < hi)
    });
    format!(
        "{addr:#x} ({})",
        line.map_or("unmapped", |line| line.split_whitespace().nth(5).unwrap_or("anonymous"))
    )
}
