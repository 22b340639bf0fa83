//! What a transaction costs: flushes, cache lines, fences and waits on a medium that is memory, with and without caches
//! that survive (eADR); log bytes there and on the file medium, with its durable writes; blocks that it allocates in
//! DRAM. The table is a golden: `BLESS=1 cargo test -p mangrove-txn --test costs` renews it.

#[path = "../../hart/tests/support/counting.rs"]
#[allow(dead_code, unreachable_pub, reason = "the costs need a part of it")]
mod counting;

use counting::{Cost, Counting};
use mangrove_shadow::{Options, Shadow};
use mangrove_txn::{
    AddressChoice, Cancel, Create, Domain, Heap, HeapOptions, Medium, Order, Ptr, StmOptions, Stop, Tx,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/costs.golden");

/// Bytes between two words that are swapped: each has a cache line and an ownership record of its own.
const STRIDE: usize = 64;
const SWAPS_MAX: usize = 64;
/// Transactions before one is counted: lists and leases are there, as they are in a program that runs.
const WARM: usize = 3;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator; it counts what the calling thread asks for.
struct CountingAllocator;

fn count() {
    // A thread that ends counts no more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn word(base: usize, number: usize) -> Ptr<u64> {
    Ptr::at(base + number * STRIDE)
}

fn swap(tx: &mut Tx<'_>, base: usize, count: usize) -> Result<(), Stop> {
    for number in 0..count {
        let (one, other) = (word(base, number), word(base, SWAPS_MAX + number));
        let (x, y) = (tx.read(one)?, tx.read(other)?);
        tx.write(one, y)?;
        tx.write(other, x)?;
    }
    Ok(())
}

fn read(heap: &Heap, base: usize) {
    let sum = heap.read(|tx| (0..4).try_fold(0, |sum: u64, number| Ok(sum + tx.read(word(base, number))?)));
    assert_eq!(sum.unwrap(), 1 + 2 + 3);
}

fn swaps<const COUNT: usize>(heap: &Heap, base: usize) {
    // Twice is as before.
    heap.transaction(|tx| swap(tx, base, COUNT)).unwrap();
}

fn ranges(heap: &Heap, base: usize) {
    heap.transaction(|tx| tx.write_bytes(base + STRIDE * SWAPS_MAX + 9, &[7; 100])).unwrap();
}

fn allocate(heap: &Heap, _: usize) {
    heap.transaction(|tx| {
        let block = tx.alloc([1u64; 6])?;
        tx.free(block)
    })
    .unwrap();
}

fn abort(heap: &Heap, base: usize) {
    let answer = heap.try_transaction(|tx| -> Result<(), Cancel<u8>> {
        swap(tx, base, 4)?;
        Err(Cancel::Abort(7))
    });
    assert_eq!(answer.unwrap(), Err(7));
}

type Row = (&'static str, fn(&Heap, usize));

const ROWS: [Row; 8] = [
    ("4 words read", read),
    ("1 swap", swaps::<1>),
    ("4 swaps", swaps::<4>),
    ("16 swaps", swaps::<16>),
    ("64 swaps", swaps::<64>),
    ("100 bytes at an odd address", ranges),
    ("48 bytes allocated and freed", allocate),
    ("4 swaps aborted", abort),
];

/// A heap in memory that counts, and words in it, each with its own number.
fn heap(domain: Domain, order: Order, solo: bool) -> (Heap, usize, std::sync::Arc<Counting>) {
    let (region, medium) = Counting::region(20 << 20, false);
    let options = Options::new().create(Create::IfMissing).address(AddressChoice::Anywhere).background(false);
    let options = options.domain(domain).order(order).capacity(16 << 20).log_bytes(128 << 10).log_count(2);
    let heap = Heap::over(Shadow::on_region(region, &options).unwrap(), &executor(solo)).unwrap();
    let base = fill(&heap);
    (heap, base, medium)
}

fn executor(solo: bool) -> HeapOptions {
    let solo_after = solo.then_some(1);
    HeapOptions::new().executor(StmOptions { solo_after, ..StmOptions::default() })
}

fn fill(heap: &Heap) -> usize {
    let base = heap.transaction(|tx| {
        let base = tx.alloc_bytes(STRIDE * SWAPS_MAX * 2, STRIDE)?;
        for number in 0..SWAPS_MAX * 2 {
            tx.write(word(base, number), number as u64)?;
        }
        Ok(base)
    });
    base.unwrap()
}

fn log_written(heap: &Heap, work: impl FnOnce()) -> u64 {
    let before = heap.shadow().stat().log_written;
    work();
    heap.shadow().stat().log_written - before
}

/// What the second of two equal transactions asks DRAM for.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn transactions_cost_what_the_table_says() {
    let mut text = format!(
        "{:<30} flushes  lines  fences  waits  log bytes  eADR: flushes  fences  file: log bytes  syncs  allocations\n",
        "transaction"
    );
    let (adr, at, medium) = heap(Domain::Adr, Order::Dense, false);
    let (eadr, eadr_at, eadr_medium) = heap(Domain::Eadr, Order::Gaps, false);
    let directory = tempfile::tempdir().unwrap();
    let options =
        executor(false).medium(Medium::File).capacity(16 << 20).log_bytes(1 << 20).background(false);
    let file = options.create(Create::IfMissing).open(directory.path().join("heap")).unwrap();
    let file_at = fill(&file);
    for (name, work) in ROWS {
        for (heap, at) in [(&adr, at), (&eadr, eadr_at), (&file, file_at)] {
            // An even number: swaps are as before.
            (0..WARM + 1).for_each(|_| work(heap, at));
        }
        adr.shadow().checkpoint().unwrap();
        eadr.shadow().checkpoint().unwrap();
        let (mut cost, mut blocks) = (Cost::default(), 0);
        let bytes = log_written(&adr, || cost = medium.cost_of(|| blocks = allocations(|| work(&adr, at))));
        let eadr_cost = eadr_medium.cost_of(|| work(&eadr, eadr_at));
        let syncs = |heap: &Heap| heap.shadow().stat().pool.map_or(0, |pool| pool.syncs);
        let before = syncs(&file);
        let file_bytes = log_written(&file, || work(&file, file_at));
        let file_syncs = syncs(&file) - before;
        for (heap, at) in [(&adr, at), (&eadr, eadr_at), (&file, file_at)] {
            work(heap, at);
        }
        let Cost { flushes, lines, fences, waits, .. } = cost;
        writeln!(
            text,
            "{name:<30} {flushes:>7} {lines:>6} {fences:>7} {waits:>6} {bytes:>10} {:>14} {:>7} {file_bytes:>16} \
             {file_syncs:>6} {blocks:>12}",
            eadr_cost.flushes, eadr_cost.fences
        )
        .unwrap();
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(golden == text, "costs changed (BLESS=1 renews the table):\n{text}\nwas:\n{golden}");
}

/// Solo mode leaves out ownership records, not what makes a commit durable.
#[test]
fn a_transaction_alone_is_flushed_as_one_beside_others() {
    let (beside, at, medium) = heap(Domain::Adr, Order::Dense, false);
    let (alone, alone_at, alone_medium) = heap(Domain::Adr, Order::Dense, true);
    for (name, work) in ROWS {
        (0..WARM + 1).for_each(|_| work(&beside, at));
        let solo = alone.stat().unwrap().counts.solo;
        (0..WARM + 1).for_each(|_| work(&alone, alone_at));
        beside.shadow().checkpoint().unwrap();
        alone.shadow().checkpoint().unwrap();
        let cost = medium.cost_of(|| work(&beside, at));
        assert_eq!(alone_medium.cost_of(|| work(&alone, alone_at)), cost, "{name}");
        // `stat` ends solo mode; the second transaction after it is alone again, and so is each until the next.
        if name != "4 swaps aborted" {
            assert!(alone.stat().unwrap().counts.solo >= solo + WARM as u64, "{name} ran alone");
        }
        work(&beside, at);
        work(&alone, alone_at);
    }
}
