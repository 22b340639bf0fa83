//! The map against a `BTreeMap`: every operation, with many reopenings over the same bytes.

use crate::support::Random;
use mangrove_hart::{Batch, Hart, Locking, Options, WriteMode};
use mangrove_pool::{Emulated, Region};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

trait Draw {
    fn key(&mut self) -> Vec<u8>;
    fn value(&mut self) -> Vec<u8>;
}

impl Draw for Random {
    fn key(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0 => 0,
            1 => 1,
            2 => 2,
            3 => self.below(1025) as usize,
            4 => 8 + self.below(40) as usize,
            _ => 1 + self.below(6) as usize,
        };
        let alphabet: &[u8] = if self.below(2) == 0 { b"\0ab" } else { b"\0\x01az\xff" };
        (0..len).map(|_| alphabet[self.below(alphabet.len() as u64) as usize]).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.below(12) {
            0..=5 => self.below(10),
            6..=8 => self.below(300),
            9 | 10 => self.below(5000),
            _ if self.below(4) == 0 => self.below(40_000),
            _ => self.below(3000),
        };
        let fill = self.next() as u8;
        (0..len).map(|i| fill.wrapping_add(i as u8)).collect()
    }
}

fn same(hart: &Hart, model: &Model) {
    let mut seen = Vec::new();
    hart.range(Bound::Unbounded, Bound::Unbounded)
        .unwrap()
        .for_each_ref(|k, v| {
            seen.push((k.to_vec(), v.to_vec()));
            true
        })
        .unwrap();
    let wanted: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(seen == wanted, "{} records, wanted {}", seen.len(), wanted.len());
    assert_eq!(hart.len(), model.len() as u64);
}

fn sound(hart: &Hart) {
    let report = hart.check().unwrap();
    assert!(report.is_sound(), "{:#?}", report.damage);
}

fn bounds(a: Vec<u8>, b: Vec<u8>, kind: u64) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    match kind {
        0 => (Bound::Included(a), Bound::Excluded(b)),
        1 => (Bound::Excluded(a), Bound::Included(b)),
        2 => (Bound::Unbounded, Bound::Excluded(b)),
        3 => (Bound::Included(a), Bound::Unbounded),
        _ if a < b => (Bound::Excluded(a), Bound::Excluded(b)),
        _ => (Bound::Included(a), Bound::Included(b)),
    }
}

fn inside(model: &Model, (start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    if let (Bound::Excluded(a), Bound::Included(b)) = (start, end)
        && a == b
    {
        return Vec::new();
    }
    let range = model.range::<Vec<u8>, _>((start.as_ref(), end.as_ref()));
    range.map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn slices((start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))
}

fn read_range(hart: &Hart, model: &Model, random: &mut Random) {
    let range = bounds(random.key(), random.key(), random.below(5));
    let wanted = inside(model, &range);
    let (start, end) = slices(&range);
    let forward: Vec<_> = hart.range(start, end).unwrap().map(Result::unwrap).collect();
    assert_eq!(forward, wanted);
    let mut backward: Vec<_> = hart.range(start, end).unwrap().rev().map(Result::unwrap).collect();
    backward.reverse();
    assert_eq!(backward, wanted);
    // From the two ends in turn.
    let mut both = hart.range(start, end).unwrap();
    let (mut low, mut high) = (Vec::new(), Vec::new());
    loop {
        let (side, next) =
            if random.below(3) == 0 { (&mut high, both.next_back()) } else { (&mut low, both.next()) };
        match next {
            Some(record) => side.push(record.unwrap()),
            None => break,
        }
    }
    assert!(both.next().is_none() && both.next_back().is_none());
    low.extend(high.into_iter().rev());
    assert_eq!(low, wanted);
}

fn run(seed: u64, steps: u64, options: &Options, bytes: u64) {
    let region: Region = Emulated::region(bytes).unwrap();
    let mut hart = Hart::create(region.clone(), options).unwrap();
    let mut model = Model::new();
    let mut random = Random(seed);
    let mode = WriteMode::Durable;
    for step in 0..steps {
        match random.below(100) {
            0..=34 => {
                let (key, value) = (random.key(), random.value());
                hart.put(&key, &value, mode).unwrap();
                model.insert(key, value);
            }
            35..=54 => {
                let key = random.key();
                assert_eq!(hart.delete(&key, mode).unwrap(), model.remove(&key).is_some());
            }
            55..=69 => {
                let key = random.key();
                assert_eq!(hart.get(&key).unwrap().as_ref(), model.get(&key), "step {step}");
                assert_eq!(hart.contains(&key).unwrap(), model.contains_key(&key));
                let len = hart.get_with(&key, <[u8]>::len).unwrap();
                assert_eq!(len, model.get(&key).map(Vec::len));
            }
            70..=74 => {
                let (key, value) = (random.key(), random.value());
                let done = hart.insert_new(&key, &value, mode).unwrap();
                assert_eq!(done, !model.contains_key(&key));
                model.entry(key).or_insert(value);
            }
            75..=81 => {
                let key = random.key();
                let there = model.get(&key).cloned();
                let expected = if random.below(4) == 0 { Some(random.value()) } else { there.clone() };
                let new = if random.below(3) == 0 { None } else { Some(random.value()) };
                let done = hart.compare_and_set(&key, expected.as_deref(), new.as_deref(), mode).unwrap();
                assert_eq!(done, expected == there);
                if done {
                    match new {
                        Some(value) => model.insert(key, value),
                        None => model.remove(&key),
                    };
                }
            }
            82..=88 => {
                let mut batch = Batch::new();
                let count = if random.below(8) == 0 { 400 } else { random.below(12) };
                for _ in 0..count {
                    let key = random.key();
                    if random.below(3) == 0 {
                        batch.delete(key.clone());
                        model.remove(&key);
                    } else {
                        let value = random.value();
                        batch.put(key.clone(), value.clone());
                        model.insert(key, value);
                    }
                }
                hart.write(batch, mode).unwrap();
            }
            89 => {
                let range = bounds(random.key(), random.key(), random.below(5));
                // Rarely much at once, so that the map does not stay empty.
                let gone = inside(&model, &range);
                if gone.len() < 40 || random.below(8) == 0 {
                    let (start, end) = slices(&range);
                    assert_eq!(hart.delete_range(start, end, mode).unwrap(), gone.len() as u64);
                    gone.iter().for_each(|(k, _)| {
                        model.remove(k);
                    });
                }
            }
            90..=95 => read_range(&hart, &model, &mut random),
            96 | 97 => {
                let frozen = model.clone();
                let snapshot = hart.snapshot().unwrap();
                for _ in 0..20 {
                    let key = random.key();
                    if random.below(2) == 0 {
                        let value = random.value();
                        hart.put(&key, &value, mode).unwrap();
                        model.insert(key, value);
                    } else {
                        hart.delete(&key, mode).unwrap();
                        model.remove(&key);
                    }
                }
                let range = snapshot.range(Bound::Unbounded, Bound::Unbounded).unwrap();
                let seen: Model = range.map(Result::unwrap).collect();
                assert!(seen == frozen);
                let range = snapshot.range(Bound::Unbounded, Bound::Unbounded).unwrap();
                assert!(range.rev().map(Result::unwrap).eq(frozen.clone().into_iter().rev()));
                for _ in 0..20 {
                    let key = random.key();
                    assert_eq!(snapshot.get(&key).unwrap().as_ref(), frozen.get(&key));
                }
            }
            98 => sound(&hart),
            _ => {
                drop(hart);
                let (again, report) = Hart::recover(region.clone(), options).unwrap();
                assert_eq!(report.records, model.len() as u64);
                assert!(!report.batch_replayed);
                hart = again;
                same(&hart, &model);
            }
        }
    }
    sound(&hart);
    same(&hart, &model);
}

#[test]
fn every_operation_agrees_with_the_model() {
    for seed in 0..4 {
        run(seed, 3000, &Options::default(), 256 << 20);
    }
}

#[test]
fn tiny_segments_agree_with_the_model() {
    let options = Options { segment_shift: 12, recovery_threads: 1, grow_bytes: 4096, ..Options::default() };
    for seed in 100..104 {
        run(seed, 2500, &options, 64 << 20);
    }
}

#[test]
fn the_paper_locking_agrees_with_the_model() {
    let options = Options { locking: Locking::PerTree, ..Options::default() };
    run(7, 2500, &options, 256 << 20);
}
