//! Transactions on words, by Mangrove and by the libraries beside it: swaps, a hash map, an ordered map.

use super::child::{self, Task};
use super::context::TxnBench;
use super::load::TxnWork;
use super::mixes::FULL_PERCENT;
use super::peer::TxnDomain;
use super::place::{PlaceOptions, WordPool};
use super::swaps::{SwapJob, fill, verify};
use super::ways::Way;
use crate::report::report::{FigureUnit, OURS};
use std::time::Duration;

pub(super) const SWAPS: &str = "swaps";
pub(super) const MAP: &str = "map";
pub(super) const ORDERED: &str = "ordered";

pub(super) fn run_swaps(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let works = b.args.swaps.iter().map(|&count| TxnWork::Swaps(count)).collect();
    run(b, SWAPS, works)?;
    swaps_without_replay(b)
}

/// Of Mangrove alone: with logs that nothing replays, until one is full.
fn swaps_without_replay(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    for domain in [TxnDomain::Adr, TxnDomain::Eadr] {
        let medium = format!("{}, replay off", domain.name());
        let log_bytes = b.quick_log(b.args.log_mib << 20);
        let options = PlaceOptions { replay: false, log_bytes, ..PlaceOptions::new(domain) };
        let place = WordPool::new(&b.args.dir, &options, b.args.words * 8)?;
        place.touch()?;
        fill(&place)?;
        for swaps in b.args.swaps.clone() {
            let operation = TxnWork::Swaps(swaps).operation();
            b.progress.step(format!("{operation}, {medium}"));
            for threads in b.args.threads.clone() {
                let (words, time) = (place.words(), Duration::from_secs_f64(b.seconds()));
                let log_bytes_max = Some(log_bytes * FULL_PERCENT / 100);
                let job = SwapJob { swaps, threads, words, place: &place, time, log_bytes_max };
                let (_, rate) = Way::Records.run(&place, &job)?;
                b.add(SWAPS, &medium, "", &operation, threads, OURS, FigureUnit::PerSecond, rate);
                // Empties the logs.
                place.shadow().checkpoint()?;
            }
        }
        verify(&place)?;
    }
    Ok(())
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
                        FigureUnit::PerSecond,
                        rate,
                    );
                }
            }
        }
    }
    Ok(())
}
