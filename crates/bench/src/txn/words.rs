//! Transactions on words, by Mangrove and by the libraries beside it: swaps, a hash map, an ordered map.

use super::child::{self, Task};
use super::context::TxnBench;
use super::load::TxnWork;
use super::peer::TxnDomain;
use crate::report::report::Unit;

pub(super) const SWAPS: &str = "swaps";
pub(super) const MAP: &str = "map";
pub(super) const ORDERED: &str = "ordered";

pub(super) fn run_swaps(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let works = b.args.swaps.iter().map(|&count| TxnWork::Swaps(count)).collect();
    run(b, SWAPS, works)
}

pub(super) fn run_map(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let works = b.args.updates.iter().map(|&updates| TxnWork::Map { updates }).collect();
    run(b, MAP, works)
}

pub(super) fn run_ordered(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let works = b.args.updates.iter().map(|&updates| TxnWork::Ordered { updates }).collect();
    run(b, ORDERED, works)
}

fn run(b: &mut TxnBench<'_>, section: &'static str, works: Vec<TxnWork>) -> anyhow::Result<()> {
    for work in works {
        b.progress.step(work.operation());
        for domain in [TxnDomain::Adr, TxnDomain::Eadr] {
            for threads in b.args.threads.clone() {
                for kind in b.kinds.clone().into_iter().filter(|kind| kind.can(work)) {
                    let task = Task {
                        subject: kind.name().to_owned(),
                        domain,
                        work,
                        threads,
                        words: b.args.words,
                        seconds: b.seconds(),
                        dir: b.args.dir.clone(),
                    };
                    let rate = child::measure(kind, &task)?;
                    let operation = work.operation();
                    b.add(
                        section,
                        domain.name(),
                        "",
                        &operation,
                        threads,
                        kind.name(),
                        Unit::PerSecond,
                        rate,
                    );
                }
            }
        }
    }
    Ok(())
}
