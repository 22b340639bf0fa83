//! The world of ordinary disks: the real pool code on simulated files.
//!
//! A crash leaves each sector with its durable value or any later one, and likewise the length of each file and the
//! names of each directory. Two extraordinary faults go further. In one the process dies and the machine does not, so
//! the next process reads bytes that are not durable yet; if the process died of a failed sync, those bytes never
//! become durable unless a process writes them again. In the other a byte of the superblock is damaged as well.

use crate::machine::cursor::CrashDomain;
use crate::machine::cursor::unit_hash;
use crate::machine::disk::{Disk, DiskEvent, DiskNode, DiskRecord, DiskTree, Names};
use crate::machine::filter::filtered;
use crate::machine::interrupt::enter_machine;
use crate::machine::lines::{DirtyUnits, ImageChoice};
use crate::machine::site::Sites;
use crate::machine::trace::Mark;
use crate::machine::world::{Machine, World};
use crate::quiet::quietly;
use crate::rng::{Rng, mix};
use mangrove_pool::{
    AddressChoice, Create, Durability, Medium, Pool, PoolOptions, Region, SECTOR_BYTES, Start,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Sectors of one file, as a power of two: a unit's number consists of file and sector.
const FILE_SHIFT: u32 = 32;
const ROOT: &str = "/";
const POOL: &str = "/pool";
/// The file that extraordinary faults damage. All other files have checksums of their own, and recovery cannot tell
/// a torn log from a damaged one.
const SUPERBLOCK: &str = "pool";
/// The beginning of the name of a file of recent writes.
const RECENT: &str = "recent-";
/// Random numbers that one boot may draw.
const RANDOM_STEP: u64 = 1000;

/// Geometry of the simulated pools.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilePlan {
    /// Bytes that the region may grow to.
    pub capacity: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes that it grows to.
    pub log_bytes_max: u64,
    /// Acknowledged writes are durable at `sync` only.
    pub interval: bool,
    /// What returned survives the death of the process.
    pub recent: bool,
    /// Where the region lies; `None`: anywhere.
    pub address: Option<u64>,
    /// A pool is opened by mapping its data file copy on write.
    pub copy_on_write: bool,
}

/// Ordinary disks with a pool each.
pub struct FileWorld {
    plan: FilePlan,
}

/// What a run did to its disk.
pub struct FileRecording {
    record: DiskRecord,
}

/// A file at a position of a record.
#[derive(Clone, Default)]
struct FileAt {
    durable: Vec<u8>,
    /// The durable length, then every length since.
    lengths: Vec<u64>,
}

/// A position of a record.
#[derive(Clone)]
pub struct FileCursor {
    files: BTreeMap<u64, FileAt>,
    units: DirtyUnits<SECTOR_BYTES>,
    /// The durable names, then every set of names since, by directory.
    folders: BTreeMap<PathBuf, Vec<Names>>,
    hash: u64,
    next_file: u64,
    random: u64,
}

/// A crash image, as a difference from the durable state.
pub struct FileOverlay {
    /// The process died and the machine did not: nothing is lost, but nothing more is durable either.
    process_only: bool,
    /// ... and its pool keeps recent writes.
    keeps_recent: bool,
    /// A sync had failed as well: this range of sectors looks written, and never becomes durable unless it is
    /// written again.
    forgotten: Option<std::ops::Range<u64>>,
    /// Byte of the superblock that is damaged after the crash.
    damage: Option<u64>,
    sectors: Vec<(u64, [u8; SECTOR_BYTES])>,
    lengths: BTreeMap<u64, u64>,
    folders: BTreeMap<PathBuf, Names>,
}

struct FileMachine {
    was_clean: Cell<Option<bool>>,
    disk: Disk,
    plan: FilePlan,
    sites: Arc<Sites>,
    pool: RefCell<Option<Pool>>,
}

impl Machine for FileMachine {
    fn open(&self, fresh: bool) -> Result<Region, String> {
        let mode = if fresh { Create::New } else { Create::Never };
        let durability = if self.plan.interval { Durability::interval_ms(1) } else { Durability::Sync };
        let pool = PoolOptions::new()
            .create(mode)
            .medium(Medium::File)
            .durability(durability)
            .keeps_recent(self.plan.recent)
            .address(self.plan.address.map_or(AddressChoice::Anywhere, AddressChoice::At))
            .start(if self.plan.copy_on_write { Start::CopyOnWrite } else { Start::Read })
            .capacity(self.plan.capacity)
            .log_bytes_first(self.plan.log_bytes)
            .log_bytes(self.plan.log_bytes.max(self.plan.log_bytes_max))
            .kind("crashlab")
            .background(false)
            .storage(Arc::new(self.disk.clone()))
            .open(POOL)
            .map_err(|e| e.to_string())?;
        let disk = self.disk.clone();
        enter_machine(CrashDomain::File, self.sites.inject(), Rc::new(move |mark| disk.mark(mark)));
        self.was_clean.set(Some(pool.was_clean()));
        let region = filtered(pool.region().clone(), &self.sites);
        *self.pool.borrow_mut() = Some(pool);
        Ok(region)
    }

    fn was_clean(&self) -> Option<bool> {
        self.was_clean.get()
    }

    fn mark(&self, mark: Mark) {
        self.disk.mark(mark);
    }

    fn close(&self) -> Result<(), String> {
        match self.pool.borrow_mut().take() {
            Some(pool) => pool.close().map_err(|e| e.to_string()),
            None => Ok(()),
        }
    }
}

impl FileWorld {
    /// Disks for pools of this geometry.
    #[must_use]
    pub fn new(plan: FilePlan) -> Self {
        Self { plan }
    }
}

fn empty_disk() -> DiskTree {
    let folders = BTreeMap::from([(PathBuf::from(ROOT), Names::new())]);
    DiskTree { folders, ..DiskTree::default() }
}

impl FileCursor {
    fn new(tree: DiskTree) -> Self {
        let mut hash = 0u64;
        let mut files = BTreeMap::new();
        for (file, data) in tree.files {
            let length = data.len() as u64;
            let mut durable = data;
            durable.resize(durable.len().next_multiple_of(SECTOR_BYTES), 0);
            for (i, sector) in durable.chunks(SECTOR_BYTES).enumerate() {
                hash = hash.wrapping_add(unit_hash((file << FILE_SHIFT) + i as u64, sector));
            }
            files.insert(file, FileAt { durable, lengths: vec![length] });
        }
        let folders = tree.folders.into_iter().map(|(folder, names)| (folder, vec![names])).collect();
        Self {
            files,
            units: DirtyUnits::default(),
            folders,
            hash,
            next_file: tree.next_file,
            random: tree.random,
        }
    }

    fn sector(&self, id: u64) -> [u8; SECTOR_BYTES] {
        let at = (id & ((1 << FILE_SHIFT) - 1)) as usize * SECTOR_BYTES;
        let data = self.files.get(&(id >> FILE_SHIFT)).map_or(&[][..], |f| &f.durable);
        data.get(at..at + SECTOR_BYTES).and_then(|s| s.try_into().ok()).unwrap_or([0; SECTOR_BYTES])
    }

    fn settle_sectors(&mut self, file: u64, sectors: std::ops::Range<u64>) {
        let ids = (file << FILE_SHIFT) + sectors.start..(file << FILE_SHIFT) + sectors.end;
        let mut settled = Vec::new();
        self.units.settle(ids, |id, bytes| settled.push((id, *bytes)));
        for (id, bytes) in settled {
            let old = self.sector(id);
            self.hash = self.hash.wrapping_sub(unit_hash(id, &old)).wrapping_add(unit_hash(id, &bytes));
            let at = (id & ((1 << FILE_SHIFT) - 1)) as usize * SECTOR_BYTES;
            let data = &mut self.files.entry(file).or_default().durable;
            if data.len() < at + SECTOR_BYTES {
                data.resize(at + SECTOR_BYTES, 0);
            }
            data[at..at + SECTOR_BYTES].copy_from_slice(&bytes);
        }
    }

    fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let position = offset + done as u64;
            let id = (file << FILE_SHIFT) + position / SECTOR;
            let start = (position % SECTOR) as usize;
            let n = (SECTOR_BYTES - start).min(bytes.len() - done);
            let durable = self.sector(id);
            self.units.store(id, start, &bytes[done..done + n], || durable);
            done += n;
        }
    }

    fn image(&self, overlay: &FileOverlay) -> DiskTree {
        let mut files: BTreeMap<u64, Vec<u8>> =
            self.files.iter().map(|(file, at)| (*file, at.durable.clone())).collect();
        for (id, bytes) in &overlay.sectors {
            let at = (id & ((1 << FILE_SHIFT) - 1)) as usize * SECTOR_BYTES;
            let data = files.entry(id >> FILE_SHIFT).or_default();
            if data.len() < at + SECTOR_BYTES {
                data.resize(at + SECTOR_BYTES, 0);
            }
            data[at..at + SECTOR_BYTES].copy_from_slice(bytes);
        }
        for (file, length) in &overlay.lengths {
            files.entry(*file).or_default().resize(*length as usize, 0);
        }
        // Files and directories that no name leads to are gone.
        let mut folders = BTreeMap::new();
        let mut live = Vec::new();
        for (folder, names) in &overlay.folders {
            let reachable = folder == Path::new(ROOT)
                || folder.parent().zip(folder.file_name().and_then(|n| n.to_str())).is_some_and(|(p, n)| {
                    overlay.folders.get(p).and_then(|names| names.get(n)) == Some(&DiskNode::Folder)
                });
            if reachable {
                live.extend(names.values().filter_map(|n| match n {
                    DiskNode::File(file) => Some(*file),
                    DiskNode::Folder => None,
                }));
                folders.insert(folder.clone(), names.clone());
            }
        }
        files.retain(|file, _| live.contains(file));
        if let Some(at) = overlay.damage {
            let superblock = folders.values().find_map(|names| match names.get(SUPERBLOCK) {
                Some(DiskNode::File(file)) => Some(file),
                _ => None,
            });
            if let Some(file) = superblock
                && let Some(data) = files.get_mut(file).filter(|d| !d.is_empty())
            {
                let at = (at % data.len() as u64) as usize;
                data[at] ^= 1 << (overlay.damage.unwrap_or(0) >> 32 & 7);
            }
        }
        DiskTree { files, folders, next_file: self.next_file, random: self.random + RANDOM_STEP }
    }

    fn overlay(&self, choice: ImageChoice) -> FileOverlay {
        let mut process_only = false;
        let mut damage = None;
        let sectors;
        let mut pick: Box<dyn FnMut(u64) -> u64> = match choice {
            ImageChoice::Index(index) => {
                let count = self.units.combinations();
                sectors = self.units.pick(ImageChoice::Index(index % count));
                let mut rest = index / count;
                Box::new(move |n| {
                    let at = rest % n;
                    rest /= n;
                    at
                })
            }
            ImageChoice::Extra(seed) if seed % 2 == 0 => {
                process_only = true;
                sectors = self.units.latest();
                Box::new(|n| n - 1)
            }
            ImageChoice::Seed(seed) | ImageChoice::Extra(seed) => {
                if matches!(choice, ImageChoice::Extra(_)) {
                    damage = Some(seed >> 1);
                }
                sectors = self.units.pick(choice);
                let mut rng = Rng::new(mix(seed, 1));
                Box::new(move |n| if rng.one_in(2) { n - 1 } else { rng.below(n) })
            }
        };
        let mut lengths = BTreeMap::new();
        for (file, at) in &self.files {
            let n = pick(at.lengths.len().max(1) as u64);
            lengths.insert(*file, at.lengths.get(n as usize).copied().unwrap_or(0));
        }
        let mut folders = BTreeMap::new();
        for (folder, versions) in &self.folders {
            folders.insert(folder.clone(), versions[pick(versions.len() as u64) as usize].clone());
        }
        let is_recent = |names: &Names| names.keys().any(|name| name.starts_with(RECENT));
        let keeps_recent = process_only && folders.values().any(is_recent);
        FileOverlay { process_only, keeps_recent, forgotten: None, damage, sectors, lengths, folders }
    }
}

impl World for FileWorld {
    type Recording = FileRecording;
    type Cursor = FileCursor;
    type Overlay = FileOverlay;

    fn boot<R>(
        &mut self,
        crashed: Option<(&mut FileCursor, &FileOverlay)>,
        sites: &Arc<Sites>,
        body: impl FnOnce(&dyn Machine) -> Result<R, String>,
    ) -> (Result<R, String>, FileRecording) {
        let tree = crashed.map_or_else(empty_disk, |(at, overlay)| at.image(overlay));
        let disk = Disk::new(tree, sites.clone());
        let machine = FileMachine {
            was_clean: Cell::new(None),
            disk: disk.clone(),
            plan: self.plan,
            sites: sites.clone(),
            pool: RefCell::new(None),
        };
        let answer = quietly(|| {
            let answer = body(&machine);
            drop(machine);
            answer
        });
        (answer, FileRecording { record: disk.finish() })
    }

    fn start(&self, _recording: &FileRecording, crashed: Option<(&FileCursor, &FileOverlay)>) -> FileCursor {
        match crashed {
            None => FileCursor::new(empty_disk()),
            Some((at, overlay)) if overlay.process_only => {
                let mut cursor = FileCursor { random: at.random + RANDOM_STEP, ..at.clone() };
                if let Some(range) = overlay.forgotten.clone() {
                    cursor.units.settle(range, |_, _| {});
                }
                cursor
            }
            Some((at, overlay)) => FileCursor::new(at.image(overlay)),
        }
    }

    fn event_count(recording: &FileRecording) -> usize {
        recording.record.events.len()
    }

    fn mark_at(recording: &FileRecording, event: usize) -> Option<Mark> {
        match recording.record.events.get(event) {
            Some(DiskEvent::Mark(mark)) => Some(*mark),
            _ => None,
        }
    }

    fn is_cut(_at: &FileCursor, recording: &FileRecording, event: usize) -> bool {
        let events = &recording.record.events;
        let after_mark = event > 0 && matches!(events[event - 1], DiskEvent::Mark(_));
        after_mark || events.get(event).is_none_or(DiskEvent::is_ordering)
    }

    fn combinations(at: &FileCursor, _recording: &FileRecording, _event: usize) -> u64 {
        let lengths = at.files.values().map(|f| f.lengths.len().max(1) as u64);
        let folders = at.folders.values().map(|v| v.len() as u64);
        lengths.chain(folders).fold(at.units.combinations(), u64::saturating_mul)
    }

    fn pick(at: &FileCursor, recording: &FileRecording, event: usize, choice: ImageChoice) -> FileOverlay {
        let mut overlay = at.overlay(choice);
        if matches!(choice, ImageChoice::Extra(seed) if seed % 4 == 0) {
            overlay.forgotten = match recording.record.events.get(event) {
                Some(DiskEvent::Sync { file }) => Some(file << FILE_SHIFT..(file + 1) << FILE_SHIFT),
                Some(DiskEvent::Durable { file, offset, len }) => {
                    let first = file << FILE_SHIFT;
                    Some(first + offset / SECTOR..first + (offset + len).div_ceil(SECTOR))
                }
                _ => None,
            };
        }
        overlay
    }

    const HAS_EXTRAS: bool = true;

    fn may_refuse(overlay: &FileOverlay) -> bool {
        overlay.damage.is_some()
    }

    fn keeps_returned(overlay: &FileOverlay) -> bool {
        overlay.keeps_recent
    }

    fn fault(overlay: &FileOverlay) -> u64 {
        u64::from(overlay.process_only) + u64::from(overlay.forgotten.is_some())
    }

    fn identity(at: &FileCursor, overlay: &FileOverlay) -> u64 {
        let mut hash = overlay.sectors.iter().fold(at.hash, |h, (id, bytes)| {
            h.wrapping_sub(unit_hash(*id, &at.sector(*id))).wrapping_add(unit_hash(*id, bytes))
        });
        for (file, length) in &overlay.lengths {
            hash = mix(hash, mix(*file, *length));
        }
        for (folder, names) in &overlay.folders {
            for (name, node) in names {
                let number = if let DiskNode::File(file) = node { *file } else { u64::MAX };
                hash = mix(hash, unit_hash(number, name.as_bytes()));
            }
            hash = mix(hash, unit_hash(0, folder.as_os_str().as_encoded_bytes()));
        }
        if let Some(damage) = overlay.damage {
            // The same byte of the same image: only its position differs.
            hash = mix(hash, damage);
        }
        hash
    }

    fn step(at: &mut FileCursor, recording: &FileRecording, event: usize) {
        match &recording.record.events[event] {
            DiskEvent::Write { file, offset, len, at: from } => {
                let bytes = &recording.record.bytes[*from..from + len];
                at.write(*file, *offset, bytes);
            }
            DiskEvent::Length { file, len } => {
                let file = at.files.entry(*file).or_default();
                if file.lengths.is_empty() {
                    file.lengths.push(0);
                }
                file.lengths.push(*len);
            }
            DiskEvent::Durable { file, offset, len } => {
                at.settle_sectors(*file, offset / SECTOR..(offset + len).div_ceil(SECTOR));
                let lengths = &mut at.files.entry(*file).or_default().lengths;
                // The bytes survive, so every length that a crash may leave reaches them.
                for length in lengths {
                    *length = (*length).max(offset + len);
                }
            }
            DiskEvent::Sync { file } => {
                at.settle_sectors(*file, 0..1 << FILE_SHIFT);
                let lengths = &mut at.files.entry(*file).or_default().lengths;
                let keep = lengths.len().saturating_sub(1);
                lengths.drain(..keep);
            }
            DiskEvent::Names { folder, names } => {
                let versions = at.folders.entry(folder.clone()).or_insert_with(|| vec![Names::new()]);
                versions.push(names.clone());
                for (name, node) in names {
                    match node {
                        DiskNode::File(file) => {
                            at.next_file = at.next_file.max(file + 1);
                            let file = at.files.entry(*file).or_default();
                            if file.lengths.is_empty() {
                                file.lengths.push(0);
                            }
                        }
                        DiskNode::Folder => {
                            let inner = at.folders.entry(folder.join(name));
                            inner.or_insert_with(|| vec![Names::new()]);
                        }
                    }
                }
            }
            DiskEvent::SyncFolder { folder } => {
                if let Some(versions) = at.folders.get_mut(folder) {
                    let keep = versions.len() - 1;
                    versions.drain(..keep);
                }
            }
            DiskEvent::Mark(_) => {}
        }
    }
}
