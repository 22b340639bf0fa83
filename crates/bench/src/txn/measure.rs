//! Transactions per second of one heap.

use super::load::{TxnWork, WorkDone};
use super::peer::TxnHeap;
use anyhow::ensure;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Transactions per second of `threads` threads. Afterwards the words are looked at.
///
/// # Errors
/// Those of the heap, and when a transaction's effect is missing or was not whole.
pub fn verified_rate(
    heap: &mut dyn TxnHeap,
    work: TxnWork,
    threads: usize,
    time: Duration,
) -> anyhow::Result<f64> {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let shared: &dyn TxnHeap = heap;
    let (done, elapsed) = std::thread::scope(|scope| {
        let (stop, ready) = (&stop, &ready);
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    ready.wait();
                    shared.work(work, thread as u64, stop)
                })
            })
            .collect();
        ready.wait();
        let begun = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let mut total = WorkDone::default();
        for worker in workers {
            let done = worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            total.transactions += done.transactions;
            total.updates += done.updates;
        }
        Ok::<_, anyhow::Error>((total, begun.elapsed()))
    })?;
    ensure!(work.is_right(&heap.words(), done), "the words are not what the transactions leave");
    Ok(done.transactions as f64 / elapsed.as_secs_f64())
}
