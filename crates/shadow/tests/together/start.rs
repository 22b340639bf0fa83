//! Starting copy on write: ready at once, the same bytes, damage noticed in the background; and faults of the disk.

use mangrove_pool::{Fault, FaultKind, Faulty, FaultyOperation, OsStorage};
use mangrove_shadow::{Create, Error, Latency, Medium, Options, Shadow, Start};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEN: usize = 8 << 20;

fn options(medium: Medium) -> Options {
    let options = Options::new().create(Create::IfMissing).medium(medium);
    options.capacity(64 << 20).log_bytes(256 << 10)
}

#[expect(clippy::mut_from_ref, reason = "each test uses its working copy alone")]
fn bytes(shadow: &Shadow) -> &mut [u8] {
    // SAFETY: the usable part, and one test uses it alone.
    unsafe { std::slice::from_raw_parts_mut(shadow.base(), LEN) }
}

#[test]
fn copy_on_write_shows_the_same_and_keeps_what_is_committed_then() {
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("s");
        let options = || options(medium).start(Start::CopyOnWrite);
        let mut model: Vec<u8> = (0..LEN).map(|n| (n % 253) as u8).collect();
        let shadow = options().open(&path).unwrap();
        shadow.grow(LEN as u64).unwrap();
        bytes(&shadow).copy_from_slice(&model);
        shadow.commit(0, &[(shadow.base() as usize, LEN)]).unwrap();
        shadow.close().unwrap();
        for round in 0..6u8 {
            let shadow = options().open(&path).unwrap();
            assert!(bytes(&shadow) == &model[..], "{medium:?}, round {round}");
            let base = shadow.base() as usize;
            for n in 0..200 {
                let at = (n * 37_777 + usize::from(round) * 501) % (LEN - 600);
                bytes(&shadow)[at..at + 500].fill(round);
                model[at..at + 500].fill(round);
                shadow.commit(0, &[(base + at, 500)]).unwrap();
                // Never committed.
                bytes(&shadow)[at + 550] ^= 0xff;
                if n % 50 == 0 {
                    shadow.checkpoint().unwrap();
                }
                bytes(&shadow)[at + 550] ^= 0xff;
            }
            shadow.sync().unwrap();
            if round % 2 == 0 { drop(shadow) } else { shadow.close().unwrap() }
        }
    }
}

#[test]
fn damage_in_a_mapped_image_poisons_what_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let shadow = options(Medium::File).open(&path).unwrap();
    shadow.grow(LEN as u64).unwrap();
    bytes(&shadow).fill(7);
    shadow.commit(0, &[(shadow.base() as usize, LEN)]).unwrap();
    shadow.close().unwrap();
    let image = path.join("image");
    let mut whole = std::fs::read(&image).unwrap();
    whole[5 << 20] ^= 1;
    std::fs::write(&image, whole).unwrap();
    let error = options(Medium::File).open(&path).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let shadow = options(Medium::File).start(Start::CopyOnWrite).open(&path).unwrap();
    let begun = Instant::now();
    while shadow.poisoned().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "the damage went unnoticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(shadow.poisoned(), Some(Error::Corrupt { .. })));
    let error = shadow.commit(0, &[(shadow.base() as usize, 8)]).unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
}

/// Of a closed shadow the logs are empty: a damaged page of theirs is a note. Elsewhere it is damage, and so it is in a
/// log while the header, which says where the logs lie, is damaged too.
#[test]
fn damage_in_an_empty_log_is_a_note_and_everywhere_else_it_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = || options(Medium::Emulated(Latency::default()));
    let shadow = options().open(&path).unwrap();
    shadow.grow(LEN as u64).unwrap();
    bytes(&shadow).fill(7);
    shadow.commit(0, &[(shadow.base() as usize, 4096)]).unwrap();
    shadow.close().unwrap();
    let image = path.join("image");
    let whole = std::fs::read(&image).unwrap();
    const RINGS: usize = 12288;
    const COPY: usize = RINGS + (256 << 10);
    for (places, damage, notes) in [
        (vec![RINGS], 0, 1),
        (vec![COPY - 1], 0, 1),
        (vec![RINGS + 5, RINGS + 9000, COPY - 4096], 0, 3),
        (vec![COPY], 1, 0),
        (vec![RINGS - 1, RINGS + 5], 2, 0),
        (vec![RINGS + 5, COPY + 5], 1, 1),
    ] {
        let mut damaged = whole.clone();
        places.iter().for_each(|&place| damaged[place] ^= 1);
        std::fs::write(&image, damaged).unwrap();
        let report = Shadow::check(&path).unwrap();
        assert_eq!((report.damage.len(), report.notes.len()), (damage, notes), "{places:?}: {report:?}");
        assert_eq!(options().read_only(true).open(&path).is_ok(), damage == 0, "{places:?}");
    }
}

/// Opening a mapped pool says "not clean" before anything can be refused.
#[test]
fn a_closed_shadow_that_is_refused_stays_closed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let options = || options(Medium::Emulated(Latency::default()));
    let shadow = options().open(&path).unwrap();
    shadow.grow(LEN as u64).unwrap();
    bytes(&shadow).fill(7);
    shadow.commit(0, &[(shadow.base() as usize, LEN)]).unwrap();
    shadow.close().unwrap();
    let is_closed = || mangrove_pool::Pool::inspect(&path).unwrap().clean;
    // By the shadow itself, and by its owner.
    let error = options().capacity(128 << 20).open(&path).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(is_closed(), "after another capacity");
    options().open(&path).unwrap().undo_creation();
    assert!(is_closed(), "after its owner gave it up");
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    let shadow = options().open(&path).unwrap();
    assert!(shadow.report().was_clean && bytes(&shadow).iter().all(|&byte| byte == 7));
}

fn faulty(path: &std::path::Path) -> (Faulty, Shadow) {
    let storage = Faulty::new(Arc::new(OsStorage));
    let options = options(Medium::File).background(false).storage(Arc::new(storage.clone()));
    let shadow = options.open(path).unwrap();
    shadow.grow(LEN as u64).unwrap();
    (storage, shadow)
}

fn fault(operation: FaultyOperation, code: i32) -> Fault {
    Fault { file: None, operations: vec![operation], nth: 0, kind: FaultKind::Errno(code) }
}

/// A page of a checkpoint that was interrupted may be old, new or torn, but none of its bits may have flipped.
#[test]
fn damage_in_a_page_of_an_interrupted_checkpoint_is_not_sealed() {
    let dir = tempfile::tempdir().unwrap();
    for damaged in [false, true] {
        let path = dir.path().join(damaged.to_string());
        let (storage, shadow) = faulty(&path);
        let base = shadow.base() as usize;
        bytes(&shadow)[..4096].fill(7);
        shadow.commit(0, &[(base, 4096)]).unwrap();
        shadow.checkpoint().unwrap();
        bytes(&shadow)[..8].fill(8);
        shadow.commit(0, &[(base, 8)]).unwrap();
        let (file, operations) = (Some("image".to_owned()), vec![FaultyOperation::Sync]);
        storage.plant(Fault { file, operations, nth: 0, kind: FaultKind::Halt });
        shadow.checkpoint().unwrap_err();
        drop(shadow);
        if damaged {
            let mut image = std::fs::read(path.join("image")).unwrap();
            image[4000] ^= 1;
            std::fs::write(path.join("image"), image).unwrap();
        }
        let options = || options(Medium::File).start(Start::CopyOnWrite).background(false);
        let shadow = options().open(&path).unwrap();
        let result = shadow.checkpoint();
        if damaged {
            assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
            assert!(matches!(shadow.poisoned(), Some(Error::Corrupt { .. })));
            drop(shadow);
            let error = options().start(Start::Read).open(&path).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        } else {
            result.unwrap();
            assert_eq!((bytes(&shadow)[7], bytes(&shadow)[8]), (8, 7));
            shadow.close().unwrap();
            assert!(Shadow::check(&path).unwrap().damage.is_empty());
        }
    }
}

#[test]
fn a_failed_write_latches_and_what_was_acknowledged_stays() {
    const EIO: i32 = 5;
    let dir = tempfile::tempdir().unwrap();
    for (n, operation) in [FaultyOperation::Write, FaultyOperation::Sync].into_iter().enumerate() {
        let path = dir.path().join(n.to_string());
        let (storage, shadow) = faulty(&path);
        let base = shadow.base() as usize;
        bytes(&shadow)[..8].fill(1);
        let ticket = shadow.commit(0, &[(base, 8)]).unwrap();
        shadow.wait(ticket).unwrap();
        bytes(&shadow)[..8].fill(2);
        storage.plant(fault(operation, EIO));
        let failed = shadow.commit(0, &[(base, 8)]).and_then(|ticket| shadow.wait(ticket));
        // A sync happens at the checkpoint at the latest.
        let failed = failed.and_then(|()| shadow.checkpoint());
        assert!(failed.is_err(), "{operation:?} failed, and nobody was told");
        assert!(shadow.poisoned().is_some());
        let error = shadow.commit(0, &[(base, 8)]).unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        drop(shadow);
        let shadow = options(Medium::File).open(&path).unwrap();
        assert!([[1; 8], [2; 8]].contains(&bytes(&shadow)[..8].try_into().unwrap()));
        shadow.close().unwrap();
    }
}

#[test]
fn a_long_unit_that_finds_no_room_is_refused_and_nothing_else() {
    const ENOSPC: i32 = 28;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (storage, shadow) = faulty(&path);
    let base = shadow.base() as usize;
    bytes(&shadow).fill(3);
    storage.plant(fault(FaultyOperation::Write, ENOSPC));
    let error = shadow.commit(0, &[(base, LEN)]).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(storage.struck());
    storage.heal();
    assert!(shadow.poisoned().is_none());
    let left = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with("unit-")).count(), 0);
    let ticket = shadow.commit(0, &[(base + 100, 50)]).unwrap();
    shadow.wait(ticket).unwrap();
    drop(shadow);
    let shadow = options(Medium::File).open(&path).unwrap();
    assert_eq!(bytes(&shadow)[..200], [[0; 100].as_slice(), &[3; 50], &[0; 50]].concat()[..]);
    shadow.close().unwrap();
}

#[test]
fn an_unclosed_shadow_whose_image_was_cut_or_blanked_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path().join("s");
    let options = || options(Medium::Emulated(Latency::default()));
    let shadow = options().open(&path).unwrap();
    shadow.grow(LEN as u64).unwrap();
    bytes(&shadow).fill(7);
    shadow.commit(0, &[(shadow.base() as usize, LEN)]).unwrap();
    drop(shadow);
    let image = path.join("image");
    let whole = std::fs::read(&image).unwrap();
    let mut blank = whole.clone();
    blank[..4096].fill(0);
    let mut all_blank = whole.clone();
    all_blank.fill(0);
    let cuts = [0, 4096, whole.len() / 2, whole.len() - 1].map(|len| whole[..len].to_vec());
    for damaged in cuts.into_iter().chain([blank, all_blank]) {
        std::fs::write(&image, &damaged).unwrap();
        for options in [options(), options().start(Start::CopyOnWrite)] {
            let error = options.open(&path).expect_err("damage");
            assert!(matches!(error, Error::Corrupt { .. }), "{} bytes: {error}", damaged.len());
        }
        assert_eq!(Shadow::check(&path).unwrap().damage.len(), 1, "{} bytes", damaged.len());
        assert!(std::fs::read(&image).unwrap() == damaged, "the refusal changed the image");
    }
    std::fs::write(&image, &whole).unwrap();
    assert!(bytes(&options().open(&path).unwrap()).iter().all(|&byte| byte == 7));
}
