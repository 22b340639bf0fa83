//! Checks every rule of the durable map and of its volatile structures.
//!
//! 1. Root, high water and directory verify; no batch is half done.
//! 2. Each chunk's header agrees with its bitmap and place; each live leaf and its value verify.
//! 3. No two leaves have the same key, and no two leaves the same value block.
//! 4. The index holds exactly the live leaves, in order.
//! 5. Every slot is live, or free, or reserved by a lane, and exactly one of these (otherwise it is leaked, or would
//!    be allocated twice).

use crate::concurrency::writer_gate::LaneToken;
use crate::format::layout::SegmentKind;
use crate::format::size_class::{Class, is_leaf_class};
use crate::hart::Hart;
use crate::index::Direction;
use crate::recovery::scan;
use crate::recovery::scan::{BlockPlace, damage};
use crate::report::Damage;
use crate::{CheckReport, Result};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the check has seen so far.
struct CheckWalk<'a> {
    hart: &'a Hart,
    kinds: Vec<SegmentKind>,
    report: CheckReport,
    /// Leaves whose own checksum is right, whether or not their values are.
    live_leaves: u64,
    /// Damaged leaves: which values belonged to them is not known.
    lost_leaves: u64,
    /// Live slots of each chunk: leaves and values.
    live: BTreeMap<(u32, u32), u64>,
    /// Slots of damaged values that leaves refer to. (A salvage has left out their records, and freed them.)
    unsound: BTreeMap<(u32, u32), u64>,
    extents: HashSet<u32>,
}

impl Hart {
    /// Verifies every structure and checksum. Writers wait meanwhile; readers do not. On a medium with a log this
    /// returns when what it counted is durable.
    ///
    /// # Errors
    /// Only when the check cannot run, because the root is unreadable, or cannot tell what it counted, because the
    /// medium failed before that was durable. The report lists what it finds.
    pub fn check(&self) -> Result<CheckReport> {
        // A batch allocates its blocks before it closes the gate; rule 5 would call them leaked.
        let preparing = self.preparing.write();
        let exclusive = self.writer_gate.close();
        let high_water = scan::root(self.region())?.high_water;
        let mut walk = CheckWalk {
            hart: self,
            kinds: Vec::new(),
            report: CheckReport { segments: u64::from(high_water), ..CheckReport::default() },
            live_leaves: 0,
            lost_leaves: 0,
            live: BTreeMap::new(),
            unsound: BTreeMap::new(),
            extents: HashSet::new(),
        };
        walk.directory(high_water);
        walk.leaves();
        walk.index();
        walk.slots(&exclusive.lane());
        let report = walk.report;
        drop((exclusive, preparing));
        self.wait_for_all()?;
        Ok(report)
    }
}

impl CheckWalk<'_> {
    fn found(&mut self, damage: Damage) {
        if self.report.damage.len() < CheckReport::DAMAGE_COUNT_MAX {
            self.report.damage.push(damage);
        }
    }

    fn directory(&mut self, high_water: u32) {
        let space = &self.hart.space;
        match scan::batch_area(space) {
            Ok(None) => {}
            Ok(Some(area)) => self.found(damage(area, "a batch is committed and not forgotten")),
            Err(found) => self.found(found),
        }
        let mut extent_end = 0;
        for segment in 0..high_water {
            let kind = scan::kind(space, &self.hart.alloc.classes, high_water, segment);
            let kind = kind.unwrap_or_else(|found| {
                self.found(found);
                SegmentKind::Free
            });
            if segment < extent_end && kind != SegmentKind::Free {
                let what = format!("segment {segment} belongs to an extent and to something else");
                self.found(damage(space.geometry.start(segment), what));
            }
            if let SegmentKind::Extent { count } | SegmentKind::Directory { count } = kind {
                extent_end = segment + count;
            }
            self.kinds.push(kind);
        }
    }

    fn leaves(&mut self) {
        let space = &self.hart.space;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for segment in 0..self.kinds.len() as u32 {
            let SegmentKind::Leaves { class } = self.kinds[segment as usize] else { continue };
            let cut = *self.hart.alloc.classes.cut(class);
            for chunk in 0..cut.chunk_count {
                let (header, bitmap, problem) = scan::chunk(space, segment, class, &cut, chunk);
                problem.into_iter().for_each(|found| self.found(found));
                let mut live = bitmap;
                for slot in (0..cut.slots(chunk)).filter(|slot| bitmap >> slot & 1 == 1) {
                    let offset = header + u64::from(cut.header_bytes + slot * cut.slot_bytes);
                    if space.is_free_slot(offset) {
                        live &= !(1 << slot);
                    } else {
                        self.leaf(&cut, offset, &mut key, &mut value);
                    }
                }
                self.live.insert((segment, chunk), live);
            }
        }
    }

    fn leaf(
        &mut self,
        cut: &crate::format::size_class::Cut,
        offset: u64,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) {
        let space = &self.hart.space;
        let found = match scan::leaf(space, cut, offset, key) {
            Ok(found) => found,
            Err(found) => {
                self.lost_leaves += 1;
                return self.found(found);
            }
        };
        if found.torn {
            self.found(damage(offset, "an update of the leaf stopped half way, while the map is open"));
        }
        self.live_leaves += 1;
        match self.hart.index.get(key, |leaf| space.offset(leaf)) {
            Some(other) if other == offset => {}
            Some(other) => {
                self.found(damage(
                    offset,
                    format!("the index has the leaf at byte {other} for this leaf's key"),
                ));
            }
            None => self.found(damage(offset, "the leaf is not in the index")),
        }
        if found.value.is_in_slot() {
            match scan::slot_value(space, offset, key.len(), found.value, value) {
                Ok(len) => self.sound(len),
                Err(found) => self.found(found),
            }
            return;
        }
        let Some(block) = found.value.block_offset() else {
            return self.sound(u64::from(found.value.kind));
        };
        match scan::block(space, &self.hart.alloc.classes, &self.kinds, block, value) {
            Ok((place, len)) => {
                self.sound(len);
                let taken = match place {
                    BlockPlace::Slot { segment, chunk, slot } => {
                        let live = self.live.entry((segment, chunk)).or_default();
                        let taken = *live >> slot & 1 == 1;
                        *live |= 1 << slot;
                        taken
                    }
                    BlockPlace::Extent { head } => !self.extents.insert(head),
                };
                if taken {
                    self.found(damage(block, "two leaves refer to this value"));
                }
            }
            Err(found) => {
                self.found(found);
                let place = scan::block_place(space, &self.hart.alloc.classes, &self.kinds, block);
                if let Ok(BlockPlace::Slot { segment, chunk, slot }) = place {
                    *self.unsound.entry((segment, chunk)).or_default() |= 1 << slot;
                }
            }
        }
    }

    /// A record verified, with its value of `len` bytes.
    fn sound(&mut self, len: u64) {
        self.report.records += 1;
        self.report.value_bytes += len;
    }

    fn index(&mut self) {
        let space = &self.hart.space;
        let mut cursor = self.hart.index.cursor(std::ops::Bound::Unbounded, Direction::Forward);
        let mut before: Option<Vec<u8>> = None;
        let mut count = 0u64;
        while let Some(leaf) = cursor.advance(|leaf| leaf) {
            let offset = space.offset(leaf);
            if before.as_deref().is_some_and(|b| b >= cursor.key()) {
                self.found(damage(offset, "the index has this leaf out of order"));
            }
            before = Some(cursor.key().to_vec());
            if !self.hart.alloc.leaf_bit(offset) {
                self.found(damage(offset, "the index has a leaf whose bit is not set"));
            } else if space.is_free_slot(offset) {
                self.found(damage(offset, "the index has a slot that holds no leaf"));
            } else if space.key(offset) != cursor.key() {
                self.found(damage(offset, "the index has the leaf under another key"));
            }
            count += 1;
        }
        if count != self.live_leaves || self.hart.len() != count {
            let what = format!(
                "{} leaves are live, {count} are in the index, {} are counted",
                self.live_leaves,
                self.hart.len()
            );
            self.found(damage(0, what));
        }
    }

    fn slots(&mut self, exclusive: &LaneToken<'_>) {
        let space = &self.hart.space;
        let alloc = &self.hart.alloc;
        let mut cached: HashMap<(u32, u32), u64> = HashMap::new();
        for offset in alloc.cached_slots(exclusive) {
            let (segment, place) = space.geometry.locate(offset);
            let slot = alloc.slab(segment).and_then(|(class, _)| alloc.classes.cut(class).slot_at(place));
            match slot {
                Some((chunk, slot)) => *cached.entry((segment, chunk)).or_default() |= 1 << slot,
                None => self.found(damage(offset, "a lane has set aside what is no slot")),
            }
        }
        for segment in 0..self.kinds.len() as u32 {
            let slab = alloc.slab(segment);
            let durable = match self.kinds[segment as usize] {
                SegmentKind::Leaves { class } | SegmentKind::Values { class } => Some(class),
                SegmentKind::Free | SegmentKind::Extent { .. } | SegmentKind::Directory { .. } => None,
            };
            match (slab, durable) {
                (Some((class, masks)), Some(durable)) if class == durable => {
                    self.slab(segment, class, &masks, &cached);
                }
                (None, None) => {}
                // Recovery leaves stale entries until the first allocation; they hold nothing live.
                (None, Some(_))
                    if self.live.range((segment, 0)..=(segment, u32::MAX)).all(|(_, live)| *live == 0) => {}
                _ => self.found(damage(
                    space.geometry.start(segment),
                    format!("the directory and the allocator disagree about segment {segment}"),
                )),
            }
        }
    }

    fn slab(&mut self, segment: u32, class: Class, masks: &[u64], cached: &HashMap<(u32, u32), u64>) {
        let cut = *self.hart.alloc.classes.cut(class);
        for (chunk, mask) in (0..).zip(masks) {
            let live = self.live.get(&(segment, chunk)).copied().unwrap_or(0);
            let aside = cached.get(&(segment, chunk)).copied().unwrap_or(0);
            let at = self.hart.space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
            if live & mask != 0 || live & aside != 0 || aside & mask != 0 {
                self.found(damage(at, "a slot of the chunk is free and in use"));
            }
            let unsound = self.unsound.get(&(segment, chunk)).copied().unwrap_or(0);
            let leaked = cut.full_mask(chunk) & !(live | mask | aside | unsound);
            let (mut leaked, mut of) = (u64::from(leaked.count_ones()), "leaf");
            if !is_leaf_class(class) {
                // These may be the values of leaves that are damaged.
                let lost = leaked.min(self.lost_leaves);
                self.lost_leaves -= lost;
                (leaked, of) = (leaked - lost, "value");
            }
            if leaked != 0 {
                self.found(damage(at, format!("{leaked} {of} slots of the chunk are leaked")));
            }
        }
    }
}
