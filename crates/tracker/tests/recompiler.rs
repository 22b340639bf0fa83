//! The recompiler against native execution. One process, one thread: snapshots of all memory are compared.

mod suite;

use mangrove_tracker::Recompiler;

fn main() {
    let tracker = Recompiler::new().expect("this machine can host the recompiler");
    let mut failed = 0;
    let instructions = suite::instructions::Instructions::new(std::env::args().any(|arg| arg == "--dense"))
        .expect("the assembler works");
    let wrong = instructions.check(&tracker);
    println!("instructions: {} functions, {} wrong", instructions.lines.len(), wrong.len());
    wrong.iter().take(20).for_each(|line| println!("  {line}"));
    failed += usize::from(!wrong.is_empty());
    println!("{} passed, {failed} failed", 1 - failed);
    std::process::exit(i32::from(failed > 0));
}
