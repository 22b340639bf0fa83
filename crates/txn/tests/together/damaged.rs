//! Heaps that are damaged, foreign, newer or cut short: each opening and each check says what is wrong in a sentence.

use mangrove_pool::crc32c;
use mangrove_txn::{Cancel, Create, Heap, HeapError, HeapOptions, Latency, Medium, Ptr, Stop, Tx};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const MEDIA: [Medium; 2] = [Medium::Emulated(Latency::new(0, 0)), Medium::File];

fn options(medium: Medium) -> HeapOptions {
    Heap::options().medium(medium).capacity(16 << 20).log_bytes(16 << 10).log_count(1)
}

fn on_each_medium(test: impl Fn(HeapOptions, &Path)) {
    for medium in MEDIA {
        let folder = tempfile::tempdir().unwrap();
        test(options(medium), &folder.path().join("heap"));
    }
}

/// A heap with roots of each kind that is sound.
fn make(options: &HeapOptions, path: &Path) -> Heap {
    let heap = options.open(path).unwrap();
    heap.transaction(|tx| {
        let pair = tx.alloc([1u64, 2])?;
        tx.set_root("pair", pair)?;
        tx.set_root("its second half", pair.cast::<u64>().add(1))?;
        tx.set_root("nothing", Ptr::<u64>::NULL)?;
        let large = tx.alloc_array::<u64>(10_000)?;
        tx.set_root("the end of a large one", large.add(9_999))
    })
    .unwrap();
    heap
}

/// xorshift64 (Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 32) % bound
    }
}

/// Where the slot of the `number`-th root begins.
fn slot(number: usize) -> usize {
    64 + 64 * number
}

fn write(heap: &Heap, offset: usize, bytes: &[u8]) {
    heap.transaction(|tx| tx.write_bytes(heap.base() + offset, bytes)).unwrap();
}

/// The first line with one of its words changed, under a checksum that matches if `sealed`.
fn write_line(heap: &Heap, word: usize, value: u64, sealed: bool) {
    let mut line = [u64::from_le_bytes(*b"MGRVHEAP"), 1, heap.base() as u64];
    line[word] = value;
    write(heap, 8 * word, &value.to_le_bytes());
    if sealed {
        let crc = line.iter().fold(0, |crc, word| crc32c(crc, &word.to_le_bytes()));
        write(heap, 24, &u64::from(crc).to_le_bytes());
    }
}

#[test]
fn a_heap_whose_first_page_is_blank_is_damaged_and_is_not_made_anew() {
    on_each_medium(|options, path| {
        let heap = make(&options, path);
        write(&heap, 0, &[0; 4096]);
        heap.close().unwrap();
        for _ in 0..2 {
            let error = options.open(path).map(drop).unwrap_err();
            assert!(
                matches!(error, HeapError::Damaged { .. }) && error.to_string().contains("blank"),
                "{error}"
            );
        }
    });
}

#[test]
fn a_sound_heap_has_no_problems_closed_or_not() {
    on_each_medium(|options, path| {
        let heap = make(&options, path);
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
        let busy = Heap::check_path(path);
        assert!(matches!(busy, Err(HeapError::Pool(mangrove_shadow::Error::Busy { .. }))), "{busy:?}");
        drop(heap);
        assert_eq!(Heap::check_path(path).unwrap(), Vec::<String>::new());
        options.open(path).unwrap().close().unwrap();
        assert_eq!(Heap::check_path(path).unwrap(), Vec::<String>::new());
        let info = Heap::inspect(path).unwrap();
        let roots: Vec<_> = info.roots.iter().map(|root| (root.name.as_str(), root.bytes)).collect();
        let expected = [("pair", 16), ("its second half", 8), ("nothing", 0), ("the end of a large one", 8)];
        assert_eq!(roots[..2], expected[..2]);
        assert_eq!((roots[2].0, info.roots[2].address, roots[3]), ("nothing", 0, expected[3]));
        assert_eq!((info.blocks, info.capacity, info.roots[0].address % 16), (2, 16 << 20, 0));
        assert!(info.used_bytes >= 80_016 && info.bytes > info.used_bytes, "{info:?}");
        let is_mapped = options_medium_is_mapped(&info);
        assert_eq!(info.last.map(|last| last.generation), is_mapped.then_some(2));
    });
}

fn options_medium_is_mapped(info: &mangrove_txn::HeapInfo) -> bool {
    !info.protocol.starts_with("group commit")
}

/// What a program, or a bug in it, may have stored where it should not.
#[test]
fn each_wrong_structure_gets_a_sentence() {
    type Plant = fn(&Heap);
    let plants: [(Plant, &str); 12] = [
        (|heap| write(heap, slot(0), &[40]), "slot 0 of the roots has a name of 40 bytes"),
        (|heap| write(heap, slot(1) + 39, &[1]), "slot 1 of the roots has bytes that are not zero beside"),
        (|heap| write(heap, slot(1) + 60, &[1]), "slot 1 of the roots has bytes that are not zero beside"),
        (|heap| write(heap, slot(0) + 1, &[0xff]), "slot 0 of the roots has a name that is not UTF-8"),
        (|heap| write(heap, slot(62) + 63, &[1]), "slot 62 of the roots is free, but not zero"),
        (
            |heap| write(heap, slot(2), b"\x04pair\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            "two roots have the name \"pair\"",
        ),
        (|heap| write(heap, slot(0) + 48, &[0, 1]), "\"pair\" points to 256 bytes at"),
        (
            |heap| write(heap, slot(0) + 40, &(std::ptr::from_ref(heap).addr() as u64).to_le_bytes()),
            "which do not lie in a block in use",
        ),
        (
            |heap| {
                let free = |tx: &mut Tx<'_>| {
                    let pair = tx.root::<[u64; 2]>("pair")?.expect("made");
                    tx.free(pair)
                };
                heap.transaction(free).unwrap();
            },
            "which do not lie in a block in use",
        ),
        (|heap| write(heap, 40, &[1]), "behind the checksum of the heap's first line"),
        // The arena's head: the number of its pages and its directory.
        (|heap| write(heap, 4096, &[0xff; 8]), "arena"),
        // The span entry of a page, in the arena's first group.
        (|heap| write(heap, 4096 + 8192, &[0x55; 4096]), "page"),
    ];
    for (number, (plant, sentence)) in plants.iter().enumerate() {
        on_each_medium(|options, path| {
            let heap = make(&options, path);
            plant(&heap);
            // A crash: the planted bytes come from the log.
            drop(heap);
            let problems = Heap::check_path(path).unwrap();
            assert!(
                problems.iter().any(|problem| problem.contains(sentence)),
                "plant {number}: {problems:#?} and not {sentence:?}"
            );
            assert!(problems.iter().all(|problem| !problem.contains('\n')), "plant {number}: {problems:?}");
        });
    }
}

/// A stray store of the program hits the allocator's head, or the heap's first line, while the heap is open.
#[test]
fn an_open_heap_says_what_a_stray_store_has_hit() {
    let head: Vec<_> = (0..=2400usize).step_by(8).filter(|at| !(2384..2400).contains(at)).collect();
    let places = head.iter().map(|at| 4096 + at).chain([0, 8, 16, 24, 32, 4096 + 2384, 8192, 8200]);
    let folder = tempfile::tempdir().unwrap();
    let heap = make(&options(MEDIA[0]), &folder.path().join("heap"));
    for place in places {
        let word = std::ptr::with_exposed_provenance_mut::<u64>(heap.base() + place);
        for value in [u64::MAX, 1 << 40, 0x1234_5678] {
            // SAFETY: the heap's memory, which no other thread uses.
            let was = unsafe { word.replace(value) };
            let problems = heap.check().unwrap();
            // SAFETY: as above.
            unsafe { word.write(was) };
            assert!(!problems.is_empty(), "{value:#x} at {place}, and nothing was said");
        }
    }
    assert_eq!(heap.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_wrong_first_line_is_refused_by_every_opening() {
    for (word, value, sealed, sentence) in [
        (0, 1, false, "are not those of a heap"),
        (1, 2, true, "format version 2, this program reads up to 1; use a newer Mangrove"),
        (1, 0, false, "the checksum of its first line does not match"),
        (2, 4096, true, "it says that it lies at 0x1000"),
    ] {
        on_each_medium(|options, path| {
            let heap = make(&options, path);
            write_line(&heap, word, value, sealed);
            heap.close().unwrap();
            for options in [options.clone(), options.clone().read_only(true)] {
                let error = options.open(path).unwrap_err().to_string();
                assert!(error.contains(sentence), "word {word}: {error}");
            }
            let said = match Heap::check_path(path) {
                Ok(problems) => problems.join("\n"),
                Err(error) => error.to_string(),
            };
            assert!(said.contains(sentence), "word {word}: {said}");
        });
    }
}

/// How a transaction panics that has followed a wrong word: the bounds of the memory, of the allocator's pages and
/// lists, and of an index into one of its tables; with the compiler's checks also those of a sum.
const FOLLOWED: [&str; 5] = [
    "are not in the transactions' memory",
    "the allocator's lists are damaged",
    "a slab of a class's list is full",
    "out of bounds",
    "with overflow",
];

/// The first bytes of the heap as memory holds them, while no transaction runs.
fn memory_of(heap: &Heap, bytes: u64) -> Vec<u8> {
    let base: *const u8 = std::ptr::with_exposed_provenance(heap.base());
    // SAFETY: so many bytes are usable, and no transaction writes them now.
    unsafe { std::slice::from_raw_parts(base, bytes as usize) }.to_vec()
}

/// Whoever made the pool may have put anything into it, under checksums that match: bytes of the heap's first page and
/// of the allocator's, as if a transaction had written them. Opening, check and description say something or nothing,
/// and never panic. So does a transaction, except that one that follows a wrong word panics at a bound. What does not
/// commit is undone.
#[test]
fn hostile_bytes_crash_no_opener() {
    // The first line and the roots; the arena's head; the entries of its first pages; blocks.
    let places = [0..32_u64, 64..4096, 4096..4096 + 2400, 4096 + 2400..4096 + 24_576, 28_672..131_072];
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut refused, mut opened, mut found) = (0, 0, 0);
    let folder = tempfile::tempdir().unwrap();
    for round in 0..60 {
        let path = folder.path().join(format!("{round}"));
        let options = options(MEDIA[round % 2]);
        let heap = make(&options, &path);
        for _ in 0..1 + random.below(4) {
            let place = &places[random.below(places.len() as u64) as usize];
            let at = place.start + random.below(place.end - place.start);
            let value = match random.below(4) {
                0 => random.next(),
                1 => u64::MAX,
                2 => heap.base() as u64 + random.below(16 << 20),
                _ => random.below(1 << 14),
            };
            write(&heap, (at / 8 * 8) as usize, &value.to_le_bytes());
        }
        drop(heap);
        found += usize::from(Heap::check_path(&path).map_or(true, |problems| !problems.is_empty()));
        let _ = Heap::inspect(&path);
        for options in [options.clone().read_only(true), options] {
            let Ok(heap) = options.open(&path) else {
                refused += 1;
                continue;
            };
            opened += 1;
            let _ = heap.check();
            let use_it = |tx: &mut Tx<'_>| -> Result<(), Stop> {
                tx.roots()?;
                let block = tx.alloc([7u64; 32])?;
                tx.set_root("new", block)?;
                if let Some(pair) = tx.root::<[u64; 2]>("pair")? {
                    tx.free(pair)?;
                }
                Ok(())
            };
            let before = memory_of(&heap, heap.shadow().len());
            let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| heap.transaction(use_it)));
            if !matches!(used, Ok(Ok(()))) {
                let after = memory_of(&heap, before.len() as u64);
                assert!(before == after, "round {round}: it was not undone");
            }
            if let Err(panic) = used {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                assert!(FOLLOWED.iter().any(|reason| text.contains(reason)), "round {round}: {text:?}");
            }
        }
        fs::remove_dir_all(&path).unwrap();
    }
    assert!(refused > 5 && opened > 30 && found > 30, "{refused} {opened} {found}");
}

/// The files' own damage: the pool below finds it, whatever lies there.
#[test]
fn damaged_and_short_files_are_refused() {
    on_each_medium(|options, path| {
        make(&options, path).close().unwrap();
        let image = path.join("image");
        let bytes = fs::read(&image).unwrap();
        let place = bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64;
        let file = OpenOptions::new().write(true).open(&image).unwrap();
        let refused = |what: &str| {
            let problems = Heap::check_path(path).unwrap();
            assert!(!problems.is_empty() && problems[0].contains("image"), "{what}: {problems:?}");
            for options in [options.clone(), options.clone().read_only(true)] {
                let opened = options.open(path);
                let Err(HeapError::Pool(error @ mangrove_shadow::Error::Corrupt { .. })) = opened else {
                    panic!("{what}: {opened:?}");
                };
                assert!(error.to_string().contains("restore it from a backup"), "{what}: {error}");
            }
        };
        file.write_all_at(&[bytes[place as usize] ^ 4], place).unwrap();
        refused("a changed bit");
        file.set_len(8192).unwrap();
        refused("a short file");
        fs::write(&image, &bytes).unwrap();
        assert_eq!(Heap::check_path(path).unwrap(), Vec::<String>::new());
        for (name, what) in [("pool", "no superblock"), ("image", "no image")] {
            let whole = fs::read(path.join(name)).unwrap();
            fs::remove_file(path.join(name)).unwrap();
            assert!(options.clone().create(Create::Never).open(path).is_err(), "{what}");
            assert!(options.clone().read_only(true).open(path).is_err(), "{what}");
            fs::write(path.join(name), &whole).unwrap();
        }
        assert_eq!(Heap::check_path(path).unwrap(), Vec::<String>::new());
    });
}

#[test]
fn pools_that_hold_no_heap_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, named) in
        [("map", "a map"), ("durable", "the state of a durable application"), ("memory", "a memory")]
    {
        let path = folder.path().join(kind);
        let pool = mangrove_pool::PoolOptions::new().kind(kind).create(Create::New);
        pool.capacity(1 << 20).log_bytes(16 << 10).open(&path).unwrap().close().unwrap();
        for opened in [Heap::open(&path).err(), Heap::options().read_only(true).open(&path).err()] {
            let error = opened.expect("it is no heap").to_string();
            assert!(error.contains(&format!("holds {named}, not a heap")), "{error}");
        }
        let error = Heap::check_path(&path).expect_err("it is no heap").to_string();
        assert!(error.contains(&format!("holds {named}, not a heap")), "{error}");
    }
    let path = folder.path().join("a file");
    fs::write(&path, b"text").unwrap();
    let error = Heap::open(&path).unwrap_err().to_string();
    assert!(error.contains("it is a file; a pool is a directory"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[test]
fn two_openings_and_a_taken_address_are_refused() {
    on_each_medium(|options, path| {
        let heap = make(&options, path);
        let base = heap.base();
        let busy = options.open(path);
        assert!(matches!(busy, Err(HeapError::Pool(mangrove_shadow::Error::Busy { .. }))), "{busy:?}");
        heap.close().unwrap();
        let taken = mangrove_sys::Reservation::anonymous_at(base, 4096).unwrap();
        for options in [options.clone(), options.clone().read_only(true)] {
            let opened = options.open(path);
            let Err(HeapError::Pool(error @ mangrove_shadow::Error::AddressTaken { .. })) = opened else {
                panic!("{opened:?}");
            };
            assert!(error.to_string().contains(&format!("{base:#x}")), "{error}");
        }
        drop(taken);
        let heap = options.open(path).unwrap();
        let read = |tx: &mut Tx<'_>| -> Result<[u64; 2], Cancel<()>> {
            let pair = tx.root::<[u64; 2]>("pair")?.expect("made");
            Ok(tx.read(pair)?)
        };
        assert_eq!(heap.try_read(read).unwrap(), Ok([1, 2]));
    });
}

/// A pointer is followed only inside the heap, whatever a transaction finds in it.
#[test]
fn a_stored_pointer_to_outside_is_stored_and_not_followed() {
    on_each_medium(|options, path| {
        let heap = make(&options, path);
        let outside = Ptr::<u64>::at(std::ptr::from_ref(&heap).addr());
        let place = heap
            .transaction(|tx| {
                let place = tx.alloc(outside)?;
                tx.set_root("pointer", place)?;
                Ok(place)
            })
            .unwrap();
        let follow = |tx: &mut Tx<'_>| -> Result<u64, Stop> {
            let found = tx.read(place)?;
            tx.read(found)
        };
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| heap.transaction(follow)));
        let text = *panicked.expect_err("it lies outside").downcast::<String>().unwrap();
        assert!(text.contains("are not in the transactions' memory"), "{text}");
        assert_eq!(heap.read(|tx| tx.read(place)).unwrap(), outside);
        assert_eq!(heap.check().unwrap(), Vec::<String>::new());
    });
}
