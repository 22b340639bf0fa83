//! Byte strings as keys and values, against maps of std.

use crate::subject::{Random, Subject, like_its_model};
use mangrove_txn::{HeapBytes, HeapMap, HeapOrderedMap, Stop, Tx};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// Strings that have beginnings in common, of lengths on both sides of what a handle holds.
fn string(random: &mut Random) -> Vec<u8> {
    let bytes = b"mangroves have roots above the tide, and leaves that give salt back to the sea";
    let mut string = bytes[..random.below(bytes.len())].to_vec();
    if random.below(2) == 0 {
        string.push(random.below(3) as u8);
    }
    string
}

fn text(tx: &mut Tx<'_>, bytes: Option<HeapBytes>) -> Result<Option<Vec<u8>>, Stop> {
    bytes.map(|bytes| bytes.to_vec(tx)).transpose()
}

fn given_back(tx: &mut Tx<'_>, bytes: Option<HeapBytes>) -> Result<Option<Vec<u8>>, Stop> {
    let answer = text(tx, bytes)?;
    bytes.map_or(Ok(()), |bytes| bytes.free(tx)).map(|()| answer)
}

impl Subject for HeapMap<HeapBytes, HeapBytes> {
    type Model = HashMap<Vec<u8>, Vec<u8>>;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Self::at_root(tx, "it")
    }

    fn step(self, tx: &mut Tx<'_>, model: &mut Self::Model, random: &mut Random) -> Result<(), Stop> {
        let key = string(random);
        match random.below(4) {
            0..2 => {
                let value = string(random);
                let bytes = HeapBytes::new(tx, &value)?;
                assert_eq!((bytes.len(), bytes.is_empty()), (value.len(), value.is_empty()));
                let old = self.insert(tx, &key, bytes)?;
                assert_eq!(given_back(tx, old)?, model.insert(key, value));
            }
            2 => {
                let old = self.remove(tx, &key)?;
                assert_eq!(given_back(tx, old)?, model.remove(&key));
            }
            _ => {
                let found = self.get(tx, &key)?;
                assert_eq!(text(tx, found)?, model.get(&key).cloned());
            }
        }
        Ok(())
    }

    fn compare(self, tx: &mut Tx<'_>, model: &Self::Model) -> Result<(), Stop> {
        let mut walk = self.walk();
        let mut all = HashMap::new();
        while let Some((key, value)) = walk.next(tx)? {
            assert!(all.insert(key.to_vec(tx)?, value.to_vec(tx)?).is_none());
        }
        assert_eq!(all, *model);
        assert_eq!(self.len(tx)?, model.len() as u64);
        Ok(())
    }

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.free_with(tx, |tx, value| value.free(tx))
    }
}

impl Subject for HeapOrderedMap<HeapBytes, HeapBytes> {
    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn open(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Self::at_root(tx, "it")
    }

    fn step(self, tx: &mut Tx<'_>, model: &mut Self::Model, random: &mut Random) -> Result<(), Stop> {
        let key = string(random);
        match random.below(8) {
            0..4 => {
                let value = string(random);
                let bytes = HeapBytes::new(tx, &value)?;
                let old = self.insert(tx, &key, bytes)?;
                assert_eq!(given_back(tx, old)?, model.insert(key, value));
            }
            4..6 => {
                let old = self.remove(tx, &key)?;
                assert_eq!(given_back(tx, old)?, model.remove(&key));
            }
            6 => {
                let range = (Bound::Excluded(&key[..]), Bound::Unbounded);
                let mut expected = model.range::<[u8], _>(range).take(5);
                let mut walk = self.walk_range(range);
                for _ in 0..5 {
                    let found = walk.next(tx)?;
                    let key = text(tx, found.map(|(key, _)| key))?;
                    assert_eq!(key.as_ref(), expected.next().map(|(key, _)| key));
                }
            }
            _ => {
                let found = self.get(tx, &key)?;
                assert_eq!(text(tx, found)?, model.get(&key).cloned());
            }
        }
        Ok(())
    }

    fn compare(self, tx: &mut Tx<'_>, model: &Self::Model) -> Result<(), Stop> {
        let mut walk = self.walk();
        let mut expected = model.iter();
        while let Some((key, value)) = walk.next(tx)? {
            let (key, value) = (key.to_vec(tx)?, value.to_vec(tx)?);
            assert_eq!(Some((&key, &value)), expected.next());
        }
        assert_eq!(expected.next(), None);
        Ok(())
    }

    fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.clear_with(tx, |tx, value| value.free(tx))?;
        Self::free(self, tx)
    }
}

#[test]
fn byte_strings_are_keys_and_values() {
    like_its_model::<HeapMap<HeapBytes, HeapBytes>>();
    like_its_model::<HeapOrderedMap<HeapBytes, HeapBytes>>();
}
