//! What tickets save: one swap a transaction on one thread, with a wait after so many commits, and without tickets.

use super::context::TxnBench;
use super::heap_words::{HeapWords, MEDIA};
use super::load::Random;
use super::place::Folder;
use crate::report::report::{FigureUnit, OURS};
use mangrove_txn::HeapResult;
use std::time::{Duration, Instant};

pub(super) const TICKETS: &str = "tickets";

/// Commits a wait.
const EACH: [u64; 3] = [1, 8, 64];
/// Between two looks at the clock, so that it takes no part of the time.
const STEP: u64 = 64;

/// Commits a second, all of them durable in the end; `each` of them a wait, or none with a ticket.
fn rate(words: &HeapWords, each: Option<u64>, time: Duration) -> HeapResult<f64> {
    let (heap, mut random) = (&words.heap, Random::new(1));
    let (begun, mut commits) = (Instant::now(), 0u64);
    while begun.elapsed() < time {
        for _ in 0..STEP {
            let [one, other] = words.pair(&mut random);
            commits += 1;
            match each {
                None => heap.transaction(|tx| {
                    let (a, b) = (tx.read(one)?, tx.read(other)?);
                    tx.write(one, b)?;
                    tx.write(other, a)
                })?,
                Some(each) => {
                    let ((), ticket) = heap.transaction_nowait(|tx| {
                        let (a, b) = (tx.read(one)?, tx.read(other)?);
                        tx.write(one, b)?;
                        tx.write(other, a)
                    })?;
                    // The last one's: those before it are durable with it.
                    if commits.is_multiple_of(each) {
                        heap.wait(ticket)?;
                    }
                }
            }
        }
    }
    Ok(commits as f64 / begun.elapsed().as_secs_f64())
}

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(b.seconds());
    for (name, medium) in MEDIA {
        b.progress.step(name);
        let folder = Folder::new(&b.args.dir)?;
        let words = HeapWords::create(folder.path(), medium, b.args.words)?;
        for each in EACH {
            let what = format!("1 swap a transaction, a wait each {each}");
            // In turn: the ratio of a line is of two measurements side by side.
            for (each, subject) in [(Some(each), OURS), (None, "no tickets")] {
                b.add(TICKETS, name, "", &what, 1, subject, FigureUnit::PerSecond, rate(&words, each, time)?);
            }
        }
        words.verify(folder.path(), medium)?;
    }
    Ok(())
}
