//! What the collections under test hold, by those of std; how a change is made to both, and how they are compared.

use crate::rng::Rng;
use mangrove_txn::{HeapBytes, HeapMap, HeapOrderedMap, HeapQueue, HeapVec, Stop, Tx};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Few keys, so that changes meet.
const KEYS: u64 = 40;
/// The roots.
const VECTOR: &str = "vector";
const MAP: &str = "map";
const ORDERED: &str = "ordered";
const QUEUE: &str = "queue";

type Map = HeapMap<HeapBytes, u64>;
type Ordered = HeapOrderedMap<u64, HeapBytes>;

/// One change of one collection. An index or key that is not there changes nothing.
#[derive(Clone, Debug)]
pub(crate) enum CollectionChange {
    MapInsert(u64, u64),
    MapRemove(u64),
    OrderedInsert(u64, u64),
    OrderedRemove(u64),
    MapsClear,
    Push(u64),
    Pop,
    Set(u64, u64),
    InsertAt(u64, u64),
    RemoveAt(u64),
    Enqueue(u64),
    Dequeue,
}

/// The string of a number: every second one lies in a block of its own.
fn string(number: u64) -> Vec<u8> {
    let long = if number.is_multiple_of(2) { 20 + (number % 7 * 13) as usize } else { 0 };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + long, number as u8);
    bytes
}

impl CollectionChange {
    pub(crate) const ALL: Range<u64> = 0..32;
    pub(crate) const MAPS: Range<u64> = 0..13;
    pub(crate) const INSERTS: Range<u64> = 0..8;
    pub(crate) const LISTS: Range<u64> = 13..32;

    pub(crate) fn random(rng: &mut Rng, kinds: Range<u64>) -> Self {
        let kind = kinds.start + rng.below(kinds.end - kinds.start);
        let few = if kinds == Self::INSERTS { KEYS * 20 } else { KEYS };
        let (key, value) = (rng.below(few), rng.below(1000));
        match kind {
            0..4 => Self::MapInsert(key, value),
            4..8 => Self::OrderedInsert(key, value),
            8..10 => Self::MapRemove(key),
            10..12 => Self::OrderedRemove(key),
            12 if rng.one_in(8) => Self::MapsClear,
            12 => Self::MapRemove(key),
            13..17 => Self::Push(value),
            17..19 => Self::Pop,
            19..21 => Self::Set(key, value),
            21..23 => Self::InsertAt(key, value),
            23..25 => Self::RemoveAt(key),
            25..29 => Self::Enqueue(value),
            _ => Self::Dequeue,
        }
    }

    /// Makes it in the heap.
    pub(crate) fn make(&self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        match *self {
            Self::MapInsert(key, value) => {
                Map::at_root(tx, MAP)?.insert(tx, &string(key), value)?;
            }
            Self::MapRemove(key) => {
                Map::at_root(tx, MAP)?.remove(tx, &string(key))?;
            }
            Self::OrderedInsert(key, value) => {
                let value = HeapBytes::new(tx, &string(value))?;
                if let Some(old) = Ordered::at_root(tx, ORDERED)?.insert(tx, &key, value)? {
                    old.free(tx)?;
                }
            }
            Self::OrderedRemove(key) => {
                if let Some(old) = Ordered::at_root(tx, ORDERED)?.remove(tx, &key)? {
                    old.free(tx)?;
                }
            }
            Self::MapsClear => {
                Map::at_root(tx, MAP)?.clear(tx)?;
                Ordered::at_root(tx, ORDERED)?.clear_with(tx, |tx, value| value.free(tx))?;
            }
            Self::Push(value) => HeapVec::at_root(tx, VECTOR)?.push(tx, value)?,
            Self::Pop => {
                HeapVec::<u64>::at_root(tx, VECTOR)?.pop(tx)?;
            }
            Self::Set(index, value) => {
                let vector = HeapVec::<u64>::at_root(tx, VECTOR)?;
                if index < vector.len(tx)? {
                    vector.set(tx, index, value)?;
                }
            }
            Self::InsertAt(index, value) => {
                let vector = HeapVec::<u64>::at_root(tx, VECTOR)?;
                if index <= vector.len(tx)? {
                    vector.insert(tx, index, value)?;
                }
            }
            Self::RemoveAt(index) => {
                HeapVec::<u64>::at_root(tx, VECTOR)?.remove(tx, index)?;
            }
            Self::Enqueue(value) => HeapQueue::at_root(tx, QUEUE)?.push(tx, value)?,
            Self::Dequeue => {
                HeapQueue::<u64>::at_root(tx, QUEUE)?.pop(tx)?;
            }
        }
        Ok(())
    }
}

/// What the four collections hold; one that does not exist is empty.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Contents {
    vector: Vec<u64>,
    map: BTreeMap<Vec<u8>, u64>,
    ordered: BTreeMap<u64, Vec<u8>>,
    queue: VecDeque<u64>,
}

/// Whether the root is there. (To open a collection would make it.)
fn is_there(tx: &mut Tx<'_>, name: &str) -> Result<bool, Stop> {
    Ok(tx.roots()?.iter().any(|root| root.name == name))
}

impl Contents {
    /// Makes the changes here.
    pub(crate) fn change(&mut self, changes: &[CollectionChange]) {
        for change in changes {
            match *change {
                CollectionChange::MapInsert(key, value) => drop(self.map.insert(string(key), value)),
                CollectionChange::MapRemove(key) => drop(self.map.remove(&string(key))),
                CollectionChange::OrderedInsert(key, value) => drop(self.ordered.insert(key, string(value))),
                CollectionChange::OrderedRemove(key) => drop(self.ordered.remove(&key)),
                CollectionChange::MapsClear => {
                    self.map.clear();
                    self.ordered.clear();
                }
                CollectionChange::Push(value) => self.vector.push(value),
                CollectionChange::Pop => drop(self.vector.pop()),
                CollectionChange::Set(index, value) => {
                    if let Some(element) = self.vector.get_mut(index as usize) {
                        *element = value;
                    }
                }
                CollectionChange::InsertAt(index, value) if index as usize <= self.vector.len() => {
                    self.vector.insert(index as usize, value);
                }
                CollectionChange::RemoveAt(index) if (index as usize) < self.vector.len() => {
                    self.vector.remove(index as usize);
                }
                CollectionChange::InsertAt(..) | CollectionChange::RemoveAt(_) => {}
                CollectionChange::Enqueue(value) => self.queue.push_back(value),
                CollectionChange::Dequeue => drop(self.queue.pop_front()),
            }
        }
    }

    /// What the heap holds, by walks.
    pub(crate) fn read(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        let mut found = Self::default();
        if is_there(tx, VECTOR)? {
            found.vector = HeapVec::at_root(tx, VECTOR)?.iter(tx).collect::<Result<_, _>>()?;
        }
        if is_there(tx, MAP)? {
            let mut walk = Map::at_root(tx, MAP)?.walk();
            while let Some((key, value)) = walk.next(tx)? {
                found.map.insert(key.to_vec(tx)?, value);
            }
        }
        if is_there(tx, ORDERED)? {
            let all: Vec<_> = Ordered::at_root(tx, ORDERED)?.iter(tx).collect::<Result<_, _>>()?;
            for (key, value) in all {
                found.ordered.insert(key, value.to_vec(tx)?);
            }
        }
        if is_there(tx, QUEUE)? {
            found.queue = HeapQueue::at_root(tx, QUEUE)?.iter(tx).collect::<Result<_, _>>()?;
        }
        Ok(found)
    }

    /// Looks up every key and the lengths; a message if one is not there.
    pub(crate) fn look_up(&self, tx: &mut Tx<'_>) -> Result<Option<String>, Stop> {
        let mut lengths = [0; 4];
        if is_there(tx, VECTOR)? {
            lengths[0] = HeapVec::<u64>::at_root(tx, VECTOR)?.len(tx)?;
        }
        if is_there(tx, MAP)? {
            let map = Map::at_root(tx, MAP)?;
            lengths[1] = map.len(tx)?;
            for (key, value) in &self.map {
                if map.get(tx, key)? != Some(*value) {
                    return Ok(Some(format!(
                        "a walk through the map finds the key {key:?}, and a look-up does not"
                    )));
                }
            }
        }
        if is_there(tx, ORDERED)? {
            let ordered = Ordered::at_root(tx, ORDERED)?;
            lengths[2] = ordered.len(tx)?;
            for key in self.ordered.keys() {
                if !ordered.contains(tx, key)? {
                    return Ok(Some(format!(
                        "a walk through the ordered map finds {key}, and a look-up does not"
                    )));
                }
            }
        }
        if is_there(tx, QUEUE)? {
            lengths[3] = HeapQueue::<u64>::at_root(tx, QUEUE)?.len(tx)?;
        }
        let expected = [self.vector.len(), self.map.len(), self.ordered.len(), self.queue.len()];
        let differs = expected.iter().zip(lengths).any(|(one, other)| *one as u64 != other);
        Ok(differs.then(|| {
            format!("the collections say that they hold {lengths:?} elements, and hold {expected:?}")
        }))
    }

    /// Frees what is there, in the heap.
    pub(crate) fn free(tx: &mut Tx<'_>) -> Result<(), Stop> {
        if is_there(tx, VECTOR)? {
            HeapVec::<u64>::at_root(tx, VECTOR)?.free(tx)?;
        }
        if is_there(tx, MAP)? {
            Map::at_root(tx, MAP)?.free(tx)?;
        }
        if is_there(tx, ORDERED)? {
            Ordered::at_root(tx, ORDERED)?.free_with(tx, |tx, value| value.free(tx))?;
        }
        if is_there(tx, QUEUE)? {
            HeapQueue::<u64>::at_root(tx, QUEUE)?.free(tx)?;
        }
        [VECTOR, MAP, ORDERED, QUEUE].into_iter().try_for_each(|name| tx.remove_root(name).map(drop))
    }

    pub(crate) fn difference(&self, expected: &Self) -> String {
        if self.vector != expected.vector {
            return format!("the vector holds {:?} where {:?} was expected", self.vector, expected.vector);
        }
        if self.map != expected.map {
            return format!("the map holds {:?} where {:?} was expected", self.map, expected.map);
        }
        if self.ordered != expected.ordered {
            return format!(
                "the ordered map holds {:?} where {:?} was expected",
                self.ordered, expected.ordered
            );
        }
        if self.queue != expected.queue {
            return format!("the queue holds {:?} where {:?} was expected", self.queue, expected.queue);
        }
        "the same".to_owned()
    }
}
