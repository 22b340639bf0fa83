//! The map (`hart`) as a subject, with its reference: a `BTreeMap`.

use crate::interrupt::during;
use crate::map_workload::{self, SCENARIOS};
use crate::quiet::quietly;
use crate::rng::Rng;
use crate::subject::{Promised, Subject};
use mangrove_hart::{Batch, Hart, Options, WriteMode};
use mangrove_pmem::Region;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Shared bytes: models are copied once an operation.
pub(crate) type Bytes = Arc<[u8]>;

type Record = (Vec<u8>, Vec<u8>);

/// Smallest segments, so that chunks and segments are taken and given back within a short run.
const SEGMENT_SHIFT: u32 = 12;

/// Readers' epochs advance every so many reads; three must pass.
const QUIESCE_READS: u32 = 600;

/// One operation of the map's language. The fuzzer writes in it too.
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
    /// Brings the image up to date.
    Checkpoint,
    /// Reads so often that what deletes left to readers is given back.
    Quiesce,
    /// A put or delete, and at its n-th step on the medium a put of another key by another thread.
    During((Bytes, Option<Bytes>), u32, (Bytes, Bytes)),
}

struct Short<'a>(&'a [u8]);

impl fmt::Debug for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.0.escape_ascii().to_string();
        if self.0.len() <= 12 {
            write!(f, "\"{head}\"")
        } else {
            write!(f, "\"{}..\"[{}, crc {:08x}]", &head[..12], self.0.len(), mangrove_pmem::crc32c(0, self.0))
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
    writers: BTreeMap<Bytes, u32>,
}

impl MapModel {
    fn set(&mut self, index: u32, key: &Bytes, value: Option<&Bytes>) {
        let changed = match value {
            Some(value) => self.records.insert(key.clone(), value.clone()).as_ref() != Some(value),
            None => self.records.remove(key).is_some(),
        };
        if changed {
            self.writers.insert(key.clone(), index);
        }
    }

    /// How many operations a reader of `key` has seen the effects of.
    fn seen(&self, key: &[u8]) -> u32 {
        self.writers.get(key).map_or(0, |w| w + 1)
    }

    fn seen_all(&self) -> u32 {
        self.writers.values().max().map_or(0, |w| w + 1)
    }

    fn range(&self, start: &Bytes, end: &Bytes) -> Vec<Bytes> {
        if start >= end {
            return Vec::new();
        }
        self.records.range(start.clone()..end.clone()).map(|(k, _)| k.clone()).collect()
    }
}

/// The map under test. `INTERVAL`: acknowledged writes are durable at `sync` only.
pub struct MapSubject<const INTERVAL: bool> {
    map: Arc<Hart>,
}

fn options(interval: bool) -> Options {
    Options {
        segment_shift: SEGMENT_SHIFT,
        grow_bytes: 1 << SEGMENT_SHIFT,
        recovery_threads: 1,
        gate_reads: interval.then_some(false),
        ..Options::default()
    }
}

fn expect<T: PartialEq + fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what} answered {found:?} instead of {wanted:?}")) }
}

impl<const INTERVAL: bool> MapSubject<INTERVAL> {
    /// The map itself.
    #[must_use]
    pub fn map(&self) -> &Hart {
        &self.map
    }

    fn contents(&self) -> Result<Vec<Record>, String> {
        let range = self.map.range(Bound::Unbounded, Bound::Unbounded).map_err(|e| format!("scan: {e}"))?;
        range.collect::<Result<_, _>>().map_err(|e| format!("scan: {e}"))
    }

    fn same(&self, model: &MapModel) -> Result<bool, String> {
        let found = self.contents()?;
        Ok(found.len() == model.records.len()
            && found.iter().zip(&model.records).all(|((k, v), (mk, mv))| **k == **mk && **v == **mv))
    }

    /// `done`: the operation changed something. Otherwise it promised what it saw.
    fn wrote(mode: WriteMode, done: bool, seen: u32) -> Promised {
        match (mode, done) {
            (WriteMode::Durable, true) if !INTERVAL => Promised::All,
            (WriteMode::Durable, false) if !INTERVAL => Promised::First(seen),
            _ => Promised::Nothing,
        }
    }

    fn saw(seen: u32) -> Promised {
        if INTERVAL { Promised::Nothing } else { Promised::First(seen) }
    }

    fn batch(&self, ops: &[(Bytes, Option<Bytes>)], mode: WriteMode) -> mangrove_hart::Result<()> {
        let mut batch = Batch::new();
        for (key, value) in ops {
            match value {
                Some(value) => batch.put(&**key, &**value),
                None => batch.delete(&**key),
            };
        }
        self.map.write(batch, mode)
    }
}

impl<const INTERVAL: bool> Subject for MapSubject<INTERVAL> {
    type Op = MapOp;
    type Model = MapModel;

    const NAME: &'static str = if INTERVAL { "map-interval" } else { "map" };
    const REGION_BYTES: u64 = 1 << 20;

    fn create(region: Region) -> Result<Self, String> {
        let map = Hart::create(region, &options(INTERVAL)).map_err(|e| e.to_string())?;
        Ok(Self { map: Arc::new(map) })
    }

    fn recover(region: Region) -> Result<Self, String> {
        let (map, _) = Hart::recover(region, &options(INTERVAL)).map_err(|e| e.to_string())?;
        Ok(Self { map: Arc::new(map) })
    }

    fn apply(&mut self, index: u32, op: &MapOp, before: &MapModel) -> Result<Promised, String> {
        let text = |e: mangrove_hart::Error| e.to_string();
        let map = &self.map;
        Ok(match op {
            MapOp::Put(key, value, mode) => {
                map.put(key, value, *mode).map_err(text)?;
                Self::wrote(*mode, true, 0)
            }
            MapOp::InsertNew(key, value, mode) => {
                let done = map.insert_new(key, value, *mode).map_err(text)?;
                expect("insert_new", done, !before.records.contains_key(key))?;
                Self::wrote(*mode, done, before.seen(key))
            }
            MapOp::Delete(key, mode) => {
                let done = map.delete(key, *mode).map_err(text)?;
                expect("delete", done, before.records.contains_key(key))?;
                Self::wrote(*mode, done, before.seen(key))
            }
            MapOp::CompareAndSet(key, old, new, mode) => {
                let done = map.compare_and_set(key, old.as_deref(), new.as_deref(), *mode).map_err(text)?;
                expect("compare_and_set", done, before.records.get(key) == old.as_ref())?;
                // Nothing for nothing changes nothing, so there is nothing to make durable.
                Self::wrote(*mode, done && old != new, before.seen(key))
            }
            MapOp::Batch(ops, mode) => {
                self.batch(ops, *mode).map_err(text)?;
                let mut after = before.clone();
                Self::advance(&mut after, index, op);
                Self::wrote(*mode, after.records != before.records, 0)
            }
            MapOp::DeleteRange(start, end, mode) => {
                let (from, to) = (Bound::Included(&**start), Bound::Excluded(&**end));
                let count = map.delete_range(from, to, *mode).map_err(text)?;
                expect("delete_range", count, before.range(start, end).len() as u64)?;
                Self::wrote(*mode, count > 0, 0)
            }
            MapOp::Get(key) => {
                let value = map.get(key).map_err(text)?;
                let (found, wanted) = (value.as_deref(), before.records.get(key).map(|v| &**v));
                if found != wanted {
                    let (found, wanted) = (found.map(Short), wanted.map(Short));
                    return Err(format!("get answered {found:?} instead of {wanted:?}"));
                }
                Self::saw(before.seen(key))
            }
            MapOp::Scan => {
                if !self.same(before)? {
                    return Err(self.difference(before));
                }
                Self::saw(before.seen_all())
            }
            MapOp::Sync => {
                map.sync().map_err(text)?;
                Promised::All
            }
            MapOp::Checkpoint => {
                map.region().medium().checkpoint().map_err(|e| e.to_string())?;
                Promised::Nothing
            }
            MapOp::Quiesce => {
                for _ in 0..QUIESCE_READS {
                    map.contains(b"").map_err(text)?;
                }
                Promised::Nothing
            }
            MapOp::During((key, value), at, (inner_key, inner_value)) => {
                let (other, inner_key, inner_value) =
                    (self.map.clone(), inner_key.clone(), inner_value.clone());
                let (outer, inner) = during(
                    *at,
                    || match value {
                        Some(value) => map.put(key, value, WriteMode::Durable),
                        None => map.delete(key, WriteMode::Durable).map(drop),
                    },
                    move || quietly(|| other.put(&inner_key, &inner_value, WriteMode::Durable).map_err(text)),
                );
                outer.map_err(text)?;
                inner.map_err(|e| format!("the inner put: {e}"))?;
                Self::wrote(WriteMode::Durable, true, 0)
            }
        })
    }

    fn advance(model: &mut MapModel, index: u32, op: &MapOp) {
        match op {
            MapOp::Put(key, value, _) => model.set(index, key, Some(value)),
            MapOp::InsertNew(key, value, _) => {
                if !model.records.contains_key(key) {
                    model.set(index, key, Some(value));
                }
            }
            MapOp::Delete(key, _) => model.set(index, key, None),
            MapOp::CompareAndSet(key, old, new, _) => {
                if model.records.get(key) == old.as_ref() {
                    model.set(index, key, new.as_ref());
                }
            }
            MapOp::Batch(ops, _) => {
                for (key, value) in ops {
                    model.set(index, key, value.as_ref());
                }
            }
            MapOp::DeleteRange(start, end, _) => {
                for key in model.range(start, end) {
                    model.set(index, &key, None);
                }
            }
            MapOp::During((key, value), _, (inner_key, inner_value)) => {
                model.set(index, key, value.as_ref());
                model.set(index, inner_key, Some(inner_value));
            }
            MapOp::Get(_) | MapOp::Scan | MapOp::Sync | MapOp::Checkpoint | MapOp::Quiesce => {}
        }
    }

    fn between(before: &MapModel, index: u32, op: &MapOp, inner: bool) -> Vec<MapModel> {
        let MapOp::During((key, value), _, (inner_key, inner_value)) = op else { return Vec::new() };
        let with = |outer: bool, inner: bool| {
            let mut model = before.clone();
            if outer {
                model.set(index, key, value.as_ref());
            }
            if inner {
                model.set(index, inner_key, Some(inner_value));
            }
            model
        };
        // Once the inner put was acknowledged it is durable.
        if inner && !INTERVAL {
            vec![with(false, true), with(true, true)]
        } else {
            vec![with(true, false), with(false, true)]
        }
    }

    fn rebase(model: &mut MapModel) {
        model.writers.clear();
    }

    fn holds(&self, model: &MapModel) -> Result<bool, String> {
        if !self.same(model)? {
            return Ok(false);
        }
        // The scan and the point reads take different ways to a leaf.
        for (key, value) in &model.records {
            let found = self.map.get(key).map_err(|e| e.to_string())?;
            if found.as_deref() != Some(&**value) {
                return Err(format!("a scan finds {:?} and get does not", Short(key)));
            }
        }
        if self.map.len() != model.records.len() as u64 {
            return Err(format!("len says {} where a scan finds {}", self.map.len(), model.records.len()));
        }
        Ok(true)
    }

    fn difference(&self, model: &MapModel) -> String {
        let found = match self.contents() {
            Ok(found) => found,
            Err(e) => return e,
        };
        let found: BTreeMap<&[u8], &[u8]> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
        let mut out = Vec::new();
        for (key, value) in &model.records {
            match found.get(&**key) {
                None => out.push(format!("{:?} is lost", Short(key))),
                Some(v) if **v != **value => {
                    out.push(format!("{:?} is {:?}, not {:?}", Short(key), Short(v), Short(value)));
                }
                Some(_) => {}
            }
        }
        for key in found.keys().filter(|k| !model.records.contains_key(**k)) {
            out.push(format!("{:?} is there and should not be", Short(key)));
        }
        out.truncate(4);
        if out.is_empty() { "nothing differs".to_owned() } else { out.join(", ") }
    }

    fn check(&self) -> Result<(), String> {
        let report = self.map.check().map_err(|e| e.to_string())?;
        match report.damage.first() {
            Some(damage) => Err(damage.to_string()),
            None => Ok(()),
        }
    }

    fn scenario_count() -> u32 {
        SCENARIOS.len() as u32
    }

    fn scenario_name(scenario: u32) -> &'static str {
        SCENARIOS[scenario as usize]
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<MapOp> {
        map_workload::workload(SCENARIOS[scenario as usize], rng, INTERVAL)
    }

    fn follow_up(rng: &mut Rng, recovered: &MapModel) -> Vec<MapOp> {
        map_workload::follow_up(rng, recovered)
    }
}
