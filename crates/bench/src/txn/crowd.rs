//! More threads than are good: throughput by the number of threads, to 12 times the best.

use super::context::TxnBench;
use super::peer::TxnDomain;
use super::place::WordPool;
use super::swaps::{SwapJob, fill, verify};
use super::ways::Way;
use crate::report::report::{FigureUnit, OURS};
use std::time::Duration;

pub(super) const CROWD: &str = "crowd";

/// Words among which the transactions choose: seldom the same, and often.
const WORDS: [(&str, usize); 2] = [("4 swaps among 1 Mi words", 1 << 20), ("4 swaps among 256 words", 256)];
const SWAPS: u32 = 4;

/// Numbers of threads, in units of the number of CPUs.
const THREADS: [f64; 6] = [0.5, 1.0, 2.0, 4.0, 8.0, 12.0];

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads: Vec<usize> = THREADS.iter().map(|times| (times * cpus as f64) as usize).collect();
    threads.retain(|&count| count > 0);
    threads.dedup();
    let bytes = b.quick_bytes(WORDS[0].1 * 8);
    for (name, words) in WORDS {
        let place = WordPool::new(&b.args.dir, &b.place(TxnDomain::Adr), bytes)?;
        fill(&place)?;
        for &threads in &threads {
            b.progress.step(format!("{name}, {threads} threads"));
            let time = Duration::from_secs_f64(b.seconds());
            let job = SwapJob {
                swaps: SWAPS,
                threads,
                words: words.min(place.words()),
                place: &place,
                time,
                log_bytes_max: None,
            };
            let (_, rate) = Way::Records.run(&place, &job)?;
            b.add(CROWD, TxnDomain::Adr.name(), "", name, threads, OURS, FigureUnit::PerSecond, rate);
        }
        verify(&place)?;
    }
    Ok(())
}
