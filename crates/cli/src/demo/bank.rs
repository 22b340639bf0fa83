//! The demo's chapter of transactions: transfers between accounts on several threads, a SIGKILL, and the books
//! balanced afterwards.

use super::pools;
use crate::terminal::exit::Exit;
use crate::terminal::size::count;
use crate::terminal::{interrupt, progress};
use anyhow::{Context, bail, ensure};
use mangrove::Create;
use mangrove::heap::{Heap, HeapResult, Ptr};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ACCOUNT_COUNT: u64 = 1 << 20;
/// What each account begins with.
const BALANCE: u64 = 100;
/// Accounts that lie in one block, and are opened by one transaction.
const ACCOUNTS_PER_BLOCK: u64 = 1 << 14;
const BLOCK_COUNT: usize = (ACCOUNT_COUNT / ACCOUNTS_PER_BLOCK) as usize;
/// Threads that transfer, at most.
const THREAD_COUNT: usize = 1024;
/// When the kill comes, in milliseconds after the first acknowledged transfer.
const KILL_MS: std::ops::Range<u64> = 500..3_000;
const ROOT: &str = "bank";

/// What the root points to: the blocks of the accounts, then the transfers that each thread has made.
type Bank = [u64; BLOCK_COUNT + THREAD_COUNT];

/// Transfers until killed; the demo's other process.
#[derive(clap::Args)]
pub(crate) struct BankArgs {
    heap: PathBuf,
    #[arg(long)]
    threads: u16,
    #[arg(long)]
    seed: u64,
}

/// The word at index `i` of the root.
fn word(bank: Ptr<Bank>, i: usize) -> Ptr<u64> {
    bank.cast::<u64>().add(i)
}

fn open(path: &Path) -> anyhow::Result<(Heap, Ptr<Bank>)> {
    let heap = Heap::options().create(Create::Never).open(path)?;
    let bank = heap.read(|tx| tx.root::<Bank>(ROOT))?.context("the heap has no bank")?;
    Ok((heap, bank))
}

/// Opens the accounts.
fn make(path: &Path) -> HeapResult<()> {
    let heap = Heap::open(path)?;
    let bank = heap.transaction(|tx| {
        let bank = tx.alloc_array::<u64>(BLOCK_COUNT + THREAD_COUNT)?.cast::<Bank>();
        tx.set_root(ROOT, bank)?;
        Ok(bank)
    })?;
    let full: Vec<u8> = BALANCE.to_le_bytes().repeat(ACCOUNTS_PER_BLOCK as usize);
    for block in 0..BLOCK_COUNT {
        heap.transaction(|tx| {
            let accounts = tx.alloc_bytes(full.len(), 8)?;
            tx.write_bytes(accounts, &full)?;
            tx.write(word(bank, block), accounts as u64)
        })?;
    }
    heap.close()
}

/// Runs the chapter on the heap that it makes at `path`.
pub(super) fn run(path: &Path, threads: u16, seed: u64) -> anyhow::Result<Exit> {
    pools::begin(path)?;
    let start = Instant::now();
    make(path)?;
    say!("");
    say!(
        "transactions: opened {} accounts with {BALANCE} each in {:.1} s",
        count(ACCOUNT_COUNT),
        start.elapsed().as_secs_f64()
    );
    let kill = Duration::from_millis(StdRng::seed_from_u64(seed).random_range(KILL_MS));
    let Some(acknowledged) = transfer_and_kill(path, threads, seed, kill)? else {
        return Ok(Exit::Interrupted);
    };
    let total: u64 = acknowledged.iter().sum();
    say!(
        "killed the transferring process (SIGKILL, seed {seed}) after {:.1} s and {} acknowledged transfers \
         on {threads} threads, {} a second",
        kill.as_secs_f64(),
        count(total),
        count((total as f64 / kill.as_secs_f64()) as u64)
    );
    let start = Instant::now();
    let (heap, bank) = open(path)?;
    let opened = start.elapsed();
    let (sum, made) = balance(&heap, bank)?;
    let in_flight = judge(sum, &made, &acknowledged)?;
    let problems = heap.check()?;
    if let Some(problem) = problems.first() {
        bail!("the check found: {problem}");
    }
    heap.close()?;
    say!(
        "reopened in {:.0} ms; the accounts hold {}, as at the beginning",
        opened.as_secs_f64() * 1e3,
        count(sum)
    );
    say!(
        "every one of the {} acknowledged transfers is there; {} more were under way, and are whole",
        count(total),
        count(in_flight)
    );
    Ok(Exit::Ok)
}

/// Transfers in a child process and kills it `kill` after its first acknowledgement. What it acknowledged, by thread;
/// `None` when it was interrupted first.
fn transfer_and_kill(
    path: &Path,
    threads: u16,
    seed: u64,
    kill: Duration,
) -> anyhow::Result<Option<Vec<u64>>> {
    let mut child = Command::new(std::env::current_exe().context("where is this program?")?)
        .args(["demo-transfers", "--threads", &threads.to_string(), "--seed", &seed.to_string()])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the transferring process")?;
    let answer = listen(&mut child, threads, kill);
    // Also after an error: no child outlives the demo. The kill of a process that is gone does nothing.
    child.kill().context("cannot kill the transferring process")?;
    let status = child.wait().context("cannot wait for the transferring process")?;
    match answer? {
        Ended::Killed(acknowledged) => Ok(Some(acknowledged)),
        Ended::ByItself if interrupt::asked() => Ok(None),
        Ended::ByItself => {
            let mut complaint = String::new();
            if let Some(mut stderr) = child.stderr.take() {
                stderr.read_to_string(&mut complaint)?;
            }
            bail!("the transferring process ended by itself ({status}): {}", complaint.trim())
        }
    }
}

enum Ended {
    /// With the transfers acknowledged, by thread.
    Killed(Vec<u64>),
    ByItself,
}

/// Reads what is acknowledged until the pipe ends; what was in it at the kill is acknowledged, too.
fn listen(child: &mut Child, threads: u16, kill: Duration) -> anyhow::Result<Ended> {
    let mut pipe = child.stdout.take().context("no pipe to the transferring process")?;
    let mut acknowledged = vec![0u64; usize::from(threads)];
    let mut part = Vec::new();
    let mut buffer = [0; 1 << 14];
    let bar = progress::records("transfer", 0);
    let mut first = None;
    let mut alive = true;
    loop {
        let read = pipe.read(&mut buffer).context("cannot read from the transferring process")?;
        if read == 0 {
            bar.finish_and_clear();
            return Ok(if alive { Ended::ByItself } else { Ended::Killed(acknowledged) });
        }
        part.extend_from_slice(&buffer[..read]);
        let whole = part.len() / 8 * 8;
        for bytes in part.drain(..whole).as_slice().chunks_exact(8) {
            let thread = u64::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize;
            *acknowledged
                .get_mut(thread)
                .context("the transferring process names a thread that is not there")? += 1;
        }
        bar.inc(whole as u64 / 8);
        let start = *first.get_or_insert_with(Instant::now);
        if alive && !interrupt::asked() && start.elapsed() >= kill {
            child.kill().context("cannot kill the transferring process")?;
            alive = false;
        }
        if alive && interrupt::asked() {
            return Ok(Ended::ByItself);
        }
    }
}

/// The child's part: each thread writes its number, 8 bytes, after each transfer that was acknowledged.
pub(crate) fn transfer(args: &BankArgs) -> anyhow::Result<Exit> {
    let (heap, bank) = open(&args.heap)?;
    let out = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let threads = (0..args.threads).map(|thread| {
            let (heap, out) = (&heap, &out);
            scope.spawn(move || transfers(heap, bank, out, thread, args.seed))
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    results.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(Exit::Ok)
}

fn transfers(heap: &Heap, bank: Ptr<Bank>, mut out: &File, thread: u16, seed: u64) -> anyhow::Result<()> {
    let blocks: Vec<u64> = heap.read(|tx| (0..BLOCK_COUNT).map(|i| tx.read(word(bank, i))).collect())?;
    let account = |i: u64| {
        Ptr::<u64>::at(blocks[(i / ACCOUNTS_PER_BLOCK) as usize] as usize)
            .add((i % ACCOUNTS_PER_BLOCK) as usize)
    };
    let mut rng = StdRng::seed_from_u64(seed ^ u64::from(thread) << 32);
    let made = word(bank, BLOCK_COUNT + usize::from(thread));
    loop {
        let from = account(rng.random_range(0..ACCOUNT_COUNT));
        let to = account(rng.random_range(0..ACCOUNT_COUNT));
        let wanted = rng.random_range(1..=BALANCE);
        heap.transaction(|tx| {
            let has = tx.read(from)?;
            let amount = wanted.min(has);
            tx.write(from, has - amount)?;
            // Read after the write: both may be the same account.
            let had = tx.read(to)?;
            tx.write(to, had + amount)?;
            let count = tx.read(made)?;
            tx.write(made, count + 1)
        })?;
        // One write(2) of 8 bytes: those of different threads do not mix.
        out.write_all(&u64::from(thread).to_le_bytes()).context("cannot say what was acknowledged")?;
    }
}

/// The sum of all accounts, and the transfers made, by thread.
fn balance(heap: &Heap, bank: Ptr<Bank>) -> HeapResult<(u64, Vec<u64>)> {
    heap.read(|tx| {
        let mut block = vec![0; ACCOUNTS_PER_BLOCK as usize * 8];
        let mut sum = 0u64;
        for i in 0..BLOCK_COUNT {
            let at = tx.read(word(bank, i))?;
            tx.read_bytes(at as usize, &mut block)?;
            let (balances, _) = block.as_chunks::<8>();
            sum = balances.iter().fold(sum, |sum, &bytes| sum.wrapping_add(u64::from_le_bytes(bytes)));
        }
        let made =
            (0..THREAD_COUNT).map(|i| tx.read(word(bank, BLOCK_COUNT + i))).collect::<Result<_, _>>()?;
        Ok((sum, made))
    })
}

/// Compares what is there with what was acknowledged; how many transfers that were under way are there.
fn judge(sum: u64, made: &[u64], acknowledged: &[u64]) -> anyhow::Result<u64> {
    let expected = ACCOUNT_COUNT * BALANCE;
    ensure!(sum == expected, "the accounts hold {sum}, not {expected}");
    let mut in_flight = 0;
    for (thread, &made) in made.iter().enumerate() {
        let acknowledged = acknowledged.get(thread).copied().unwrap_or(0);
        ensure!(
            made >= acknowledged,
            "{} acknowledged transfers of thread {thread} are lost",
            acknowledged - made
        );
        // A transfer can be made and not yet acknowledged, one a thread.
        ensure!(
            made <= acknowledged + 1,
            "thread {thread} made {made} transfers, {acknowledged} were acknowledged"
        );
        in_flight += made - acknowledged;
    }
    Ok(in_flight)
}

#[cfg(test)]
mod tests {
    use super::{ACCOUNT_COUNT, BALANCE, judge};

    #[test]
    fn a_lost_transfer_and_a_wrong_total_are_found() {
        let all = ACCOUNT_COUNT * BALANCE;
        assert_eq!(judge(all, &[5, 8], &[5, 7]).unwrap(), 1);
        assert!(judge(all, &[5, 6], &[5, 7]).is_err(), "an acknowledged transfer may be lost");
        assert!(judge(all, &[5, 9], &[5, 7]).is_err(), "two transfers of a thread may be under way");
        assert!(judge(all, &[5, 7, 2], &[5, 7]).is_err(), "a thread that did not run may transfer");
        assert!(judge(all - 1, &[5, 7], &[5, 7]).is_err(), "half a transfer is not seen");
    }
}
