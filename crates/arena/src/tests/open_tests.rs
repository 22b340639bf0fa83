//! What opening an arena costs: it looks at the head and the directory, not at spans or blocks.

use crate::tests::example_tests::Blocks;
use crate::{ArenaHeap, ArenaSpace};
use mangrove_sys::{MapKind, Reservation};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

const HEAD: u64 = 4096;

/// A whole file, mapped.
struct Mapped {
    memory: Reservation,
    capacity: u64,
}

impl Mapped {
    fn new(file: &File, kind: MapKind, capacity: u64) -> Self {
        let len = file.metadata().unwrap().len() as usize;
        Self { memory: Reservation::file(file.as_fd(), len, kind).unwrap(), capacity }
    }
}

impl ArenaSpace for Mapped {
    fn base(&self) -> *mut u8 {
        self.memory.base().as_ptr()
    }
    fn len(&self) -> u64 {
        self.memory.len() as u64
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn grow(&mut self, _: u64) -> io::Result<()> {
        Err(io::Error::other("the file is mapped whole"))
    }
}

/// A file with an arena of `bytes` that holds `count` small blocks.
fn made(bytes: u64, count: usize) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    let mut w = Blocks::default();
    let mut heap =
        ArenaHeap::format(Box::new(Mapped::new(&file, MapKind::Shared, bytes)), HEAD, &mut w).unwrap();
    heap.make_shards(&mut w, 64).unwrap();
    let block = bytes as usize / count / 4 * 3;
    for _ in 0..count {
        w.0.clear();
        assert!(!heap.alloc(&mut w, block).is_null());
    }
    file
}

/// Page faults of this thread that needed no reading.
fn faults() -> i64 {
    // SAFETY: plain numbers, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the result.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_minflt
}

#[test]
fn opening_touches_a_few_pages_however_many_blocks_there_are() {
    let mut counts = Vec::new();
    for bytes in [64 << 20, 256 << 20] {
        let file = made(bytes, bytes as usize >> 10);
        let space = Box::new(Mapped::new(&file, MapKind::Private, bytes));
        let mut w = Blocks::default();
        let before = faults();
        let mut heap = ArenaHeap::open(space, HEAD).unwrap();
        let first = heap.alloc(&mut w, 100);
        counts.push(faults() - before);
        assert!(!first.is_null());
        // The proof that faults are counted: looking at every span touches every group.
        let before = faults();
        assert!(heap.stat().blocks > bytes >> 10);
        assert!(faults() - before > counts[counts.len() - 1]);
    }
    assert!(counts.iter().all(|&count| count <= 16), "page faults: {counts:?}");
}
