//! `mangrove-stress space`: fills a map or a heap, deletes most of it and compacts; `cargo xtask space` looks at disk
//! and memory in between.

use crate::value::mix;
use mangrove::heap::{Heap, Ptr, Stop, Tx};
use mangrove::{Durability, Map, Medium};
use std::io::Write;
use std::path::PathBuf;

/// Records of which one stays.
const ONE_STAYS: u64 = 10;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Blocks that one transaction allocates or frees.
const TURN: u64 = 500;

/// Fill, delete and compact a map or a heap; a line for each step, after which this waits for a line of standard input
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,
    /// What to do
    #[arg(value_enum)]
    part: Part,
    /// Records
    #[arg(long, default_value_t = 500_000)]
    records: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 1000)]
    value: usize,
    /// A heap of transactions with a block for each record, not a map
    #[arg(long)]
    heap: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// All records; then nine of ten are deleted, and the rest is compacted
    Whole,
    /// Only the records that would stay
    Rest,
    /// Open what is there and read all of it
    Open,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.heap { run_heap(args) } else { run_map(args) }
}

fn run_map(args: &Args) -> anyhow::Result<()> {
    let options = Map::options().medium(Medium::File).durability(Durability::interval_ms(100));
    // What is measured is the compaction that is asked for.
    let map = options.background_compaction(false).open(&args.pool)?;
    let mut value = vec![0; args.value.max(8)];
    let mut fill = |step: u64| -> anyhow::Result<()> {
        for n in (0..args.records).step_by(step as usize) {
            value[..8].copy_from_slice(&n.to_le_bytes());
            map.put(key(n), &value)?;
        }
        Ok(map.checkpoint()?)
    };
    match args.part {
        Part::Whole => {
            fill(1)?;
            pause("filled")?;
            for n in (0..args.records).filter(|n| n % ONE_STAYS != 0) {
                map.delete(key(n))?;
            }
            map.checkpoint()?;
            pause("nine tenths deleted")?;
            let begun = std::time::Instant::now();
            map.compact()?;
            eprintln!("compact took {:.2} s", begun.elapsed().as_secs_f64());
            pause("compacted")?;
        }
        Part::Rest => {
            fill(ONE_STAYS)?;
            pause("a fresh load of the rest")?;
        }
        Part::Open => {
            anyhow::ensure!(map.len()? == args.records.div_ceil(ONE_STAYS), "records are missing");
            for record in map.iter()? {
                record?;
            }
            pause("opened again")?;
        }
    }
    Ok(map.close()?)
}

fn run_heap(args: &Args) -> anyhow::Result<()> {
    let options = Heap::options().medium(Medium::File).durability(Durability::interval_ms(100));
    let heap = options.open(&args.pool)?;
    let table = heap.transaction(|tx| match tx.root::<u64>("records")? {
        Some(table) => Ok(table),
        None => {
            let table = tx.alloc_array::<u64>(args.records as usize)?;
            tx.set_root("records", table)?;
            Ok(table)
        }
    })?;
    let slot = |n: u64| Ptr::<u64>::at(table.address() + n as usize * 8);
    let bytes = args.value + KEY_BYTES;
    let fill = |tx: &mut Tx<'_>, n: u64| {
        let at = tx.alloc_bytes(bytes, 8)?;
        tx.write_bytes(at, &vec![n as u8; bytes])?;
        tx.write(slot(n), at as u64)
    };
    let free = |tx: &mut Tx<'_>, n: u64| {
        let at = tx.read(slot(n))?;
        tx.write(slot(n), 0)?;
        tx.free_bytes(at as usize)
    };
    let turns = |chosen: &dyn Fn(u64) -> bool,
                 each: &dyn Fn(&mut Tx<'_>, u64) -> Result<(), Stop>|
     -> anyhow::Result<()> {
        for first in (0..args.records).step_by(TURN as usize) {
            let turn = || (first..args.records.min(first + TURN)).filter(|&n| chosen(n));
            heap.transaction(|tx| turn().try_for_each(|n| each(tx, n)))?;
        }
        Ok(heap.shadow().checkpoint()?)
    };
    match args.part {
        Part::Whole => {
            turns(&|_| true, &fill)?;
            pause("filled")?;
            turns(&|n| n % ONE_STAYS != 0, &free)?;
            pause("nine tenths freed")?;
            let begun = std::time::Instant::now();
            heap.compact()?;
            eprintln!("compact took {:.2} s", begun.elapsed().as_secs_f64());
            pause("compacted")?;
        }
        Part::Rest => {
            turns(&|n| n % ONE_STAYS == 0, &fill)?;
            pause("a fresh load of the rest")?;
        }
        Part::Open => {
            for n in (0..args.records).step_by(ONE_STAYS as usize) {
                let mut found = vec![0; bytes];
                heap.read(|tx| {
                    let at = tx.read(slot(n))?;
                    tx.read_bytes(at as usize, &mut found)
                })?;
                anyhow::ensure!(found.iter().all(|&byte| byte == n as u8), "record {n} is damaged");
            }
            let blocks = 1 + args.records.div_ceil(ONE_STAYS);
            anyhow::ensure!(heap.stat()?.arena.blocks == blocks, "records are missing");
            pause("opened again")?;
        }
    }
    Ok(heap.close()?)
}

fn key(n: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&mix(n).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn pause(step: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{step}")?;
    out.flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
