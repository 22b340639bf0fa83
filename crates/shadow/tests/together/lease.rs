//! Commits by value through a leased log: on file and on emulated, under threads, and across openings.

use crate::support::{Random, bytes, folder};
use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage, PoolConfig};
use mangrove_shadow::{Create, Domain, Error, Latency, LogLease, Medium, Options, Order, Shadow};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const DRAM: Latency = Latency::new(0, 0);
const MEDIA: [Medium; 2] = [Medium::File, Medium::Emulated(DRAM)];

fn options(medium: Medium) -> Options {
    Options::new().create(Create::IfMissing).medium(medium).capacity(64 << 20).log_bytes(64 << 10)
}

fn store(shadow: &Shadow, lease: &mut LogLease, at: usize, value: u64) {
    bytes(shadow)[at..at + 8].copy_from_slice(&value.to_le_bytes());
    lease.word(shadow.base() as usize + at, value);
}

fn word(shadow: &Shadow, at: usize) -> u64 {
    u64::from_le_bytes(bytes(shadow)[at..at + 8].try_into().unwrap())
}

#[test]
fn words_and_ranges_come_back_and_what_was_cleared_does_not() {
    for medium in MEDIA {
        let dir = folder();
        let options = || options(medium).background(false);
        let path = dir.path().join("s");
        let shadow = options().open(&path).unwrap();
        shadow.grow(1 << 20).unwrap();
        let base = shadow.base() as usize;
        let mut lease = shadow.lease();
        assert!(lease.is_empty());
        store(&shadow, &mut lease, 0, 1);
        store(&shadow, &mut lease, 4096, 2);
        let first = lease.commit().unwrap();
        assert!(lease.is_empty());
        store(&shadow, &mut lease, 8, 3);
        bytes(&shadow)[5001..5014].fill(4);
        lease.range(base + 5001, &[4; 13]);
        let second = lease.commit().unwrap();
        assert!(second > first);
        store(&shadow, &mut lease, 16, 5);
        lease.clear();
        assert!(lease.is_empty());
        store(&shadow, &mut lease, 24, 6);
        let third = lease.commit().unwrap();
        shadow.wait(third).unwrap();
        assert!(shadow.is_durable(second) && shadow.is_durable(third));
        drop((lease, shadow));
        let shadow = options().open(&path).unwrap();
        assert_eq!([0, 4096, 8, 16, 24].map(|at| word(&shadow, at)), [1, 2, 3, 0, 6], "{medium:?}");
        assert_eq!((bytes(&shadow)[5000], bytes(&shadow)[5014]), (0, 0));
        assert_eq!(bytes(&shadow)[5001..5014], [4; 13]);
        shadow.close().unwrap();
    }
}

#[test]
fn random_transactions_and_tidy_crashes_leave_what_a_model_says() {
    const LEN: usize = 1 << 20;
    for (medium, logs) in [(MEDIA[0], 1), (MEDIA[1], 1), (MEDIA[1], 3)] {
        let dir = folder();
        let path = dir.path().join("s");
        let options = || options(medium).log_count(logs).background(false).log_bytes(16 << 10);
        let mut random = Random(logs as u64);
        let mut model = vec![0u8; LEN];
        for round in 0..12 {
            let shadow = options().open(&path).unwrap();
            shadow.grow(LEN as u64).unwrap();
            assert!(bytes(&shadow)[..LEN] == model[..], "round {round} with {logs} logs on {medium:?}");
            let base = shadow.base() as usize;
            let mut leases: Vec<_> = (0..logs).map(|_| shadow.lease()).collect();
            for _ in 0..300 {
                let lease = &mut leases[random.below(logs)];
                // Now and then one that is too long for a ring of 16 KiB.
                let longest = if random.below(40) == 0 { 2000 } else { 12 };
                for _ in 0..random.below(longest) {
                    let (at, value) = (random.below(LEN / 16) * 8, random.below(1 << 30) as u64);
                    store(&shadow, lease, at, value);
                    model[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
                if random.below(5) == 0 {
                    // Ranges have the second half to themselves.
                    let longest = if random.below(20) == 0 { 20_000 } else { 100 };
                    let len = random.below(longest);
                    let at = LEN / 2 + random.below(LEN / 2 - len);
                    let fill = random.below(256) as u8;
                    bytes(&shadow)[at..at + len].fill(fill);
                    model[at..at + len].fill(fill);
                    lease.range(base + at, &vec![fill; len]);
                }
                lease.commit().unwrap();
            }
            drop(leases);
            match round % 3 {
                0 => {
                    shadow.sync().unwrap();
                    drop(shadow);
                }
                1 => shadow.checkpoint().unwrap(),
                _ => shadow.close().unwrap(),
            }
        }
    }
}

/// Wherever a lease is dropped, nobody waits for it, and the log goes on.
#[test]
fn a_lease_dropped_at_any_step_holds_nobody_up() {
    for medium in MEDIA {
        for step in 0..6 {
            let dir = folder();
            let options = || options(medium).log_count(2).background(false);
            let shadow = options().open(dir.path().join("s")).unwrap();
            shadow.grow(4096).unwrap();
            let mut lease = shadow.lease();
            store(&shadow, &mut lease, 0, 1);
            if step > 0 {
                lease.reserve().unwrap();
            }
            if step > 1 {
                lease.number().unwrap();
            }
            if step > 2 {
                lease.seal();
            }
            if step > 3 {
                lease.flush().unwrap();
            }
            if step > 4 {
                lease.publish();
            }
            drop(lease);
            let mut lease = shadow.lease();
            store(&shadow, &mut lease, 8, 2);
            let ticket = lease.commit().unwrap();
            drop(lease);
            shadow.wait(ticket).unwrap();
            shadow.checkpoint().unwrap();
            drop(shadow);
            let shadow = options().open(dir.path().join("s")).unwrap();
            assert_eq!(word(&shadow, 8), 2);
            let committed = step > 2 || (step == 2 && medium == Medium::File);
            assert_eq!(word(&shadow, 0), u64::from(committed), "step {step} on {medium:?}");
        }
    }
}

/// More threads than logs; each transfers between words, and what is acknowledged is there after the next opening.
#[test]
fn more_threads_than_logs_share_them_and_lose_nothing() {
    const THREADS: usize = 6;
    for medium in MEDIA {
        let dir = folder();
        let options = || options(medium).log_count(2);
        let mut least = [0; THREADS];
        for _ in 0..3 {
            let shadow = options().open(dir.path().join("s")).unwrap();
            shadow.grow(64 << 10).unwrap();
            let stop = AtomicBool::new(false);
            let done = [const { AtomicU64::new(0) }; THREADS];
            std::thread::scope(|scope| {
                for (t, least) in least.iter_mut().enumerate() {
                    let (shadow, stop, done) = (&shadow, &stop, &done[t]);
                    scope.spawn(move || {
                        // SAFETY: words of this thread alone.
                        let words =
                            [0, 4096].map(|at| unsafe { shadow.base().add(t * 64 + at).cast::<u64>() });
                        // SAFETY: as above.
                        let [mut n, copy] = words.map(|word| unsafe { *word });
                        assert!(n >= *least && n == copy, "thread {t}: {n} and {copy} after {least}");
                        while !stop.load(Ordering::Relaxed) {
                            // A lease for a few transactions, as a short-lived thread has it.
                            let mut lease = shadow.lease();
                            for _ in 0..5 {
                                n += 1;
                                for word in words {
                                    // SAFETY: as above.
                                    unsafe { *word = n };
                                    lease.word(word as usize, n);
                                }
                                let ticket = lease.commit().unwrap();
                                shadow.wait(ticket).unwrap();
                                *least = n;
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
                while done.iter().any(|done| done.load(Ordering::Relaxed) < 200) {
                    std::thread::yield_now();
                }
                stop.store(true, Ordering::Relaxed);
            });
            drop(shadow);
        }
    }
}

#[test]
fn a_commit_to_a_leased_log_waits_for_it() {
    let dir = folder();
    let shadow = options(MEDIA[1]).open(dir.path().join("s")).unwrap();
    shadow.grow(4096).unwrap();
    let mut lease = shadow.lease();
    assert!(shadow.try_lease().is_none(), "there is one log");
    let committed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            shadow.commit(0, &[(shadow.base() as usize, 8)]).unwrap();
            committed.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!committed.load(Ordering::SeqCst));
        store(&shadow, &mut lease, 8, 1);
        lease.commit().unwrap();
        drop(lease);
    });
    assert!(committed.load(Ordering::SeqCst));
    assert_eq!(shadow.committed(), mangrove_shadow::Ticket(2));
}

/// A shadow that version 1 wrote and did not close: its atomic groups are applied, and the next opening finds
/// version 2.
#[test]
fn a_shadow_of_version_1_opens_and_becomes_version_2() {
    const RING: u64 = 4096 + 64 * 128;
    let dir = folder();
    let path = dir.path().join("s");
    let options = || options(MEDIA[1]).background(false);
    let shadow = options().open(&path).unwrap();
    shadow.grow(4096).unwrap();
    drop(shadow);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path.join("image")).unwrap();
    let read = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    };
    let put = |at: u64, word: u64| file.write_all_at(&word.to_le_bytes(), at).unwrap();
    let crc = mangrove_pool::crc32c;
    let header_crc = |version: u64| {
        let words = [version, read(16), read(24), read(32), read(40), read(48)];
        u64::from(words.iter().fold(0, |sum, word| crc(sum, &word.to_le_bytes())))
    };
    assert_eq!((read(8), read(56)), (2, header_crc(2)));
    // Two atomic groups of 56 bytes: the second begins in the middle of a line.
    let seed = crc(crc(0, &read(48).to_le_bytes()), &read(192).to_le_bytes());
    for n in 0..2u64 {
        let position = n * 56;
        let words = [56 << 8 | 0xc1, n + 1, position];
        let record = [8 << 8 | 0xd2, n * 8, 7 + n];
        let mut sum = words.iter().fold(seed, |sum, word| crc(sum, &word.to_le_bytes()));
        sum = crc(sum, &1u32.to_le_bytes());
        sum = record.iter().fold(sum, |sum, word| crc(sum, &word.to_le_bytes()));
        let group = [words[0], words[1], words[2], 1 << 32 | u64::from(sum), record[0], record[1], record[2]];
        group.iter().enumerate().for_each(|(at, word)| put(RING + position + at as u64 * 8, *word));
    }
    put(8, 1);
    put(56, header_crc(1));
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    let shadow = options().open(&path).unwrap();
    assert_eq!((shadow.report().units, word(&shadow, 0), word(&shadow, 8)), (2, 7, 8));
    let mut lease = shadow.lease();
    store(&shadow, &mut lease, 16, 9);
    shadow.wait(lease.commit().unwrap()).unwrap();
    drop((lease, shadow));
    assert_eq!((read(8), read(56)), (2, header_crc(2)));
    // A crash between the two words of the upgrade, when the logs were empty.
    let shadow = options().open(&path).unwrap();
    assert_eq!([0, 8, 16].map(|at| word(&shadow, at)), [7, 8, 9]);
    shadow.checkpoint().unwrap();
    drop(shadow);
    put(56, header_crc(1));
    let shadow = options().open(&path).unwrap();
    assert_eq!([0, 8, 16].map(|at| word(&shadow, at)), [7, 8, 9]);
    drop(shadow);
    assert_eq!((read(8), read(56)), (2, header_crc(2)));
    put(56, header_crc(1) ^ 1);
    assert!(matches!(options().open(&path), Err(mangrove_shadow::Error::Corrupt { .. })));
}

/// What a caller of [`Order::Gaps`] is promised: what was sealed is durable, whatever is missing before it.
#[test]
fn with_gaps_a_sealed_commit_waits_for_nobody_and_survives_alone() {
    for order in [Order::Gaps, Order::Dense] {
        let dir = folder();
        let path = dir.path().join("s");
        let options = || options(Medium::Emulated(DRAM)).background(false).log_count(2).domain(Domain::Eadr);
        let shadow = options().order(order).open(&path).unwrap();
        shadow.grow(1 << 20).unwrap();
        let (mut first, mut second) = (shadow.lease(), shadow.lease());
        store(&shadow, &mut first, 0, 1);
        let before = first.commit().unwrap();
        store(&shadow, &mut first, 8, 2);
        first.reserve().unwrap();
        let missing = first.number().unwrap();
        // Words alone; long enough to be written past the caches otherwise; ranges; too long for a ring.
        let base = shadow.base() as usize;
        store(&shadow, &mut second, 16, 3);
        let small = second.commit().unwrap();
        assert!(before < missing && missing < small);
        assert_eq!(shadow.is_durable(small), order == Order::Gaps);
        if order == Order::Gaps {
            shadow.wait(small).unwrap();
            shadow.sync().unwrap();
        }
        bytes(&shadow)[4096..14096].fill(4);
        second.range(base + 4096, &[4; 10_000]);
        second.commit().unwrap();
        bytes(&shadow)[65536..165536].fill(5);
        second.range(base + 65536, &[5; 100_000]);
        second.commit().unwrap();
        // The process dies here, and with it the first lease's thread.
        let image = std::fs::read(path.join("image")).unwrap();
        let generation = u64::from_le_bytes(image[192..200].try_into().unwrap());
        assert_eq!(generation > 1 << 62, order == Order::Gaps, "recorded before the first commit");
        drop((first, second, shadow));
        std::fs::write(path.join("image"), &image).unwrap();
        // Recovery follows the order of the writer, not its own.
        let shadow = options().domain(Domain::Adr).open(&path).unwrap();
        let (kept, dropped) = if order == Order::Gaps { (4, 0) } else { (1, 3) };
        assert_eq!((shadow.report().units, shadow.report().dropped), (kept, dropped), "{order:?}");
        let gaps = order == Order::Gaps;
        assert_eq!([0, 8, 16].map(|at| word(&shadow, at)), [1, 0, if gaps { 3 } else { 0 }]);
        assert!(bytes(&shadow)[4096..14096].iter().all(|&b| b == if gaps { 4 } else { 0 }));
        assert!(bytes(&shadow)[65536..165536].iter().all(|&b| b == if gaps { 5 } else { 0 }));
        // And goes on in another.
        let mut lease = shadow.lease();
        store(&shadow, &mut lease, 24, 6);
        lease.commit().unwrap();
        drop((lease, shadow));
        let shadow = options().order(Order::Gaps).open(&path).unwrap();
        assert_eq!((shadow.report().units, word(&shadow, 24)), (1, 6));
        shadow.close().unwrap();
    }
}

/// Damage is told from what was not finished: with gaps too, an atomic group is whole before the next one in its log.
#[test]
fn with_gaps_damage_before_a_whole_unit_of_the_log_is_refused() {
    let dir = folder();
    let path = dir.path().join("s");
    let options = || {
        let options = options(Medium::Emulated(DRAM)).background(false).log_count(2);
        options.domain(Domain::Eadr).order(Order::Gaps)
    };
    let shadow = options().open(&path).unwrap();
    shadow.grow(4096).unwrap();
    let (mut first, mut second) = (shadow.lease(), shadow.lease());
    for n in 0..2 {
        store(&shadow, &mut first, n * 8, 7);
        first.commit().unwrap();
    }
    store(&shadow, &mut second, 64, 8);
    second.commit().unwrap();
    drop((first, second, shadow));
    let file = path.join("image");
    let whole = std::fs::read(&file).unwrap();
    let ring = 4096 + 64 * 128;
    for (at, is_refused) in [(ring + 30, true), (ring + 64 + 30, false)] {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        std::fs::write(&file, &bad).unwrap();
        let opened = options().open(&path);
        assert_eq!(opened.is_err(), is_refused, "byte {at}");
        if let Ok(shadow) = opened {
            assert_eq!([0, 8, 64].map(|at| word(&shadow, at)), [7, 0, 8]);
        }
    }
}

#[test]
fn gaps_are_refused_where_caches_are_lost() {
    for options in [options(Medium::Emulated(DRAM)).domain(Domain::Adr), options(Medium::File)] {
        let dir = folder();
        let path = dir.path().join("s");
        let error = options.clone().order(Order::Gaps).open(&path).unwrap_err();
        assert!(error.to_string().contains("use Order::Dense"), "{error}");
        options.open(&path).unwrap().close().unwrap();
    }
}

#[test]
fn who_defers_is_told_that_a_recent_write_was_not_kept() {
    let dir = folder();
    let path = dir.path().join("s");
    let storage = Faulty::new(Arc::new(OsStorage));
    // No thread writes the log meanwhile.
    let config = PoolConfig {
        create: Create::New,
        medium: Medium::File,
        nowait_within: Duration::ZERO,
        keeps_recent: true,
        capacity: Some(64 << 20),
        ..PoolConfig::default()
    };
    let options = Options::new().config(config).background(false).storage(Arc::new(storage.clone()));
    let shadow = options.open(&path).unwrap();
    shadow.grow(4096).unwrap();
    let mut lease = shadow.lease();
    let mut defer = |value| {
        store(&shadow, &mut lease, 0, value);
        lease.reserve().unwrap();
        lease.number().unwrap();
        lease.seal();
        lease.defer()
    };
    defer(1).unwrap();
    let mut names = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
    let recent = names.find_map(|name| name.into_string().ok().filter(|name| name.starts_with("recent-")));
    let operations = vec![FaultyOperation::Write];
    storage.plant(Fault { file: recent, operations, nth: 0, kind: FaultKind::Errno(5) });
    let answer = defer(2);
    assert!(storage.struck(), "the write was not copied");
    assert!(matches!(answer, Err(Error::Io { .. } | Error::Poisoned { .. })), "{answer:?}");
}
