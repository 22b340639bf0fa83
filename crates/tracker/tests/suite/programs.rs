//! Programs and libraries under the tracker: what changed must be reported, and the outcome must be native's.

use super::differential::Watch;
use super::library::{Library, compile, sources};
use mangrove_tracker::Tracker;
use std::path::Path;

/// A source file and the calls that are made into it: (symbol, argument, how often).
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) source: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) flags: &'static [&'static str],
    /// Must be there for the program to be covered at all.
    pub(crate) needs: &'static str,
    pub(crate) calls: &'static [(&'static str, usize, usize)],
}

/// All programs.
pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "instruction classes",
        source: "classes.c",
        compiler: "cc",
        flags: &["-O1", "-w"],
        needs: "",
        calls: &[
            ("class_open", 0, 1),
            ("class_plain", 0, 2),
            ("class_tls", 0, 2),
            ("class_lock", 0, 2),
            ("class_string", 0, 2),
            ("class_sse", 0, 2),
            ("class_avx", 0, 2),
            ("class_avx512", 0, 2),
            ("class_direct", 0, 2),
            ("class_state", 0, 2),
            ("class_stack", 0, 2),
            ("class_foreign_stack", 0, 2),
            ("class_segment", 0, 2),
            ("class_flags", 0, 2),
            ("class_coroutine", 0, 2),
            ("class_longjmp", 0, 2),
            ("class_narrow", 0, 2),
            ("class_string_backward", 0, 2),
            ("class_string", 0, 1),
        ],
    },
    Program {
        name: "libc",
        source: "libc.c",
        compiler: "cc",
        flags: &["-O2", "-w", "-lm"],
        needs: "",
        calls: &[
            ("libc_strings", 0, 2),
            ("libc_heap", 0, 2),
            ("libc_qsort", 0, 1),
            ("libc_search", 0, 2),
            ("libc_files", 0, 2),
            ("libc_time", 0, 2),
            ("libc_maps", 0, 2),
            ("libc_locale", 0, 2),
            ("libc_locks", 0, 2),
        ],
    },
    Program {
        name: "libstdc++",
        source: "maps.cc",
        compiler: "c++",
        flags: &["-O2"],
        needs: "",
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
    },
    Program {
        name: "zlib",
        source: "zlib.c",
        compiler: "cc",
        flags: &["-O2", "-lz"],
        needs: "/usr/include/zlib.h",
        calls: &[("zlib_round_trip", 60_000, 2), ("zlib_round_trip", 1_000_000, 1)],
    },
    Program {
        name: "SQLite",
        source: "sqlite.c",
        compiler: "cc",
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
    },
    Program {
        name: "CPython",
        source: "python.c",
        compiler: "cc",
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
    /// Compiles it. `Ok(None)`: what it needs is not installed.
    pub(crate) fn load(&self) -> Result<Option<Library>, String> {
        if !self.needs.is_empty() && !Path::new(self.needs).exists() {
            return Ok(None);
        }
        compile(self.compiler, &sources().join(self.source), self.flags).map(Some)
    }

    /// Makes all calls, watched.
    pub(crate) fn check(&self, library: &Library, tracker: &dyn Tracker, watch: &mut Watch) -> Outcome {
        let mut outcome = Outcome::default();
        for &(symbol, arg, times) in self.calls {
            if !cpu_has(symbol) {
                println!("    {symbol}: not covered, this CPU has no such instructions");
                continue;
            }
            for _ in 0..times {
                let (result, verdict) = watch.call(tracker, library.function(symbol), arg);
                outcome.calls += 1;
                outcome.changed += verdict.changed;
                outcome.missed += verdict.missed;
                if let Err(error) = result {
                    outcome.wrong.push(format!("{symbol}({arg}): {error}"));
                }
                if verdict.missed > 0 {
                    let at = verdict.missed_at.iter().take(4).map(|at| describe(*at)).collect::<Vec<_>>();
                    outcome.wrong.push(format!(
                        "{symbol}({arg}): missed {} of {} bytes, {}",
                        verdict.missed,
                        verdict.changed,
                        at.join(", ")
                    ));
                }
            }
        }
        outcome
    }
}

/// Can this CPU run the class?
fn cpu_has(symbol: &str) -> bool {
    match symbol {
        "class_avx" => std::is_x86_feature_detected!("avx2"),
        "class_avx512" => {
            std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512vl")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512vbmi2")
        }
        // Leaf 7: movdiri and movdir64b are bits 27 and 28 of ecx.
        "class_direct" => std::arch::x86_64::__cpuid_count(7, 0).ecx >> 27 & 3 == 3,
        _ => true,
    }
}

/// An address with the mapping it lies in.
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
