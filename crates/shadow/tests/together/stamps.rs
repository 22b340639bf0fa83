//! Atomic groups that their callers number, by time stamps: what is replayed, acknowledged and kept, with a marker and
//! with gaps.

use crate::support::{Random, bytes, folder};
use mangrove_shadow::{Create, Domain, Error, Latency, LogLease, Medium, Options, Order, Shadow, Ticket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const ORDERS: [Order; 2] = [Order::Marker, Order::Gaps];

/// Runs `work`, which must end by itself: a subject that is broken leaves somebody waiting for ever.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, result) = channel();
    let worker = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    if result.recv_timeout(Duration::from_secs(120)).is_err() {
        assert!(worker.is_finished(), "somebody waits for ever");
        worker.join().expect("its panic, which has been printed");
    }
}

fn options(order: Order) -> Options {
    let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::new(0, 0)));
    let options = options.capacity(64 << 20).log_bytes(64 << 10).log_count(3).background(false);
    let domain = if order == Order::Gaps { Domain::Eadr } else { Domain::Adr };
    options.domain(domain).order(order).stamped(true)
}

/// A shadow, and how its test says what is complete.
struct Stamped {
    shadow: Shadow,
    order: Order,
    complete: Arc<AtomicU64>,
}

impl Stamped {
    fn open(path: &Path, options: &Options, order: Order) -> Self {
        let shadow = options.open(path).unwrap();
        shadow.grow(1 << 20).unwrap();
        let complete = Arc::new(AtomicU64::new(0));
        if order == Order::Gaps {
            let complete = Arc::clone(&complete);
            shadow.set_watermark(move || complete.load(Ordering::Acquire));
        }
        Self { shadow, order, complete }
    }

    fn complete(&self, number: u64) {
        match self.order {
            Order::Marker => self.shadow.mark(number).unwrap(),
            _ => self.complete.store(number, Ordering::Release),
        }
    }
}

fn store(shadow: &Shadow, lease: &mut LogLease, at: usize, value: u64) {
    bytes(shadow)[at..at + 8].copy_from_slice(&value.to_le_bytes());
    lease.word(shadow.base() as usize + at, value);
}

fn word(shadow: &Shadow, at: usize) -> u64 {
    u64::from_le_bytes(bytes(shadow)[at..at + 8].try_into().unwrap())
}

fn commit_as(lease: &mut LogLease, number: u64) -> Ticket {
    lease.reserve().unwrap();
    let ticket = lease.number_as(number);
    lease.seal();
    lease.flush().unwrap();
    lease.publish();
    ticket
}

/// The files as a crash leaves them, when nothing waits in the caches.
fn crash(path: &Path, shadow: Shadow) {
    let image = std::fs::read(path.join("image")).unwrap();
    drop(shadow);
    std::fs::write(path.join("image"), image).unwrap();
}

#[test]
fn recovery_keeps_what_the_marker_covers_or_every_whole_unit() {
    for order in ORDERS {
        let dir = folder();
        let path = dir.path().join("s");
        let stamped = Stamped::open(&path, &options(order), order);
        let shadow = &stamped.shadow;
        let mut leases = [0; 3].map(|_| shadow.lease());
        // Three writers of one word; the later stamp is published first, and two stamps are equal.
        for (log, number) in [(2, 500), (0, 200), (1, 300), (2, 700), (0, 600), (1, 600)] {
            store(shadow, &mut leases[log], 0, number * 10 + log as u64);
            store(shadow, &mut leases[log], number as usize * 8, 1);
            commit_as(&mut leases[log], number);
        }
        if order == Order::Marker {
            shadow.mark(600).unwrap();
            shadow.mark(300).unwrap(); // it never goes back
            assert!(shadow.is_durable(Ticket(600)) && !shadow.is_durable(Ticket(700)));
        }
        drop(leases);
        crash(&path, stamped.shadow);
        let found = options(order).open(&path).unwrap();
        let marker = order == Order::Marker;
        assert_eq!((found.report().units, found.report().dropped), if marker { (5, 1) } else { (6, 0) });
        assert_eq!(word(&found, 0), if marker { 6001 } else { 7002 }, "{order:?}");
        let kept = [200, 300, 500, 600, 700].map(|number| word(&found, number * 8));
        assert_eq!(kept, [1, 1, 1, 1, u64::from(!marker)]);
        // The next opening counts on, whatever a clock says, and a marker of before covers nothing of it.
        assert_eq!(found.committed(), Ticket(if marker { 600 } else { 700 }));
        let mut lease = found.lease();
        store(&found, &mut lease, 8, 1);
        commit_as(&mut lease, found.committed().0 + 1);
        drop(lease);
        crash(&path, found);
        let found = options(order).open(&path).unwrap();
        assert_eq!(word(&found, 8), u64::from(!marker), "{order:?}");
        found.close().unwrap();
    }
}

#[test]
fn the_replayer_goes_up_to_what_is_complete_whoever_is_under_way() {
    ends(|| {
        for order in ORDERS {
            let dir = folder();
            let path = dir.path().join("s");
            let stamped = Stamped::open(&path, &options(order), order);
            let shadow = &stamped.shadow;
            let mut leases = [0; 3].map(|_| shadow.lease());
            assert_eq!(leases.each_ref().map(LogLease::log), [0, 1, 2]);
            // This one never ends its step.
            store(shadow, &mut leases[2], 64, 1);
            leases[2].reserve().unwrap();
            leases[2].number_as(41);
            for (log, number) in [(1, 20), (0, 20), (1, 30), (0, 40)] {
                store(shadow, &mut leases[log], 0, number + log as u64);
                commit_as(&mut leases[log], number);
            }
            assert!(!shadow.replay(), "nothing is known to be complete");
            for (complete, applied) in [(19, 0), (20, 2), (30, 3)] {
                stamped.complete(complete);
                while shadow.replay() {}
                assert_eq!(shadow.stat().applied_units, applied, "{order:?} up to {complete}");
                assert_eq!(
                    shadow.committed(),
                    Ticket(if applied == 0 { complete } else { complete.min(40) })
                );
            }
            drop(leases); // the number without a unit is forgotten
            stamped.complete(40);
            shadow.checkpoint().unwrap();
            assert_eq!((shadow.stat().applied_units, shadow.stat().log_used), (4, 0));
            crash(&path, stamped.shadow);
            let found = options(order).open(&path).unwrap();
            assert_eq!((word(&found, 0), word(&found, 64)), (40, 0));
        }
    });
}

#[test]
fn closing_completes_what_was_published() {
    ends(|| {
        for order in ORDERS {
            let dir = folder();
            let path = dir.path().join("s");
            for background in [false, true] {
                let options = options(order).background(background);
                let stamped = Stamped::open(&path, &options, order);
                let mut lease = stamped.shadow.lease();
                let number = stamped.shadow.committed().0 + 100;
                store(&stamped.shadow, &mut lease, 0, number);
                commit_as(&mut lease, number);
                drop(lease);
                stamped.shadow.close().unwrap();
                let shadow = options.open(&path).unwrap();
                assert_eq!((word(&shadow, 0), shadow.committed().0), (number, number), "{order:?}");
                assert!(shadow.report().was_clean);
            }
        }
    });
}

/// Where a transaction of the random test stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Step {
    Idle,
    Reserved,
    Numbered,
    Sealed,
    Flushed,
}

/// What an atomic group holds: offsets and values.
type Words = Vec<(usize, u64)>;

/// One thread plays three writers that interleave step by step, the replayer, and crashes.
#[test]
fn random_interleavings_and_crashes_leave_what_a_model_says() {
    ends(|| {
        const LEN: usize = 256 << 10;
        for (seed, order) in [(1, Order::Marker), (2, Order::Gaps), (3, Order::Marker), (4, Order::Gaps)] {
            let dir = folder();
            let path = dir.path().join("s");
            let mut random = Random(seed);
            let mut model = vec![0u64; LEN / 8];
            for round in 0..8 {
                let stamped = Stamped::open(&path, &options(order).log_bytes(16 << 10), order);
                let shadow = &stamped.shadow;
                let found = (0..LEN).step_by(8).map(|at| word(shadow, at));
                assert!(found.eq(model.iter().copied()), "round {round} of seed {seed} with {order:?}");
                let mut clock = shadow.committed().0;
                let mut units: Vec<(u64, usize, Words)> = Vec::new();
                let mut marked = clock;
                let mut writers: Vec<_> =
                    (0..3).map(|_| (shadow.lease(), Step::Idle, 0u64, Words::new())).collect();
                for _ in 0..3000 {
                    let first = writers.iter().filter(|w| w.1 > Step::Reserved).map(|w| w.2).min();
                    if random.below(4) == 0 {
                        let complete = first.map_or(clock, |number| number - 1);
                        if random.below(3) > 0 {
                            stamped.complete(complete);
                            marked = marked.max(complete);
                            clock = clock.max(complete) + 1; // nothing that comes is covered
                        }
                        if random.below(8) == 0 {
                            shadow.replay();
                        }
                        continue;
                    }
                    let all_idle = writers.iter().all(|writer| writer.1 == Step::Idle);
                    let n = random.below(3);
                    let used = shadow.stat().log_used;
                    let (lease, step, number, words) = &mut writers[n];
                    match *step {
                        Step::Idle => {
                            if used > 6 << 10 {
                                // Only the others' ends free space; when all are idle everything is complete.
                                if all_idle {
                                    stamped.complete(clock);
                                    marked = marked.max(clock);
                                    clock += 1;
                                    shadow.checkpoint().unwrap();
                                }
                                continue;
                            }
                            // One that is too long for a ring waits until the one before is complete.
                            let spills = all_idle && random.below(10) == 0;
                            if spills {
                                stamped.complete(clock);
                                marked = marked.max(clock);
                                clock += 1;
                            }
                            for _ in 0..if spills { 1200 } else { random.below(20) } {
                                let (at, value) = (random.below(LEN / 8), random.below(1 << 30) as u64);
                                words.push((at, value));
                                lease.word(shadow.base() as usize + at * 8, value);
                            }
                            lease.reserve().unwrap();
                            *step = Step::Reserved;
                        }
                        Step::Reserved => {
                            clock += random.below(2) as u64;
                            *number = clock.max(shadow.committed().0 + 1);
                            clock = *number;
                            // Memory as the last in the order leaves it.
                            words.iter().for_each(|&(at, value)| {
                                bytes(shadow)[at * 8..at * 8 + 8].copy_from_slice(&value.to_le_bytes());
                            });
                            lease.number_as(*number);
                            *step = Step::Numbered;
                        }
                        Step::Numbered if random.below(20) == 0 => {
                            lease.void();
                            words.clear();
                            *step = Step::Sealed;
                        }
                        Step::Numbered if random.below(20) == 0 => {
                            // A thread panics, and another takes its log.
                            drop(writers.remove(n));
                            writers.insert(n, (shadow.lease(), Step::Idle, 0, Words::new()));
                        }
                        Step::Numbered => {
                            lease.seal();
                            *step = Step::Sealed;
                            if order == Order::Gaps {
                                units.push((*number, lease.log(), std::mem::take(words)));
                            }
                        }
                        Step::Sealed => {
                            lease.flush().unwrap();
                            *step = Step::Flushed;
                        }
                        Step::Flushed => {
                            lease.publish();
                            if order == Order::Marker {
                                units.push((*number, lease.log(), std::mem::take(words)));
                            }
                            words.clear();
                            *step = Step::Idle;
                        }
                    }
                }
                // What a lease has not published is not dropped before the crash, but lost in it.
                let image = std::fs::read(path.join("image")).unwrap();
                drop(writers);
                drop(stamped);
                std::fs::write(path.join("image"), image).unwrap();
                units.sort_by_key(|unit| (unit.0, unit.1));
                for (number, _, words) in units {
                    if order == Order::Gaps || number <= marked {
                        words.into_iter().for_each(|(at, value)| model[at] = value);
                    }
                }
            }
        }
    });
}

/// Threads with stamps of a clock: each announces a lower bound, as the protocols with time stamps do.
#[test]
fn threads_with_stamps_lose_nothing_acknowledged() {
    ends(|| {
        const COMMITS: u64 = 300;
        for order in ORDERS {
            let dir = folder();
            let path = dir.path().join("s");
            let options = options(order).log_bytes(16 << 10).background(true);
            for round in 1..=2u64 {
                let shadow = options.open(&path).unwrap();
                shadow.grow(64 << 10).unwrap();
                let clock = Arc::new(AtomicU64::new(shadow.committed().0));
                let bounds: Arc<[AtomicU64; 3]> = Arc::new([const { AtomicU64::new(u64::MAX) }; 3]);
                let complete = {
                    let (clock, bounds) = (Arc::clone(&clock), Arc::clone(&bounds));
                    move || {
                        let now = clock.load(Ordering::SeqCst);
                        bounds.iter().fold(now, |least, bound| least.min(bound.load(Ordering::SeqCst)))
                    }
                };
                if order == Order::Gaps {
                    shadow.set_watermark(complete.clone());
                }
                std::thread::scope(|scope| {
                    for t in 0..3 {
                        let (shadow, clock, bounds, complete) = (&shadow, &clock, &bounds, &complete);
                        scope.spawn(move || {
                            let mut lease = shadow.lease();
                            for n in (round - 1) * COMMITS + 1..=round * COMMITS {
                                for at in [t * 64, 4096 + t * 8] {
                                    let address = shadow.base() as usize + at;
                                    // SAFETY: a word of this thread alone.
                                    unsafe { *(address as *mut u64) = n };
                                    lease.word(address, n);
                                }
                                lease.reserve().unwrap();
                                let bound = &bounds[lease.log()];
                                bound.store(clock.load(Ordering::SeqCst), Ordering::SeqCst);
                                let ticket = lease.number_as(clock.fetch_add(1, Ordering::SeqCst) + 1);
                                lease.seal();
                                lease.flush().unwrap();
                                lease.publish();
                                bound.store(u64::MAX, Ordering::SeqCst);
                                if order == Order::Marker {
                                    shadow.mark(complete()).unwrap();
                                }
                                shadow.wait(ticket).unwrap();
                            }
                        });
                    }
                });
                crash(&path, shadow);
                let shadow = options.open(&path).unwrap();
                for t in 0..3 {
                    let found = [t * 64, 4096 + t * 8].map(|at| word(&shadow, at));
                    assert_eq!(found, [round * COMMITS; 2], "thread {t} with {order:?}");
                }
            }
        }
    });
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    let dir = folder();
    let refused = |name: &str, options: Options, says: &str| {
        let error = options.open(dir.path().join(name)).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    refused("a", options(Order::Marker).order(Order::Dense), "use Order::Marker");
    refused("b", options(Order::Marker).medium(Medium::File), "use Order::Dense on the file medium");
    refused("c", options(Order::Gaps).domain(Domain::Adr), "use Order::Dense");
    let shadow = options(Order::Marker).stamped(false).open(dir.path().join("d")).unwrap();
    shadow.grow(4096).unwrap();
    let base = shadow.base() as usize;
    let error = shadow.commit(0, &[(base, 8)]).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("number_as"), "{error}");
    let mut lease = shadow.lease();
    lease.word(base, 1);
    lease.reserve().unwrap();
    assert!(matches!(lease.number(), Err(Error::Unsupported { .. })));
    lease.clear();
    commit_as(&mut lease, 7);
    drop(lease);
    let panics = |call: &mut dyn FnMut()| {
        let call = std::panic::AssertUnwindSafe(call);
        std::panic::catch_unwind(|| { call }.0()).is_err()
    };
    for number in [0, 6, (1 << 62) + 1] {
        let mut lease = shadow.lease();
        let mut commit = || {
            commit_as(&mut lease, number);
        };
        assert!(panics(&mut commit), "{number}");
    }
    assert!(panics(&mut || shadow.set_watermark(|| 0)));
    // Equal numbers of one log stand in its order.
    commit_as(&mut shadow.lease(), 7);
    shadow.close().unwrap();
    let shadow = options(Order::Dense).stamped(false).open(dir.path().join("d")).unwrap();
    assert_eq!(shadow.committed(), Ticket(7));
    assert!(panics(&mut || shadow.mark(9).unwrap()));
}

/// The words of the header, and what a marker of before means to an opening with another order.
#[test]
fn the_marker_has_its_place_and_binds_no_later_opening() {
    let dir = folder();
    let path = dir.path().join("s");
    let file = path.join("image");
    let at = |at: usize| u64::from_le_bytes(std::fs::read(&file).unwrap()[at..at + 8].try_into().unwrap());
    let dense = || options(Order::Dense).stamped(false);
    // A shadow that never had one.
    dense().open(&path).unwrap().close().unwrap();
    assert_eq!(at(256), 0);
    let shadow = options(Order::Marker).open(&path).unwrap();
    shadow.grow(4096).unwrap();
    assert_eq!(at(192) >> 62, 2, "recorded before the first commit");
    let mut lease = shadow.lease();
    for n in 1..4 {
        store(&shadow, &mut lease, n * 8, n as u64);
        commit_as(&mut lease, n as u64 * 1000);
    }
    shadow.mark(2500).unwrap();
    assert_eq!(at(256), 2500);
    drop(lease);
    crash(&path, shadow);
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    // Recovery follows the order of the writer; the dense numbers begin beyond the marker.
    let shadow = dense().open(&path).unwrap();
    assert_eq!((shadow.report().units, shadow.report().dropped), (2, 1));
    let mut lease = shadow.lease();
    store(&shadow, &mut lease, 32, 4);
    assert_eq!(lease.commit().unwrap(), Ticket(2501));
    drop(lease);
    crash(&path, shadow);
    let shadow = options(Order::Marker).open(&path).unwrap();
    assert_eq!([8, 16, 24, 32].map(|at| word(&shadow, at)), [1, 2, 0, 4]);
    assert_eq!(shadow.committed(), Ticket(2501));
    drop(shadow);
    // A marker that cannot be.
    let mut image = std::fs::read(&file).unwrap();
    image[256..264].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&file, image).unwrap();
    assert!(matches!(dense().open(&path), Err(Error::Corrupt { .. })));
}

/// Commits with gaps flush nothing, and a closed pool is verified when it is opened: its checksums are those of what
/// the logs hold.
#[test]
fn a_closed_shadow_whose_commits_flushed_nothing_is_sound() {
    for stamped in [false, true] {
        let folder = folder();
        let path = folder.path().join("s");
        let options = options(Order::Gaps).stamped(stamped).log_bytes(1 << 20).log_count(2);
        for opening in 1..4_u64 {
            let shadow = options.open(&path).unwrap();
            shadow.grow(1 << 20).unwrap();
            assert_eq!(word(&shadow, 0), (opening - 1) * 300);
            if stamped {
                shadow.set_watermark(|| u64::MAX >> 2);
            }
            let first = shadow.committed().0;
            let mut lease = shadow.lease();
            for number in 1..=300 {
                // More than 256 KiB of log in all, and in the third opening beyond the ring's end.
                store(&shadow, &mut lease, 0, (opening - 1) * 300 + number);
                lease.range(shadow.base() as usize + 4096, &[7; 1500]);
                bytes(&shadow)[4096..4096 + 1500].fill(7);
                if stamped {
                    commit_as(&mut lease, first + number);
                } else {
                    lease.commit().unwrap();
                }
            }
            drop(lease);
            shadow.close().unwrap();
            assert!(Shadow::check(&path).unwrap().damage.is_empty(), "opening {opening}, stamped: {stamped}");
        }
    }
}
