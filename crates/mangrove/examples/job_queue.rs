//! A job queue that survives crashes: workers sleep while it is empty, and each job is done once.
//!
//!     cargo run --release -p mangrove-db --example job_queue -- DIRECTORY
//!
//! Kill it at any time and run it again: a job is in the queue or its result is recorded, never both, never neither.

use mangrove::heap::{Heap, HeapMap, HeapQueue, HeapResult, Pod, Tx, Zeroable};
use std::path::Path;

/// Jobs of a first run.
const JOB_COUNT: u64 = 100;
const WORKER_COUNT: usize = 2;

/// Count the primes below `bound`; a worker that gets a bound of 0 goes home.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
#[bytemuck(crate = "mangrove::heap::bytemuck")]
struct Job {
    number: u64,
    bound: u64,
}

fn primes_below(bound: u64) -> u64 {
    (2..bound).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0)).count() as u64
}

/// Works until a job says to stop; returns how many jobs it did.
fn work(heap: &Heap, jobs: HeapQueue<Job>, results: HeapMap<u64, u64>) -> HeapResult<u64> {
    let mut done = 0;
    loop {
        let goes_on = heap.transaction(|tx| {
            let Some(job) = jobs.pop(tx)? else {
                return Err(tx.retry()); // sleeps until somebody pushes
            };
            if job.bound == 0 {
                return Ok(false);
            }
            // In the transaction of the pop: if the machine stops before the commit, the job is still in the queue.
            results.insert(tx, &job.number, primes_below(job.bound))?;
            Ok(true)
        })?;
        if !goes_on {
            return Ok(done);
        }
        done += 1;
    }
}

/// Does what is left of the jobs, and returns the results: of how many jobs, and their sum.
pub(crate) fn run(folder: &Path) -> HeapResult<(u64, u64)> {
    let heap = Heap::open(folder)?;
    let (jobs, results) = heap.transaction(|tx| {
        let is_new = tx.root_bytes("jobs", 8)?.is_none();
        let jobs = HeapQueue::<Job>::at_root(tx, "jobs")?;
        if is_new {
            (0..JOB_COUNT).try_for_each(|number| jobs.push(tx, Job { number, bound: number * 10 + 1 }))?;
        }
        Ok((jobs, HeapMap::<u64, u64>::at_root(tx, "results")?))
    })?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKER_COUNT).map(|_| scope.spawn(|| work(&heap, jobs, results))).collect();
        let stop = |tx: &mut Tx<'_>| jobs.push(tx, Job { number: 0, bound: 0 });
        (0..WORKER_COUNT).try_for_each(|_| heap.transaction(stop))?;
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic").map(drop))
    })?;
    let answer = heap.read(|tx| {
        let sum = results.iter(tx).try_fold(0, |sum, item| item.map(|(_, primes)| sum + primes))?;
        Ok((results.len(tx)?, sum))
    })?;
    heap.close()?;
    Ok(answer)
}

#[allow(dead_code, reason = "the test that runs this file calls `run`")]
fn main() -> HeapResult<()> {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: job_queue DIRECTORY");
        std::process::exit(2);
    };
    let (count, sum) = run(Path::new(&folder))?;
    println!("{count} jobs are done; the sum of their results is {sum}");
    Ok(())
}
