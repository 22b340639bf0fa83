//! From durable bytes to a map (paper, Algorithm 7).
//!
//! Recovery reads the root, applies a committed batch, and reads the directory. Then it verifies all leaves in
//! parallel and marks the blocks of their values, and builds the index bottom-up from leaves grouped by their first
//! two bytes. What no live leaf needs is free: a value block is live exactly if it is marked, so there are no durable
//! bits of values, no micro-logs and no leaks (gaps 1 to 4, 11, 15).
//!
//! Recovery writes to the medium the effects of a committed batch, and a free slot's meta word over the older of two
//! leaves of one key, between which a crash stopped an update: that leaf would come back if the key were deleted later.
//! Both are idempotent, so a crash during recovery equals a crash before it. (A map of an older version is upgraded:
//! `recovery/upgrade.rs`. A region that has become larger gets a larger directory: `recovery/move_directory.rs`.)
//! Recovery corrects a torn update of a value's word in memory only, because both readings of the line mean the same.

use crate::alloc::{WithoutSpace, provide_again};
use crate::concurrency::writer_gate::LANE_COUNT;
use crate::format::layout::{
    FORMAT_VERSION, Geometry, LEAF_META, ROOT_BATCH, ROOT_BYTES, ROOT_HIGH_WATER, SegmentKind, Tag,
    VERSION_OF_REMOVALS, VERSION_OF_ZEROS, seal,
};
use crate::format::leaf::{LeafValue, Meta};
use crate::format::redo_list;
use crate::format::redo_list::RedoEntry;
use crate::format::size_class::Class;
use crate::hart::Hart;
use crate::index::{BuildItem, DuplicateKey, Leaf, entry_of};
use crate::recovery::move_directory;
use crate::recovery::presume;
use crate::recovery::scan;
use crate::recovery::scan::{BlockPlace, RootWords, damage};
use crate::recovery::upgrade;
use crate::report::Damage;
use crate::{Error, Options, RecoveryReport, Result};
use mangrove_pool::{ByteRange, Region};
use mangrove_sys::{AsymmetricBarrier, fan_out, without_signals};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Leaves are grouped by first key byte; the empty key has a group of its own.
const GROUP_COUNT: usize = 257;

/// Bytes of the index for a record, at least.
const INDEX_BYTES: u64 = 12;
/// Bytes that building the index maps for a record, about: lists of leaves that grow by doubling, and nodes.
const RECOVERY_BYTES: u64 = 128;

/// A leaf on its way to the index.
type PendingItem = (u32, BuildItem);

/// What all workers use and find.
struct Sweep<'a> {
    hart: &'a Hart,
    kinds: Vec<SegmentKind>,
    /// For each segment of values, the live slots of each chunk.
    marks: Vec<Vec<AtomicU64>>,
    /// For each segment, whether a live value's extent begins there.
    extents: Vec<AtomicBool>,
    /// Segments whose directory entry is damaged, in order: neither read nor allocated.
    lost: Vec<u32>,
    /// Chunks have removal words.
    has_removals: bool,
    /// The greatest number of a batch in them.
    last_removals: AtomicU64,
    /// The slots of leaves that an update had replaced when a crash stopped it.
    replaced: Mutex<Vec<u64>>,
    verify_values: bool,
    salvage: bool,
    read_only: bool,
    options: &'a Options,
    damage: Mutex<Vec<Damage>>,
}

/// What one worker found.
struct Harvest {
    groups: Vec<Vec<PendingItem>>,
    /// Free masks of each leaf segment.
    slabs: Vec<(u32, Class, Vec<u64>)>,
}

impl Hart {
    /// Opens the map in `region`, as the last run or a crash left it.
    ///
    /// # Errors
    /// `Corrupt` when a structure breaks its rules (with `salvage`: only the root's); `Unsupported` for a newer
    /// format; errors of the medium.
    pub fn recover(region: Region, options: &Options) -> Result<(Self, RecoveryReport)> {
        let (mut found, root_damage) = root(&region, options)?;
        provide(&region, &found.geometry, found.high_water, options.read_only)?;
        let may_write = !options.read_only && !options.salvage;
        if may_write && found.version == FORMAT_VERSION {
            found = move_directory::run(&region, found)?;
        }
        let RootWords { geometry, high_water, version, .. } = found;
        // The system call takes milliseconds, in which this thread recovers.
        let barrier = without_signals(|| std::thread::Builder::new().spawn(AsymmetricBarrier::detect));
        let mut hart = Self::assemble(region, geometry, high_water, options, AsymmetricBarrier::full())?;
        hart.space.set_zeros_are_free(version == VERSION_OF_ZEROS);
        let mut report = RecoveryReport::default();
        let started = Instant::now();
        let mut sweep = Sweep::new(&hart, options, high_water)?;
        sweep.has_removals = version >= VERSION_OF_REMOVALS;
        root_damage.into_iter().try_for_each(|found| sweep.report(found))?;
        sweep.replay_batch(&mut report)?;
        sweep.fits_memory(options)?;
        let mut harvests = sweep.leaves()?;
        hart.last_removals.store(sweep.last_removals.load(Ordering::Relaxed), Ordering::Relaxed);
        report.scan_ns = started.elapsed().as_nanos() as u64;
        let started = Instant::now();
        report.records = sweep.build(&harvests)?;
        sweep.free_replaced(&mut harvests);
        report.segments_reclaimed = sweep.hand_over(harvests);
        if !options.read_only {
            let without = WithoutSpace::of(hart.region());
            hart.alloc.pool.note_without_space(&hart.space, &without);
            provide_again(&hart.space, high_water, &sweep.used(), &without)?;
        }
        report.build_ns = started.elapsed().as_nanos() as u64;
        if version < FORMAT_VERSION && may_write {
            upgrade::run(&hart, version, &sweep.kinds);
            if move_directory::is_wanted(hart.region(), &found) {
                let region = hart.region().clone();
                drop(sweep);
                drop(hart);
                return Self::recover(region, options);
            }
        }
        report.skipped = sweep.damage.into_inner();
        if version < VERSION_OF_REMOVALS && options.salvage {
            hart.list_entries_max = usize::MAX;
        }
        if let Some(barrier) = barrier.ok().and_then(|thread| thread.join().ok()) {
            hart.writer_gate.set_barrier(barrier);
        }
        hart.writer_gate.add_records(&hart.writer_gate.close().lane(), report.records as i64);
        Ok((hart, report))
    }
}

/// The segments are there already; this reports them to a medium that has just been opened. A medium that is read only
/// provides no more than its file has.
fn provide(region: &Region, geometry: &Geometry, high_water: u32, read_only: bool) -> Result<()> {
    let end = if high_water == 0 { ROOT_BYTES } else { geometry.start(high_water) };
    if read_only {
        return match region.grow(end) {
            Err(_) => Err(damage(ROOT_HIGH_WATER, "the region ends before the last segment in use").into()),
            provided => Ok(provided?),
        };
    }
    let grown = region.medium().grown();
    if grown < end {
        // Not the directory between, of which only a part is in use.
        let offset = if high_water == 0 { 0 } else { geometry.data_start.max(grown) };
        region.provide(ByteRange { offset, len: end - offset })?;
    }
    Ok(())
}

/// What the root says; of a damaged one, when salvaging, what it must have said, and the damage.
fn root(region: &Region, options: &Options) -> Result<(RootWords, Option<Damage>)> {
    match scan::root(region) {
        Err(Error::Corrupt { offset, what }) if options.salvage => {
            match presume::root(region, options.segment_shift, options.salvage_bytes) {
                Some(root) => Ok((root, Some(Damage { offset, what }))),
                None => Err(Error::Corrupt { offset, what }),
            }
        }
        root => Ok((root?, None)),
    }
}

impl<'a> Sweep<'a> {
    fn new(hart: &'a Hart, options: &'a Options, high_water: u32) -> Result<Self> {
        let mut sweep = Self {
            hart,
            kinds: Vec::with_capacity(high_water as usize),
            marks: Vec::new(),
            extents: Vec::new(),
            lost: Vec::new(),
            has_removals: true,
            last_removals: AtomicU64::new(0),
            replaced: Mutex::default(),
            verify_values: options.verify_values,
            salvage: options.salvage,
            read_only: options.read_only,
            options,
            damage: Mutex::default(),
        };
        let classes = &hart.alloc.classes;
        let mut extent_end = 0;
        for segment in 0..high_water {
            let mut kind = scan::kind(&hart.space, classes, high_water, segment);
            if segment < extent_end && !matches!(kind, Ok(SegmentKind::Free)) {
                let entry = hart.space.geometry.directory_entry(segment);
                kind = Err(damage(
                    entry,
                    format!("segment {segment} belongs to an extent and to something else"),
                ));
            }
            let kind = match kind {
                Ok(kind) => kind,
                Err(found) => {
                    sweep.report(found)?;
                    let presumed = presume::kind(&hart.space, classes, high_water, segment);
                    if presumed == SegmentKind::Free {
                        sweep.lost.push(segment);
                    }
                    presumed
                }
            };
            if let SegmentKind::Extent { count } | SegmentKind::Directory { count } = kind {
                extent_end = segment + count;
            }
            let chunks =
                if let SegmentKind::Values { class } = kind { classes.cut(class).chunk_count } else { 0 };
            sweep.marks.push((0..chunks).map(|_| AtomicU64::new(0)).collect());
            sweep.extents.push(AtomicBool::new(false));
            sweep.kinds.push(kind);
        }
        Ok(sweep)
    }

    /// Ends recovery with the damage, or records it when salvaging.
    fn report(&self, found: Damage) -> Result<()> {
        if !self.salvage {
            return Err(found.into());
        }
        let mut all = self.damage.lock();
        if all.len() < crate::CheckReport::DAMAGE_COUNT_MAX {
            all.push(found);
        }
        Ok(())
    }

    /// Fails once the caller wants no map any more.
    fn check_ended(&self) -> Result<()> {
        // Relaxed: nothing is read that the other thread wrote before.
        match &self.options.ended {
            Some(ended) if ended.load(Ordering::Relaxed) => {
                Err(mangrove_pool::Error::Closed { path: self.options.path.clone() }.into())
            }
            _ => Ok(()),
        }
    }

    /// Applies the redo list of a committed batch, if there is one.
    fn replay_batch(&self, report: &mut RecoveryReport) -> Result<()> {
        let (region, read_only) = (self.hart.region(), self.read_only);
        let area = match scan::batch_area(&self.hart.space) {
            Ok(None) => return Ok(()),
            Ok(Some(area)) => area,
            Err(found) => return self.report(found),
        };
        let list = redo_list::decode(&self.hart.space, area).and_then(|entries| {
            let mut placed = Vec::new();
            for entry in entries {
                match entry {
                    RedoEntry::Removals { number, chunks } => {
                        for entry in self.removals(area, number, chunks)? {
                            placed.push(self.place(area, entry)?);
                        }
                    }
                    entry => placed.push(self.place(area, entry)?),
                }
            }
            Ok(placed)
        });
        let list = match list {
            Ok(list) => list,
            Err(found) => return self.report(found),
        };
        for (entry, slots) in &list {
            redo_list::apply(&self.hart.space, *entry, *slots);
            if !read_only {
                match *entry {
                    RedoEntry::Bits { header, .. } => region.flush(header, 8),
                    RedoEntry::Leaf { slot, .. } => region.flush(slot, 16),
                    RedoEntry::Removals { .. } => {}
                }
            }
        }
        if !read_only {
            // Durable-order: the effects before the list is given up, and that before the next write.
            region.fence();
        }
        // Also with `read_only`, in private memory like the effects: the map is as if the batch had ended.
        region.store(ROOT_BATCH, seal(Tag::Batch, 0), Ordering::Release);
        if !read_only {
            region.flush(ROOT_BATCH, 8);
            region.fence();
        }
        report.batch_replayed = true;
        Ok(())
    }

    /// The removals with this number, of as many chunks as the list says.
    fn removals(&self, area: u64, number: u64, chunks: u64) -> std::result::Result<Vec<RedoEntry>, Damage> {
        let space = &self.hart.space;
        let mut entries = Vec::new();
        for (segment, kind) in (0..).zip(&self.kinds) {
            let SegmentKind::Leaves { class } = *kind else { continue };
            let cut = self.hart.alloc.classes.cut(class);
            for chunk in 0..cut.chunk_count {
                let header = space.geometry.start(segment) + u64::from(chunk * cut.chunk_bytes);
                if let Some((found, clear)) = scan::removals(space, segment, header, chunk)
                    && found == number
                {
                    entries.push(RedoEntry::Bits { header, set: 0, clear });
                }
            }
        }
        if entries.len() as u64 == chunks {
            return Ok(entries);
        }
        let found = entries.len();
        Err(damage(
            area,
            format!("the committed batch removes records of {chunks} chunks, and {found} say so"),
        ))
    }

    /// Checks that an entry of a redo list refers to a chunk header or a leaf, and adds the chunk's slots.
    fn place(&self, area: u64, entry: RedoEntry) -> std::result::Result<(RedoEntry, u32), Damage> {
        let bad = || damage(area, "the redo list of the committed batch names a place that holds no leaf");
        let space = &self.hart.space;
        let (RedoEntry::Bits { header: offset, .. } | RedoEntry::Leaf { slot: offset, .. }) = entry else {
            return Err(bad());
        };
        if offset < space.geometry.data_start || offset >= space.usable_offset() {
            return Err(bad());
        }
        let (segment, place) = space.geometry.locate(offset);
        let SegmentKind::Leaves { class } = self.kinds[segment as usize] else { return Err(bad()) };
        let cut = self.hart.alloc.classes.cut(class);
        match entry {
            RedoEntry::Bits { set, clear, .. } => {
                let chunk = place / cut.chunk_bytes;
                let fits = place % cut.chunk_bytes == 0 && chunk < cut.chunk_count;
                if !fits || (set | clear) & !cut.full_mask(chunk) != 0 {
                    return Err(bad());
                }
                Ok((entry, cut.slots(chunk)))
            }
            _ => cut.slot_at(place).map(|_| (entry, 0)).ok_or_else(bad),
        }
    }

    /// Refuses where this process has no memory for the index: a request that cannot be refused would end it.
    fn fits_memory(&self, options: &Options) -> Result<()> {
        let Some(limit) = options.memory_bytes_max else { return Ok(()) };
        let fits = |records: u64| {
            let address_space = records * RECOVERY_BYTES + (RECOVERY_BYTES << 20);
            mangrove_pool::fits_memory(&options.path, Some(limit), records * INDEX_BYTES, address_space)
        };
        let slabs = || {
            (0..).zip(&self.kinds).filter_map(|(segment, kind)| match *kind {
                SegmentKind::Leaves { class } => Some((segment, class, self.hart.alloc.classes.cut(class))),
                _ => None,
            })
        };
        // Mostly there is memory for a record in each slot, and no bitmap need be read for it.
        let slots =
            slabs().flat_map(|(_, _, cut)| (0..cut.chunk_count).map(|chunk| u64::from(cut.slots(chunk))));
        if fits(slots.sum()).is_ok() {
            return Ok(());
        }
        let space = &self.hart.space;
        let records = slabs().flat_map(|(segment, class, cut)| {
            let taken = move |chunk| scan::chunk(space, segment, class, cut, chunk).1.count_ones();
            (0..cut.chunk_count).map(move |chunk| u64::from(taken(chunk)))
        });
        Ok(fits(records.sum())?)
    }

    /// Reads all leaves, on as many threads as allowed.
    fn leaves(&self) -> Result<Vec<Harvest>> {
        let slabs: Vec<(u32, Class)> = (0..)
            .zip(&self.kinds)
            .filter_map(|(segment, kind)| match kind {
                SegmentKind::Leaves { class } => Some((segment, *class)),
                _ => None,
            })
            .collect();
        let next = AtomicUsize::new(0);
        self.on_threads(slabs.len(), || {
            let mut harvest = Harvest { groups: vec![Vec::new(); GROUP_COUNT], slabs: Vec::new() };
            let mut key = Vec::new();
            let mut value = Vec::new();
            while let Some(&(segment, class)) = slabs.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.check_ended()?;
                self.slab(segment, class, &mut harvest, &mut key, &mut value)?;
            }
            Ok(harvest)
        })
    }

    /// Runs `work` on one thread, or on several when there are enough `jobs`.
    fn on_threads<T: Send>(&self, jobs: usize, work: impl Fn() -> Result<T> + Sync) -> Result<Vec<T>> {
        fan_out(self.hart.threads.min(jobs), |_| work()).into_iter().collect()
    }

    fn slab(
        &self,
        segment: u32,
        class: Class,
        harvest: &mut Harvest,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        let space = &self.hart.space;
        let cut = self.hart.alloc.classes.cut(class);
        let mut masks = Vec::with_capacity(cut.chunk_count as usize);
        for number in 0..cut.chunk_count {
            let (header, bitmap, problem) = scan::chunk(space, segment, class, cut, number);
            if let Some(problem) = problem {
                self.report(problem)?;
            }
            if self.has_removals
                && let Some((batch, _)) = scan::removals(space, segment, header, number)
            {
                self.last_removals.fetch_max(batch, Ordering::Relaxed);
            }
            let mut free = cut.full_mask(number) & !bitmap;
            let mut left = bitmap;
            while left != 0 {
                let slot = left.trailing_zeros();
                left &= left - 1;
                let offset = header + u64::from(cut.header_bytes + slot * cut.slot_bytes);
                if space.is_free_slot(offset) {
                    free |= 1 << slot;
                    continue;
                }
                match self.leaf(cut, offset, key, value) {
                    Ok(found) => {
                        let (group, pending) = pending(key, space.leaf(offset, key.len(), found));
                        harvest.groups[group].push(pending);
                    }
                    // The slot of a damaged leaf, which a salvage leaves out, stays out of use: its bit is set.
                    Err(found) => self.report(found)?,
                }
            }
            masks.push(free);
        }
        harvest.slabs.push((segment, class, masks));
        Ok(())
    }

    /// Verifies one leaf and marks its value's block; its key is left in `key`. Returns the value.
    fn leaf(
        &self,
        cut: &crate::format::size_class::Cut,
        offset: u64,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> std::result::Result<LeafValue, Damage> {
        let space = &self.hart.space;
        let found = scan::leaf(space, cut, offset, key)?;
        if found.torn {
            // Not flushed: either form of the line reads as this value.
            space.region.store(offset + LEAF_META, found.meta.0, Ordering::Release);
        }
        if self.verify_values && found.value.is_in_slot() {
            scan::slot_value(space, offset, key.len(), found.value, value)?;
        }
        let Some(block) = found.value.block_offset() else { return Ok(found.value) };
        let classes = &self.hart.alloc.classes;
        let place = if self.verify_values {
            scan::block(space, classes, &self.kinds, block, value)?.0
        } else {
            // Every read verifies the block itself. To do it here would cost a cache miss for each record.
            scan::block_place(space, classes, &self.kinds, block)?
        };
        let taken = match place {
            BlockPlace::Slot { segment, chunk, slot } => {
                let before =
                    self.marks[segment as usize][chunk as usize].fetch_or(1 << slot, Ordering::Relaxed);
                before >> slot & 1 == 1
            }
            BlockPlace::Extent { head } => self.extents[head as usize].swap(true, Ordering::Relaxed),
        };
        if taken { Err(damage(block, "two leaves refer to this value")) } else { Ok(found.value) }
    }

    /// Builds the index, group by group. Returns the number of records.
    fn build(&self, harvests: &[Harvest]) -> Result<u64> {
        let next = AtomicUsize::new(0);
        let records: usize = harvests.iter().flat_map(|h| &h.groups).map(Vec::len).sum();
        // A few records are not worth a thread.
        let jobs = if records < 10_000 { 1 } else { GROUP_COUNT };
        let built = self.on_threads(jobs, || {
            let mut items = Vec::new();
            let mut built = 0;
            loop {
                let group = next.fetch_add(1, Ordering::Relaxed);
                if group >= GROUP_COUNT {
                    return Ok(built);
                }
                self.check_ended()?;
                built += self.build_group(harvests, group, &mut items)?;
            }
        })?;
        Ok(built.into_iter().sum())
    }

    fn build_group(&self, harvests: &[Harvest], group: usize, items: &mut Vec<BuildItem>) -> Result<u64> {
        let Some((_, some)) = harvests.iter().find_map(|h| h.groups[group].first()) else { return Ok(0) };
        let first_entry = if group == 0 { 0 } else { 1 + (group - 1) * 257 };
        let mut ends = [0usize; 258];
        for (entry, _) in harvests.iter().flat_map(|h| &h.groups[group]) {
            ends[*entry as usize - first_entry + 1] += 1;
        }
        for entry in 1..ends.len() {
            ends[entry] += ends[entry - 1];
        }
        let total = ends[257];
        items.clear();
        items.resize(total, *some);
        let mut at = ends;
        for (entry, item) in harvests.iter().flat_map(|h| &h.groups[group]) {
            let place = &mut at[*entry as usize - first_entry];
            items[*place] = *item;
            *place += 1;
        }
        let mut built = 0;
        for entry in 0..257 {
            let range = &mut items[ends[entry]..ends[entry + 1]];
            if !range.is_empty() {
                built += self.build_entry(first_entry + entry, range)?;
            }
        }
        Ok(built)
    }

    fn build_entry(&self, entry: usize, items: &mut [BuildItem]) -> Result<u64> {
        let mut count = items.len();
        // Leaves that have replaced another one.
        let mut newer: Vec<Leaf> = Vec::new();
        loop {
            match self.hart.index.build_entry(entry, &mut items[..count]) {
                Ok(()) => return Ok(count as u64),
                Err(DuplicateKey(one, other)) => {
                    // A crash leaves two leaves of a key, not three, and not more pairs than there are writers.
                    if newer.contains(&one) || newer.contains(&other) || newer.len() > LANE_COUNT {
                        let what = "more leaves have one key than a crash leaves";
                        self.report(damage(self.hart.space.offset(other), what))?;
                    }
                    let dropped = self.dropped(one, other)?;
                    newer.push(if dropped == one { other } else { one });
                    let place = items[..count].iter().position(|item| item.leaf == dropped);
                    items.swap(place.expect("the index names a leaf that it was given"), count - 1);
                    count -= 1;
                }
            }
        }
    }

    /// Which of two leaves of one key does not count.
    fn dropped(&self, one: Leaf, other: Leaf) -> Result<Leaf> {
        let space = &self.hart.space;
        let meta = |leaf| space.leaf_words(space.offset(leaf)).0;
        let older = if meta(one).succeeds(meta(other)) {
            other
        } else if meta(other).succeeds(meta(one)) {
            one
        } else {
            let twin = space.offset(one);
            let what = format!("the leaf has the key of the leaf at byte {twin}");
            self.report(damage(space.offset(other), what))?;
            return Ok(other);
        };
        self.replaced.lock().push(space.offset(older));
        Ok(older)
    }

    /// Ends the updates that a crash stopped between the new leaf and the removal of the old one.
    fn free_replaced(&self, harvests: &mut [Harvest]) {
        let (space, classes) = (&self.hart.space, &self.hart.alloc.classes);
        let replaced = std::mem::take(&mut *self.replaced.lock());
        for &offset in &replaced {
            let value = self.hart.live_value(offset);
            if let Some(block) = value.block_offset()
                && let Ok(place) = scan::block_place(space, classes, &self.kinds, block)
            {
                self.unmark(place);
            }
            let (segment, place) = space.geometry.locate(offset);
            let slabs = harvests.iter_mut().flat_map(|harvest| &mut harvest.slabs);
            for (_, class, masks) in slabs.filter(|slab| slab.0 == segment) {
                if let Some((chunk, slot)) = classes.cut(*class).slot_at(place) {
                    masks[chunk as usize] |= 1 << slot;
                }
            }
            // Also with `read_only`, in private memory.
            space.region.store(offset + LEAF_META, Meta::FREE.0, Ordering::Release);
            if !self.read_only {
                space.region.flush(offset + LEAF_META, 8);
            }
        }
        if !replaced.is_empty() && !self.read_only {
            // Durable-order: the old leaves are gone before a new one can be deleted.
            space.region.fence();
        }
    }

    /// The block has no leaf any more.
    fn unmark(&self, place: BlockPlace) {
        match place {
            BlockPlace::Slot { segment, chunk, slot } => {
                self.marks[segment as usize][chunk as usize].fetch_and(!(1 << slot), Ordering::Relaxed);
            }
            BlockPlace::Extent { head } => self.extents[head as usize].store(false, Ordering::Relaxed),
        }
    }

    /// Runs of the segments that are not free. After `hand_over`.
    fn used(&self) -> Vec<std::ops::Range<u32>> {
        let alloc = &self.hart.alloc;
        let all: Vec<u32> =
            (0..self.kinds.len() as u32).filter(|segment| alloc.is_in_use(*segment)).collect();
        let runs = all.chunk_by(|segment, next| segment + 1 == *next);
        runs.map(|run| run[0]..run[0] + run.len() as u32).collect()
    }

    /// Hands the live slots over to the allocator. Returns the number of segments that became free.
    fn hand_over(&self, harvests: Vec<Harvest>) -> u64 {
        let alloc = &self.hart.alloc;
        let adopt = |segment: u32, class: Class, masks: Vec<u64>| {
            let cut = alloc.classes.cut(class);
            let empty = (0..).zip(&masks).all(|(chunk, mask)| *mask == cut.full_mask(chunk));
            if empty {
                alloc.pool.release_stale(segment, 1);
            } else {
                alloc.adopt(segment, class, masks);
            }
            u64::from(empty)
        };
        let mut reclaimed = 0;
        for (segment, class, masks) in harvests.into_iter().flat_map(|h| h.slabs) {
            reclaimed += adopt(segment, class, masks);
        }
        let mut next = 0;
        for (segment, kind) in (0u32..).zip(&self.kinds) {
            if segment < next {
                continue;
            }
            match *kind {
                SegmentKind::Free if self.lost.binary_search(&segment).is_ok() => {}
                SegmentKind::Free => alloc.pool.release(segment, 1),
                SegmentKind::Leaves { .. } => {}
                SegmentKind::Values { class } => {
                    let cut = alloc.classes.cut(class);
                    let marks = (0..).zip(&self.marks[segment as usize]);
                    let masks =
                        marks.map(|(chunk, mark)| cut.full_mask(chunk) & !mark.load(Ordering::Relaxed));
                    reclaimed += adopt(segment, class, masks.collect());
                }
                SegmentKind::Directory { count } if self.hart.space.geometry.is_directory(segment) => {
                    next = segment + count;
                }
                SegmentKind::Directory { count } => {
                    next = segment + count;
                    alloc.pool.release_stale(segment, count);
                }
                SegmentKind::Extent { count } => {
                    next = segment + count;
                    if self.extents[segment as usize].load(Ordering::Relaxed) {
                        alloc.adopt_extent(segment, count);
                    } else {
                        alloc.pool.release_stale(segment, count);
                        reclaimed += u64::from(count);
                    }
                }
            }
        }
        reclaimed
    }
}

/// The group, entry and item of a leaf with this key.
fn pending(key: &[u8], leaf: Leaf) -> (usize, PendingItem) {
    let mut head = [0; 8];
    let tail = key.get(2..).unwrap_or_default();
    let len = tail.len().min(8);
    head[..len].copy_from_slice(&tail[..len]);
    let group = key.first().map_or(0, |first| usize::from(*first) + 1);
    (group, (entry_of(key) as u32, BuildItem { head: u64::from_be_bytes(head), leaf }))
}
