//! A shadow made of bytes that the caller has: it opens at its original's address, on every medium.

use mangrove_shadow::{Create, Latency, Medium, Options, Shadow, ShadowCopy};

const MEDIA: [Medium; 2] = [Medium::File, Medium::Emulated(Latency::new(0, 0))];

fn options(medium: Medium) -> Options {
    Options::new().create(Create::New).capacity(16 << 20).log_bytes(16 << 10).medium(medium).kind("test")
}

/// What lies at `offset`.
fn byte(offset: usize) -> u8 {
    if (offset / 4096).is_multiple_of(3) { 0 } else { (offset % 251) as u8 }
}

#[test]
fn a_copy_opens_where_its_original_lies() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let original = options(medium).open(dir.path().join("original")).unwrap();
        let base = original.base() as u64;
        let path = dir.path().join("copy");
        let mut copy = ShadowCopy::create(&path, &options(medium), base).unwrap();
        copy.grow(1 << 18).unwrap();
        for offset in 0..1 << 18 {
            // SAFETY: inside what was grown.
            unsafe { copy.base().add(offset).write(byte(offset)) };
        }
        let copied = copy.close(|_| true).unwrap().expect("it was not stopped");
        assert_eq!(copied, (0..64u64).filter(|page| page % 3 != 0).count() as u64 * 4096);
        assert!(Shadow::check(&path).unwrap().damage.is_empty());
        drop(original);
        let shadow = options(medium).create(Create::Never).open(&path).unwrap();
        assert!(shadow.report().was_clean && shadow.len() >= 1 << 18, "{medium}");
        assert_eq!(shadow.base() as u64, base);
        // SAFETY: inside what was grown, and nobody writes it.
        let bytes = unsafe { std::slice::from_raw_parts(shadow.base(), 1 << 18) };
        assert!(bytes.iter().enumerate().all(|(at, &found)| found == byte(at)), "{medium}");
        shadow.close().unwrap();
    }
}
