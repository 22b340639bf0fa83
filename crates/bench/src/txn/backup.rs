//! How long transactions are stopped while a heap is backed up in use, with writers at full speed.

use super::context::TxnBench;
use super::heap_words::{HeapWords, MEDIA};
use super::load::Random;
use super::place::Folder;
use crate::harness::stats::Samples;
use crate::report::report::{FigureUnit, OURS};
use mangrove_txn::Medium;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const BACKUP: &str = "backup";

/// Backups one after the other; of a smoke test.
const BACKUPS: usize = 5;
const QUICK_BACKUPS: usize = 2;

/// Swaps one word with another, a transaction each, until `stop`.
fn swap(words: &HeapWords, number: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut random = Random::new(number as u64);
    // Relaxed: nothing is read that the other thread wrote before.
    while !stop.load(Ordering::Relaxed) {
        let [one, other] = words.pair(&mut random);
        words.heap.transaction(|tx| {
            let (a, b) = (tx.read(one)?, tx.read(other)?);
            tx.write(one, b)?;
            tx.write(other, a)
        })?;
    }
    Ok(())
}

/// Of each backup, how long transactions were stopped, and how long it took. The last backup stays in `folder`.
fn back_up(
    words: &HeapWords,
    folder: &Folder,
    threads: usize,
    backups: usize,
) -> anyhow::Result<Vec<[Duration; 2]>> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || swap(words, number, stop))).collect();
        let one = || -> anyhow::Result<[Duration; 2]> {
            if folder.path().exists() {
                std::fs::remove_dir_all(folder.path())?;
            }
            let begun = Instant::now();
            let backup = words.heap.backup(folder.path(), |_| ControlFlow::Continue(()))?;
            Ok([backup.stopped, begun.elapsed()])
        };
        let times: anyhow::Result<Vec<_>> = (0..backups).map(|_| one()).collect();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        times
    })
}

pub(super) fn run(b: &mut TxnBench<'_>) -> anyhow::Result<()> {
    let bytes = if b.args.run.quick { 4 << 20 } else { b.args.heap_mib << 20 };
    let backups = if b.args.run.quick { QUICK_BACKUPS } else { BACKUPS };
    // The largest power of two that fits.
    let words = 1usize << (bytes / 8).ilog2();
    let held = format!("{} MiB, {backups} backups", (words * 8) >> 20);
    for (name, medium) in MEDIA {
        for threads in b.args.threads.clone() {
            b.progress.step(format!("{name}, {threads} writers"));
            let (folder, copy) = (Folder::new(&b.args.dir)?, Folder::new(&b.args.dir)?);
            let heap = HeapWords::create(folder.path(), medium, words)?;
            let times = back_up(&heap, &copy, threads, backups)?;
            // The last backup holds one instant: each number once. It has a medium of its own.
            heap.verify(copy.path(), Medium::Auto)?;
            let (mut stopped, mut whole) = (Samples::default(), Samples::default());
            for [one_stopped, one_whole] in times {
                stopped.push(one_stopped.as_secs_f64() * 1e3);
                whole.push(one_whole.as_secs_f64() * 1e3);
            }
            for (what, value) in [
                ("transactions stopped, median", stopped.quantile(0.5)),
                ("transactions stopped, longest", stopped.quantile(1.0)),
                ("the whole backup, median", whole.quantile(0.5)),
            ] {
                b.add(BACKUP, name, &held, what, threads, OURS, FigureUnit::Milliseconds, value);
            }
        }
    }
    Ok(())
}
