//! The map's reference, a `BTreeMap`, and the language of its operations.

use mangrove_hart::WriteMode;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Shared bytes, because models are copied at every operation.
pub(crate) type Bytes = Arc<[u8]>;

/// One operation of the map's language, which the fuzzer uses too.
#[derive(Clone, PartialEq, Eq)]
pub enum MapOp {
    /// Sets a key.
    Put(Bytes, Bytes, WriteMode),
    /// Sets a key if it is absent.
    InsertNew(Bytes, Bytes, WriteMode),
    /// Removes a key.
    Delete(Bytes, WriteMode),
    /// Changes a key if it is as expected.
    CompareAndSet(Bytes, Option<Bytes>, Option<Bytes>, WriteMode),
    /// Several puts and deletes at once.
    Batch(Vec<(Bytes, Option<Bytes>)>, WriteMode),
    /// Removes the keys of a half-open range.
    DeleteRange(Bytes, Bytes, WriteMode),
    /// Reads a key.
    Get(Bytes),
    /// Reads everything through a snapshot.
    Scan,
    /// Makes everything durable.
    Sync,
    /// Brings the data file up to date.
    Checkpoint,
    /// Reads so often that the map frees what deletes had left to readers.
    Quiesce,
    /// Opens the map again in a region that is larger than the one that it was made in.
    Grow,
    /// Moves records together and gives space back.
    Compact,
    /// Puts or deletes a key; at the n-th step on the medium another thread puts another key.
    During((Bytes, Option<Bytes>), u32, (Bytes, Bytes)),
}

/// Bytes as messages show them: short ones whole, long ones by head, length and checksum.
pub(super) struct Short<'a>(pub(super) &'a [u8]);

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.0.escape_ascii().to_string();
        if self.0.len() <= 12 {
            write!(f, "\"{head}\"")
        } else {
            write!(f, "\"{}..\"[{}, crc {:08x}]", &head[..12], self.0.len(), mangrove_pool::crc32c(0, self.0))
        }
    }
}

impl fmt::Debug for MapOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = |m: &WriteMode| if *m == WriteMode::Buffered { " buffered" } else { "" };
        match self {
            Self::Put(k, v, m) => write!(f, "put {:?} {:?}{}", Short(k), Short(v), mode(m)),
            Self::InsertNew(k, v, m) => write!(f, "insert new {:?} {:?}{}", Short(k), Short(v), mode(m)),
            Self::Delete(k, m) => write!(f, "delete {:?}{}", Short(k), mode(m)),
            Self::CompareAndSet(k, old, new, m) => {
                let (old, new) = (old.as_deref().map(Short), new.as_deref().map(Short));
                write!(f, "compare {:?} with {old:?} and set {new:?}{}", Short(k), mode(m))
            }
            Self::Batch(ops, m) => {
                let ops: Vec<_> = ops.iter().map(|(k, v)| (Short(k), v.as_deref().map(Short))).collect();
                write!(f, "batch {ops:?}{}", mode(m))
            }
            Self::DeleteRange(a, b, m) => write!(f, "delete {:?}..{:?}{}", Short(a), Short(b), mode(m)),
            Self::Get(k) => write!(f, "get {:?}", Short(k)),
            Self::Scan => f.write_str("scan"),
            Self::Sync => f.write_str("sync"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Quiesce => f.write_str("quiesce"),
            Self::Grow => write!(f, "grow"),
            Self::Compact => f.write_str("compact"),
            Self::During((k, v), at, (ik, iv)) => {
                let (k, v, ik, iv) = (Short(k), v.as_deref().map(Short), Short(ik), Short(iv));
                write!(f, "set {k:?} to {v:?} and at step {at} of it put {ik:?} {iv:?}")
            }
        }
    }
}

/// What a map holds, and which operation last wrote each key.
#[derive(Clone, Debug, Default)]
pub struct MapModel {
    /// The records.
    pub records: BTreeMap<Bytes, Bytes>,
    pub(super) writers: BTreeMap<Bytes, u32>,
}

impl MapModel {
    pub(super) fn set(&mut self, index: u32, key: &Bytes, value: Option<&Bytes>) {
        let changed = match value {
            Some(value) => self.records.insert(key.clone(), value.clone()).as_ref() != Some(value),
            None => self.records.remove(key).is_some(),
        };
        if changed {
            self.writers.insert(key.clone(), index);
        }
    }

    /// How many operations a reader of `key` has seen the effects of.
    pub(super) fn seen(&self, key: &[u8]) -> u32 {
        self.writers.get(key).map_or(0, |w| w + 1)
    }

    pub(super) fn seen_all(&self) -> u32 {
        self.writers.values().max().map_or(0, |w| w + 1)
    }

    pub(super) fn range(&self, start: &Bytes, end: &Bytes) -> Vec<Bytes> {
        if start >= end {
            return Vec::new();
        }
        self.records.range(start.clone()..end.clone()).map(|(k, _)| k.clone()).collect()
    }

    /// Applies an operation. `index` is its place in the history.
    pub(crate) fn advance(&mut self, index: u32, op: &MapOp) {
        match op {
            MapOp::Put(key, value, _) => self.set(index, key, Some(value)),
            MapOp::InsertNew(key, value, _) => {
                if !self.records.contains_key(key) {
                    self.set(index, key, Some(value));
                }
            }
            MapOp::Delete(key, _) => self.set(index, key, None),
            MapOp::CompareAndSet(key, old, new, _) => {
                if self.records.get(key) == old.as_ref() {
                    self.set(index, key, new.as_ref());
                }
            }
            MapOp::Batch(ops, _) => {
                // Of several operations on one key the last one counts: the others change nothing that a reader sees.
                let last: BTreeMap<_, _> = ops.iter().map(|(key, value)| (key, value)).collect();
                for (key, value) in last {
                    self.set(index, key, value.as_ref());
                }
            }
            MapOp::DeleteRange(start, end, _) => {
                for key in self.range(start, end) {
                    self.set(index, &key, None);
                }
            }
            MapOp::During((key, value), _, (inner_key, inner_value)) => {
                self.set(index, key, value.as_ref());
                self.set(index, inner_key, Some(inner_value));
            }
            MapOp::Get(_)
            | MapOp::Scan
            | MapOp::Sync
            | MapOp::Checkpoint
            | MapOp::Quiesce
            | MapOp::Grow
            | MapOp::Compact => {}
        }
    }
}
