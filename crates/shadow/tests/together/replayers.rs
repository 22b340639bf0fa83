//! Several threads that replay leave the durable copy that one leaves, byte for byte, at every step.

use crate::support::{Random, bytes, folder};
use mangrove_pool::{Emulated, Region};
use mangrove_shadow::{
    AddressChoice, Create, Domain, Latency, LogLease, Medium, Options, Order, Shadow, Ticket,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const LEN: usize = 1 << 20;
const LOGS: usize = 3;
/// Where the rings begin (docs/format/shadow.md); the durable copy begins behind them.
const AT_RINGS: usize = 12288;

/// A shadow with so many replayers on a region of its own, and what its callers know of numbers.
struct Subject {
    region: Region,
    shadow: Shadow,
    ring: usize,
    order: Order,
    is_stamped: bool,
    complete: Arc<AtomicU64>,
}

impl Subject {
    fn new(replayers: usize, order: Order, is_stamped: bool, ring: usize) -> Self {
        let domain = if order == Order::Gaps { Domain::Eadr } else { Domain::Adr };
        let region =
            Emulated::region_with((4 * LEN + LOGS * ring) as u64, Latency::default(), domain).unwrap();
        let options =
            Options::new().capacity(LEN as u64).log_bytes(ring as u64).log_count(LOGS).domain(domain);
        let options = options.address(AddressChoice::Anywhere).order(order).stamped(is_stamped);
        let options = options.background(false).replayers(replayers);
        let shadow = Shadow::on_region(region.clone(), &options).unwrap();
        let complete = Arc::new(AtomicU64::new(0));
        if is_stamped && order == Order::Gaps {
            let complete = Arc::clone(&complete);
            shadow.set_watermark(move || complete.load(Ordering::Acquire));
        }
        Self { region, shadow, ring, order, is_stamped, complete }
    }

    fn durable_copy(&self) -> &[u8] {
        // SAFETY: inside the region, and no thread replays meanwhile.
        unsafe { std::slice::from_raw_parts(self.region.base().add(AT_RINGS + LOGS * self.ring), LEN) }
    }

    fn commit(&self, lease: &mut LogLease, number: u64) -> Ticket {
        if !self.is_stamped {
            return lease.commit().unwrap();
        }
        lease.reserve().unwrap();
        let ticket = lease.number_as(number);
        lease.seal();
        lease.flush().unwrap();
        lease.publish();
        match self.order {
            Order::Marker => self.shadow.mark(number).unwrap(),
            _ => self.complete.store(number, Ordering::Release),
        }
        ticket
    }

    /// One random atomic group: words, ranges, both, or one that is spilled. Returns what it changes.
    fn unit(&self, random: &mut Random, len: usize, number: u64) -> Vec<(usize, Vec<u8>)> {
        let base = self.shadow.base() as usize;
        let mut changes = Vec::new();
        let mut leases: Vec<_> = (0..LOGS).map(|_| self.shadow.lease()).collect();
        let lease = &mut leases[random.below(LOGS)];
        let kind = random.below(40);
        // Words and ranges of an atomic group do not overlap.
        let half = len / 2;
        let (first_word, first_range) = if random.below(2) == 0 { (0, half) } else { (half, 0) };
        for _ in 0..random.below(30) * usize::from(kind % 4 != 1) {
            let (at, value) = (first_word + random.below(half / 8) * 8, random.below(1 << 30) as u64);
            lease.word(base + at, value);
            changes.push((at, value.to_le_bytes().to_vec()));
        }
        let longest = if kind == 7 { self.ring } else { 3000 };
        for _ in 0..(1 + random.below(3)) * usize::from(kind % 4 < 2 || kind == 7) {
            let at = random.below(half - 1);
            let count = (longest / 2 * usize::from(kind == 7) + random.below(longest)).min(half - at);
            let at = first_range + at;
            let content = vec![random.below(256) as u8; count];
            lease.range(base + at, &content);
            changes.push((at, content));
        }
        self.commit(lease, number);
        changes
    }
}

#[test]
fn the_durable_copy_is_that_of_one_thread_at_every_step() {
    for (order, is_stamped) in
        [(Order::Dense, false), (Order::Gaps, false), (Order::Gaps, true), (Order::Marker, true)]
    {
        for (seed, ring) in [(1, 16 << 10), (2, 64 << 10), (3, 256 << 10)] {
            let subjects = [1, 2, 4, 8].map(|count| Subject::new(count, order, is_stamped, ring));
            let mut model = vec![0; LEN];
            let (mut len, mut spilled) = (64 << 10, false);
            let mut random = Random(seed);
            for number in 1..700 {
                if random.below(60) == 0 {
                    len = (len + (random.below(LEN / 4) & !4095)).min(LEN);
                }
                // Each subject draws the same.
                let state = random.0;
                let mut changes = Vec::new();
                for subject in &subjects {
                    random = Random(state);
                    subject.shadow.grow(len as u64).unwrap();
                    changes = subject.unit(&mut random, len, number);
                    match random.below(25) {
                        0 => drop(subject.shadow.replay()),
                        1 => subject.shadow.checkpoint().unwrap(),
                        _ => {}
                    }
                }
                for (at, content) in &changes {
                    spilled |= content.len() > ring / 2;
                    model[*at..*at + content.len()].copy_from_slice(content);
                }
                let [one, others @ ..] = &subjects;
                for other in others {
                    assert!(
                        one.durable_copy() == other.durable_copy(),
                        "{order:?}, seed {seed}: other bytes after unit {number}"
                    );
                }
            }
            let counts = subjects.each_ref().map(|subject| {
                subject.shadow.checkpoint().unwrap();
                assert!(subject.durable_copy() == model, "{order:?}, seed {seed}: not what was committed");
                let stat = subject.shadow.stat();
                (stat.applied_units, stat.applied_bytes, stat.image_written, stat.batches)
            });
            assert!(spilled && counts[0].3 > 20, "{counts:?}");
            assert!(counts.iter().all(|count| *count == counts[0]), "{order:?}, seed {seed}: {counts:?}");
        }
    }
}

const BIG: usize = 16 << 20;
/// Each log writer has a part of its own, so the result does not depend on how they interleave.
const PART: usize = BIG / LOGS / 4096 * 4096;

/// Commits words, and a few long ranges that are spilled, to the writer's part; returns what it holds then.
fn write(shadow: &Shadow, writer: usize) -> Vec<u8> {
    let (mut random, mut model) = (Random(writer as u64 + 1), vec![0u8; PART]);
    let mut lease = shadow.lease();
    let base = shadow.base() as usize + writer * PART;
    shadow.grow(((writer + 1) * PART) as u64).unwrap();
    for unit in 0..20_000 {
        for _ in 0..16 {
            let (at, value) = (random.below(PART / 8) * 8, random.below(1 << 30) as u64);
            lease.word(base + at, value);
            model[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        lease.commit().unwrap();
        if unit % 4000 == writer {
            let at = random.below(8) * 8;
            let content = vec![unit as u8 | 1; PART - 64];
            lease.range(base + at, &content);
            model[at..at + content.len()].copy_from_slice(&content);
            lease.commit().unwrap();
        }
    }
    model
}

/// Steps long enough that the threads share them; growth and long atomic groups meanwhile; then a crash.
#[test]
fn threads_replay_at_once_while_others_commit() {
    let dir = folder();
    let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::default()));
    let options = options.capacity(BIG as u64).log_bytes(8 << 20).log_count(LOGS);
    for replayers in [2, 4] {
        let (path, options) = (dir.path().join(replayers.to_string()), options.clone().replayers(replayers));
        let shadow = options.open(&path).unwrap();
        let models: Vec<_> = std::thread::scope(|scope| {
            let shadow = &shadow;
            let writers: Vec<_> =
                (0..LOGS).map(|writer| scope.spawn(move || write(shadow, writer))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert!(shadow.stat().batches > 4, "{:?}", shadow.stat());
        let holds = |shadow: &Shadow| {
            models.iter().enumerate().all(|(n, model)| bytes(shadow)[n * PART..][..PART] == model[..])
        };
        drop(shadow);
        let shadow = options.open(&path).unwrap();
        assert!(holds(&shadow), "after a crash: {:?}", shadow.report());
        shadow.close().unwrap();
        let shadow = options.open(&path).unwrap();
        assert!(holds(&shadow), "after closing: {:?}", shadow.report());
    }
}

#[test]
fn a_count_that_is_no_power_of_two_is_refused() {
    for count in [0, 3, 16] {
        let refused = Options::new().create(Create::New).replayers(count).open(folder().path().join("s"));
        assert!(refused.is_err_and(|e| e.to_string().contains("threads can replay")), "{count}");
    }
}
