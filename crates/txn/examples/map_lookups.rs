//! Look-ups in `HeapMap` and `HeapOrderedMap`, nanoseconds each: by plain loads, by plain loads of which each look-up
//! waits for the one before, and in a transaction each, in solo mode and with ownership records.
//! `cargo run --release -p mangrove-txn --example map_lookups [KEYS] [ROUNDS]`. The pool lies in `/dev/shm`. The rounds
//! are interleaved, and the fastest of each counts.

use mangrove_txn::{Create, Heap, HeapMap, HeapOrderedMap, Latency, Medium, PlainReads, StmOptions};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const LOOKUPS: u64 = 200_000;

fn open(path: &Path, create: Create, solo: bool) -> Heap {
    let executor = StmOptions { solo_after: solo.then_some(64), ..StmOptions::default() };
    let options = Heap::options().medium(Medium::Emulated(Latency::new(0, 0))).capacity(4 << 30);
    options.create(create).executor(executor).open(path).expect("a pool in /dev/shm")
}

/// Nanoseconds for each call of `one` with a random key.
fn time(keys: u64, mut one: impl FnMut(u64)) -> f64 {
    time_in_turn(keys, |key| {
        one(key);
        0
    })
}

/// As `time`, but the next key depends on the bits that `one` returns, which are 0: then no look-up begins before the
/// one before it has its value.
fn time_in_turn(keys: u64, mut one: impl FnMut(u64) -> u64) -> f64 {
    let mut random = 88_172_645_463_325_252u64;
    let begun = Instant::now();
    for _ in 0..LOOKUPS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random ^= one((random >> 20) % keys);
    }
    begun.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let (keys, rounds): (u64, u64) = (args.next().unwrap_or(1 << 16), args.next().unwrap_or(10));
    let folder = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = folder.path().join("heap");
    let mut names = Vec::new();
    let mut best: Vec<f64> = Vec::new();
    let mut note = |name: &str, ns: f64| match names.iter().position(|known| known == name) {
        Some(at) => best[at] = best[at].min(ns),
        None => {
            names.push(name.to_owned());
            best.push(ns);
        }
    };
    let heap = open(&path, Create::New, true);
    heap.transaction(|tx| {
        let (map, ordered) =
            (HeapMap::<u64, u64>::at_root(tx, "map")?, HeapOrderedMap::<u64, u64>::at_root(tx, "ordered")?);
        // An odd multiple visits every key once, in an order far from ascending.
        let order = (0..keys.next_power_of_two())
            .map(|n: u64| n.wrapping_mul(0x9E37_79B1) % keys.next_power_of_two());
        for key in order.filter(|&key| key < keys) {
            map.insert(tx, &key, key)?;
            ordered.insert(tx, &key, key)?;
        }
        Ok(())
    })
    .expect("room");
    heap.close().expect("memory does not fail");
    for _ in 0..rounds {
        for solo in [true, false] {
            let heap = open(&path, Create::Never, solo);
            let open = |tx: &mut mangrove_txn::Tx<'_>| {
                Ok((
                    HeapMap::<u64, u64>::at_root(tx, "map")?,
                    HeapOrderedMap::<u64, u64>::at_root(tx, "ordered")?,
                ))
            };
            let (map, ordered) = heap.transaction(open).expect("made above");
            // SAFETY: no transaction writes any more.
            let mut plain = unsafe { PlainReads::new() };
            let name = if solo { "solo" } else { "records" };
            for _ in 0..2 {
                note("hash map, plain loads", time(keys, |key| _ = black_box(map.get(&mut plain, &key))));
                let none = black_box(0);
                let in_turn =
                    |key| map.get(&mut plain, &key).map_or(0, |value| value.map_or(0, |value| value & none));
                note("hash map, plain loads, one after another", time_in_turn(keys, in_turn));
                let look_up = |key| drop(black_box(heap.read(|tx| map.get(tx, &key))));
                note(&format!("hash map, {name}"), time(keys, look_up));
                note(
                    "ordered map, plain loads",
                    time(keys, |key| _ = black_box(ordered.get(&mut plain, &key))),
                );
                let look_up = |key| drop(black_box(heap.read(|tx| ordered.get(tx, &key))));
                note(&format!("ordered map, {name}"), time(keys, look_up));
            }
            assert_eq!(heap.stat().expect("no transaction runs").counts.solo > 1000, solo);
        }
    }
    println!("{keys} keys, ns a look-up:");
    names.iter().zip(&best).for_each(|(name, ns)| println!("{name:42} {ns:8.1}"));
}
