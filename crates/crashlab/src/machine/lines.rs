//! The fault model in code. A unit (a cache line or a sector) has after a crash any value that it held at or after
//! its durable one.
//!
//! A store of more than one word is not atomic: between two versions of a cache line, any subset of the changed
//! 8-byte words may have arrived. A sector is atomic.

use crate::rng::Rng;
use std::collections::BTreeMap;

/// One value that a unit held.
#[derive(Clone)]
pub(crate) struct UnitVersion<const N: usize> {
    bytes: [u8; N],
    /// The words that differ from the version before, one bit each (cache lines only).
    changed: u8,
}

/// A unit with values that are not durable yet.
#[derive(Clone)]
struct DirtyUnit<const N: usize> {
    /// Number of `versions[0]`, counted since the unit became dirty.
    first: u32,
    /// The durable value, then every value since.
    versions: Vec<UnitVersion<N>>,
}

/// How a crash image is chosen among those that a crash point allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageChoice {
    /// The n-th of all combinations.
    Index(u64),
    /// A sample, in which a store of several words may have arrived in part.
    Seed(u64),
    /// A fault beyond a plain crash, for worlds that know one (see [`crate::FileWorld`]).
    Extra(u64),
}

/// The durable value of every unit, and the values that dirty units may have.
#[derive(Clone)]
pub(crate) struct DirtyUnits<const N: usize> {
    dirty: BTreeMap<u64, DirtyUnit<N>>,
    /// What each thread has flushed and not yet fenced: the unit, and its version number at the flush.
    flushed: BTreeMap<u32, Vec<(u64, u32)>>,
}

impl<const N: usize> Default for DirtyUnits<N> {
    fn default() -> Self {
        Self { dirty: BTreeMap::new(), flushed: BTreeMap::new() }
    }
}

impl<const N: usize> DirtyUnits<N> {
    /// Executes a store of `bytes` at `start` within the unit `id`, whose durable value is `durable()` if it was
    /// clean.
    pub(crate) fn store(&mut self, id: u64, start: usize, bytes: &[u8], durable: impl FnOnce() -> [u8; N]) {
        let unit = self.dirty.entry(id).or_insert_with(|| DirtyUnit {
            first: 0,
            versions: vec![UnitVersion { bytes: durable(), changed: 0 }],
        });
        let old = unit.versions.last().map_or([0; N], |v| v.bytes);
        let mut new = old;
        new[start..start + bytes.len()].copy_from_slice(bytes);
        if new == old {
            return;
        }
        let mut changed = 0;
        if N == 64 {
            for word in 0..8 {
                if old[word * 8..word * 8 + 8] != new[word * 8..word * 8 + 8] {
                    changed |= 1 << word;
                }
            }
        }
        unit.versions.push(UnitVersion { bytes: new, changed });
    }

    /// Executes a thread's flush of the unit.
    pub(crate) fn flush(&mut self, thread: u32, id: u64) {
        if let Some(unit) = self.dirty.get(&id) {
            let latest = unit.first + unit.versions.len() as u32 - 1;
            self.flushed.entry(thread).or_default().push((id, latest));
        }
    }

    /// Makes everything durable that was executed on the units of `ids` (a sync of a file).
    pub(crate) fn settle(&mut self, ids: std::ops::Range<u64>, mut settle: impl FnMut(u64, &[u8; N])) {
        let dirty: Vec<u64> = self.dirty.range(ids).map(|(id, _)| *id).collect();
        for id in dirty {
            let last = self.dirty.remove(&id).and_then(|unit| unit.versions.into_iter().next_back());
            if let Some(version) = last {
                settle(id, &version.bytes);
            }
        }
    }

    /// Executes a thread's fence: what it flushed before becomes durable. `settle(id, value)` gets the new durable
    /// values.
    pub(crate) fn fence(&mut self, thread: u32, mut settle: impl FnMut(u64, &[u8; N])) {
        for (id, version) in self.flushed.remove(&thread).unwrap_or_default() {
            let Some(unit) = self.dirty.get_mut(&id) else { continue };
            // Another thread's fence may have settled a later version, or cleaned and re-dirtied the unit: version
            // numbers keep counting while flushes are pending.
            if version > unit.first {
                unit.versions.drain(..(version - unit.first) as usize);
                unit.first = version;
                settle(id, &unit.versions[0].bytes);
            }
        }
        // A clean unit stays while another thread's flush still refers to its version numbers.
        if self.flushed.is_empty() {
            self.dirty.retain(|_, unit| unit.versions.len() > 1);
        }
    }

    /// How many images a crash now could leave, not counting stores that arrived in part.
    #[must_use]
    pub(crate) fn combinations(&self) -> u64 {
        self.dirty.values().fold(1u64, |n, unit| n.saturating_mul(unit.versions.len() as u64))
    }

    /// The units of one image that differ from the durable state.
    #[must_use]
    pub(crate) fn pick(&self, choice: ImageChoice) -> Vec<(u64, [u8; N])> {
        match choice {
            ImageChoice::Index(index) => self.pick_index(index),
            ImageChoice::Seed(seed) | ImageChoice::Extra(seed) => self.pick_seed(&mut Rng::new(seed)),
        }
    }

    /// The units whose present value differs from the durable one.
    #[must_use]
    pub(crate) fn latest(&self) -> Vec<(u64, [u8; N])> {
        let last = |unit: &DirtyUnit<N>| unit.versions[unit.versions.len() - 1].bytes;
        let dirty = self.dirty.iter().filter(|(_, unit)| unit.versions.len() > 1);
        dirty.map(|(id, unit)| (*id, last(unit))).collect()
    }

    fn pick_index(&self, mut index: u64) -> Vec<(u64, [u8; N])> {
        let mut out = Vec::new();
        for (&id, unit) in &self.dirty {
            let count = unit.versions.len() as u64;
            let at = (index % count) as usize;
            index /= count;
            if at > 0 {
                out.push((id, unit.versions[at].bytes));
            }
        }
        out
    }

    /// Uniform samples of many units almost never leave a single unit old, and that is the image that finds most
    /// bugs. So a third of the samples are "all but a few", and a third "only a few".
    fn pick_seed(&self, rng: &mut Rng) -> Vec<(u64, [u8; N])> {
        let style = rng.below(3);
        let few = 1 + rng.below(2);
        let dirty = self.dirty.values().filter(|u| u.versions.len() > 1).count().max(1) as u64;
        let mut out = Vec::new();
        for (&id, unit) in &self.dirty {
            if unit.versions.len() < 2 {
                continue;
            }
            let odd = rng.below(dirty) < few;
            let value = match (style, odd) {
                (0, _) | (1 | 2, true) => Self::any_value(unit, rng),
                (1, false) => unit.versions[unit.versions.len() - 1].bytes,
                _ => continue,
            };
            if value != unit.versions[0].bytes {
                out.push((id, value));
            }
        }
        out
    }

    fn any_value(unit: &DirtyUnit<N>, rng: &mut Rng) -> [u8; N] {
        let at = rng.below(unit.versions.len() as u64) as usize;
        let version = &unit.versions[at];
        let mut bytes = version.bytes;
        // A store of several words that arrived in part: words outside the mask keep the value before.
        if at > 0 && version.changed.count_ones() > 1 && rng.one_in(2) {
            let mask = rng.next() as u8;
            let before = &unit.versions[at - 1].bytes;
            for word in 0..8 {
                if version.changed & !mask & (1 << word) != 0 {
                    bytes[word * 8..word * 8 + 8].copy_from_slice(&before[word * 8..word * 8 + 8]);
                }
            }
        }
        bytes
    }
}
