//! The shadow on the file medium.

use mangrove_shadow::{AddressChoice, CreateMode, Error, MediumChoice, Options, Shadow};

fn options() -> Options {
    let options = Options::new().create(CreateMode::CreateIfMissing).medium(MediumChoice::File);
    options.capacity(64 << 20).log_bytes(1 << 20)
}

#[expect(clippy::mut_from_ref, reason = "each test uses its working copy alone")]
fn bytes(shadow: &Shadow) -> &mut [u8] {
    // SAFETY: the usable part, and each test uses it alone.
    unsafe { std::slice::from_raw_parts_mut(shadow.base(), shadow.len() as usize) }
}

#[test]
fn what_was_committed_is_back_at_the_same_address() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let shadow = options().open(&path).unwrap();
    shadow.grow(1 << 20).unwrap();
    let base = shadow.base() as usize;
    bytes(&shadow)[10..20].fill(7);
    bytes(&shadow)[5000..5010].fill(8);
    bytes(&shadow)[30..40].fill(9);
    let ticket = shadow.commit(0, &[(base + 10, 10), (base + 5000, 10)]).unwrap();
    shadow.wait(ticket).unwrap();
    assert!(shadow.durable() >= ticket);
    drop(shadow);
    let shadow = options().open(&path).unwrap();
    assert_eq!(shadow.base() as usize, base);
    assert_eq!(bytes(&shadow)[10..20], [7; 10]);
    assert_eq!(bytes(&shadow)[5000..5010], [8; 10]);
    assert_eq!(bytes(&shadow)[30..40], [0; 10], "never committed");
    // The address is taken while it is open: another pool cannot be put there.
    let other = dir.path().join("t");
    let error = options().address(AddressChoice::At(base as u64)).open(&other).unwrap_err();
    assert!(matches!(error, Error::AddressTaken { .. }), "{error}");
    shadow.close().unwrap();
}

#[test]
fn a_unit_of_many_groups_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // Groups of this log hold at most 3 KiB.
    let options = || options().log_bytes(64 << 10);
    let shadow = options().open(&path).unwrap();
    shadow.grow(1 << 20).unwrap();
    let base = shadow.base() as usize;
    for round in 0..40u8 {
        bytes(&shadow)[..40_000].fill(round);
        let ranges: Vec<_> = (0..20).map(|i| (base + i * 1000, 700)).collect();
        shadow.commit(0, &ranges).unwrap();
    }
    shadow.sync().unwrap();
    drop(shadow);
    let shadow = options().open(&path).unwrap();
    for i in 0..20 {
        assert!(bytes(&shadow)[i * 1000..i * 1000 + 700].iter().all(|&b| b == 39));
        assert!(bytes(&shadow)[i * 1000 + 700..(i + 1) * 1000].iter().all(|&b| b == 0));
    }
    shadow.close().unwrap();
}
