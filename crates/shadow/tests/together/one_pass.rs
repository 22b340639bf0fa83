//! Words that go from memory to the log in one pass: what comes back, and where this way is not open.

use crate::support::{Random, bytes, folder};
use mangrove_shadow::{Create, Latency, LogLease, Medium, Options, Order, Ticket};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));
const LEN: usize = 1 << 20;

fn options(medium: Medium) -> Options {
    let options = Options::new().create(Create::IfMissing).medium(medium).background(false);
    options.capacity(4 << 20).log_bytes(16 << 10)
}

/// Seals these words in one pass, if that is open.
fn seal(lease: &mut LogLease, base: usize, words: &[(usize, u64)], alone: bool) -> Option<(Ticket, bool)> {
    lease.seal_words(words, |&(at, value)| (base + at, value), alone, |_| true)
}

/// Adds words one by one: space is reserved, and the next group knows of it.
fn commit_in_steps(lease: &mut LogLease, base: usize, words: &[(usize, u64)]) {
    words.iter().for_each(|&(at, value)| lease.word(base + at, value));
    lease.commit().unwrap();
}

#[test]
fn what_was_sealed_in_one_pass_comes_back_and_a_void_one_does_not() {
    let (folder, mut random, mut model) = (folder(), Random(5), vec![0u8; LEN]);
    let (mut passed, mut refused, mut void) = (0, 0, 0);
    for round in 0..6 {
        let shadow = options(EMULATED).open(folder.path().join("s")).unwrap();
        shadow.grow(LEN as u64).unwrap();
        assert!(bytes(&shadow)[..LEN] == model[..], "round {round}");
        let (mut lease, base) = (shadow.lease(), shadow.base() as usize);
        for _ in 0..400 {
            let count = 1 + random.below(40);
            // Of equal addresses the values agree.
            let key = random.below(1 << 30);
            let places = (0..count).map(|_| random.below(LEN / 8) * 8);
            let words: Vec<_> = places.map(|at| (at, (at ^ key) as u64)).collect();
            let (commits, alone) = (random.below(8) > 0, random.below(2) == 0);
            let asked = Cell::new(None);
            let may_commit = |ticket: Ticket| {
                asked.set(Some(ticket));
                commits
            };
            match lease.seal_words(&words, |&(at, value)| (base + at, value), alone, may_commit) {
                Some((ticket, is_sealed)) => {
                    assert_eq!((asked.get(), is_sealed), (Some(ticket), commits));
                    assert_eq!(ticket, shadow.committed());
                    passed += 1;
                    if !commits {
                        void += 1;
                        lease.void();
                    }
                    assert!(lease.finish().unwrap(), "no other log has a smaller number under way");
                    assert!(shadow.is_durable(ticket));
                }
                None => {
                    assert_eq!(asked.get(), None, "no number is drawn where the way is not open");
                    refused += 1;
                    commit_in_steps(&mut lease, base, &words);
                }
            }
            if commits || asked.get().is_none() {
                for (at, value) in words {
                    model[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    bytes(&shadow)[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        drop(lease);
        match round % 2 {
            0 => drop(shadow),
            _ => shadow.close().unwrap(),
        }
    }
    // The ring's end, and space that the writer has to ask for, lead to the steps.
    assert!(
        passed > 1000 && void > 100 && refused > 50,
        "{passed} in one pass, {void} void, {refused} in steps"
    );
}

#[test]
fn the_way_is_not_open_on_file_nor_with_stamps_nor_for_long_groups() {
    let word = [(0, 1)];
    for (medium, stamped) in [(Medium::File, false), (EMULATED, true)] {
        let folder = folder();
        let options =
            if stamped { options(medium).stamped(true).order(Order::Marker) } else { options(medium) };
        let shadow = options.open(folder.path().join("s")).unwrap();
        shadow.grow(LEN as u64).unwrap();
        let mut lease = shadow.lease();
        assert_eq!(seal(&mut lease, shadow.base() as usize, &word, false), None, "{medium:?}");
        assert!(lease.is_empty());
    }
    let folder = folder();
    let shadow = options(EMULATED).log_bytes(64 << 10).open(folder.path().join("s")).unwrap();
    shadow.grow(LEN as u64).unwrap();
    let (mut lease, base) = (shadow.lease(), shadow.base() as usize);
    assert_eq!(seal(&mut lease, base, &word, false), None, "space was never asked for");
    commit_in_steps(&mut lease, base, &word);
    let long: Vec<_> = (0..300).map(|at| (at * 8, 7)).collect();
    assert_eq!(seal(&mut lease, base, &long, false), None);
    lease.word(base + 8, 2);
    assert_eq!(seal(&mut lease, base, &word, false), None, "something was added before");
    lease.clear();
    assert!(seal(&mut lease, base, &word, false).is_some_and(|(_, is_sealed)| is_sealed));
    assert!(lease.finish().unwrap());
}

/// A word that cannot be added: its number gets an empty atomic group, and nobody waits for it.
#[test]
fn a_word_outside_the_working_copy_panics_and_holds_up_nobody() {
    for outside in [LEN, LEN - 4, 12, usize::MAX - 7] {
        let folder = folder();
        let path = folder.path().join("s");
        let shadow = options(EMULATED).log_count(2).open(&path).unwrap();
        shadow.grow(LEN as u64).unwrap();
        let (mut lease, base) = (shadow.lease(), shadow.base() as usize);
        commit_in_steps(&mut lease, base, &[(0, 1)]);
        let words = [(0, 2), (outside, 3)];
        let end = catch_unwind(AssertUnwindSafe(|| {
            lease.seal_words(&words, |&(at, value)| (base.wrapping_add(at), value), false, |_| true)
        }));
        assert!(end.is_err(), "{outside:#x}");
        drop(lease);
        let mut lease = shadow.lease();
        bytes(&shadow)[8..16].copy_from_slice(&9u64.to_le_bytes());
        lease.word(base + 8, 9);
        let ticket = lease.commit().unwrap();
        shadow.wait(ticket).unwrap();
        drop((lease, shadow));
        let shadow = options(EMULATED).log_count(2).open(&path).unwrap();
        assert_eq!(bytes(&shadow)[..16], [1u64, 9].map(u64::to_le_bytes).concat(), "{outside:#x}");
    }
}
