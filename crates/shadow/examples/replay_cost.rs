//! What replaying costs: lines written to the durable copy for each word committed, the time of applying a word, of
//! committing with the replayer keeping up, and of recovery. Words at random in a working copy that stays in no cache
//! of the second level. Arguments: MiB of the working copy (8), of a ring (32), threads that replay (1). Without the
//! background's thread they take turns: then the time of each is the sum's part.

use mangrove_pool::Emulated;
use mangrove_shadow::{AddressChoice, Options, Result, Shadow};
use std::time::Instant;

struct Bench {
    shadow: Shadow,
    len: u64,
    random: u64,
}

fn argument(n: usize, otherwise: u64) -> u64 {
    std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(otherwise) << 20
}

impl Bench {
    fn open(region: &mangrove_pool::Region, background: bool) -> Result<Self> {
        let (len, ring) = (argument(1, 8), argument(2, 32));
        let options = Options::new().capacity(len).log_bytes(ring).address(AddressChoice::Anywhere);
        let replayers = std::env::args().nth(3).and_then(|a| a.parse().ok()).unwrap_or(1);
        let options = options.background(background).replayers(replayers);
        let shadow = Shadow::on_region(region.clone(), &options)?;
        shadow.grow(len)?;
        Ok(Self { shadow, len, random: 1 })
    }

    /// Commits units of `words` random words until the log has `bytes`; returns the words.
    fn commit(&mut self, words: u64, bytes: u64) -> Result<u64> {
        let (base, end) = (self.shadow.base() as usize, self.shadow.stat().log_written + bytes);
        let mut lease = self.shadow.lease();
        let (mut count, mut written) = (0, self.shadow.stat().log_written);
        while written < end {
            for _ in 0..words {
                self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                lease.word(base + (self.random >> 33) as usize % (self.len as usize / 8) * 8, self.random);
            }
            lease.commit()?;
            count += words;
            written += (24 + 16 * words).next_multiple_of(64);
        }
        Ok(count)
    }
}

fn main() -> Result<()> {
    let ring = argument(2, 32);
    println!(
        "{:>10} {:>10} {:>12} {:>12} {:>10} {:>13} {:>9}",
        "words/unit", "lines/word", "ns/unit (bg)", "replay ns/w", "apply ns/w", "recovery ns/w", "no. words"
    );
    for words in [2u64, 8, 32, 128] {
        let region = Emulated::region(argument(1, 8) * 3 + ring + (1 << 20))?;
        let mut bench = Bench::open(&region, true)?;
        // First some laps: everything is mapped.
        bench.commit(words, 2 * ring)?;
        let before = bench.shadow.stat();
        let begun = Instant::now();
        let count = bench.commit(words, 6 * ring)?;
        let background = begun.elapsed().as_nanos() as f64 / (count / words) as f64;
        let after = bench.shadow.stat();
        let lines = (after.image_written - before.image_written) as f64 / 64.0;
        let lines = lines / ((after.applied_bytes - before.applied_bytes) as f64 / 8.0);
        bench.shadow.checkpoint()?;
        drop(bench);
        // The replayer alone: most of a ring at a time.
        let mut bench = Bench::open(&region, false)?;
        let (mut count, mut applied, mut total) = (0, f64::MAX, f64::MAX);
        for _ in 0..4 {
            let more = bench.commit(words, ring / 4 * 3)?;
            count += more;
            let begun = Instant::now();
            while bench.shadow.stat().applied_units * words < count {
                bench.shadow.replay();
            }
            applied = applied.min(begun.elapsed().as_nanos() as f64 / more as f64);
            bench.shadow.checkpoint()?;
            total = total.min(begun.elapsed().as_nanos() as f64 / more as f64);
        }
        drop(bench);
        // Recovery, less what opening an empty log costs.
        let mut recovery = f64::MAX;
        for _ in 0..4 {
            let mut bench = Bench::open(&region, false)?;
            let count = bench.commit(words, ring / 4 * 3)?;
            drop(bench);
            let begun = Instant::now();
            let bench = Bench::open(&region, false)?;
            let full = begun.elapsed();
            assert_eq!(bench.shadow.report().units * words, count);
            drop(bench);
            let begun = Instant::now();
            Bench::open(&region, false)?;
            let empty = begun.elapsed();
            recovery = recovery.min((full.as_nanos() as f64 - empty.as_nanos() as f64) / count as f64);
        }
        println!(
            "{words:>10} {lines:>10.3} {background:>12.0} {total:>12.1} {applied:>10.1} {recovery:>13.1} {count:>9}",
        );
    }
    Ok(())
}
