//! `mangrove-stress txn check`: prints what survived.

use super::ledger::Ledger;
use crate::check::Args;
use mangrove::Create;
use mangrove::heap::Heap;
use std::io::Write;

/// Prints the counter of each thread as a key of `history.rs`. What contradicts the ledger's rules is a damaged key
/// of its name, so that the judge reports it and keeps the pool.
pub(crate) fn run<L: Ledger>(args: &Args) -> anyhow::Result<bool> {
    let heap = Heap::options().create(Create::Never).open(&args.pool)?;
    let found = L::examine(&heap)?;
    let mut out = std::io::stdout().lock();
    for last in &found.last {
        writeln!(out, "= counter{} {last}", last.thread)?;
    }
    if !found.problems.is_empty() {
        let shown: Vec<&str> = found.problems.iter().take(20).map(String::as_str).collect();
        writeln!(out, "! {} {}", L::NAME, shown.join("; "))?;
    }
    writeln!(out, ". {}", found.last.len() + usize::from(!found.problems.is_empty()))?;
    if args.close {
        heap.close()?;
    }
    Ok(true)
}
