//! Algorithm 4 of the SPHT-eADR dissertation, l.17: what a commit that is durable already asks to be written back is
//! its atomic group, to the end of the commit record, and nothing else; in two parts where the ring ends.

use mangrove_pool::{Lsn, MediumOps, Region, Result, Site};
use mangrove_shadow::{AddressChoice, Create, Domain, Options, Order, Shadow};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// DRAM that notes which ranges it shall write back.
struct Noting {
    memory: Box<[AtomicU64]>,
    flushed: Mutex<Vec<(u64, u64)>>,
}

impl Noting {
    fn region(bytes: usize) -> (Region, Arc<Self>) {
        let memory = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let medium = Arc::new(Self { memory, flushed: Mutex::default() });
        let base = NonNull::new(medium.memory.as_ptr().cast_mut().cast::<u8>()).unwrap();
        // SAFETY: the medium owns the memory, which is made of atomics.
        let region = unsafe { Region::new(base, bytes as u64, Arc::clone(&medium) as Arc<dyn MediumOps>) };
        (region, medium)
    }

    fn words(&self) -> Vec<u64> {
        self.memory.iter().map(|word| word.load(Ordering::SeqCst)).collect()
    }
}

impl MediumOps for Noting {
    unsafe fn flush(&self, offset: u64, _ptr: *const u8, len: usize, _site: Site) {
        self.flushed.lock().unwrap().push((offset, len as u64));
    }

    fn fence(&self, _site: Site) {}

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<()> {
        Ok(())
    }

    fn grow(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_commit_writes_back_its_whole_atomic_group_and_nothing_else() {
    let (region, medium) = Noting::region(4 << 20);
    let options = Options::new().create(Create::IfMissing).address(AddressChoice::Anywhere);
    let options = options.background(false).capacity(1 << 20).log_bytes(4096).log_count(1);
    let options = options.domain(Domain::Eadr).order(Order::Gaps).stamped(true);
    let shadow = Shadow::on_region(region, &options).unwrap();
    shadow.grow(64 << 10).unwrap();
    let complete = Arc::new(AtomicU64::new(0));
    let watermark = Arc::clone(&complete);
    shadow.set_watermark(move || watermark.load(Ordering::Acquire));
    let mut lease = shadow.lease();
    let mut in_two_parts = 0;
    for number in 1..300u64 {
        for word in 0..1 + number % 23 {
            let address = shadow.base() as usize + word as usize * 64;
            // SAFETY: inside the working copy, aligned, and no other thread uses it.
            unsafe { *(address as *mut u64) = number << 8 | word };
            lease.word(address, number << 8 | word);
        }
        lease.reserve().unwrap();
        let (before, written) = (medium.words(), shadow.stat().log_written);
        lease.number_as(number);
        lease.seal();
        let changed = medium.words();
        medium.flushed.lock().unwrap().clear();
        lease.write_back();
        let flushed = std::mem::take(&mut *medium.flushed.lock().unwrap());
        lease.flush().unwrap();
        lease.publish();
        let is_flushed = |at: u64| flushed.iter().any(|&(from, len)| (from..from + len).contains(&at));
        let left = (0..before.len()).find(|&n| before[n] != changed[n] && !is_flushed(n as u64 * 8));
        assert_eq!(
            left, None,
            "commit {number}: a word of its atomic group stays in the caches: {flushed:?}"
        );
        let bytes: u64 = flushed.iter().map(|&(_, len)| len).sum();
        assert_eq!(bytes, shadow.stat().log_written - written, "commit {number}: {flushed:?}");
        in_two_parts += u64::from(flushed.len() == 2);
        complete.store(number, Ordering::Release);
        shadow.checkpoint().unwrap();
    }
    assert!(in_two_parts > 5, "the ring ended inside {in_two_parts} atomic groups only");
}
