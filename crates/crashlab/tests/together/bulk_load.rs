//! A pool that is filled without a log, on a simulated disk: a crash at any moment leaves the whole load, or nothing
//! that opens, and a new load can be made there.

use mangrove_crashlab::{Disk, DiskEvent, DiskNode, DiskRecord, DiskTree, Rng, SiteKey, SiteKind, Sites};
use mangrove_pool::{AddressChoice, ByteRange, Create, Medium, PoolOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

const POOL: &str = "/pool";
const SECTOR: usize = 512;
const CHUNK: usize = 3 * 4096;
const CHUNKS: u64 = 90;
/// Images at each step, beside the two extremes. Six of them let every planted fault be found.
const RANDOM_IMAGES: u64 = 6;

fn options(disk: &Disk) -> PoolOptions {
    PoolOptions::new()
        .medium(Medium::File)
        .capacity(4 << 20)
        .log_bytes(16 << 10)
        .kind("bulk")
        .address(AddressChoice::Anywhere)
        .background(false)
        .storage(Arc::new(disk.clone()))
}

fn empty() -> DiskTree {
    let mut tree = DiskTree::default();
    tree.folders.insert(PathBuf::from("/"), BTreeMap::new());
    tree
}

fn value(chunk: u64) -> [u8; CHUNK] {
    [chunk as u8 + 1; CHUNK]
}

/// Loads a pool on the disk; returns what the disk did.
fn load(sites: Arc<Sites>) -> DiskRecord {
    let disk = Disk::new(empty(), sites);
    let pool = options(&disk).create(Create::New).bulk_load(true).open(POOL).unwrap();
    let region = pool.region();
    for chunk in 0..CHUNKS {
        let at = chunk * CHUNK as u64;
        region.grow(at + CHUNK as u64).unwrap();
        region.write(at, &value(chunk));
        region.flush(at, CHUNK);
        if chunk % 30 == 29 {
            // SAFETY: no other thread stores, and everything was flushed.
            unsafe { region.page_out(ByteRange { offset: 0, len: at }) }.unwrap();
        }
    }
    pool.set_made().unwrap();
    pool.close().unwrap();
    disk.finish()
}

/// A file, or the names of a directory, at a step.
#[derive(Clone, Default)]
struct Versions<T> {
    durable: T,
    now: T,
}

#[derive(Clone, Default)]
struct Step {
    files: BTreeMap<u64, Versions<Vec<u8>>>,
    folders: BTreeMap<PathBuf, Versions<BTreeMap<String, DiskNode>>>,
}

impl Step {
    fn advance(&mut self, event: &DiskEvent, bytes: &[u8]) {
        match event {
            DiskEvent::Write { file, offset, len, at } => {
                let now = &mut self.files.entry(*file).or_default().now;
                let end = *offset as usize + len;
                now.resize(now.len().max(end), 0);
                now[*offset as usize..end].copy_from_slice(&bytes[*at..at + len]);
            }
            DiskEvent::Length { file, len } => {
                self.files.entry(*file).or_default().now.resize(*len as usize, 0);
            }
            DiskEvent::Durable { .. } => panic!("a load has no durable writes"),
            DiskEvent::Sync { file } => {
                let file = self.files.entry(*file).or_default();
                file.durable.clone_from(&file.now);
            }
            DiskEvent::Names { folder, names } => {
                self.folders.entry(folder.clone()).or_default().now.clone_from(names);
            }
            DiskEvent::SyncFolder { folder } => {
                let folder = self.folders.entry(folder.clone()).or_default();
                folder.durable.clone_from(&folder.now);
            }
            DiskEvent::Mark(_) => {}
        }
    }

    /// The disk after a crash; `keeps` says of each sector, length and directory whether its present state survives.
    fn image(&self, mut keeps: impl FnMut() -> bool) -> DiskTree {
        let mut tree = empty();
        tree.next_file = 1000;
        // The numbers that the first process drew are not drawn again.
        tree.random = 1000;
        for (number, file) in &self.files {
            let len = if keeps() { file.now.len() } else { file.durable.len() };
            let mut content = vec![0; len];
            for (sector, to) in content.chunks_mut(SECTOR).enumerate() {
                let from = if keeps() { &file.now } else { &file.durable };
                let at = (sector * SECTOR).min(from.len());
                let part = &from[at..from.len().min(at + to.len())];
                to[..part.len()].copy_from_slice(part);
            }
            tree.files.insert(*number, content);
        }
        for (folder, names) in &self.folders {
            let names = if keeps() { &names.now } else { &names.durable };
            tree.folders.insert(folder.clone(), names.clone());
        }
        // A directory without a name is not there.
        let named = tree.folders[&PathBuf::from("/")].contains_key("pool");
        tree.folders.retain(|folder, _| folder == &PathBuf::from("/") || named);
        if named {
            tree.folders.entry(PathBuf::from(POOL)).or_default();
        }
        tree
    }
}

/// What is wrong with an image. Before the load has `ended` there may be no pool.
fn judge(image: DiskTree, ended: bool) -> Result<bool, String> {
    let disk = Disk::new(image, Arc::default());
    match options(&disk).open(POOL) {
        Ok(pool) => {
            for chunk in 0..CHUNKS {
                let at = pool.region().at(chunk * CHUNK as u64);
                // SAFETY: inside what was grown (asserted by the reading below it), and no thread writes.
                let bytes = unsafe { std::slice::from_raw_parts(at, CHUNK) };
                if bytes != value(chunk) {
                    return Err(format!("chunk {chunk} is not there"));
                }
            }
            if pool.info().made { Ok(true) } else { Err("the mark of its owner is not there".into()) }
        }
        Err(e) if ended => Err(format!("after the end: {e}")),
        Err(_) => match options(&disk).create(Create::IfMissing).bulk_load(true).open(POOL) {
            Ok(pool) if pool.was_created() => Ok(false),
            Ok(_) => Err("it opens only for creation".into()),
            Err(e) => Err(format!("no load can be made there: {e}")),
        },
    }
}

/// Judges images at every step of a load; the number of images with and without a pool.
fn sweep(sites: Arc<Sites>) -> Result<(u64, u64), String> {
    let record = load(sites);
    let last = record.events.len();
    let (mut step, mut with, mut without) = (Step::default(), 0, 0);
    for (number, event) in record.events.iter().enumerate() {
        step.advance(event, &record.bytes);
        let mut images = vec![step.image(|| true), step.image(|| false)];
        // A write of many sectors is torn in many ways; other steps only pass by.
        let mut random = Rng::new(number as u64);
        images.extend((0..RANDOM_IMAGES).map(|_| step.image(|| random.below(2) == 0)));
        for (which, image) in images.into_iter().enumerate() {
            let is_there = judge(image, number + 1 == last)
                .map_err(|e| format!("step {number} of {last} ({event:?}), image {which}: {e}"))?;
            *if is_there { &mut with } else { &mut without } += 1;
        }
    }
    Ok((with, without))
}

#[test]
fn a_crash_leaves_the_whole_load_or_none() {
    let (with, without) = sweep(Arc::default()).unwrap();
    assert!(with > 10 && without > 100, "{with} images with a pool, {without} without");
}

/// Each sync and each order of writes that a load relies on is left out in turn. Two writes may come later than they
/// are made: the page checksums, which are synced after the data file, and a copy of the superblock, where the other
/// one makes up for it.
#[test]
fn every_planted_fault_of_a_load_is_found() {
    let sites = Arc::new(Sites::new());
    load(Arc::clone(&sites));
    let of_loads = |site: &&SiteKey| {
        ["bulk.rs", "create.rs"].iter().any(|name| site.file.ends_with(name))
            && matches!(site.kind, SiteKind::Sync | SiteKind::LateWrite)
    };
    let reached = sites.reached();
    let planted: Vec<_> = reached.keys().filter(of_loads).collect();
    let syncs = planted.iter().filter(|site| site.file.ends_with("bulk.rs") && site.kind == SiteKind::Sync);
    assert!(syncs.count() >= 3, "data file, page checksums, superblock: {planted:?}");
    let missed: Vec<_> =
        planted.into_iter().filter(|site| sweep(Arc::new(Sites::without((*site).clone()))).is_ok()).collect();
    let may_be_late = |site: &&&SiteKey| site.kind == SiteKind::LateWrite && site.file.ends_with("bulk.rs");
    assert!(missed.iter().all(|site| may_be_late(&site)) && missed.len() == 2, "not noticed: {missed:#?}");
}
