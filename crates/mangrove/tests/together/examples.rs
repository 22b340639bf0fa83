//! The examples do what they say.

#[path = "../../examples/job_queue.rs"]
mod job_queue;
#[path = "../../examples/ordered_index.rs"]
#[allow(dead_code, reason = "its command line")]
mod ordered_index;

use mangrove::heap::Heap;

#[test]
fn every_job_is_done_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs");
    // The primes below 1, 11, 21 and so on to 991, summed.
    let expected = (0..100u64)
        .map(|n| (2..n * 10 + 1).filter(|p| (2..*p).all(|d| p % d != 0)).count() as u64)
        .sum::<u64>();
    assert_eq!(job_queue::run(&path).unwrap(), (100, expected));
    // A second run finds nothing to do.
    assert_eq!(job_queue::run(&path).unwrap(), (100, expected));
}

#[test]
fn the_index_follows_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("species");
    let heap = Heap::open(&path).unwrap();
    let species = ordered_index::Species::open(&heap).unwrap();
    heap.transaction(|tx| {
        species.name(tx, 1, "Rhizophora mangle, the red one")?;
        species.name(tx, 2, "Avicennia germinans")?;
        species.name(tx, 3, "Laguncularia racemosa")?;
        species.name(tx, 3, "Laguncularia")?;
        species.name(tx, 4, "Avicennia germinans")
    })
    .unwrap();
    drop(heap);
    let heap = Heap::open(&path).unwrap();
    let species = ordered_index::Species::open(&heap).unwrap();
    let from = |start| heap.read(|tx| species.from(tx, start, 10)).unwrap();
    let of = |name: &str, number| (name.to_owned(), number);
    assert_eq!(from("B"), [of("Laguncularia", 3), of("Rhizophora mangle, the red one", 1)]);
    assert_eq!(from("")[0], of("Avicennia germinans", 4));
    let mut blocks = 0;
    heap.for_each_block(|_, _| blocks += 1).unwrap();
    heap.transaction(|tx| (1..=4).try_for_each(|number| species.forget(tx, number))).unwrap();
    let mut left = 0;
    heap.for_each_block(|_, _| left += 1).unwrap();
    assert_eq!(from(""), []);
    // Of each of the two long names one block in the table and one in the index.
    assert_eq!(blocks - left, 4);
}
