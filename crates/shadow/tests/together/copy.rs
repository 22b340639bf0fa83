//! A shadow made of bytes that the caller has: it opens at its original's address, on every medium.

use mangrove_shadow::{Create, Error, Latency, Medium, Options, PoolConfig, Shadow, ShadowCopy};

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

/// Far more than what the other tests of the process take meanwhile.
#[test]
fn a_copy_that_needs_more_memory_than_the_process_may_have_is_refused() {
    const MORE: u64 = 1 << 30;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    let own = mangrove_sys::own_memory_bytes().unwrap() as u64;
    let config = PoolConfig { memory_bytes_max: Some(own + MORE), ..PoolConfig::default() };
    let options = Options::new().config(config).create(Create::New).medium(Medium::File);
    let mut copy = ShadowCopy::create(&path, &options.capacity(8 * MORE), 1 << 44).unwrap();
    copy.grow(1 << 18).unwrap();
    let refused = copy.grow(3 * MORE);
    assert!(matches!(refused, Err(Error::MemoryLimit { .. })), "{refused:?}");
    // Nothing was made longer, and what fits is closed.
    assert_eq!(copy.close(|_| true).unwrap(), Some(0));
    assert!(Shadow::check(&path).unwrap().damage.is_empty());
}
