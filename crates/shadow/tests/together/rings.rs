//! The shadow on the emulated medium: rings, replayer, recovery.

use crate::support::{Random, bytes, folder};
use mangrove_pool::{Pool, crc32c};
use mangrove_shadow::{AddressChoice, Create, Error, Latency, Medium, Options, Shadow};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn options() -> Options {
    let options = Options::new().create(Create::IfMissing);
    options.medium(Medium::Emulated(Latency::default())).capacity(64 << 20).log_bytes(64 << 10)
}

#[test]
fn what_was_committed_is_back_at_the_same_address_and_the_rest_is_not() {
    let dir = folder();
    let path = dir.path().join("s");
    for background in [false, true] {
        let options = || options().background(background);
        let shadow = options().open(&path).unwrap();
        shadow.grow(1 << 20).unwrap();
        let base = shadow.base() as usize;
        bytes(&shadow)[..100].fill(7);
        bytes(&shadow)[5000..5010].fill(8);
        bytes(&shadow)[300..400].fill(9);
        let ticket = shadow.commit(0, &[(base + 10, 10), (base + 5000, 10), (base, 0)]).unwrap();
        shadow.wait(ticket).unwrap();
        assert_eq!(shadow.durable(), ticket);
        drop(shadow);
        let shadow = options().open(&path).unwrap();
        assert_eq!(shadow.base() as usize, base);
        assert_eq!(shadow.len(), 1 << 20);
        assert_eq!(bytes(&shadow)[..10], [0; 10]);
        assert_eq!(bytes(&shadow)[10..20], [7; 10]);
        assert_eq!(bytes(&shadow)[20..100], [0; 80]);
        assert_eq!(bytes(&shadow)[5000..5010], [8; 10]);
        assert!(bytes(&shadow)[300..400].iter().all(|&b| b == 0), "never committed");
        let other = options().address(AddressChoice::At(base as u64)).open(dir.path().join("t"));
        assert!(matches!(other, Err(Error::AddressTaken { .. })), "{other:?}");
        assert!(!dir.path().join("t").exists(), "a refused creation leaves nothing");
        shadow.close().unwrap();
        assert!(Shadow::check(&path).unwrap().damage.is_empty());
        let shadow = options().open(&path).unwrap();
        assert!(shadow.report().was_clean);
        assert_eq!((shadow.report().units, shadow.report().dropped), (0, 0));
        assert_eq!(bytes(&shadow)[10..20], [7; 10]);
        shadow.close().unwrap();
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn random_units_and_tidy_crashes_leave_what_a_model_says() {
    const LEN: usize = 1 << 20;
    let dir = folder();
    for (logs, background) in [(1, false), (3, false), (3, true)] {
        let path = dir.path().join(format!("s{logs}{background}"));
        let options = || options().log_count(logs).background(background).log_bytes(16 << 10);
        let mut random = Random(logs as u64);
        let mut model = vec![0u8; LEN];
        for round in 0..12 {
            let shadow = options().open(&path).unwrap();
            if round == 0 {
                shadow.grow(LEN as u64).unwrap();
            }
            assert!(bytes(&shadow)[..LEN] == model[..], "round {round} with {logs} logs");
            let base = shadow.base() as usize;
            for unit in 0..300 {
                let mut ranges = Vec::new();
                for _ in 0..random.below(8) {
                    // Now and then one that is too long for a ring of 16 KiB.
                    let longest = if random.below(40) == 0 { 60_000 } else { 200 };
                    let len = random.below(longest);
                    let at = random.below(LEN - len);
                    let fill = random.below(256) as u8;
                    bytes(&shadow)[at..at + len].fill(fill);
                    model[at..at + len].fill(fill);
                    ranges.push((base + at, len));
                }
                shadow.commit(unit % logs, &ranges).unwrap();
            }
            assert!(shadow.stat().log_written > 20 << 10, "the rings never wrapped");
            match round % 3 {
                0 => drop(shadow),
                1 => shadow.checkpoint().unwrap(),
                _ => shadow.close().unwrap(),
            }
        }
    }
}

#[test]
fn growing_finds_zeros_where_a_long_unit_had_lain() {
    let dir = folder();
    let path = dir.path().join("s");
    let shadow = options().background(false).open(&path).unwrap();
    shadow.grow(1 << 20).unwrap();
    let base = shadow.base() as usize;
    bytes(&shadow).fill(5);
    shadow.commit(0, &[(base, 1 << 20)]).unwrap();
    shadow.grow(2 << 20).unwrap();
    drop(shadow);
    let shadow = options().background(false).open(&path).unwrap();
    assert_eq!(shadow.len(), 2 << 20);
    assert!(bytes(&shadow)[..1 << 20].iter().all(|&b| b == 5));
    assert!(bytes(&shadow)[1 << 20..].iter().all(|&b| b == 0));
    // And while it is spilled and not yet applied.
    bytes(&shadow).fill(6);
    shadow.commit(0, &[(base, 2 << 20)]).unwrap();
    drop(shadow);
    let shadow = options().background(false).open(&path).unwrap();
    assert_eq!(shadow.report().units, 1);
    assert!(bytes(&shadow).iter().all(|&b| b == 6));
    shadow.grow(8 << 20).unwrap();
    assert!(bytes(&shadow)[2 << 20..].iter().all(|&b| b == 0));
    drop(shadow);
    let shadow = options().background(false).open(&path).unwrap();
    assert!(bytes(&shadow)[2 << 20..].iter().all(|&b| b == 0));
    // One for which there is no space after the durable copy.
    shadow.grow(64 << 20).unwrap();
    let error = shadow.grow((64 << 20) + 1).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    shadow.close().unwrap();
}

/// Threads commit to logs of their own, each a counter and a copy; what is acknowledged is in order.
#[test]
fn threads_with_logs_of_their_own_keep_each_unit_whole_and_lose_nothing_acknowledged() {
    const THREADS: usize = 4;
    let dir = folder();
    let path = dir.path().join("s");
    let options = || options().log_count(THREADS).log_bytes(16 << 10);
    let mut least = [0u64; THREADS];
    for _ in 0..5 {
        let done = [const { AtomicU64::new(0) }; THREADS];
        let shadow = options().open(&path).unwrap();
        shadow.grow(64 << 10).unwrap();
        let word = |at: usize| {
            // SAFETY: inside what was grown, aligned; each word is one thread's.
            unsafe { shadow.base().add(at).cast::<u64>() }
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|t| {
                    let (shadow, stop, word, done) = (&shadow, &stop, &word, &done[t]);
                    let floor = least[t];
                    scope.spawn(move || {
                        let (a, b) = (word(t * 8192), word(t * 8192 + 4096));
                        // SAFETY: this thread's words.
                        let mut n = unsafe { *a };
                        assert!(n >= floor, "thread {t} lost units: {n} after {floor}");
                        // SAFETY: as above.
                        let copy = unsafe { *b };
                        assert_eq!(n, copy, "a unit came back in part");
                        while !stop.load(Ordering::Relaxed) {
                            n += 1;
                            // SAFETY: as above.
                            unsafe {
                                *a = n;
                                *b = n;
                            }
                            let ticket = shadow.commit(t, &[(a as usize, 8), (b as usize, 8)]).unwrap();
                            shadow.wait(ticket).unwrap();
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        n
                    })
                })
                .collect();
            // Some laps of each ring; a thread that ended says why below.
            while done.iter().any(|done| done.load(Ordering::Relaxed) < 1000)
                && !workers.iter().any(|worker| worker.is_finished())
            {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            for (t, worker) in workers.into_iter().enumerate() {
                least[t] = worker.join().unwrap();
            }
        });
        drop(shadow);
    }
}

/// The checksum of the atomic group of log 0 that stands at `unit` of the data file, and has one SPILL record.
fn seal(image: &mut [u8], unit: usize) {
    let seed = crc32c(crc32c(0, &image[48..56]), &image[192..200]);
    let head = [&image[unit..unit + 24], &image[unit + 28..unit + 32]].concat();
    let crc = crc32c(crc32c(seed, &head), &image[unit + 32..unit + 64]);
    image[unit + 24..unit + 28].copy_from_slice(&crc.to_le_bytes());
}

/// A writer of hostile bytes can compute checksums. It can change the data, but not make the opener crash.
#[test]
fn forged_numbers_and_long_units_are_refused() {
    const RING_BYTES: usize = 64 << 10;
    const RING: usize = 4096 + 64 * 128;
    const IMAGE: usize = RING + RING_BYTES;
    let dir = folder();
    let path = dir.path().join("s");
    let options = || options().background(false);
    let shadow = options().open(&path).unwrap();
    shadow.grow(64 << 10).unwrap();
    let base = shadow.base() as usize;
    bytes(&shadow)[..64 << 10].fill(3);
    shadow.commit(0, &[(base, 64 << 10)]).unwrap();
    drop(shadow);
    let file = path.join("image");
    let whole = std::fs::read(&file).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let takes_no_space = |bytes: &[u8], what: &str| {
        assert_eq!(std::fs::metadata(&file).unwrap().len(), bytes.len() as u64, "{what}: space was taken");
    };
    let openings = || [Options::new().read_only(true), options()];
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&file, bytes).unwrap();
        for opening in openings() {
            let error = opening.open(&path).expect_err(what);
            assert!(matches!(error, Error::Corrupt { .. }), "{what}: {error}");
        }
        assert!(!Shadow::check(&path).unwrap().damage.is_empty(), "{what}");
        takes_no_space(bytes, what);
    };
    // As after a crash that left the last atomic group unfinished.
    let not_applied = |bytes: &[u8], what: &str| {
        std::fs::write(&file, bytes).unwrap();
        for opening in openings() {
            let opened = opening.open(&path);
            assert!(!opened.is_ok_and(|shadow| shadow.report().units > 0), "{what}: it was applied");
            takes_no_space(bytes, what);
        }
    };
    // The generation, the end of the durable copy, the begin of the log.
    for at in [192, 4096 + 64, 4096 + 72] {
        for value in [u64::MAX, u64::MAX - 7, 1 << 63] {
            let mut bad = whole.clone();
            bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
            refused(&bad, &format!("the word at {at} says {value}"));
        }
    }
    // A length of which one bit has flipped: the file is shorter.
    let mut bad = whole.clone();
    bad[64..72].copy_from_slice(&(word(&whole, 64) ^ 1 << 24).to_le_bytes());
    refused(&bad, "a length behind the file's end");
    // An atomic group whose records lie in the durable copy: applying it overwrites what was verified.
    let mut bad = whole.clone();
    let records = [[64 << 8 | 0xd2, 0].map(u64::to_le_bytes).concat(), vec![9; 64]].concat();
    bad[IMAGE..IMAGE + records.len()].copy_from_slice(&records);
    let unit = RING + word(&whole, 4096 + 72) as usize % RING_BYTES;
    assert_eq!((word(&bad, unit) & 0xff, word(&bad, unit + 32) & 0xff), (0xc1, 0xa3));
    let aside = [u64::from(crc32c(0, &records)) << 32 | 0xa3, IMAGE as u64, records.len() as u64, 1];
    bad[unit + 32..unit + 64].copy_from_slice(&aside.map(u64::to_le_bytes).concat());
    seal(&mut bad, unit);
    not_applied(&bad, "records in the durable copy");
    // Records that lie, in whole or in part, behind the file's end, where the region's addresses go on: to read there
    // raises SIGBUS.
    let capacity = Pool::inspect(&path).unwrap().capacity as usize;
    let (aside, file_end) = (word(&whole, unit + 40) as usize, whole.len());
    for (start, end) in [(aside, file_end + 8), (file_end, file_end + 4096), (file_end, capacity)] {
        let mut bad = whole.clone();
        let record = [0xa3, start as u64, (end - start) as u64, 1];
        bad[unit + 32..unit + 64].copy_from_slice(&record.map(u64::to_le_bytes).concat());
        seal(&mut bad, unit);
        not_applied(&bad, &format!("records from {start} to {end}, of {file_end} bytes"));
    }
    // A second one, whose records are those of the first.
    let mut bad = whole.clone();
    bad.copy_within(unit..unit + 64, unit + 64);
    let (seq, position) = (word(&whole, unit + 8) + 1, word(&whole, unit + 16) + 64);
    bad[unit + 72..unit + 88].copy_from_slice(&[seq, position].map(u64::to_le_bytes).concat());
    seal(&mut bad, unit + 64);
    refused(&bad, "two long units at a time");
    std::fs::write(&file, &whole).unwrap();
    let shadow = options().open(&path).unwrap();
    assert!(bytes(&shadow)[..64 << 10].iter().all(|&b| b == 3));
}

/// Bytes that look like heads of atomic groups of the next lap, as far as they can be guessed, are ordinary data.
#[test]
fn values_that_look_like_units_cannot_close_the_shadow() {
    const RING_BYTES: u64 = 64 << 10;
    const RING: u64 = 4096 + 64 * 128;
    let dir = folder();
    let path = dir.path().join("s");
    let options = || options().background(false);
    let shadow = options().open(&path).unwrap();
    shadow.grow(64 << 10).unwrap();
    let base = shadow.base() as usize;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path.join("image")).unwrap();
    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    };
    let head = || word(4096 + 72);
    let value: Vec<u8> = (0..4096)
        .step_by(32)
        .flat_map(|at| {
            let position = head() + 32 + 16 + at + RING_BYTES;
            [(50 << 10) << 8 | 0xc1, 1000 + at, position, 1 << 32].map(u64::to_le_bytes).concat()
        })
        .collect();
    let (lap, place) = (head(), RING + head() % RING_BYTES + 32 + 16);
    bytes(&shadow)[..4096].copy_from_slice(&value);
    for (at, len) in [(0, 4096), (8192, 25 << 10), (8192, 25 << 10)] {
        shadow.commit(0, &[(base + at, len)]).unwrap();
    }
    shadow.checkpoint().unwrap();
    assert!(head() > lap + (54 << 10) && head() < lap + RING_BYTES);
    assert_eq!(word(place + 16), lap + 32 + 16 + RING_BYTES, "the value lies where it says");
    bytes(&shadow)[5000..5008].fill(7);
    shadow.commit(0, &[(base + 5000, 8)]).unwrap();
    drop(shadow);
    // The last atomic group is torn.
    let torn = RING + head() % RING_BYTES + 32 + 16;
    assert_eq!(word(torn), u64::from_le_bytes([7; 8]));
    file.write_all_at(&[0; 8], torn).unwrap();
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    let shadow = options().open(&path).unwrap();
    assert_eq!(shadow.report().units, 0);
    assert!(bytes(&shadow)[..4096] == value[..] && bytes(&shadow)[5000..5008] == [0; 8]);
}

#[test]
fn a_unit_whose_bytes_change_under_its_commit_is_whole_all_the_same() {
    // One that lies in the ring, and a spilled one.
    for bytes in [1 << 20, 48 << 20] {
        let dir = folder();
        let path = dir.path().join("s");
        let shadow = options().background(false).log_bytes(64 << 20).open(&path).unwrap();
        shadow.grow(bytes).unwrap();
        let base = shadow.base() as usize;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: words of the working copy, which this thread alone stores to; the commit reads them as it
                // may.
                let words = (0..bytes)
                    .step_by(4096)
                    .map(|at| unsafe { AtomicU64::from_ptr((base + at as usize) as *mut u64) });
                let words: Vec<_> = words.collect();
                for n in 1.. {
                    words.iter().for_each(|word| word.store(n, Ordering::Relaxed));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            for _ in 0..8 {
                shadow.commit(0, &[(base, bytes as usize)]).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        drop(shadow);
        let shadow = options().background(false).log_bytes(64 << 20).open(&path).unwrap();
        assert!(shadow.report().units > 0);
        shadow.close().unwrap();
    }
}

/// Only `check` reads the rings of a closed shadow, and has a note for them. Opening notices damage everywhere else.
#[test]
fn damage_in_a_ring_of_a_closed_shadow_is_a_note_of_check_and_harms_nothing() {
    const RINGS: usize = 4096 + 64 * 128;
    const RING_BYTES: usize = 64 << 10;
    let dir = folder();
    let path = dir.path().join("s");
    let options = || options().background(false).log_count(2).log_bytes(RING_BYTES as u64);
    let shadow = options().open(&path).unwrap();
    shadow.grow(64 << 10).unwrap();
    let base = shadow.base() as usize;
    bytes(&shadow)[..4096].fill(3);
    for n in 0..100 {
        shadow.commit(n % 2, &[(base, 4000)]).unwrap();
    }
    shadow.close().unwrap();
    let [image, mark] = ["image", "pool"].map(|name| path.join(name));
    let (whole, closed) = (std::fs::read(&image).unwrap(), std::fs::read(&mark).unwrap());
    let image_start = RINGS + 2 * RING_BYTES;
    let header = [20, 4096 + 64, RINGS - 1].into_iter();
    let rings = (RINGS..image_start).step_by(7919);
    for at in header.chain(rings).chain([image_start, image_start + 4095, image_start + (64 << 10) - 1]) {
        let mut bad = whole.clone();
        bad[at] ^= 4;
        std::fs::write(&image, &bad).unwrap();
        std::fs::write(&mark, &closed).unwrap();
        let report = Shadow::check(&path).unwrap();
        let opened = options().open(&path);
        let is_in_ring = (RINGS..image_start).contains(&at);
        let expected = if is_in_ring { (0, 1) } else { (1, 0) };
        assert_eq!((report.damage.len(), report.notes.len()), expected, "byte {at}: {report:?}");
        if is_in_ring {
            let shadow = opened.unwrap();
            // Dropped: closing would write page checksums, and the next round is about those of before.
            assert!(bytes(&shadow)[..4000].iter().all(|&byte| byte == 3), "byte {at}");
        } else {
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "byte {at}");
        }
    }
}

#[test]
fn damage_in_a_log_is_named_and_refused() {
    let dir = folder();
    let path = dir.path().join("s");
    let shadow = options().background(false).open(&path).unwrap();
    shadow.grow(64 << 10).unwrap();
    let base = shadow.base() as usize;
    bytes(&shadow)[..4096].fill(3);
    for _ in 0..4 {
        shadow.commit(0, &[(base, 1000)]).unwrap();
    }
    drop(shadow);
    let image = path.join("image");
    let whole = std::fs::read(&image).unwrap();
    // The first ring begins after the logs' words.
    let rings = 4096 + 64 * 128;
    // An atomic group has 32 bytes, a record of 16, and its bytes. Damage anywhere in the first three is found, and
    // the last is the proof; damage in the last is taken for a commit that was not finished.
    // Padding to whole lines follows, which nothing reads.
    let (used, unit) = (32 + 16 + 1000, 1088);
    let in_units = (rings..rings + 3 * unit).step_by(53).filter(|at| (at - rings) % unit < used);
    for at in [3, 20, 60].into_iter().chain(in_units) {
        let mut bad = whole.clone();
        bad[at] ^= 4;
        std::fs::write(&image, &bad).unwrap();
        let error = options().background(false).open(&path).expect_err(&format!("byte {at}"));
        assert!(matches!(error, Error::Corrupt { .. } | Error::Newer { .. }), "byte {at}: {error}");
        let report = Shadow::check(&path);
        assert!(report.is_err() || !report.unwrap().damage.is_empty(), "byte {at}: check found nothing");
    }
    std::fs::write(&image, &whole).unwrap();
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    let mut torn = whole.clone();
    torn[rings + 3 * unit + 500] ^= 4;
    std::fs::write(&image, &torn).unwrap();
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    let shadow = options().background(false).open(&path).unwrap();
    assert_eq!(shadow.report().units, 3);
    drop(shadow);
    std::fs::write(&image, &whole).unwrap();
    let shadow = options().background(false).open(&path).unwrap();
    assert_eq!(shadow.report().units, 4);
    shadow.close().unwrap();
}

/// A length that was lost looks like that of a shadow in which nothing was grown: its owner would make all anew.
#[test]
fn a_length_of_zero_where_bytes_were_committed_is_damage() {
    for is_applied in [false, true] {
        let dir = folder();
        let path = dir.path().join("s");
        let shadow = options().background(false).open(&path).unwrap();
        shadow.grow(64 << 10).unwrap();
        let base = shadow.base() as usize;
        bytes(&shadow)[..100].fill(3);
        shadow.commit(0, &[(base, 100)]).unwrap();
        if is_applied {
            shadow.checkpoint().unwrap();
        }
        drop(shadow);
        let file = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
        file.write_all_at(&[0; 8], 64).unwrap();
        for opening in [Options::new().read_only(true), options().background(false)] {
            let error = opening.open(&path).unwrap_err();
            assert!(matches!(error, Error::Corrupt { offset: 64, .. }), "{is_applied}: {error}");
        }
        assert!(!Shadow::check(&path).unwrap().damage.is_empty(), "{is_applied}");
    }
    // Nothing was committed.
    let dir = folder();
    let path = dir.path().join("s");
    drop(options().background(false).open(&path).unwrap());
    let shadow = options().background(false).open(&path).unwrap();
    assert!(shadow.is_empty());
    shadow.close().unwrap();
}

/// It makes right atomic groups look like commits that were not finished.
#[test]
fn a_length_that_leaves_out_what_was_committed_is_damage() {
    const CUT: usize = 64 << 10;
    // Words alone, a range alone, both, and an atomic group that is too long for the ring.
    for (has_word, len) in [(true, 0), (false, 100), (true, 100), (false, 40 << 10)] {
        let dir = folder();
        let path = dir.path().join("s");
        let shadow = options().background(false).open(&path).unwrap();
        shadow.grow(2 * CUT as u64).unwrap();
        let base = shadow.base() as usize;
        let mut lease = shadow.lease();
        lease.word(base, 1);
        lease.commit().unwrap();
        if has_word {
            lease.word(base + CUT, 1);
        }
        lease.range(base + CUT + 8, &vec![1; len]);
        lease.commit().unwrap();
        drop((lease, shadow));
        let file = std::fs::OpenOptions::new().write(true).open(path.join("image")).unwrap();
        file.write_all_at(&(CUT as u64).to_le_bytes(), 64).unwrap();
        for opening in [Options::new().read_only(true), options().background(false)] {
            let error = opening.open(&path).unwrap_err();
            assert!(matches!(error, Error::Corrupt { offset: 64, .. }), "{has_word}, {len}: {error}");
        }
        assert!(!Shadow::check(&path).unwrap().damage.is_empty(), "{has_word}, {len}");
        file.write_all_at(&(2 * CUT as u64).to_le_bytes(), 64).unwrap();
        let shadow = options().background(false).open(&path).unwrap();
        assert_eq!(shadow.report().units, 2, "{has_word}, {len}");
        shadow.close().unwrap();
    }
}
