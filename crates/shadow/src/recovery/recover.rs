//! Recovery of a shadow on dax or emulated. It applies the atomic groups in the logs to the durable copy, in the
//! order of their numbers, up to the first number that is missing; later ones were never acknowledged, and are
//! dropped. (With the other orders of `order.rs`: every one, or up to the marker. Equal numbers: by their logs.)
//!
//! `scan.rs` reads the logs, and tells damage from a tear.
//!
//! With `Order::Gaps` every whole atomic group is applied, whatever is missing before it: one that others depend on
//! was whole, in persistent caches, before they began. An atomic group is whole there before the first byte of the next
//! one in its log is stored, so the proof of damage holds too.
//!
//! Invariants:
//! 1. Nothing is stored before everything that will be applied has been verified.
//! 2. Durable-order: the durable copy before the heads that drop the records, and before the generation that
//!    invalidates every older atomic group. Otherwise a second crash would find the records gone and the durable
//!    copy old. The order of heads and generation does not matter: either alone leaves nothing to apply.
//! 3. Durable-order: the new generation number must be durable before the first commit that uses it. Otherwise
//!    recovery would reject that commit. Without generations, a commit that this recovery discards could later be
//!    mistaken for a new one with the same sequence number.
//! 4. Repeated after a crash at any point, recovery does the same: whichever lines survive, the greatest `upto`
//!    names the last atomic group applied, the next number is missing, and dropped atomic groups have greater
//!    numbers. (With `Order::Gaps` none has a greater number.)
//! 5. The result does not depend on the number of threads: one of them writes all versions of a byte, in their order.

use crate::Result;
use crate::layout::{AT_DIRTY_END, AT_GENERATION, AT_LEN, PAGE_BYTES, ShadowLayout, UNIT_ALIGN, VERSION};
use crate::order::{Generation, Order};
use crate::recovery::scan::{FoundGroup, LogEnds, RingScan, scan};
use crate::recovery::threads::Threads;
use crate::recovery::verifier::{corrupt, durable_word};
use crate::replay::apply::{Stage, read_unit};
use crate::replay::lines::LineSet;
use crate::replay::replay::store_head;
use crate::replay::stripes::{AllStripes, SomeStripes, Stripes};
use crate::stat::LastOpening;
use mangrove_pool::Region;
use mangrove_sys::fan_out;
use std::sync::atomic::Ordering;

/// The logs after a recovery or creation: where each ends, and the number of the last atomic group.
pub(crate) struct RecoveredLogs {
    pub(crate) positions: Vec<u64>,
    pub(crate) seq: u64,
    pub(crate) len: u64,
    /// Of the atomic groups that will be written.
    pub(crate) generation: Generation,
}

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovery {
    pub(crate) units: u64,
    pub(crate) bytes: u64,
    /// Atomic groups that were published, but after a number that was not, or beyond the marker: never acknowledged.
    pub(crate) dropped: u64,
}

/// Bytes of the working copy that may be used.
pub(crate) fn read_len(region: &Region, layout: &ShadowLayout) -> Result<u64> {
    let (len, dirty) = (durable_word(region, AT_LEN), durable_word(region, AT_DIRTY_END));
    if len > layout.capacity || !len.is_multiple_of(4096) {
        return corrupt(AT_LEN, "a length that cannot be");
    }
    if dirty > region.len() - layout.image_start() {
        return corrupt(AT_DIRTY_END, "an end of the records beside the image that cannot be");
    }
    Ok(len)
}

/// As `read_len`, of a region of which `usable` bytes exist. A writer grows the region durably before it stores
/// a length: a greater one is damage, and no reason to take space.
fn read_len_within(region: &Region, layout: &ShadowLayout, usable: u64) -> Result<u64> {
    if layout.image_start() > usable {
        return corrupt(usable, "the image ends before its logs do");
    }
    let len = read_len(region, layout)?;
    if len > usable - layout.image_start() {
        return corrupt(usable, "the image ends before its length");
    }
    Ok(len)
}

/// As `scan`. A length of zero, before anything was committed, is compared with the logs and the durable copy's first
/// page: with a length that was lost, the shadow's owner would take it for a new one.
fn scan_within(
    region: &Region,
    layout: &ShadowLayout,
    (len, usable): (u64, u64),
    ends: LogEnds,
    threads: &Threads,
) -> Result<RingScan> {
    if len > 0 {
        return scan(region, layout, (len, usable), ends, threads);
    }
    let found = scan(region, layout, (layout.capacity, usable), ends, threads)?;
    let is_empty = |group: &FoundGroup| {
        read_unit(region, layout, group.log, group.position).is_some_and(|unit| unit.is_empty())
    };
    let start = layout.image_start();
    let mut words = (start..usable.min(start + PAGE_BYTES)).step_by(8).map(|at| durable_word(region, at));
    if words.any(|word| word != 0) || !found.found.iter().all(is_empty) {
        return corrupt(AT_LEN, "a length of zero, where bytes were committed");
    }
    Ok(found)
}

/// What the region says about the last opening for writing; none before the first.
pub(crate) fn last_opening(region: &Region) -> Option<LastOpening> {
    let last = Generation::read(durable_word(region, AT_GENERATION))?;
    (last.number() > 0).then(|| LastOpening { order: last.order(), generation: last.number() })
}

/// Applies what was published; returns the state of the logs, and counters. A shadow of an earlier version becomes
/// one of [`VERSION`].
pub(crate) fn recover(
    region: &Region,
    layout: &mut ShadowLayout,
    ends: LogEnds,
    order: Order,
) -> Result<(RecoveredLogs, Recovery)> {
    recover_on(region, layout, ends, order, &Threads::of_machine())
}

/// As `recover`, on these threads. The result does not depend on them.
fn recover_on(
    region: &Region,
    layout: &mut ShadowLayout,
    ends: LogEnds,
    order: Order,
    threads: &Threads,
) -> Result<(RecoveredLogs, Recovery)> {
    let usable = region.usable_bytes();
    let len = read_len_within(region, layout, usable)?;
    let RingScan { mut found, upto, marker, starts, generation } =
        scan_within(region, layout, (len, usable), ends, threads)?;
    let mut recovery = Recovery::default();
    let mut seq = upto;
    let mut ends = starts;
    found.retain(|group| {
        let is_applied = group.seq <= upto;
        let is_kept = is_applied
            || match generation.order() {
                Order::Dense => group.seq == seq + 1,
                Order::Gaps => true,
                Order::Marker => group.seq <= marker,
            };
        if is_kept {
            ends[group.log] = group.position + group.bytes;
            seq = seq.max(group.seq);
        }
        recovery.dropped += u64::from(!is_kept);
        is_kept && !is_applied
    });
    recovery.units = found.len() as u64;
    recovery.bytes = apply_all(region, layout, &found, threads);
    // In every order: the next numbers are beyond the marker, which covers none of them until it is stored again.
    seq = seq.max(marker);
    ends.iter_mut().for_each(|end| *end = end.next_multiple_of(UNIT_ALIGN));
    for (log, &end) in ends.iter().enumerate() {
        store_head(region, layout.log(log), seq, end);
    }
    let generation = generation.next(order);
    region.store(AT_GENERATION, generation.0, Ordering::Release);
    region.flush(AT_GENERATION, 8);
    region.fence();
    if layout.version < VERSION {
        // Durable-order: the heads before the version. Otherwise a crash would leave heads that no log of the new
        // version has.
        layout.upgrade(region);
        region.fence();
    }
    region.drain()?;
    Ok((RecoveredLogs { positions: ends, seq, len, generation }, recovery))
}

/// Applies the atomic groups in this order, durably; returns their bytes.
fn apply_all(region: &Region, layout: &ShadowLayout, groups: &[FoundGroup], threads: &Threads) -> u64 {
    let threads = threads.for_bytes(groups.iter().map(|group| group.bytes).sum());
    if threads == 1 {
        return apply_stripes(region, layout, groups, AllStripes);
    }
    let work =
        |number| apply_stripes(region, layout, groups, SomeStripes::of(number, threads, layout.capacity));
    // Each thread counts the bytes of all.
    fan_out(threads, work)[0]
}

/// As `apply_all`, for what lies in the stripes. The fence is this thread's: another's would not order its flushes.
fn apply_stripes(
    region: &Region,
    layout: &ShadowLayout,
    groups: &[FoundGroup],
    stripes: impl Stripes,
) -> u64 {
    let (mut stage, mut lines, mut bytes) = (Stage::new(stripes), LineSet::default(), 0);
    for group in groups {
        let unit = read_unit(region, layout, group.log, group.position).expect("the scan has verified it");
        let touched = |offset, len| lines.insert(offset, len);
        bytes += stage.apply(region, layout, group.log, group.position, &unit, touched);
    }
    stage.store(region, layout, |offset, len| lines.insert(offset, len));
    lines.drain(|offset, len| region.flush(layout.image_start() + offset, len as usize));
    region.fence();
    bytes
}

/// Verifies header words and logs of a region of which `usable` bytes exist, without changing anything; returns the
/// count of atomic groups found.
pub(crate) fn verify_all(region: &Region, layout: &ShadowLayout, usable: u64) -> Result<u64> {
    let len = read_len_within(region, layout, usable)?;
    let threads = Threads::of_machine();
    Ok(scan_within(region, layout, (len, usable), LogEnds::Prove, &threads)?.found.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::WordsCommit;
    use crate::recovery::scan::NUMBER_MAX;
    use crate::{AddressChoice, Domain, Options, Shadow};
    use mangrove_pool::Emulated;

    const LEN: u64 = 1 << 20;
    const RING: u64 = 64 << 10;
    const LOGS: usize = 3;

    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*seed >> 24) % below
    }

    #[expect(clippy::mut_from_ref, reason = "a region is shared memory")]
    fn bytes_of(region: &Region) -> &mut [u8] {
        // SAFETY: the memory of a test's region, which nobody else uses meanwhile.
        unsafe { std::slice::from_raw_parts_mut(region.base(), region.len() as usize) }
    }

    /// Atomic groups of words, of ranges, of both, without either, and such that are longer than half a ring, in all
    /// logs; some of them applied.
    fn fill(region: &Region, options: &Options, seed: &mut u64) {
        let shadow = Shadow::on_region(region.clone(), options).unwrap();
        shadow.grow(LEN).unwrap();
        let base = shadow.base() as usize;
        let bytes = vec![random(seed, 256) as u8; 2 * RING as usize];
        for _ in 0..random(seed, 250) {
            let mut leases: Vec<_> = (0..LOGS).map(|_| shadow.lease()).collect();
            let lease = &mut leases[random(seed, LOGS as u64) as usize];
            let kind = random(seed, 32);
            for _ in 0..random(seed, 40) * u64::from(kind % 4 != 1) {
                lease.word(base + random(seed, LEN / 8) as usize * 8, random(seed, 1 << 40));
            }
            for _ in 0..random(seed, 4) * u64::from(kind % 4 < 2) {
                let at = random(seed, LEN - 700) as usize;
                lease.range(base + at, &bytes[..random(seed, 700) as usize]);
            }
            if kind == 7 {
                let len = RING / 2 + random(seed, RING);
                lease.range(base + random(seed, LEN - len) as usize, &bytes[..len as usize]);
            }
            if kind == 8 {
                lease.word(base, 1);
                lease.reserve().unwrap();
                lease.number().unwrap();
            } else {
                lease.commit().unwrap();
            }
            if kind == 9 {
                shadow.replay();
            }
        }
    }

    /// What a crash, or damage, leaves of the logs.
    fn cut(region: &Region, layout: &ShadowLayout, seed: &mut u64) {
        for log in 0..LOGS {
            let head = durable_word(region, layout.log(log) + crate::layout::IN_LOG_HEAD);
            let from = head + random(seed, RING / 8) * 8;
            let to = match random(seed, 4) {
                0 => from,
                1 => (from + 8).min(head + RING),
                _ => head + RING,
            };
            for at in (from..to).step_by(8) {
                let place = layout.ring(log, at) as usize;
                bytes_of(region)[place..place + 8].fill(0);
            }
        }
    }

    /// Nothing could count on from it: with gaps, what is right is applied whatever its number.
    #[test]
    fn an_atomic_group_with_a_number_that_cannot_be_is_refused() {
        let options = Options::new().capacity(LEN).log_bytes(RING).log_count(LOGS).background(false);
        let options = options.address(AddressChoice::Anywhere).domain(Domain::Eadr).order(Order::Gaps);
        let region = Emulated::region(4 * LEN).unwrap();
        let shadow = Shadow::on_region(region.clone(), &options).unwrap();
        shadow.grow(LEN).unwrap();
        drop(shadow);
        let layout = ShadowLayout::read(&region).unwrap().unwrap();
        let generation = Generation::read(durable_word(&region, AT_GENERATION)).unwrap();
        assert_eq!(generation.order(), Order::Gaps);
        let head = durable_word(&region, layout.log(1) + crate::layout::IN_LOG_HEAD);
        let recover_with = |seq| {
            let mut commit = WordsCommit { count: 0, seq, follows_deferred: false, crcs: [0; 2] };
            commit.crcs = commit.seeds(layout.seed(1, generation), head);
            for (at, word) in (layout.ring(1, head)..).step_by(8).zip(commit.words()) {
                region.store(at, word, Ordering::Release);
            }
            let mut layout = layout;
            recover_on(&region, &mut layout, LogEnds::Prove, Order::Gaps, &Threads::exactly(1))
        };
        for seq in [NUMBER_MAX + 1, u64::MAX] {
            assert!(matches!(recover_with(seq), Err(crate::Error::Corrupt { .. })), "{seq}");
        }
        let (logs, recovery) = recover_with(NUMBER_MAX).unwrap();
        assert_eq!((logs.seq, recovery.units), (NUMBER_MAX, 1));
    }

    /// Enough rounds that every kind of atomic group is applied, dropped and damaged.
    #[test]
    fn several_threads_recover_what_one_does() {
        let (mut applied, mut dropped, mut refused, mut seed) = (0, 0, 0, 5);
        for round in 0..120 {
            let order = [Order::Dense, Order::Gaps][round % 2];
            let options = Options::new().capacity(LEN).log_bytes(RING).log_count(LOGS).background(false);
            let options = options.address(AddressChoice::Anywhere).domain(Domain::Eadr).order(order);
            let region = Emulated::region(4 * LEN).unwrap();
            for _ in 0..1 + random(&mut seed, 2) {
                fill(&region, &options, &mut seed);
            }
            let layout = ShadowLayout::read(&region).unwrap().unwrap();
            if round % 8 > 1 {
                cut(&region, &layout, &mut seed);
            }
            let results = [1, 2, 4].map(|threads| {
                let copy = Emulated::region(region.len()).unwrap();
                bytes_of(&copy).copy_from_slice(bytes_of(&region));
                let mut layout = layout;
                let threads = Threads::exactly(threads);
                let done = recover_on(&copy, &mut layout, LogEnds::Prove, order, &threads);
                let done = done.map_err(|e| e.to_string());
                (done.map(|(logs, done)| (logs.positions, logs.seq, logs.generation, done)), copy)
            });
            let [(one, region), others @ ..] = &results;
            match one {
                Ok((.., recovery)) => {
                    applied += recovery.units;
                    dropped += recovery.dropped;
                }
                Err(_) => refused += 1,
            }
            for (other, copy) in others {
                assert_eq!(other, one, "round {round}");
                assert!(bytes_of(copy) == bytes_of(region), "round {round}: other bytes");
            }
        }
        assert!(applied > 1000 && dropped > 100 && refused > 2, "{applied} {dropped} {refused}");
    }
}
