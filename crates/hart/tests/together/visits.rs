//! Visits of a range while the map changes: the visitor itself writes, at every place of the walk.

use mangrove_hart::{Hart, Options, WriteMode};
use mangrove_pool::{Emulated, Lsn, MediumOps, Observers, ReadObserver, Region, Site};
use std::ops::Bound;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MODE: WriteMode = WriteMode::Durable;
const COUNT: u32 = 200;

/// Bytes of a value that lies in a block, and not behind its key.
const BLOCK_VALUE_BYTES: usize = 600;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

fn key(number: u32) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

/// Even numbers; every `block_every`-th value lies in a block.
fn fill(block_every: u32) -> (Hart, Records) {
    let hart = Hart::create(Emulated::region(64 << 20).unwrap(), &Options::default()).unwrap();
    let mut records = Records::new();
    for number in (0..2 * COUNT).step_by(2) {
        let len = match number {
            _ if number % block_every == block_every - 2 => BLOCK_VALUE_BYTES,
            _ if number.is_multiple_of(3) => 40,
            _ => 7,
        };
        let value = vec![number as u8; len];
        hart.put(&key(number), &value, MODE).unwrap();
        records.push((key(number), value));
    }
    (hart, records)
}

/// Removes neighbours and both ends, changes records and adds some.
fn disturb(hart: &Hart, at: u32) {
    for number in [0, at.saturating_sub(4), at, at + 2, at + 4, 2 * COUNT - 2] {
        hart.delete(&key(number & !1), MODE).unwrap();
    }
    for number in [at + 3, at + 6, at + 9, 2 * COUNT + 1] {
        hart.put(&key(number), b"later", MODE).unwrap();
    }
}

fn visit(
    range: &mut mangrove_hart::Range<'_>,
    back: bool,
    visit: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), mangrove_hart::Error> {
    if back { range.for_each_ref_back(visit) } else { range.for_each_ref(visit) }
}

#[test]
fn a_visit_shows_its_instant_whatever_its_visitor_does() {
    for (back, block_every) in [(false, 10_000), (true, 10_000), (false, 16), (true, 16)] {
        for at in [0, 1, 2, 30, 31, 63, 64, 65, 100, COUNT - 3, COUNT - 2, COUNT - 1] {
            let (hart, mut wanted) = fill(block_every);
            if back {
                wanted.reverse();
            }
            let mut seen = Records::new();
            let mut range = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
            visit(&mut range, back, |key, value| {
                if seen.len() as u32 == at {
                    disturb(&hart, if back { 2 * (COUNT - 1 - at) } else { 2 * at });
                }
                seen.push((key.to_vec(), value.to_vec()));
                true
            })
            .unwrap();
            assert_eq!(seen, wanted, "back: {back}, disturbed at {at}");
            drop(range);
            assert!(hart.check().unwrap().is_sound());
        }
    }
}

#[test]
fn a_visit_shows_its_instant_when_the_blocks_to_come_get_other_values() {
    for back in [false, true] {
        for at in [0, 1, 11, 12, 13, 40, COUNT - 2] {
            let (hart, mut wanted) = fill(2);
            if back {
                wanted.reverse();
            }
            let mut seen = Records::new();
            let mut range = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
            visit(&mut range, back, |key, value| {
                if seen.len() as u32 == at {
                    // Twice: the second round uses the blocks that the first one freed.
                    for salt in [100, 200] {
                        wanted
                            .iter()
                            .for_each(|(key, _)| hart.put(key, &[salt; BLOCK_VALUE_BYTES], MODE).unwrap());
                    }
                }
                seen.push((key.to_vec(), value.to_vec()));
                true
            })
            .unwrap();
            assert_eq!(seen, wanted, "back: {back}, overwritten at {at}");
        }
    }
}

#[test]
fn steps_from_both_ends_show_their_instant_whatever_changes_between_them() {
    // Which steps go back: none, all, every other one, and in runs of three.
    let ways: [fn(u32) -> bool; 4] = [|_| false, |_| true, |n| n % 2 == 1, |n| n / 3 % 2 == 1];
    for goes_back in ways {
        for at in [0, 1, 2, 15, 16, 17, 63, 64, 65, 100, COUNT - 2, COUNT - 1, COUNT] {
            let (hart, wanted) = fill(16);
            let mut range = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
            let (mut low, mut high) = (Records::new(), Records::new());
            for number in 0..COUNT {
                if number == at {
                    let (next, before) = (2 * low.len() as u32, 2 * (COUNT - 1 - high.len() as u32));
                    disturb(&hart, next);
                    disturb(&hart, before);
                }
                if goes_back(number) {
                    high.push(range.next_back().unwrap().unwrap());
                } else {
                    low.push(range.next().unwrap().unwrap());
                }
            }
            assert!(range.next().is_none() && range.next_back().is_none());
            low.extend(high.into_iter().rev());
            assert_eq!(low, wanted, "disturbed at {at}");
        }
    }
}

#[test]
fn steps_go_on_when_what_another_snapshot_saved_is_gone() {
    let (hart, wanted) = fill(16);
    let older = hart.snapshot().unwrap();
    // Saved for the older instant, so steps of a later one look for saved states.
    let (changed, value) = &wanted[0];
    hart.put(changed, b"meanwhile", MODE).unwrap();
    hart.put(changed, value, MODE).unwrap();
    let mut range = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
    let mut seen: Records = range.by_ref().take(20).map(Result::unwrap).collect();
    drop(older);
    seen.extend(range.map(Result::unwrap));
    assert_eq!(seen, wanted);
}

#[test]
fn a_visit_goes_on_where_it_was_stopped() {
    let (hart, all) = fill(32);
    let (from, to) = (key(21), key(340));
    let wanted: Records = all.into_iter().filter(|(k, _)| *k > from && *k <= to).collect();
    for back in [false, true] {
        for part in [1, 2, 31, 64, 1000] {
            let mut range = hart.range(Bound::Excluded(&from), Bound::Included(&to)).unwrap();
            let mut seen = Records::new();
            let take = |range: &mut mangrove_hart::Range<'_>, seen: &mut Records| {
                let before = seen.len();
                visit(range, back, |key, value| {
                    seen.push((key.to_vec(), value.to_vec()));
                    seen.len() < before + part
                })
                .unwrap();
                seen.len() > before
            };
            // Visits and single steps in turn.
            while take(&mut range, &mut seen) {
                let next = if back { range.next_back() } else { range.next() };
                seen.extend(next.map(Result::unwrap));
            }
            if back {
                seen.reverse();
            }
            assert_eq!(seen, wanted, "back: {back}, {part} at a time");
        }
    }
}

#[test]
fn a_snapshot_is_whole_where_more_was_taken_out_and_changed_than_one_fetch_takes() {
    let hart = Hart::create(Emulated::region(64 << 20).unwrap(), &Options::default()).unwrap();
    let value = |number: u32| vec![number as u8; if number.is_multiple_of(7) { 3000 } else { 5 }];
    let wanted: Records = (0..3000).map(|number| (key(number), value(number))).collect();
    wanted.iter().for_each(|(key, value)| hart.put(key, value, MODE).unwrap());
    let snapshot = hart.snapshot().unwrap();
    let (from, to) = (key(500), key(2500));
    hart.delete_range(Bound::Included(&from), Bound::Excluded(&to), MODE).unwrap();
    let newer = hart.snapshot().unwrap();
    for number in (0..3000).step_by(3) {
        hart.put(&key(number), b"later", MODE).unwrap();
    }
    let all = || snapshot.range(Bound::Unbounded, Bound::Unbounded).unwrap();
    assert!(all().map(Result::unwrap).eq(wanted.iter().cloned()));
    assert!(all().rev().map(Result::unwrap).eq(wanted.iter().rev().cloned()));
    // From both ends, until they meet.
    let mut both = all();
    let mut left = wanted.iter();
    while let Some(record) = both.next() {
        assert_eq!(Some(&record.unwrap()), left.next());
        assert_eq!(both.next_back().map(Result::unwrap).as_ref(), left.next_back());
    }
    assert!(left.next().is_none());
    assert_eq!(newer.len().unwrap(), 1000);
}

/// Memory that counts the reads of leaves, and notes the longest read.
struct Watched {
    inner: Region,
    leaf_reads: AtomicU64,
    longest_read: AtomicU64,
}

impl Watched {
    fn region(bytes: u64) -> (Region, Arc<Self>) {
        let inner = Emulated::region(bytes).unwrap();
        let (base, len) = (NonNull::new(inner.base()).unwrap(), inner.len());
        let medium = Arc::new(Self { inner, leaf_reads: AtomicU64::new(0), longest_read: AtomicU64::new(0) });
        // SAFETY: the medium owns the region whose memory this is.
        let region = unsafe { Region::new(base, len, Arc::clone(&medium) as Arc<dyn MediumOps>) };
        (region, medium)
    }
}

impl MediumOps for Watched {
    fn observers(self: Arc<Self>) -> Observers {
        Observers { stores: None, reads: Some(self) }
    }

    unsafe fn flush(&self, _offset: u64, _ptr: *const u8, _len: usize, _site: Site) {}

    fn fence(&self, _site: Site) {}

    fn wait(&self, _lsn: Lsn, _site: Site) -> mangrove_pool::Result<()> {
        Ok(())
    }

    fn grow(&self, bytes: u64) -> mangrove_pool::Result<()> {
        self.inner.grow(bytes)
    }
}

impl ReadObserver for Watched {
    fn reading(&self, _offset: u64, len: usize) {
        // A leaf's two words.
        self.leaf_reads.fetch_add(u64::from(len == 16), Ordering::Relaxed);
        self.longest_read.fetch_max(len as u64, Ordering::Relaxed);
    }
}

#[test]
fn a_walk_over_long_values_reads_no_leaf_in_vain() {
    let (region, medium) = Watched::region(128 << 20);
    let hart = Hart::create(region, &Options::default()).unwrap();
    let count = 2000;
    for number in 0..count {
        // Short ones first, so that a fetch takes many when it comes to the long ones.
        let len = if number < count / 2 { 20 } else { 20_000 };
        hart.put(&key(number), &vec![number as u8; len], MODE).unwrap();
    }
    for back in [false, true] {
        let before = medium.leaf_reads.load(Ordering::Relaxed);
        let mut seen = 0;
        let mut range = hart.range(Bound::Unbounded, Bound::Unbounded).unwrap();
        visit(&mut range, back, |_, _| {
            seen += 1;
            true
        })
        .unwrap();
        assert_eq!(seen, count);
        let reads = medium.leaf_reads.load(Ordering::Relaxed) - before;
        assert!(reads <= 2 * u64::from(count), "{reads} reads of {count} leaves, back: {back}");
    }
}

#[test]
fn a_value_that_no_snapshot_can_keep_is_not_copied_for_it() {
    let (region, medium) = Watched::region(16 << 20);
    let hart = Hart::create(region, &Options { snapshot_bytes_max: 10_000, ..Options::default() }).unwrap();
    for (long, len) in [(false, 9_000_u64), (true, 20_000), (true, 1 << 20)] {
        hart.put(b"key", &vec![1; len as usize], MODE).unwrap();
        let snapshot = hart.snapshot().unwrap();
        medium.longest_read.store(0, Ordering::Relaxed);
        hart.put(b"key", b"short", MODE).unwrap();
        assert_eq!(medium.longest_read.load(Ordering::Relaxed) >= len, !long, "{len}");
        assert_eq!(snapshot.get(b"key").is_ok(), !long, "{len}");
    }
}
