//! The map (`hart`) as a subject. Its reference is `MapModel`.

use crate::engines::map_model::{Bytes, MapModel, MapOp, Short};
use crate::engines::map_workload;
use crate::engines::map_workload::{COMPACTION, GROWTH, SCENARIOS};
use crate::engines::subject::{Promised, Subject};
use crate::machine::interrupt::during_and_told;
use crate::quiet::quietly;
use crate::rng::Rng;
use mangrove_hart::{Batch, Hart, Options, WriteMode};
use mangrove_pool::Region;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Record = (Vec<u8>, Vec<u8>);

/// The smallest segments, so that a short run allocates and frees chunks and segments.
const SEGMENT_SHIFT: u32 = 12;

/// Readers' epochs advance after a number of reads; this many reads pass three epochs.
const QUIESCE_READS: u32 = 600;

/// The form of the map that is made in a part of the region, and gets the rest when it is opened again.
pub(crate) const GROWS: u8 = 1;
/// The form of the map that gives space back.
pub(crate) const COMPACTS: u8 = 2;

/// The map under test. `INTERVAL`: acknowledged writes are durable at `sync` only. `FORM`: 0, or one of those above.
pub struct MapSubject<const INTERVAL: bool, const FORM: u8 = 0> {
    map: Arc<Hart>,
    region: Region,
}

/// A map that grows is made in this part of its region.
const SMALL_PART: u64 = 4;

fn options(interval: bool) -> Options {
    Options {
        segment_shift: SEGMENT_SHIFT,
        grow_bytes: 1 << SEGMENT_SHIFT,
        recovery_threads: 1,
        // Some batches have their removals in the list, and some in the headers of chunks.
        list_entries_max: 3,
        gate_reads: interval.then_some(false),
        ..Options::default()
    }
}

/// What `before` becomes by the outer put or delete, or the inner put, or both.
fn in_part(before: &MapModel, index: u32, op: &MapOp, outer: bool, inner: bool) -> MapModel {
    let mut model = before.clone();
    if let MapOp::During((key, value), _, (inner_key, inner_value)) = op {
        if outer {
            model.set(index, key, value.as_ref());
        }
        if inner {
            model.set(index, inner_key, Some(inner_value));
        }
    }
    model
}

fn expect<T: PartialEq + fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what} returned {found:?} instead of {wanted:?}")) }
}

impl<const INTERVAL: bool, const FORM: u8> MapSubject<INTERVAL, FORM> {
    /// The map itself.
    #[must_use]
    pub fn map(&self) -> &Hart {
        &self.map
    }

    fn contents(&self) -> Result<Vec<Record>, String> {
        let range = self.map.range(Bound::Unbounded, Bound::Unbounded).map_err(|e| format!("scan: {e}"))?;
        range.collect::<Result<_, _>>().map_err(|e| format!("scan: {e}"))
    }

    fn same(found: &[Record], model: &MapModel) -> bool {
        found.len() == model.records.len()
            && found.iter().zip(&model.records).all(|((k, v), (mk, mv))| **k == **mk && **v == **mv)
    }

    /// How point reads and `len` contradict a scan, which has found these records: they reach a leaf in other ways.
    fn contradiction(&self, found: &[Record]) -> Result<Option<String>, String> {
        for (key, value) in found {
            if self.map.get(key).map_err(|e| e.to_string())?.as_ref() != Some(value) {
                return Ok(Some(format!("a scan finds {:?} and get does not", Short(key))));
            }
        }
        let len = self.map.len();
        let differs = len != found.len() as u64;
        Ok(differs.then(|| format!("len says {len} where a scan finds {}", found.len())))
    }

    /// What a write promised. `done`: it changed something. Otherwise it promised what it saw.
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

impl<const INTERVAL: bool, const FORM: u8> Subject for MapSubject<INTERVAL, FORM> {
    type Op = MapOp;
    type Model = MapModel;

    const NAME: &'static str = match (INTERVAL, FORM) {
        (false, GROWS) => "map-grows",
        (true, GROWS) => "map-grows-interval",
        (false, COMPACTS) => "map-compacts",
        (true, COMPACTS) => "map-compacts-interval",
        (false, _) => "map",
        (true, _) => "map-interval",
    };
    const REGION_BYTES: u64 = 1 << 20;

    fn create(region: Region) -> Result<Self, String> {
        let part = if FORM == GROWS { region.first(region.len() / SMALL_PART) } else { region.clone() };
        let map = Hart::create(part, &options(INTERVAL)).map_err(|e| e.to_string())?;
        Ok(Self { map: Arc::new(map), region })
    }

    fn is_unfinished(region: &Region) -> bool {
        // The root line commits the map: docs/format/map.md.
        let root: Vec<u64> = (0..8).map(|word| region.word(word * 8).load(Ordering::Relaxed)).collect();
        let bytes: Vec<u8> = root[..7].iter().flat_map(|word| word.to_le_bytes()).collect();
        root[0] == 0 || root[7] != u64::from(mangrove_pool::crc32c(0, &bytes))
    }

    fn recover(region: Region) -> Result<Self, String> {
        let (map, _) = Hart::recover(region.clone(), &options(INTERVAL)).map_err(|e| e.to_string())?;
        Ok(Self { map: Arc::new(map), region })
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
                // Setting an absent key to absent changes nothing, so there is nothing to make durable.
                Self::wrote(*mode, done && old != new, before.seen(key))
            }
            MapOp::Batch(ops, mode) => {
                self.batch(ops, *mode).map_err(text)?;
                let mut after = before.clone();
                after.advance(index, op);
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
                    return Err(format!("get returned {found:?} instead of {wanted:?}"));
                }
                Self::saw(before.seen(key))
            }
            MapOp::Scan => {
                if !Self::same(&self.contents()?, before) {
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
            MapOp::Grow => {
                let opened = Hart::recover(self.region.clone(), &options(INTERVAL));
                self.map = Arc::new(opened.map_err(text)?.0);
                Promised::Nothing
            }
            MapOp::Compact => {
                map.compact().map_err(text)?;
                Promised::All
            }
            MapOp::During((key, value), at, (inner_key, inner_value)) => {
                let (other, inner_key, inner_value) =
                    (self.map.clone(), inner_key.clone(), inner_value.clone());
                let (outer, inner) = during_and_told(
                    *at,
                    !INTERVAL,
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
        model.advance(index, op);
    }

    fn between(before: &MapModel, index: u32, op: &MapOp, inner: bool) -> Vec<MapModel> {
        let MapOp::During(..) = op else { return Vec::new() };
        let with = |outer, inner| in_part(before, index, op, outer, inner);
        // Once the inner put was acknowledged it is durable.
        if inner && !INTERVAL {
            vec![with(false, true), with(true, true)]
        } else {
            vec![with(true, false), with(false, true)]
        }
    }

    fn after_outer(before: &MapModel, index: u32, op: &MapOp) -> Vec<MapModel> {
        [false, true].map(|inner| in_part(before, index, op, true, inner)).to_vec()
    }

    fn rebase(model: &mut MapModel) {
        model.writers.clear();
    }

    fn holds(&self, model: &MapModel) -> Result<bool, String> {
        let found = self.contents()?;
        Ok(Self::same(&found, model) && self.contradiction(&found)?.is_none())
    }

    fn difference(&self, model: &MapModel) -> String {
        let found = match self.contents() {
            Ok(found) => found,
            Err(e) => return e,
        };
        let mut out = Vec::new();
        match self.contradiction(&found) {
            Ok(contradiction) => out.extend(contradiction),
            Err(e) => out.push(e),
        }
        let found: BTreeMap<&[u8], &[u8]> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
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
        if FORM == 0 { SCENARIOS.len() as u32 } else { 1 }
    }

    fn scenario_name(scenario: u32) -> &'static str {
        match FORM {
            GROWS => GROWTH,
            COMPACTS => COMPACTION,
            _ => SCENARIOS[scenario as usize],
        }
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<MapOp> {
        map_workload::workload(Self::scenario_name(scenario), rng, INTERVAL)
    }

    fn follow_up(rng: &mut Rng, recovered: &MapModel) -> Vec<MapOp> {
        map_workload::follow_up(rng, recovered)
    }
}
