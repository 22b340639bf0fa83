//! Every baseline against a `BTreeMap`, its persists, and its recovery. A baseline that loses a key would be an
//! unfair comparison too.

use super::{ArtCow, FpTree, HartPaper, PArt, VolatileArt, Woart};
use crate::harness::counting::{Counts, counting};
use crate::harness::index::BenchIndex;
use mangrove_pool::{Emulated, Region};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

const REGION_BYTES: u64 = 1 << 28;

fn region() -> Region {
    Emulated::region(REGION_BYTES).expect("address space")
}

type Make = fn(Region) -> Box<dyn BenchIndex>;

/// How each is made, and how it is opened after its process is gone.
fn all() -> Vec<(&'static str, Make, Option<Make>)> {
    vec![
        ("HART-paper", |r| Box::new(HartPaper::create(r)), Some(|r| Box::new(HartPaper::recover(r)))),
        ("WOART", |r| Box::new(Woart::create(r)), Some(|r| Box::new(Woart::open(r)))),
        ("ART+CoW", |r| Box::new(ArtCow::create(r)), Some(|r| Box::new(ArtCow::open(r)))),
        ("P-ART", |r| Box::new(PArt::create(r)), Some(|r| Box::new(PArt::open(r)))),
        ("FPTree", |r| Box::new(FpTree::create(r)), Some(|r| Box::new(FpTree::recover(r)))),
        ("volatile ART", |_| Box::new(VolatileArt::new()), None),
    ]
}

/// Keys that meet every shape: prefixes of each other, long common paths, all node sizes.
fn key(rng: &mut SmallRng) -> Vec<u8> {
    let mut key = match rng.random_range(0..4) {
        0 => b"shared/path/longer".to_vec(),
        1 => b"ab".to_vec(),
        _ => Vec::new(),
    };
    let alphabet = if rng.random_bool(0.5) { 3 } else { 200 };
    for _ in 0..rng.random_range(1..5) {
        key.push(rng.random_range(1..=alphabet));
    }
    key
}

fn same(name: &str, index: &mut dyn BenchIndex, model: &BTreeMap<Vec<u8>, u64>, from: &[u8]) {
    for (k, v) in model {
        assert_eq!(index.get(k), Some(*v), "{name}: get {k:?}");
    }
    let mut found = Vec::new();
    index.scan(from, usize::MAX, &mut |k, v| found.push((k.to_vec(), v)));
    let expected: Vec<_> = model.range(from.to_vec()..).map(|(k, v)| (k.clone(), *v)).collect();
    assert_eq!(found.len(), expected.len(), "{name}: scan from {from:?}");
    assert_eq!(found, expected, "{name}: scan from {from:?}");
}

fn churn(
    name: &str,
    index: &mut dyn BenchIndex,
    model: &mut BTreeMap<Vec<u8>, u64>,
    rng: &mut SmallRng,
    steps: usize,
) {
    for step in 0..steps {
        let k = key(rng);
        let v = rng.random();
        // Phases of growth and of decay, so that nodes and chunks go through all sizes.
        let grow = (step / (steps / 4)).is_multiple_of(2);
        match rng.random_range(0..10) {
            0..=1 => assert_eq!(index.get(&k), model.get(&k).copied(), "{name}: get {k:?}"),
            2..=3 => {
                let there = model.contains_key(&k);
                assert_eq!(index.update(&k, v), there, "{name}: update {k:?}");
                if there {
                    model.insert(k, v);
                }
            }
            n if (n < 8) == grow => {
                index.insert(&k, v);
                model.insert(k, v);
            }
            _ => assert_eq!(index.delete(&k), model.remove(&k).is_some(), "{name}: delete {k:?}"),
        }
    }
}

#[test]
fn every_baseline_agrees_with_a_btreemap_and_survives_reopening() {
    for (name, create, reopen) in all() {
        for seed in 0..3 {
            let rng = &mut SmallRng::seed_from_u64(seed);
            let region = region();
            let mut index = create(region.clone());
            let mut model = BTreeMap::new();
            churn(name, &mut *index, &mut model, rng, 40_000);
            same(name, &mut *index, &model, &key(rng));
            if let Some(reopen) = reopen {
                drop(index);
                index = reopen(region);
                same(name, &mut *index, &model, &key(rng));
                churn(name, &mut *index, &mut model, rng, 10_000);
            }
            for k in model.keys() {
                assert!(index.delete(k), "{name}: delete {k:?}");
            }
            same(name, &mut *index, &BTreeMap::new(), b"");
            index.insert(b"again", 1);
            assert_eq!(index.get(b"again"), Some(1), "{name}");
        }
    }
}

/// Cost of each operation in the steady state: no chunk, node or leaf is allocated on the way.
fn cost(create: Make) -> [Counts; 3] {
    let (region, counter) = counting(region());
    let mut index = create(region);
    for i in 0..200u32 {
        index.insert(format!("aa{:03}", i * 2).as_bytes(), 1);
    }
    let mut cost = [Counts::default(); 3];
    let k = b"aa004x";
    index.insert(b"aa004y", 1); // the node for k exists from here on
    let start = counter.now();
    index.insert(k, 1);
    cost[0] = counter.now() - start;
    let start = counter.now();
    index.update(k, 2);
    cost[1] = counter.now() - start;
    let start = counter.now();
    index.delete(k);
    cost[2] = counter.now() - start;
    cost
}

#[test]
fn persists_of_each_baseline_are_those_of_its_paper() {
    let fences = |create| cost(create).map(|c| c.fences);
    assert_eq!(fences(|r| Box::new(HartPaper::create(r))), [6, 8, 2], "HART, Algorithms 1, 3, 5");
    assert_eq!(fences(|r| Box::new(Woart::create(r))), [4, 2, 1], "value, leaf, link, slot array");
    assert_eq!(fences(|r| Box::new(ArtCow::create(r))), [4, 2, 2], "value, leaf, copy, link");
    assert_eq!(fences(|r| Box::new(PArt::create(r))), [3, 1, 1], "leaf, link, slot array");
    assert_eq!(fences(|r| Box::new(FpTree::create(r))), [3, 3, 2], "key, pair, bitmap");
}

/// A literal Algorithm 2 answers 44 here.
#[test]
fn hart_paper_never_frees_a_live_value() {
    let mut index = HartPaper::create(region());
    index.insert(b"aa1", 11);
    index.insert(b"aa2", 22);
    assert!(index.delete(b"aa2"));
    index.update(b"aa1", 111);
    index.insert(b"aa3", 33);
    index.insert(b"aa4", 44);
    assert_eq!([index.get(b"aa1"), index.get(b"aa3"), index.get(b"aa4")], [Some(111), Some(33), Some(44)]);
}

#[test]
fn hart_paper_serves_several_threads() {
    let index = HartPaper::create(region());
    std::thread::scope(|scope| {
        for t in 0..4u8 {
            let mut handle = index.handle().expect("HART is concurrent");
            scope.spawn(move || {
                for round in 0..3u64 {
                    for i in 0..3000u32 {
                        let k = format!("{}k{t}{i}", char::from(b'a' + (i % 7) as u8));
                        if round == 1 && i % 2 == 0 {
                            assert!(handle.delete(k.as_bytes()));
                        } else {
                            handle.insert(k.as_bytes(), round << 32 | u64::from(i));
                        }
                    }
                }
                for i in 0..3000u32 {
                    let k = format!("{}k{t}{i}", char::from(b'a' + (i % 7) as u8));
                    assert_eq!(handle.get(k.as_bytes()), Some(2 << 32 | u64::from(i)));
                }
            });
        }
    });
}
