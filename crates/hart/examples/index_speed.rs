//! What the volatile index costs by itself, compared with a volatile radix tree and `BTreeMap` on the same keys.
//!
//! `cargo run --release -p mangrove-hart --example index_speed [KEYS [WORKLOAD]]`, by default a million keys of each
//! workload. Figures are medians of rounds, in ns per operation; every structure finds, in the same order, the same
//! keys with 8-byte values. Leaves lie in chunks of 56 slots, as the durable ones do.

#[expect(dead_code, unused_imports, reason = "the module is compiled for the crate; this uses a part of it")]
#[path = "../src/index/mod.rs"]
mod index;

use std::alloc::{Layout, alloc_zeroed};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use index::{BuildItem, Direction, ENTRY_COUNT, Index, Intent, KeySource, Leaf, LeafChange, entry_of};

const ROUNDS: usize = 3;

/// Leaves in DRAM: a word with the key's length, the value, the key; in chunks of 56 after a header line.
struct Leaves {
    next: [AtomicUsize; 4],
    end: [AtomicUsize; 4],
}

const CLASS_BYTES: [usize; 4] = [32, 48, 64, 1040];

impl Leaves {
    fn new() -> Self {
        Self { next: Default::default(), end: Default::default() }
    }

    fn word(leaf: Leaf, index: usize) -> &'static AtomicU64 {
        let address = leaf.address() as usize + 8 * index;
        // SAFETY: leaves are never freed, and no index reads outside of the slot: keys are read while they do not
        // change or, by a late reader, from the same slot with the same content.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(address) }
    }

    fn put(&self, key: &[u8], value: u64) -> Leaf {
        let class = CLASS_BYTES.iter().position(|bytes| 16 + key.len() <= *bytes).expect("a short key");
        if self.next[class].load(Ordering::Relaxed) == self.end[class].load(Ordering::Relaxed) {
            let bytes = 64 + 56 * CLASS_BYTES[class];
            let layout = Layout::from_size_align(bytes, 64).expect("a chunk");
            // SAFETY: the layout is not empty; the chunk is leaked, for the process is short.
            let base = unsafe { alloc_zeroed(layout) }.expose_provenance();
            self.next[class].store(base + 64, Ordering::Relaxed);
            self.end[class].store(base + bytes, Ordering::Relaxed);
        }
        let address = self.next[class].fetch_add(CLASS_BYTES[class], Ordering::Relaxed);
        let leaf = Leaf::new(address as u64).expect("memory");
        Self::word(leaf, 0).store(key.len() as u64, Ordering::Relaxed);
        Self::word(leaf, 1).store(value, Ordering::Relaxed);
        for (index, bytes) in key.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            Self::word(leaf, 2 + index).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        leaf
    }

    fn value(leaf: Leaf) -> u64 {
        Self::word(leaf, 1).load(Ordering::Relaxed)
    }
}

impl KeySource for &Leaves {
    #[inline]
    fn key_len(&self, leaf: Leaf) -> usize {
        Leaves::word(leaf, 0).load(Ordering::Relaxed) as usize
    }

    #[inline]
    fn key_word(&self, leaf: Leaf, index: usize) -> u64 {
        Leaves::word(leaf, 2 + index).load(Ordering::Relaxed)
    }
}

/// Keys one after the other, so that reading them costs all structures the same.
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let key = &self.bytes[start..*end];
            start = *end;
            key
        })
    }

    fn len(&self) -> usize {
        self.ends.len()
    }
}

fn collect(keys: impl Iterator<Item = Vec<u8>>) -> Keys {
    let mut all = Keys { bytes: Vec::new(), ends: Vec::new() };
    for key in keys {
        all.bytes.extend(&key);
        all.ends.push(all.bytes.len());
    }
    all
}

/// xorshift64*: the same keys in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % sides
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for len in (2..=items.len()).rev() {
            items.swap(len - 1, self.roll(len));
        }
    }
}

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

fn workload(name: &str, len: usize) -> Keys {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    match name {
        "random" => {
            let mut keys: Vec<Vec<u8>> =
                (0..len).map(|_| (0..5 + dice.roll(12)).map(|_| LETTERS[dice.roll(62)]).collect()).collect();
            keys.sort_unstable();
            keys.dedup();
            dice.shuffle(&mut keys);
            collect(keys.into_iter())
        }
        "sequential" => collect((0..len).map(|number| {
            let mut rest = number;
            let mut key = [LETTERS[0]; 8];
            for byte in key.iter_mut().rev() {
                *byte = LETTERS[rest % 62];
                rest /= 62;
            }
            key.to_vec()
        })),
        _ => {
            let words = std::fs::read("/usr/share/dict/american-english-insane").unwrap_or_default();
            let mut keys: Vec<Vec<u8>> = words
                .split(|byte| *byte == b'\n')
                .filter(|word| !word.is_empty())
                .map(<[u8]>::to_vec)
                .collect();
            dice.shuffle(&mut keys);
            keys.truncate(len);
            collect(keys.into_iter())
        }
    }
}

/// Nanoseconds per key of `work`.
fn time(keys: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / keys as f64
}

#[derive(Clone, Copy, Default)]
struct Figures {
    insert: f64,
    get: f64,
    scan: f64,
    back: f64,
    remove: f64,
    bytes: f64,
}

fn ours(keys: &Keys) -> Figures {
    let leaves = Leaves::new();
    let index = Index::new(&leaves);
    let insert = time(keys.len(), || {
        for key in keys.iter() {
            let leaf = leaves.put(key, key.len() as u64);
            index.modify(key, Intent::Upsert, |_| (LeafChange::Insert(leaf), ()));
        }
    });
    let mut sum = 0;
    let get = time(keys.len(), || {
        for key in keys.iter() {
            sum += index.get(key, Leaves::value).expect("the key is there");
        }
    });
    assert_eq!(sum as usize, keys.bytes.len());
    let walk = |direction| {
        let mut len = 0;
        let ns = time(keys.len(), || {
            let mut cursor = index.cursor(Bound::Unbounded, direction);
            while let Some(value) = cursor.advance(Leaves::value) {
                len += usize::from(cursor.key().len() == value as usize);
            }
        });
        assert_eq!(len, keys.len());
        ns
    };
    let (scan, back) = (walk(Direction::Forward), walk(Direction::Backward));
    let stats = index.stats();
    let remove = time(keys.len(), || {
        for key in keys.iter() {
            index.modify(key, Intent::Existing, |leaf| (LeafChange::Remove, black_box(leaf)));
        }
    });
    assert_eq!(index.stats().nodes, [0; 5]);
    Figures { insert, get, scan, back, remove, bytes: stats.bytes_used as f64 / keys.len() as f64 }
}

fn art(keys: &Keys) -> Figures {
    let mut tree = blart::TreeMap::<CString, u64>::new();
    let strings: Vec<CString> = keys.iter().map(|key| CString::new(key).expect("no zero bytes")).collect();
    let mut owned = strings.clone().into_iter();
    let insert = time(keys.len(), || {
        for key in owned.by_ref() {
            let value = key.count_bytes() as u64;
            assert!(tree.try_insert(key, value).is_ok());
        }
    });
    let mut sum = 0;
    let get = time(keys.len(), || {
        for key in &strings {
            sum += tree.get(key.as_c_str()).expect("the key is there");
        }
    });
    assert_eq!(sum as usize, keys.bytes.len());
    let mut len = 0;
    let scan = time(keys.len(), || {
        len += tree.iter().filter(|(key, value)| key.count_bytes() as u64 == **value).count();
    });
    let back = time(keys.len(), || {
        len += tree.iter().rev().filter(|(key, value)| key.count_bytes() as u64 == **value).count();
    });
    assert_eq!(len, 2 * keys.len());
    let remove = time(keys.len(), || {
        for key in &strings {
            black_box(tree.remove(key.as_c_str()));
        }
    });
    Figures { insert, get, scan, back, remove, bytes: f64::NAN }
}

fn btree(keys: &Keys) -> Figures {
    let mut tree = BTreeMap::<Box<[u8]>, u64>::new();
    let mut owned = keys.iter().map(Box::<[u8]>::from).collect::<Vec<_>>().into_iter();
    let insert = time(keys.len(), || {
        for key in owned.by_ref() {
            let value = key.len() as u64;
            tree.insert(key, value);
        }
    });
    let mut sum = 0;
    let get = time(keys.len(), || {
        for key in keys.iter() {
            sum += tree.get(key).expect("the key is there");
        }
    });
    assert_eq!(sum as usize, keys.bytes.len());
    let mut len = 0;
    let scan =
        time(keys.len(), || len += tree.iter().filter(|(key, value)| key.len() as u64 == **value).count());
    let back = time(keys.len(), || {
        len += tree.iter().rev().filter(|(key, value)| key.len() as u64 == **value).count()
    });
    assert_eq!(len, 2 * keys.len());
    let remove = time(keys.len(), || {
        for key in keys.iter() {
            black_box(tree.remove(key));
        }
    });
    Figures { insert, get, scan, back, remove, bytes: f64::NAN }
}

/// Building all trees from leaves sorted into entries, as recovery does: ns per key on `threads` threads.
fn build(keys: &Keys, threads: usize) -> f64 {
    let leaves = Leaves::new();
    let index = Index::new(&leaves);
    let mut parts: Vec<Vec<BuildItem>> = (0..ENTRY_COUNT).map(|_| Vec::new()).collect();
    for key in keys.iter() {
        let mut head = [0; 8];
        let rest = key.get(2..).unwrap_or(&[]);
        let len = rest.len().min(8);
        head[..len].copy_from_slice(&rest[..len]);
        let leaf = leaves.put(key, key.len() as u64);
        parts[entry_of(key)].push(BuildItem { head: u64::from_be_bytes(head), leaf });
    }
    let mut parts: Vec<_> = parts.into_iter().enumerate().filter(|(_, items)| !items.is_empty()).collect();
    let share = parts.len().div_ceil(threads);
    time(keys.len(), || {
        std::thread::scope(|scope| {
            for part in parts.chunks_mut(share) {
                let index = &index;
                scope.spawn(move || {
                    for (entry, items) in part {
                        index.build_entry(*entry, items).expect("all keys differ");
                    }
                });
            }
        });
    })
}

/// One round on one structure.
type Run = fn(&Keys) -> Figures;

fn median(runs: &[Figures], of: impl Fn(&Figures) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let mut args = std::env::args().skip(1);
    let len = args.next().map_or(1_000_000, |len| len.parse().expect("a number of keys"));
    let only = args.next();
    println!(
        "{:24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "insert", "get", "scan", "back", "remove", "B/key"
    );
    for name in ["dictionary", "sequential", "random"] {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let keys = workload(name, len);
        if keys.len() == 0 {
            println!("{name}: no word list here");
            continue;
        }
        let structures: [(&str, Run); 3] = [("index", ours), ("ART (blart)", art), ("BTreeMap", btree)];
        let mut runs = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for ((_, run), runs) in structures.iter().zip(&mut runs) {
                runs.push(run(&keys));
            }
        }
        for ((structure, _), runs) in structures.iter().zip(&runs) {
            println!(
                "{:24} {:8.1} {:8.1} {:8.1} {:8.1} {:8.1} {:8.1}",
                format!("{name}, {structure}"),
                median(runs, |figures| figures.insert),
                median(runs, |figures| figures.get),
                median(runs, |figures| figures.scan),
                median(runs, |figures| figures.back),
                median(runs, |figures| figures.remove),
                median(runs, |figures| figures.bytes),
            );
        }
        println!("{name}, build: {:.1} ns/key, on 2 threads {:.1}", build(&keys, 1), build(&keys, 2));
    }
}
