//! The shadow on the file medium.

use mangrove_shadow::{AddressChoice, Create, Error, Medium, Options, Shadow};

fn options() -> Options {
    let options = Options::new().create(Create::IfMissing).medium(Medium::File);
    options.capacity(64 << 20).log_bytes(1 << 20)
}

#[expect(clippy::mut_from_ref, reason = "each test uses its working copy alone")]
fn bytes(shadow: &Shadow) -> &mut [u8] {
    // SAFETY: the usable part, and one test uses it alone.
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
    // The address is taken while the shadow is open: another pool cannot be mapped there.
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

/// Atomic groups longer than half the log lie in spill files until they have been applied.
#[test]
fn a_unit_longer_than_the_log_is_whole_and_leaves_no_file_behind() {
    const LEN: usize = 24 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let files = || {
        let names = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("unit-")).count()
    };
    let options = || options().log_bytes(64 << 10).background(false);
    let shadow = options().open(&path).unwrap();
    shadow.grow(LEN as u64).unwrap();
    let base = shadow.base() as usize;
    for (n, byte) in bytes(&shadow)[..LEN].iter_mut().enumerate() {
        *byte = (n % 251) as u8 + 1;
    }
    // Before it, in it, after it: overlapping ranges, out of order, many in one page.
    let mut before = shadow.commit(0, &[(base + 100, 8)]).unwrap();
    let mut ranges = vec![(base + (9 << 20), 10 << 20), (base + 4000, 4 << 20), (base + (2 << 20), 4 << 20)];
    ranges.extend((0..1000).rev().map(|n| (base + (20 << 20) + n * 3, 1)));
    let ticket = shadow.commit(0, &ranges).unwrap();
    assert!(ticket > before);
    before = ticket;
    bytes(&shadow)[5000..5010].fill(0);
    let ticket = shadow.commit(0, &[(base + 5000, 10)]).unwrap();
    assert!(ticket > before);
    shadow.wait(ticket).unwrap();
    assert_eq!(files(), 1);
    let mut model = vec![0u8; LEN];
    for &(at, len) in ranges.iter().chain(&[(base + 100, 8)]) {
        for (n, byte) in model.iter_mut().enumerate().skip(at - base).take(len) {
            *byte = (n % 251) as u8 + 1;
        }
    }
    model[5000..5010].fill(0);
    drop(shadow);
    // A file that no group names is left over from a crash.
    std::fs::write(path.join("unit-0123456789abcdef"), [1; 100]).unwrap();
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
    let shadow = options().open(&path).unwrap();
    assert!(bytes(&shadow)[..LEN] == model[..]);
    assert_eq!(files(), 1);
    shadow.checkpoint().unwrap();
    assert_eq!(files(), 0);
    shadow.close().unwrap();
    let shadow = options().open(&path).unwrap();
    assert!(bytes(&shadow)[..LEN] == model[..]);
    // Damage in the spill file is found.
    shadow.commit(0, &ranges).unwrap();
    shadow.sync().unwrap();
    drop(shadow);
    let mut names = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path());
    let name = names.find(|p| p.to_str().unwrap().contains("unit-")).unwrap();
    let mut file = std::fs::read(&name).unwrap();
    file[5 << 20] ^= 1;
    std::fs::write(&name, file).unwrap();
    let error = options().open(&path).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

/// What lies in it is laid out for its capacity, at an address with others behind it.
#[test]
fn other_sizes_than_those_of_an_existing_shadow_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = || Options::new().create(Create::IfMissing);
    for (name, medium) in
        [("file", Medium::File), ("rings", Medium::Emulated(mangrove_shadow::Latency::new(0, 0)))]
    {
        let path = dir.path().join(name);
        let made = base().medium(medium).capacity(16 << 20).log_bytes(64 << 10);
        made.open(&path).unwrap().close().unwrap();
        for bytes in [8 << 20, 32 << 20] {
            let error = base().capacity(bytes).open(&path).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Unsupported { .. }), "{text}");
            let says = format!("its capacity is 16777216 bytes, which cannot be changed to {bytes}");
            assert!(text.contains(&says), "{text}");
        }
        if name == "rings" {
            let text = base().log_bytes(128 << 10).open(&path).unwrap_err().to_string();
            assert!(
                text.contains("each of its logs has 65536 bytes, which cannot be changed to 131072"),
                "{text}"
            );
        } else {
            base().log_bytes(128 << 10).open(&path).unwrap().close().unwrap();
        }
        // Nothing else was asked for, or what it has, or only what a new one would get.
        base().open(&path).unwrap().close().unwrap();
        base().capacity((16 << 20) - 1).open(&path).unwrap().close().unwrap();
        base().new_capacity(1 << 30).open(&path).unwrap().close().unwrap();
    }
}
