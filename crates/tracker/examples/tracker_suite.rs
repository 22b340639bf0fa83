//! The tracker suite: what it covers, the bytes that the tracker missed, and the slowdown of each program.
//!
//! `cargo xtask tracker-suite` runs it. `--quick` skips the dense instruction tests, `--only-speed` the checks;
//! `--load=TEXT` times only workloads with that in their name.

#[path = "../tests/suite/mod.rs"]
mod suite;

use mangrove_tracker::{Recompiler, Tracker};
use suite::differential::Watch;
use suite::instructions::Instructions;
use suite::programs::PROGRAMS;
use suite::speed::{Load, MAPS, REDIS, SQLITE, ZLIB, measure};
use suite::strings::Strings;

const ROUNDS: usize = 9;

fn main() {
    let flag = |name: &str| std::env::args().any(|arg| arg == name);
    let tracker = match Recompiler::new() {
        Ok(tracker) => tracker,
        Err(error) => {
            println!("{error}");
            std::process::exit(1);
        }
    };
    let failed = if flag("--only-speed") { 0 } else { coverage(&tracker, !flag("--quick")) };
    speed(&tracker);
    for (name, value) in tracker.statistics() {
        println!("  {name}: {value}");
    }
    let _ = std::fs::remove_dir_all(suite::library::scratch());
    std::process::exit(i32::from(failed > 0));
}

fn coverage(tracker: &Recompiler, dense: bool) -> usize {
    let (mut passed, mut failed, mut missed) = (0, 0, 0);
    let mut count = |name: &str, text: &str, wrong: &[String]| {
        println!("  {name:<22} {text}{}", if wrong.is_empty() { "" } else { "  FAILED" });
        wrong.iter().take(20).for_each(|line| println!("      {line}"));
        if wrong.is_empty() { passed += 1 } else { failed += 1 }
    };
    println!("covered (native outcome, every changed byte reported):");
    match Instructions::new(dense) {
        Ok(instructions) => {
            let wrong = instructions.check(tracker);
            let text = format!(
                "{} functions, {} runs, {} wrong",
                instructions.lines.len(),
                4 * instructions.lines.len(),
                wrong.len()
            );
            count("stores by register", &text, &wrong);
        }
        Err(why) => count("stores by register", "did not assemble", &[why]),
    }
    match Strings::new() {
        Ok(strings) => {
            let wrong = strings.check(tracker);
            let text = format!("{} functions, {} wrong", strings.len(), wrong.len());
            count("string instructions", &text, &wrong);
        }
        Err(why) => count("string instructions", "did not assemble", &[why]),
    }
    let mut watch = Watch::new(32);
    for program in PROGRAMS {
        match program.load() {
            Ok(Some(library)) => {
                if program.name == "libc" {
                    // And one call that exits.
                    let calls = suite::refusals::REFUSED.len() + suite::refusals::CRASHES.len() + 1;
                    let wrong = suite::refusals::check(&library, tracker);
                    count("refusals and crashes", &format!("{calls} calls"), &wrong);
                    let places = suite::exact::WRITTEN.len();
                    let wrong = suite::exact::check(&library, tracker);
                    count("system calls, exactly", &format!("{places} places"), &wrong);
                    let wrong = suite::exact::check_stores(&library, tracker);
                    count("stores, exactly", "147 rounds", &wrong);
                }
                let outcome = program.check(&library, tracker, &mut watch);
                missed += outcome.missed;
                let text = format!(
                    "{} calls, {} bytes changed, {} missed",
                    outcome.calls, outcome.changed, outcome.missed
                );
                count(program.name, &text, &outcome.wrong);
            }
            Ok(None) => println!("  {:<22} not covered: {} is not installed", program.name, program.needs),
            Err(why) => count(program.name, "did not build", &[why]),
        }
    }
    println!("missed bytes: {missed}");
    println!("{passed} passed, {failed} failed");
    failed
}

fn speed(tracker: &Recompiler) {
    // The instruction tests contain code that slows all translated code down: flags across calls, backward string
    // stores.
    tracker.forget_code();
    println!("\nslowdown (median of {ROUNDS} interleaved runs):");
    println!(
        "  {:<48} {:>12} {:>12} {:>7} {:>6} {:>15}",
        "", "native ns", "tracked ns", "ratio", "goal", "translate only"
    );
    for (name, loads) in [("libstdc++", MAPS), ("zlib", ZLIB), ("SQLite", SQLITE), ("Redis", REDIS)] {
        let Some(program) = PROGRAMS.iter().find(|program| program.name == name) else { continue };
        let Ok(Some(library)) = program.load() else { continue };
        let open = match name {
            "SQLite" => Some("sqlite_open_memory"),
            "libstdc++" => Some("hash_map_open"),
            "Redis" => Some("redis_open"),
            _ => None,
        };
        if let Some(open) = open {
            // SAFETY: a test program's function without an argument.
            unsafe { library.function(open)(std::ptr::null_mut()) };
        }
        let only = std::env::args()
            .find_map(|arg| arg.strip_prefix("--load=").map(str::to_owned))
            .unwrap_or_default();
        for load in loads.iter().filter(|load| load.name.contains(&only)) {
            row(load, &library, tracker);
        }
    }
}

fn row(load: &Load, library: &suite::library::Library, tracker: &Recompiler) {
    let times = measure(load, library, tracker, ROUNDS);
    tracker.set_recording(false);
    let translated = measure(load, library, tracker, ROUNDS);
    tracker.set_recording(true);
    let goal = if load.goal > 0.0 { format!("{:.2}", load.goal) } else { String::new() };
    println!(
        "  {:<48} {:>12.1} {:>12.1} {:>7.2} {goal:>6} {:>15.2}",
        load.name, times.native, times.tracked, times.ratio, translated.ratio
    );
}
