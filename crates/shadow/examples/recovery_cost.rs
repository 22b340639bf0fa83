//! What opening costs on a pool of files, after a crash with a full log and after closing. Words at random, 32 in an
//! atomic group, in one log of several. Arguments: a directory (the temporary one), MiB of the working copy (8), MiB of
//! a ring (256), rounds (3). Best of the rounds. `taskset -c 0` shows it on one processor.

use mangrove_shadow::{Create, Latency, Medium, Options, Result};
use std::path::PathBuf;

const LOGS: usize = 4;
const WORDS: u64 = 32;

fn argument(n: usize, otherwise: u64) -> u64 {
    std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(otherwise)
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("recovery-cost-{}", std::process::id()));
    let (len, ring, rounds) = (argument(2, 8) << 20, argument(3, 256) << 20, argument(4, 3));
    let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::new(0, 0)));
    let options = options.capacity(len).log_bytes(ring).log_count(LOGS).background(false);
    let (mut crashed, mut closed, mut random) = (f64::MAX, f64::MAX, 1u64);
    let mut words = 0;
    for _ in 0..rounds {
        let shadow = options.open(&path)?;
        shadow.grow(len)?;
        let base = shadow.base() as usize;
        let mut lease = shadow.lease();
        while shadow.stat().log_written < ring / 4 * 3 {
            for _ in 0..WORDS {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                lease.word(base + (random >> 33) as usize % (len as usize / 8) * 8, random);
            }
            lease.commit()?;
        }
        drop((lease, shadow));
        let shadow = options.open(&path)?;
        let report = *shadow.report();
        words = report.unit_bytes / 8;
        crashed = crashed.min(report.nanoseconds as f64);
        shadow.close()?;
        let shadow = options.open(&path)?;
        closed = closed.min(shadow.report().nanoseconds as f64);
        shadow.close()?;
    }
    println!("after a crash {:.1} ms, after closing {:.1} ms", crashed / 1e6, closed / 1e6);
    println!("{words} logged words, {:.1} ns each", (crashed - closed) / words as f64);
    println!("{:.1} ns each with all of the opening", crashed / words as f64);
    std::fs::remove_dir_all(&path).expect("the directory can be removed");
    Ok(())
}
