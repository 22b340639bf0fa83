//! The recompiler against native execution. One process and one thread, because the test compares snapshots of all
//! memory.

#[expect(dead_code, reason = "the suite of examples uses the rest")]
mod suite;

use mangrove_tracker::{Explicit, Recompiler};
use suite::differential::Watch;
use suite::instructions::Instructions;
use suite::programs::PROGRAMS;
use suite::strings::Strings;

fn main() {
    let tracker = Recompiler::new().expect("this machine can host the recompiler");
    let (mut passed, mut failed) = (0, 0);
    let mut count = |name: &str, text: String, wrong: &[String]| {
        println!("{name}: {text}{}", if wrong.is_empty() { "" } else { " FAILED" });
        wrong.iter().take(20).for_each(|line| println!("    {line}"));
        if wrong.is_empty() { passed += 1 } else { failed += 1 }
    };
    let dense = std::env::args().any(|arg| arg == "--dense");
    let instructions = Instructions::new(dense).expect("the assembler works");
    let wrong = instructions.check(&tracker);
    count("stores by register", format!("{} functions", instructions.lines.len()), &wrong);
    // The check itself must be able to fail.
    let unseen = instructions.check(&Explicit);
    let planted =
        if unseen.len() >= instructions.lines.len() { vec![] } else { vec!["a blind tracker passed".into()] };
    count("stores by register, planted", format!("{} misses found", unseen.len()), &planted);
    let strings = Strings::new().expect("the assembler works");
    count("string instructions", format!("{} functions", strings.len()), &strings.check(&tracker));
    let mut watch = Watch::new(32);
    for program in PROGRAMS {
        match program.load() {
            Ok(Some(library)) => {
                if program.name == "libc" {
                    let wrong = suite::refusals::check(&library, &tracker);
                    count("refusals and crashes", String::new(), &wrong);
                    let wrong = suite::exact::check(&library, &tracker);
                    count("system calls into exact ranges", String::new(), &wrong);
                    let wrong = suite::exact::check_stores(&library, &tracker);
                    count("stores into exact ranges", String::new(), &wrong);
                }
                let outcome = program.check(&library, &tracker, &mut watch);
                let text = format!(
                    "{} calls, {} bytes changed, {} missed",
                    outcome.calls, outcome.changed, outcome.missed
                );
                count(program.name, text, &outcome.wrong);
            }
            Ok(None) => println!("{}: not covered, {} is not installed", program.name, program.needs),
            Err(why) => count(program.name, "did not build".into(), &[why]),
        }
    }
    println!("test result: {passed} passed; {failed} failed");
    let _ = std::fs::remove_dir_all(suite::library::scratch());
    std::process::exit(i32::from(failed > 0));
}
