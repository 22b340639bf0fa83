//! Vector, queue, hash map and ordered map against those of std.

use crate::subject::{Random, Subject, like_its_model};
use mangrove_txn::{HeapMap, HeapOrderedMap, HeapQueue, HeapVec, Pod, Stop, Tx, Zeroable};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

/// A value whose bytes tell whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Value([u16; 5]);

fn value(random: &mut Random) -> Value {
    Value([random.below(1 << 16) as u16; 5])
}

impl Subject for HeapVec<Value> {
    type Model = Vec<Value>;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Self::at_root(tx, "it")
    }

    fn step(self, tx: &mut Tx<'_>, model: &mut Vec<Value>, random: &mut Random) -> Result<(), Stop> {
        let index = random.below(model.len() + 1);
        let is_there = index < model.len();
        let value = value(random);
        match random.below(40) {
            0..14 => {
                self.push(tx, value)?;
                model.push(value);
            }
            14..22 => assert_eq!(self.pop(tx)?, model.pop()),
            22..26 => {
                self.insert(tx, index as u64, value)?;
                model.insert(index, value);
            }
            26..29 => assert_eq!(self.remove(tx, index as u64)?, is_there.then(|| model.remove(index))),
            29..31 => {
                assert_eq!(self.swap_remove(tx, index as u64)?, is_there.then(|| model.swap_remove(index)))
            }
            31..35 if is_there => {
                assert_eq!(self.set(tx, index as u64, value)?, std::mem::replace(&mut model[index], value));
            }
            39 if random.below(30) == 0 => {
                self.clear(tx)?;
                model.clear();
            }
            _ => assert_eq!(self.get(tx, index as u64)?, model.get(index).copied()),
        }
        assert_eq!(self.len(tx)?, model.len() as u64);
        Ok(())
    }

    fn compare(self, tx: &mut Tx<'_>, model: &Vec<Value>) -> Result<(), Stop> {
        assert_eq!(self.iter(tx).collect::<Result<Vec<_>, _>>()?, *model);
        assert_eq!(self.is_empty(tx)?, model.is_empty());
        Ok(())
    }

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        Self::free(self, tx)
    }
}

impl Subject for HeapQueue<Value> {
    type Model = VecDeque<Value>;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Self::at_root(tx, "it")
    }

    fn step(self, tx: &mut Tx<'_>, model: &mut VecDeque<Value>, random: &mut Random) -> Result<(), Stop> {
        let value = value(random);
        // Long times of growth and of shrinking, so that segments come and go.
        let grows = model.len() < 20 || model.len() < 300 && !value.0[0].is_multiple_of(3);
        match random.below(10) {
            0..6 if grows => {
                self.push(tx, value)?;
                model.push_back(value);
            }
            0..8 => assert_eq!(self.pop(tx)?, model.pop_front()),
            8 if random.below(60) == 0 => {
                self.clear(tx)?;
                model.clear();
            }
            _ => assert_eq!(self.front(tx)?, model.front().copied()),
        }
        assert_eq!(self.len(tx)?, model.len() as u64);
        assert_eq!(self.is_empty(tx)?, model.is_empty());
        Ok(())
    }

    fn compare(self, tx: &mut Tx<'_>, model: &VecDeque<Value>) -> Result<(), Stop> {
        assert_eq!(self.iter(tx).collect::<Result<VecDeque<_>, _>>()?, *model);
        Ok(())
    }

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        Self::free(self, tx)
    }
}

impl Subject for HeapMap<u64, Value> {
    type Model = HashMap<u64, Value>;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        if let Some(it) = tx.root::<Self>("it")? {
            return tx.read(it);
        }
        let it = Self::with_seed(tx, 11)?;
        let root = tx.alloc(it)?;
        tx.set_root("it", root)?;
        Ok(it)
    }

    fn step(self, tx: &mut Tx<'_>, model: &mut HashMap<u64, Value>, random: &mut Random) -> Result<(), Stop> {
        let key = random.below(400) as u64;
        let value = value(random);
        match random.below(20) {
            0..9 => assert_eq!(self.insert(tx, &key, value)?, model.insert(key, value)),
            9..15 => assert_eq!(self.remove(tx, &key)?, model.remove(&key)),
            15 => assert_eq!(self.contains(tx, &key)?, model.contains_key(&key)),
            16 => {
                if let Some(at) = self.get_ptr(tx, &key)? {
                    tx.write(at, value)?;
                    model.insert(key, value);
                }
            }
            17 if random.below(100) == 0 => {
                self.clear(tx)?;
                model.clear();
            }
            _ => assert_eq!(self.get(tx, &key)?, model.get(&key).copied()),
        }
        Ok(())
    }

    fn compare(self, tx: &mut Tx<'_>, model: &HashMap<u64, Value>) -> Result<(), Stop> {
        let mut seen = 0;
        for item in self.iter(tx) {
            let (key, value) = item?;
            assert_eq!(model.get(&key), Some(&value));
            seen += 1;
        }
        assert_eq!((seen, self.len(tx)?), (model.len(), model.len() as u64));
        assert_eq!(self.is_empty(tx)?, model.is_empty());
        Ok(())
    }

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        let root = tx.root::<Self>("it")?.unwrap();
        tx.free(root)?;
        Self::free(self, tx)
    }
}

impl Subject for HeapOrderedMap<u64, Value> {
    type Model = BTreeMap<u64, Value>;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Self::at_root(tx, "it")
    }

    fn step(
        self,
        tx: &mut Tx<'_>,
        model: &mut BTreeMap<u64, Value>,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let key = random.below(400) as u64;
        let value = value(random);
        let shrinks = model.values().next().is_some_and(|value| value.0[0].is_multiple_of(4));
        match random.below(20) {
            0..9 if !shrinks => assert_eq!(self.insert(tx, &key, value)?, model.insert(key, value)),
            0..14 => {
                let key = model.range(key..).next().map_or(key, |(&key, _)| key);
                assert_eq!(self.remove(tx, &key)?, model.remove(&key));
            }
            14 => assert_eq!(self.first(tx)?, model.first_key_value().map(|(&key, &value)| (key, value))),
            15 => assert_eq!(self.last(tx)?, model.last_key_value().map(|(&key, &value)| (key, value))),
            16..18 => {
                let bound = |random: &mut Random, key| match random.below(3) {
                    0 => Bound::Included(key),
                    1 => Bound::Excluded(key),
                    _ => Bound::Unbounded,
                };
                let end = key + 1 + random.below(100) as u64;
                let range = (bound(random, key), bound(random, end));
                let found = self.range(tx, range).collect::<Result<Vec<_>, _>>()?;
                assert_eq!(found, model.range(range).map(|(&key, &value)| (key, value)).collect::<Vec<_>>());
            }
            18 if random.below(100) == 0 => {
                self.clear(tx)?;
                model.clear();
            }
            _ => assert_eq!(self.get(tx, &key)?, model.get(&key).copied()),
        }
        Ok(())
    }

    fn compare(self, tx: &mut Tx<'_>, model: &BTreeMap<u64, Value>) -> Result<(), Stop> {
        assert_eq!(self.iter(tx).collect::<Result<BTreeMap<_, _>, _>>()?, *model);
        assert_eq!(self.len(tx)?, model.len() as u64);
        assert_eq!(self.is_empty(tx)?, model.is_empty());
        Ok(())
    }

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        Self::free(self, tx)
    }
}

#[test]
fn a_vector_is_like_its_model() {
    like_its_model::<HeapVec<Value>>();
}

#[test]
fn a_queue_is_like_its_model() {
    like_its_model::<HeapQueue<Value>>();
}

#[test]
fn a_hash_map_is_like_its_model() {
    like_its_model::<HeapMap<u64, Value>>();
}

#[test]
fn an_ordered_map_is_like_its_model() {
    like_its_model::<HeapOrderedMap<u64, Value>>();
}
