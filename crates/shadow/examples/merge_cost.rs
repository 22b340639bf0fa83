//! What the replayer pays to find the next of the atomic groups of many logs: the time of applying one of 2 words, all
//! in a working copy that stays in the caches. The log of each is drawn at random, or they take turns.

use mangrove_pool::Emulated;
use mangrove_shadow::{AddressChoice, Options, Result, Shadow};
use std::time::Instant;

const LEN: u64 = 64 << 10;
/// Bytes of all rings.
const RINGS: u64 = 16 << 20;
const UNITS: u64 = 100_000;
const ROUNDS: u32 = 15;

fn main() -> Result<()> {
    println!("{:>5} {:>16} {:>16}", "logs", "at random ns", "in turn ns");
    for logs in [1usize, 2, 8, 64] {
        let mut best = [f64::MAX; 2];
        for (is_in_turn, best) in best.iter_mut().enumerate() {
            let ring = RINGS / logs as u64;
            let region = Emulated::region(RINGS + 2 * LEN + (1 << 20))?;
            let options = Options::new().capacity(LEN).log_bytes(ring).log_count(logs);
            let options = options.address(AddressChoice::Anywhere).background(false);
            let shadow = Shadow::on_region(region, &options)?;
            shadow.grow(LEN)?;
            let base = shadow.base() as usize;
            let mut leases: Vec<_> = (0..logs).map(|_| shadow.lease()).collect();
            let (mut random, mut count) = (1u64, 0);
            for _ in 0..ROUNDS {
                for unit in 0..UNITS {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let log = if is_in_turn == 1 { unit } else { random >> 40 };
                    let lease = &mut leases[log as usize % logs];
                    lease.word(base + (random >> 33) as usize % (LEN as usize / 8) * 8, random);
                    lease.word(base + (random >> 20) as usize % (LEN as usize / 8) * 8, random);
                    lease.commit()?;
                }
                count += UNITS;
                let begun = Instant::now();
                while shadow.stat().applied_units < count {
                    shadow.replay();
                }
                *best = best.min(begun.elapsed().as_nanos() as f64 / UNITS as f64);
                shadow.checkpoint()?;
            }
        }
        println!("{logs:>5} {:>16.1} {:>16.1}", best[0], best[1]);
    }
    Ok(())
}
