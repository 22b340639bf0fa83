//! `mangrove-stress space`: fills a map, deletes most of it and compacts; `cargo xtask space` looks at disk and memory
//! in between.

use crate::value::mix;
use mangrove::{Durability, Map, Medium};
use std::io::Write;
use std::path::PathBuf;

/// Records of which one stays.
const ONE_STAYS: u64 = 10;

/// Fill, delete and compact a map; a line for each step, after which this waits for a line of standard input
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
    let map =
        Map::options().medium(Medium::File).durability(Durability::interval_ms(100)).open(&args.pool)?;
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

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
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
