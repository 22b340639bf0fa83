//! A disk with a volatile write cache, like that of a drive without power-loss protection.
//!
//! The fault model (docs/fault-model.md, "file"):
//! - a write is acknowledged when it is in the cache; it reaches the backing file at the next flush, or at once
//!   with FUA, or when the cache is full and the disk cleans some of it, in no particular order;
//! - a power cut ends each cached write in one of three ways, independently: it survives, it is gone, or it is
//!   torn: any subset of its 512-byte sectors survives. So writes are reordered freely between two flushes.
//!
//! Invariant: for each sector, `backing` holds its value at the last flush (or a later one); `cache` holds every
//! version written since, oldest first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, seq::IndexedRandom};

/// Bytes that are never torn.
pub(super) const SECTOR_BYTES: usize = 512;
/// Above this the disk cleans part of its cache by itself.
const CACHE_SECTORS_MAX: usize = (32 << 20) / SECTOR_BYTES;

/// The longest flush; of the order of a consumer SSD's.
const FLUSH_MAX: Duration = Duration::from_micros(2_000);

type Sector = [u8; SECTOR_BYTES];

/// One version of one sector, written by the command `write`.
struct Version {
    write: u64,
    bytes: Box<Sector>,
}

/// What a disk did since it was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Write commands.
    pub(super) writes: u64,
    /// Flush commands, and writes with FUA.
    pub(super) flushes: u64,
    /// Writes that a power cut removed, wholly or in part.
    pub(super) lost: u64,
    /// Those of them that survived in part.
    pub(super) torn: u64,
}

impl Traffic {
    /// Adds the traffic of another disk.
    pub(super) fn add(&mut self, other: Self) {
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.lost += other.lost;
        self.torn += other.torn;
    }
}

/// The disk.
pub(super) struct PowerCutDisk {
    backing: File,
    bytes: u64,
    /// In order, so that the generator treats the same sectors alike in every run.
    cache: BTreeMap<u64, Vec<Version>>,
    versions: usize,
    writes: u64,
    traffic: Traffic,
    lies: bool,
    off: bool,
    /// Flushes until the disk cuts the power by itself.
    fuse: Option<u64>,
    rng: StdRng,
}

impl PowerCutDisk {
    /// Opens the backing file. A disk that `lies` answers flushes without doing anything: the injected fault.
    pub(super) fn open(path: &Path, lies: bool, rng: StdRng) -> io::Result<Self> {
        let backing = File::options().read(true).write(true).open(path)?;
        let bytes = backing.metadata()?.len();
        Ok(Self {
            backing,
            bytes,
            cache: BTreeMap::new(),
            versions: 0,
            writes: 0,
            traffic: Traffic::default(),
            lies,
            off: false,
            fuse: None,
            rng,
        })
    }

    /// Capacity.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What happened so far.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Reads what the machine would read: the cache over the backing file.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let first = self.sector_of(offset, buffer.len())?;
        self.backing.read_exact_at(buffer, offset)?;
        for (chunk, sector) in buffer.chunks_mut(SECTOR_BYTES).zip(first..) {
            if let Some(version) = self.cache.get(&sector).and_then(|versions| versions.last()) {
                chunk.copy_from_slice(&*version.bytes);
            }
        }
        Ok(())
    }

    /// Takes a write into the cache; with `through` (FUA) it is durable when this returns.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], through: bool) -> io::Result<()> {
        let first = self.sector_of(offset, data.len())?;
        self.must_be_on()?;
        self.traffic.writes += 1;
        self.writes += 1;
        if through && !self.lies {
            self.traffic.flushes += 1;
            for (_, sector) in data.chunks(SECTOR_BYTES).zip(first..) {
                self.versions -= self.cache.remove(&sector).map_or(0, |versions| versions.len());
            }
            return self.backing.write_all_at(data, offset);
        }
        for (chunk, sector) in data.chunks(SECTOR_BYTES).zip(first..) {
            let mut bytes = Box::new([0; SECTOR_BYTES]);
            bytes.copy_from_slice(chunk);
            self.cache.entry(sector).or_default().push(Version { write: self.writes, bytes });
            self.versions += 1;
        }
        if self.versions > CACHE_SECTORS_MAX {
            self.clean_half()?;
        }
        Ok(())
    }

    /// Begins a flush and returns how long it will take. While a disk is busy with a flush, its cache is full of
    /// writes that a cut may lose.
    pub(super) fn flush_begins(&mut self) -> Duration {
        if let Some(fuse) = &mut self.fuse {
            *fuse = fuse.saturating_sub(1);
            self.off |= *fuse == 0;
        }
        FLUSH_MAX.mul_f64(self.rng.random())
    }

    /// Makes everything written so far durable (unless the disk lies).
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.must_be_on()?;
        self.traffic.flushes += 1;
        if self.lies {
            return Ok(());
        }
        let newest = std::mem::take(&mut self.cache)
            .into_iter()
            .filter_map(|(sector, mut versions)| Some((sector, versions.pop()?.bytes)));
        apply(&self.backing, newest.collect())?;
        self.versions = 0;
        Ok(())
    }

    /// The instant of the power cut: from here on the disk takes, flushes and answers nothing.
    pub(super) fn power_off(&mut self) {
        self.off = true;
    }

    /// Cuts the power when the `flushes`th flush from now comes, before it has done anything: then the most can be
    /// lost.
    pub(super) fn power_off_at_flush(&mut self, flushes: u64) {
        self.fuse = Some(flushes);
    }

    /// Whether the power is gone.
    pub(super) fn is_off(&self) -> bool {
        self.off
    }

    fn must_be_on(&self) -> io::Result<()> {
        if self.off { Err(io::Error::from(io::ErrorKind::BrokenPipe)) } else { Ok(()) }
    }

    /// Applies the power cut: decides the fate of each cached write and empties the cache.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        // Some cuts lose nearly everything, some nearly nothing: both extremes find different faults.
        let survive = *[0.0, 0.0, 0.2, 0.5, 0.8].choose(&mut self.rng).expect("not empty");
        let tear = *[0.0, 0.1, 0.5].choose(&mut self.rng).expect("not empty");
        let mut fates: BTreeMap<u64, Fate> = BTreeMap::new();
        let mut sectors: Vec<u64> = self.cache.keys().copied().collect();
        sectors.sort_unstable();
        let mut durable = BTreeMap::new();
        for sector in sectors {
            for version in self.cache.remove(&sector).expect("a key of the cache") {
                let fate =
                    fates.entry(version.write).or_insert_with(|| Fate::draw(&mut self.rng, survive, tear));
                if fate.sector_survives(&mut self.rng) {
                    durable.insert(sector, version.bytes);
                }
            }
        }
        for fate in fates.values() {
            self.traffic.lost += u64::from(fate.missing);
            self.traffic.torn += u64::from(fate.missing && fate.present);
        }
        self.versions = 0;
        apply(&self.backing, durable)?;
        self.backing.sync_data()
    }

    /// The disk cleans a random half of its sectors.
    fn clean_half(&mut self) -> io::Result<()> {
        let mut cleaned = BTreeMap::new();
        let rng = &mut self.rng;
        self.cache.retain(|sector, versions| {
            let keep = rng.random_bool(0.5);
            if !keep {
                cleaned.insert(*sector, versions.pop().expect("no empty list is kept").bytes);
            }
            keep
        });
        self.versions = self.cache.values().map(Vec::len).sum();
        apply(&self.backing, cleaned)
    }

    fn sector_of(&self, offset: u64, len: usize) -> io::Result<u64> {
        let end = offset.checked_add(len as u64);
        let aligned = offset.is_multiple_of(SECTOR_BYTES as u64) && len.is_multiple_of(SECTOR_BYTES);
        if aligned && end.is_some_and(|end| end <= self.bytes) {
            Ok(offset / SECTOR_BYTES as u64)
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidInput))
        }
    }
}

/// What a power cut does to one write command.
struct Fate {
    /// The probability that a sector of it survives.
    survive: f64,
    present: bool,
    missing: bool,
}

impl Fate {
    fn draw(rng: &mut StdRng, survive: f64, tear: f64) -> Self {
        let survive = if rng.random_bool(tear) { 0.5 } else { f64::from(u8::from(rng.random_bool(survive))) };
        Self { survive, present: false, missing: false }
    }

    fn sector_survives(&mut self, rng: &mut StdRng) -> bool {
        let survives = rng.random_bool(self.survive);
        self.present |= survives;
        self.missing |= !survives;
        survives
    }
}

/// Writes sectors to the backing file, neighbours in one call.
fn apply(backing: &File, sectors: BTreeMap<u64, Box<Sector>>) -> io::Result<()> {
    let mut run: Vec<u8> = Vec::new();
    let mut start = 0;
    for (sector, bytes) in sectors {
        if sector != start + (run.len() / SECTOR_BYTES) as u64 {
            backing.write_all_at(&run, start * SECTOR_BYTES as u64)?;
            run.clear();
            start = sector;
        }
        run.extend_from_slice(&*bytes);
    }
    backing.write_all_at(&run, start * SECTOR_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn disk(lies: bool, seed: u64) -> (tempfile::NamedTempFile, PowerCutDisk) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 * SECTOR_BYTES as u64).unwrap();
        let disk = PowerCutDisk::open(file.path(), lies, StdRng::seed_from_u64(seed)).unwrap();
        (file, disk)
    }

    fn sector(disk: &PowerCutDisk, sector: u64) -> u8 {
        let mut buffer = [0; SECTOR_BYTES];
        disk.read(sector * SECTOR_BYTES as u64, &mut buffer).unwrap();
        assert!(buffer.iter().all(|byte| *byte == buffer[0]), "a sector is never torn");
        buffer[0]
    }

    #[test]
    fn a_flushed_write_survives_every_cut_and_a_cached_one_is_sometimes_lost() {
        let mut lost = 0;
        for seed in 0..100 {
            let (_file, mut disk) = disk(false, seed);
            disk.write(0, &[1; SECTOR_BYTES], false).unwrap();
            disk.flush().unwrap();
            disk.write(0, &[2; SECTOR_BYTES], false).unwrap();
            disk.write(SECTOR_BYTES as u64, &[3; SECTOR_BYTES], true).unwrap();
            assert_eq!((sector(&disk, 0), sector(&disk, 1)), (2, 3));
            disk.power_off();
            disk.settle().unwrap();
            assert!(matches!(sector(&disk, 0), 1 | 2));
            assert_eq!(sector(&disk, 1), 3, "written through");
            lost += u64::from(sector(&disk, 0) == 1);
            assert_eq!(disk.traffic().lost, u64::from(sector(&disk, 0) == 1));
        }
        assert!((20..80).contains(&lost), "{lost} of 100");
    }

    #[test]
    fn a_cut_reorders_and_tears() {
        let (mut reordered, mut torn) = (0, 0);
        for seed in 0..200 {
            let (_file, mut disk) = disk(false, seed);
            disk.write(0, &[1; 4 * SECTOR_BYTES], false).unwrap();
            disk.write(8 * SECTOR_BYTES as u64, &[2; SECTOR_BYTES], false).unwrap();
            disk.power_off();
            disk.settle().unwrap();
            let first: Vec<u8> = (0..4).map(|index| sector(&disk, index)).collect();
            reordered += u64::from(first == [0; 4] && sector(&disk, 8) == 2);
            torn += u64::from(first.contains(&0) && first.contains(&1));
            assert_eq!(disk.traffic().torn, u64::from(first.contains(&0) && first.contains(&1)));
        }
        assert!(reordered > 10 && torn > 10, "{reordered} reordered, {torn} torn");
    }

    #[test]
    fn the_power_goes_when_the_flush_comes_that_was_named() {
        let (_file, mut disk) = disk(false, 3);
        disk.power_off_at_flush(2);
        disk.flush_begins();
        disk.flush().unwrap();
        assert!(!disk.is_off());
        disk.flush_begins();
        assert!(disk.is_off() && disk.flush().is_err());
    }

    #[test]
    fn a_lying_disk_loses_flushed_writes() {
        let lost = (0..100).filter(|seed| {
            let (_file, mut disk) = disk(true, *seed);
            disk.write(0, &[1; SECTOR_BYTES], true).unwrap();
            disk.flush().unwrap();
            disk.power_off();
            disk.settle().unwrap();
            sector(&disk, 0) == 0
        });
        assert!(lost.count() > 20);
    }

    #[test]
    fn a_full_cache_is_cleaned_and_nothing_read_changes() {
        let (file, mut disk) = disk(false, 7);
        file.as_file().set_len(((CACHE_SECTORS_MAX + 10) * SECTOR_BYTES) as u64).unwrap();
        disk.bytes = file.as_file().metadata().unwrap().len();
        for index in 0..CACHE_SECTORS_MAX as u64 + 10 {
            let value = (index % 251) as u8;
            disk.write(index * SECTOR_BYTES as u64, &[value; SECTOR_BYTES], false).unwrap();
        }
        assert!(disk.versions < CACHE_SECTORS_MAX);
        for index in 0..CACHE_SECTORS_MAX as u64 + 10 {
            assert_eq!(sector(&disk, index), (index % 251) as u8);
        }
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let (_file, mut disk) = disk(false, 1);
        assert!(disk.write(63 * SECTOR_BYTES as u64, &[0; 2 * SECTOR_BYTES], false).is_err());
        assert!(disk.write(5, &[0; SECTOR_BYTES], false).is_err());
        disk.power_off();
        assert!(disk.write(0, &[0; SECTOR_BYTES], false).is_err() && disk.flush().is_err());
        assert!(disk.read(u64::MAX - 511, &mut [0; SECTOR_BYTES]).is_err());
    }
}
