//! Deferred commits: one fence for many, by any thread; what a crash keeps of them, and what counts as damage after
//! one.

#[path = "../../../hart/tests/support/counting.rs"]
#[allow(dead_code, unreachable_pub, reason = "these tests need a part of it")]
mod counting;
use crate::support::{bytes, folder};
#[allow(dead_code, unused_imports, reason = "these tests need a part of it")]
use counting::Counting;
use mangrove_shadow::{AddressChoice, Create, Domain, Latency, LogLease, Medium, Options, Shadow, Ticket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const RING_BYTES: u64 = 16 << 10;
/// Where the first ring begins (docs/format/shadow.md).
const AT_RINGS: u64 = 12288;
const LINE: u64 = 64;
/// For what must come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

fn options() -> Options {
    let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::new(0, 0)));
    options.domain(Domain::Adr).capacity(1 << 20).log_bytes(RING_BYTES).log_count(2).background(false)
}

fn open(options: &Options, path: &Path) -> Shadow {
    let shadow = options.open(path).unwrap();
    shadow.grow(64 << 10).unwrap();
    shadow
}

/// A word of the working copy gets its value, and the log its atomic group: one line.
fn seal(shadow: &Shadow, lease: &mut LogLease, at: usize, value: u64) -> Ticket {
    bytes(shadow)[at..at + 8].copy_from_slice(&value.to_le_bytes());
    lease.word(shadow.base() as usize + at, value);
    lease.reserve().unwrap();
    let ticket = lease.number().unwrap();
    lease.seal();
    ticket
}

fn defer(shadow: &Shadow, lease: &mut LogLease, at: usize, value: u64) -> Ticket {
    let ticket = seal(shadow, lease, at, value);
    lease.defer().unwrap();
    ticket
}

fn word(shadow: &Shadow, at: usize) -> u64 {
    u64::from_le_bytes(bytes(shadow)[at..at + 8].try_into().unwrap())
}

#[test]
fn many_deferred_commits_share_one_fence_whoever_waits() {
    let (region, medium) = Counting::region(4 << 20, false);
    let options = Options::new().address(AddressChoice::Anywhere).background(false).log_count(2);
    let shadow = Shadow::on_region(region, &options.capacity(1 << 20).log_bytes(128 << 10)).unwrap();
    shadow.grow(64 << 10).unwrap();
    let mut lease = shadow.lease();
    let mut last = Ticket(0);
    let cost = medium.cost_of(|| {
        for n in 0..64 {
            last = defer(&shadow, &mut lease, n * 8, 1);
            assert!(!shadow.is_durable(last) && shadow.durable() < last);
        }
    });
    assert_eq!((cost.lines, cost.fences), (64, 0), "each line is on its way, and nobody waits: {cost:?}");
    // The owner's own wait is a commit that it flushes: nothing is flushed twice.
    let cost = medium.cost_of(|| {
        last = seal(&shadow, &mut lease, 0, 2);
        lease.flush().unwrap();
        lease.publish();
        shadow.wait(last).unwrap();
    });
    assert_eq!((cost.lines, cost.fences), (1, 1), "{cost:?}");
    // Another thread has to flush the lines itself.
    let deferred = defer(&shadow, &mut lease, 8, 3);
    let last = defer(&shadow, &mut lease, 16, 3);
    let helped = std::thread::scope(|scope| {
        scope.spawn(|| medium.cost_of(|| shadow.wait(deferred).unwrap())).join().unwrap()
    });
    assert_eq!((helped.lines, helped.fences), (2, 1), "{helped:?}");
    assert!(shadow.is_durable(last), "it is in the same log");
    // A lease of another thread does not know which lines were flushed.
    defer(&shadow, &mut lease, 24, 4);
    drop(lease);
    let mut lease = shadow.lease();
    let cost = medium.cost_of(|| {
        seal(&shadow, &mut lease, 32, 4);
        lease.flush().unwrap();
        lease.publish();
    });
    assert!(cost.lines >= 2 && cost.fences == 1, "{cost:?}");
}

/// A fence orders only what its own thread has flushed. A thread that ends may leave its lease to the next one.
#[test]
fn what_one_thread_deferred_is_flushed_by_the_next_owner_of_its_lease() {
    let (region, medium) = Counting::region(4 << 20, false);
    let options = Options::new().address(AddressChoice::Anywhere).background(false);
    let shadow = Shadow::on_region(region, &options.capacity(1 << 20).log_bytes(128 << 10)).unwrap();
    shadow.grow(64 << 10).unwrap();
    let mut lease = shadow.lease();
    let commit = |lease: &mut LogLease, at: usize| {
        let ticket = seal(&shadow, lease, at, 2);
        lease.finish().unwrap();
        assert!(shadow.is_durable(ticket));
    };
    let elsewhere = |work: &mut (dyn FnMut() + Send)| {
        std::thread::scope(|scope| scope.spawn(|| medium.cost_of(work)).join().unwrap())
    };
    defer(&shadow, &mut lease, 0, 1);
    defer(&shadow, &mut lease, 8, 1);
    let cost = elsewhere(&mut || commit(&mut lease, 16));
    assert_eq!((cost.lines, cost.fences), (3, 1), "{cost:?}");
    // Where both threads have deferred, each of the two has to flush what is the other's.
    defer(&shadow, &mut lease, 0, 3);
    let cost = elsewhere(&mut || {
        defer(&shadow, &mut lease, 8, 3);
    });
    assert_eq!((cost.lines, cost.fences), (1, 0), "{cost:?}");
    let cost = medium.cost_of(|| commit(&mut lease, 16));
    assert_eq!((cost.lines, cost.fences), (3, 1), "{cost:?}");
}

/// The first commit that a log defers has its number already, and a thread waits for the next number: the wait ends,
/// and it is the waiting thread that makes the first commit durable.
#[test]
fn a_wait_that_began_before_the_first_deferred_commit_covers_it() {
    let (region, medium) = Counting::region(4 << 20, false);
    let options = Options::new().address(AddressChoice::Anywhere).background(false).log_count(2);
    let shadow = Shadow::on_region(region, &options.capacity(1 << 20).log_bytes(128 << 10)).unwrap();
    shadow.grow(64 << 10).unwrap();
    let mut lease = shadow.lease();
    lease.word(shadow.base() as usize, 1);
    lease.reserve().unwrap();
    let first = lease.number().unwrap();
    let ((waits, is_waiting), (done, is_done)) = (channel(), channel());
    let (early, ended, lines) = std::thread::scope(|scope| {
        let (shadow, medium) = (&shadow, &medium);
        scope.spawn(move || {
            let mut other = shadow.lease();
            let next = seal(shadow, &mut other, 8, 1);
            other.flush().unwrap();
            other.publish();
            waits.send(()).unwrap();
            shadow.wait(next).unwrap();
            done.send(shadow.is_durable(first)).unwrap();
        });
        is_waiting.recv_timeout(PATIENCE).unwrap();
        // Long enough for a wait that does not wait.
        let early = is_done.recv_timeout(Duration::from_millis(50));
        lease.seal();
        let sealed = medium.cost().lines;
        lease.defer().unwrap();
        let ended = is_done.recv_timeout(PATIENCE);
        // Ends a wait that does not end by itself.
        medium.deaf.store(ended.is_err(), Ordering::SeqCst);
        (early, ended, medium.cost().lines - sealed)
    });
    assert!(early.is_err(), "it was told durable before it was in the log");
    assert_eq!((ended, lines), (Ok(true), 1));
}

/// What is done, with a ticket.
type Case = (&'static str, fn(&Shadow, Ticket));

/// Each of these is done by a thread that has nothing to do with the deferring one, which never runs again.
#[test]
fn nobody_needs_the_thread_that_deferred() {
    let cases: [Case; 6] = [
        ("wait", |shadow, ticket| shadow.wait(ticket).unwrap()),
        ("sync", |shadow, _| shadow.sync().unwrap()),
        ("checkpoint", |shadow, ticket| {
            shadow.checkpoint().unwrap();
            assert!(shadow.stat().applied_units >= ticket.0);
        }),
        ("replay", |shadow, _| while shadow.replay() {}),
        ("a commit of another log", |shadow, _| {
            let mut other = shadow.lease();
            let ticket = seal(shadow, &mut other, 4096, 9);
            other.flush().unwrap();
            other.publish();
            shadow.wait(ticket).unwrap();
        }),
        ("a full ring of another log", |shadow, _| {
            let mut other = shadow.lease();
            for n in 0..3 * RING_BYTES / LINE {
                seal(shadow, &mut other, 4096, n);
                other.flush().unwrap();
                other.publish();
            }
        }),
    ];
    for ends in [false, true] {
        for (case, act) in cases {
            let dir = folder();
            let path = dir.path().join("s");
            let shadow = open(&options(), &path);
            let mut lease = shadow.lease();
            let ticket = (0..5).map(|n| defer(&shadow, &mut lease, n * 8, 7)).last().unwrap();
            assert!(!shadow.is_durable(ticket));
            let kept = (!ends).then_some(lease);
            std::thread::scope(|scope| scope.spawn(|| act(&shadow, ticket)).join().unwrap());
            assert!(shadow.is_durable(ticket), "{case}");
            drop(kept);
            shadow.close().unwrap();
            let shadow = open(&options(), &path);
            assert_eq!([0, 8, 16, 24, 32].map(|at| word(&shadow, at)), [7; 5], "{case}");
        }
    }
    // And closing.
    let dir = folder();
    let path = dir.path().join("s");
    let shadow = open(&options(), &path);
    defer(&shadow, &mut shadow.lease(), 0, 7);
    shadow.close().unwrap();
    assert_eq!(word(&open(&options(), &path), 0), 7);
}

#[test]
fn a_ring_full_of_deferred_commits_of_one_thread_is_emptied() {
    for background in [false, true] {
        let dir = folder();
        let options = options().background(background);
        let shadow = open(&options, &dir.path().join("s"));
        let mut lease = shadow.lease();
        // Now and then one that is not deferred, and one that may not stand behind deferred ones.
        for n in 0..5 * RING_BYTES / LINE {
            defer(&shadow, &mut lease, 8 * (n as usize % 100), n);
            if n % 97 == 0 {
                lease.range(shadow.base() as usize + 5001, &[n as u8; 13]);
                bytes(&shadow)[5001..5014].fill(n as u8);
                lease.reserve().unwrap();
                lease.number().unwrap();
                lease.seal();
                lease.defer().unwrap();
            }
            if n % 101 == 0 {
                for word in 0..150 {
                    bytes(&shadow)[8192 + word * 8..][..8].copy_from_slice(&n.to_le_bytes());
                    lease.word(shadow.base() as usize + 8192 + word * 8, n);
                }
                lease.reserve().unwrap();
                lease.number().unwrap();
                lease.seal();
                lease.defer().unwrap();
            }
        }
        let before = bytes(&shadow)[..16 << 10].to_vec();
        drop(lease);
        shadow.close().unwrap();
        let shadow = open(&options, &dir.path().join("s"));
        assert!(bytes(&shadow)[..16 << 10] == before[..]);
    }
}

#[test]
fn the_replayers_thread_makes_durable_what_nobody_waits_for() {
    let dir = folder();
    let shadow = open(&options().background(true), &dir.path().join("s"));
    let mut lease = shadow.lease();
    for n in 0..20 {
        let ticket = defer(&shadow, &mut lease, 0, n);
        let begun = Instant::now();
        while !shadow.is_durable(ticket) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody made commit {n} durable");
            std::thread::yield_now();
        }
        if n % 5 == 0 {
            // It becomes idle.
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

/// The image as a crash leaves it, in which the lines of these atomic groups of the first ring never became durable.
fn crash(path: &Path, shadow: Shadow, lost: &[u64]) {
    let image = std::fs::read(path.join("image")).unwrap();
    drop(shadow);
    std::fs::write(path.join("image"), image).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
    for unit in lost {
        file.write_all_at(&[0; LINE as usize], AT_RINGS + unit * LINE).unwrap();
    }
}

/// A crash may keep any of the deferred ones; recovery keeps those before the first that is missing.
#[test]
fn a_hole_among_deferred_commits_is_no_damage_and_ends_what_is_kept() {
    for lost in [&[1u64][..], &[2], &[1, 3], &[5], &[1, 2, 3, 4, 5], &[]] {
        let dir = folder();
        let path = dir.path().join("s");
        let shadow = open(&options(), &path);
        let mut lease = shadow.lease();
        let waited = seal(&shadow, &mut lease, 0, 1);
        lease.flush().unwrap();
        lease.publish();
        shadow.wait(waited).unwrap();
        for n in 1..6 {
            defer(&shadow, &mut lease, 8 * n, 1);
        }
        drop(lease);
        crash(&path, shadow, lost);
        let shadow = open(&options(), &path);
        let kept = *lost.first().unwrap_or(&6) as usize;
        let found: Vec<_> = (0..6).map(|n| word(&shadow, 8 * n)).collect();
        let expected: Vec<_> = (0..6).map(|n| u64::from(n < kept)).collect();
        assert_eq!(found, expected, "lost {lost:?}");
    }
}

/// What was waited for must be there: a whole atomic group that was begun when all before it was durable proves it.
#[test]
fn a_hole_before_a_commit_that_began_when_all_before_was_durable_is_damage() {
    for lost in [0u64, 1, 2, 3] {
        let dir = folder();
        let path = dir.path().join("s");
        let shadow = open(&options(), &path);
        let mut lease = shadow.lease();
        for n in 0..3 {
            defer(&shadow, &mut lease, 8 * n, 1);
        }
        for n in 3..5 {
            let waited = seal(&shadow, &mut lease, 8 * n, 1);
            lease.flush().unwrap();
            lease.publish();
            shadow.wait(waited).unwrap();
        }
        drop(lease);
        crash(&path, shadow, &[lost]);
        let error = options().open(&path).unwrap_err().to_string();
        assert!(error.contains("no unit stands where the log goes on"), "lost {lost}: {error}");
    }
}

/// A commit that the medium did not take stays in doubt for every thread, and so does what follows it.
#[test]
fn what_the_medium_did_not_take_is_durable_for_nobody() {
    let (region, medium) = Counting::region(4 << 20, false);
    let options = Options::new().address(AddressChoice::Anywhere).background(false).log_count(2);
    let shadow = Shadow::on_region(region, &options.capacity(1 << 20).log_bytes(128 << 10)).unwrap();
    shadow.grow(64 << 10).unwrap();
    let (mut lease, mut other) = (shadow.lease(), shadow.lease());
    let taken = seal(&shadow, &mut lease, 0, 1);
    lease.finish().unwrap();
    medium.deaf.store(true, Ordering::SeqCst);
    // By the one call, and by two.
    let lost = seal(&shadow, &mut lease, 8, 2);
    lease.finish().unwrap_err();
    let later = seal(&shadow, &mut other, 16, 3);
    other.flush().unwrap_err();
    other.publish();
    let last = seal(&shadow, &mut lease, 24, 4);
    lease.finish().unwrap_err();
    for ticket in [lost, later, last] {
        assert!(!shadow.is_durable(ticket), "{ticket:?}");
        shadow.wait(ticket).unwrap_err();
    }
    shadow.wait(taken).unwrap();
    assert!(shadow.is_durable(taken));
    assert_eq!(shadow.durable(), taken);
}
