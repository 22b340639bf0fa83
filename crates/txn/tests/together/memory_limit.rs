//! Heaps that are larger than the memory they may take.

use crate::ways::on_each_way;
use mangrove_testkit::command::wait_until;
use mangrove_txn::{Heap, HeapError, HeapOptions, Latency, MEMORY_BYTES_MIN, Medium, Ptr};
use std::path::Path;

const MIB: usize = 1 << 20;
const LIMIT: u64 = MEMORY_BYTES_MIN;

fn limited(options: HeapOptions) -> HeapOptions {
    options.capacity(256 << 20).log_bytes(1 << 20).memory_bytes_max(LIMIT)
}

/// The `n`-th of the words that the tests write: one in each page, in no order that a page-out would like.
fn word_of(n: u64, count: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count * 512 + n % 512
}

fn own_bytes(heap: &Heap) -> usize {
    let map = mangrove_sys::PageMap::open().unwrap();
    map.own_bytes(heap.base(), heap.shadow().len() as usize).unwrap()
}

/// Writes words all over a heap of four times the limit, from two threads, and reads them meanwhile.
fn fill(heap: &Heap, pages: u64) -> Ptr<[u64; 512]> {
    let array = heap
        .transaction(|tx| {
            let array = tx.alloc_array::<[u64; 512]>(pages as usize)?;
            tx.set_root("array", array)?;
            Ok(array)
        })
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for first in (thread * 16..pages).step_by(32) {
                    heap.transaction(|tx| {
                        for n in first..(first + 16).min(pages) {
                            let word = Ptr::<u64>::at(array.address() + word_of(n, pages) as usize * 8);
                            let before = tx.read(word)?;
                            tx.write(word, before + n + 1)?;
                        }
                        Ok(())
                    })
                    .unwrap();
                }
            });
        }
    });
    array
}

fn verify(heap: &Heap, array: Ptr<[u64; 512]>, pages: u64) {
    let mut expected = std::collections::HashMap::new();
    for n in 0..pages {
        *expected.entry(word_of(n, pages)).or_insert(0) += n + 1;
    }
    for (&word, &value) in &expected {
        let word = Ptr::<u64>::at(array.address() + word as usize * 8);
        assert_eq!(heap.read(|tx| tx.read(word)).unwrap(), value);
    }
}

fn lives_in_its_limit(options: HeapOptions, path: &Path) {
    const PAGES: u64 = (16 * MIB / 4096) as u64;
    let heap = options.open(path).unwrap();
    let array = fill(&heap, PAGES);
    wait_until("the memory falls below the limit", || own_bytes(&heap) <= LIMIT as usize);
    verify(&heap, array, PAGES);
    assert!(own_bytes(&heap) <= LIMIT as usize, "reading takes no memory of the heap's own");
    let stat = heap.stat().unwrap();
    assert!(stat.given_back_bytes >= 4 << 20 && !stat.longest_pause.is_zero(), "{stat:?}");
    drop(heap); // a crash
    let heap = options.open(path).unwrap();
    verify(&heap, array, PAGES);
    heap.close().unwrap();
}

#[test]
fn a_heap_takes_the_memory_that_it_may() {
    on_each_way(|options, path| lives_in_its_limit(limited(options), path));
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heap");
    let refused = Heap::options().capacity(64 << 20).memory_bytes_max(MEMORY_BYTES_MIN - 1).open(&path);
    assert!(matches!(refused, Err(HeapError::Invalid { what }) if what.contains("at least")));
    Heap::options().capacity(64 << 20).memory_bytes_max(MEMORY_BYTES_MIN).open(&path).unwrap();
}

/// Nothing of it can be given back, so no thread keeps the limit.
#[test]
fn a_heap_that_is_opened_read_only_fits_its_limit_or_is_refused() {
    const PAGES: u64 = (16 * MIB / 4096) as u64;
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heap");
        let options = Heap::options().medium(medium).capacity(256 << 20).log_bytes(1 << 20);
        let heap = options.open(&path).unwrap();
        let array = fill(&heap, PAGES);
        heap.close().unwrap();
        let reading = options.read_only(true);
        let refused = reading.clone().memory_bytes_max(LIMIT).open(&path);
        let says = |what: &str| what.contains("read-only") && what.contains("open the heap without it");
        assert!(matches!(&refused, Err(HeapError::Invalid { what }) if says(what)), "{refused:?}");
        let heap = reading.memory_bytes_max(64 << 20).open(&path).unwrap();
        assert!(own_bytes(&heap) > LIMIT as usize, "all of it lies in memory");
        verify(&heap, array, PAGES);
        assert_eq!(heap.stat().unwrap().given_back_bytes, 0);
    }
}
