//! Transactions per second of one heap.

use super::load::{TxnWork, WorkDone};
use super::peer::TxnHeap;
use anyhow::ensure;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the main thread looks whether the work must end early.
const LOOK: Duration = Duration::from_millis(1);

/// Runs `work` with each number below `threads` on a thread of its own, until `time` is over or `is_full` says so. What
/// each gave, and the seconds until they were told to stop (each then ends what it has begun).
pub(super) fn on_threads<T: Send>(
    threads: usize,
    time: Duration,
    is_full: Option<&dyn Fn() -> bool>,
    work: impl Fn(usize, &AtomicBool) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<(Vec<T>, f64)> {
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let (stop, ready, work) = (&stop, &ready, &work);
        let worker = |number| {
            scope.spawn(move || {
                ready.wait();
                let begun = Instant::now();
                Ok::<_, anyhow::Error>((begun, work(number, stop)?))
            })
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        ready.wait();
        let begun = Instant::now();
        match is_full {
            None => std::thread::sleep(time),
            Some(is_full) => {
                while begun.elapsed() < time && !is_full() {
                    std::thread::sleep(LOOK.min(time));
                }
            }
        }
        // Relaxed: joining the threads publishes what they wrote.
        stop.store(true, Ordering::Relaxed);
        let stopped = Instant::now();
        // The workers may have begun long before this thread ran again.
        let (mut first, mut done) = (begun, Vec::new());
        for worker in workers {
            let (begun, answer) = worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            first = first.min(begun);
            done.push(answer);
        }
        Ok((done, (stopped - first).as_secs_f64()))
    })
}

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
    let shared: &dyn TxnHeap = heap;
    let (all, seconds) =
        on_threads(threads, time, None, |thread, stop| shared.work(work, thread as u64, stop))?;
    let mut done = WorkDone::default();
    for thread in all {
        done.transactions += thread.transactions;
        done.updates += thread.updates;
    }
    ensure!(work.is_right(&heap.words(), done), "the words are not what the transactions leave");
    Ok(done.transactions as f64 / seconds)
}
