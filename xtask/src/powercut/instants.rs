//! When the power goes.

use super::media::GuestStorage;
use rand::Rng;
use rand::rngs::StdRng;
use std::time::Duration;

/// The cut comes after at most this many acknowledged writes, and at most this much later.
const ACKNOWLEDGED_MAX: f64 = 3_000.0;
const WRITE_MAX: Duration = Duration::from_millis(1_000);
/// A cut at a flush waits for at most this many flushes.
const FLUSHES_MAX: f64 = 50.0;
/// How often the chore looks whether the disk has cut the power.
pub(super) const OFF_POLL: Duration = Duration::from_millis(2);
/// A slow machine need not reach the number of acknowledgements.
pub(super) const WRITE_PATIENCE: Duration = Duration::from_secs(8);
/// How long the first acknowledged write may take: the guest's processor is a program on a machine that may be busy.
pub(super) const FIRST_PATIENCE: Duration = Duration::from_secs(300);

/// The instant of one cut. One in four may come as early as the creation or the opening of the pool, the others come
/// after a random number of acknowledgements. On our own disk every other cut waits for a flush, when the most can be
/// lost.
pub(super) struct Instants {
    /// Acknowledged writes before it.
    pub(super) count: u64,
    /// After those: the flush, of the next ones, at which the disk cuts the power.
    pub(super) at_flush: Option<u64>,
    /// Without a flush: how long after those.
    pub(super) delay: Duration,
}

impl Instants {
    /// `least`: so many writes are acknowledged before the cut, whatever is drawn.
    pub(super) fn draw(rng: &mut StdRng, storage: GuestStorage, least: u64) -> Self {
        let ours = storage == GuestStorage::Ext4;
        let count = if rng.random_ratio(1, 4) { 0 } else { (ACKNOWLEDGED_MAX * scattered(rng)) as u64 };
        let count = count.max(least);
        let at_flush = (ours && rng.random_ratio(1, 2)).then(|| (FLUSHES_MAX * scattered(rng)).ceil() as u64);
        Self { count, at_flush, delay: WRITE_MAX.mul_f64(scattered(rng)) }
    }
}

/// What [`Instants::draw`] takes as `least`. A run in which no write was acknowledged proves nothing: its last round
/// waits for one, if no other has had one.
pub(super) fn least(is_last: bool, acknowledged: u64) -> u64 {
    u64::from(is_last && acknowledged == 0)
}

/// Between 0.001 and 1, each order of magnitude as likely as another.
fn scattered(rng: &mut StdRng) -> f64 {
    10f64.powf(-3.0 * rng.random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_run_ends_with_an_acknowledged_write() {
        let draw = |seed, least| Instants::draw(&mut StdRng::seed_from_u64(seed), GuestStorage::Ext4, least);
        let mut early = 0;
        for seed in 0..100 {
            let (any, last) = (draw(seed, least(false, 0)), draw(seed, least(true, 0)));
            early += u64::from(any.count == 0);
            assert_eq!(last.count, any.count.max(1));
            assert_eq!((last.at_flush, last.delay), (any.at_flush, any.delay), "the same instant otherwise");
            assert_eq!(draw(seed, least(true, 7)).count, any.count, "another round had one");
        }
        assert!(early > 0, "some cuts come before any write");
    }
}
