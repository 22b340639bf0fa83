//! The replayer on the emulated medium: what it writes to the durable copy, and when it empties the logs.

use crate::support::{Random, bytes, folder};
use mangrove_shadow::{Create, Latency, Medium, Options};
use std::time::{Duration, Instant};

fn options() -> Options {
    let options = Options::new().create(Create::IfMissing).medium(Medium::Emulated(Latency::default()));
    options.capacity(1 << 20).log_bytes(1 << 20).log_count(2)
}

/// Words at random in 1,024 lines, in a ring for some 36,000 words. Flushing what was applied since space was last
/// freed would write 0.3 lines a word, and each word's line 1.
#[test]
fn a_line_is_written_once_for_a_ring_of_changes_and_a_crash_in_between_loses_nothing() {
    const LEN: usize = 64 << 10;
    let dir = folder();
    let path = dir.path().join("s");
    let mut model = vec![0u8; LEN];
    let mut random = Random(1);
    for round in 0..3 {
        let shadow = options().background(false).open(&path).unwrap();
        shadow.grow(LEN as u64).unwrap();
        assert!(bytes(&shadow)[..LEN] == model[..], "round {round}");
        let base = shadow.base() as usize;
        let mut leases = [shadow.lease(), shadow.lease()];
        for unit in 0..30_000 + round * 777 {
            // Mostly in one log, so that its ring is the one that gets full.
            let lease = &mut leases[usize::from(unit % 16 == 0)];
            for _ in 0..8 {
                let (at, value) = (random.below(LEN / 8) * 8, random.below(1 << 30) as u64);
                bytes(&shadow)[at..at + 8].copy_from_slice(&value.to_le_bytes());
                model[at..at + 8].copy_from_slice(&value.to_le_bytes());
                lease.word(base + at, value);
            }
            lease.commit().unwrap();
        }
        let stat = shadow.stat();
        let lines_per_word = (stat.image_written / 64) as f64 / (stat.applied_bytes / 8) as f64;
        assert!(stat.full_waits > 0 && stat.batches > 10, "{stat:?}");
        assert!(lines_per_word < 0.06, "{lines_per_word}: {stat:?}");
        drop((leases, shadow));
    }
}

/// The replayer's thread keeps what it has applied in the logs, but not when their writers rest.
#[test]
fn the_logs_are_empty_soon_after_their_writers_rest() {
    let dir = folder();
    let shadow = options().open(dir.path().join("s")).unwrap();
    shadow.grow(64 << 10).unwrap();
    let base = shadow.base() as usize;
    for units in [1, 3_000] {
        for unit in 0..units {
            shadow.commit(unit % 2, &[(base + unit * 8, 100)]).unwrap();
        }
        let begun = Instant::now();
        while shadow.stat().log_used > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {:?}", shadow.stat());
            std::thread::sleep(Duration::from_millis(1));
        }
        let stat = shadow.stat();
        assert_eq!(stat.applied_units, stat.units);
    }
    shadow.close().unwrap();
}

/// With many logs, one of them busier than the others, the replayer frees space before any is full: a log writer that
/// it keeps up with never stops. And no sooner than that: a line waits for most of a ring of changes.
#[test]
fn no_writer_of_many_logs_stops_while_the_replayer_keeps_up() {
    const LOGS: usize = 24;
    const LEN: usize = 64 << 10;
    let dir = folder();
    let options = options().log_count(LOGS).log_bytes(128 << 10).background(false);
    for replayers in [1, 2] {
        let shadow =
            options.clone().replayers(replayers).open(dir.path().join(replayers.to_string())).unwrap();
        shadow.grow(LEN as u64).unwrap();
        let base = shadow.base() as usize;
        let mut leases: Vec<_> = (0..LOGS).map(|_| shadow.lease()).collect();
        let (mut random, mut fullest) = (Random(9), 0);
        for _ in 0..20_000 {
            // Every other one in the first log, and the rest anywhere.
            let log = random.below(2) * random.below(LOGS);
            for _ in 0..8 {
                leases[log].word(base + random.below(LEN / 8) * 8, 1);
            }
            leases[log].commit().unwrap();
            shadow.replay();
            fullest = fullest.max(shadow.stat().log_used);
        }
        let stat = shadow.stat();
        assert_eq!(stat.full_waits, 0, "{replayers}: {stat:?}");
        let laps = stat.log_written / (128 << 10);
        assert!(laps > 20 && fullest > (128 << 10) * 13 / 16, "{replayers}, {fullest} bytes: {stat:?}");
        let lines_per_word = (stat.image_written / 64) as f64 / (stat.applied_bytes / 8) as f64;
        assert!(lines_per_word < 0.3, "{replayers}, {lines_per_word}: {stat:?}");
    }
}
