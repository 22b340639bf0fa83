//! The newest version of every record, in the order of the keys, from all files of a database.

use super::stream::{RecordStream, Version};
use super::unread::UnreadReason;
use crate::transfer::foreign::Decompress;
use crate::transfer::manifest::{Manifest, TableFile};
use std::ops::ControlFlow;
use std::path::Path;

/// Kinds of changes, in the lowest byte of their numbers.
const REMOVES: u8 = 0;
const SETS: u8 = 1;

/// All records of a database that no program has open.
pub(in crate::transfer) struct DatabaseRecords<'a> {
    /// The files of each level, and each file of the first level, whose files overlap.
    streams: Vec<RecordStream<'a>>,
    last: LastVersion,
}

/// The version that was taken last.
#[derive(Default)]
struct LastVersion {
    /// There is one.
    is_there: bool,
    key: Vec<u8>,
    change: u64,
}

impl LastVersion {
    fn set(&mut self, version: Version<'_>) {
        self.is_there = true;
        self.key.clear();
        self.key.extend_from_slice(version.key);
        self.change = version.change;
    }
}

impl<'a> DatabaseRecords<'a> {
    /// Those of the database in `folder`, which has the files of `manifest`.
    pub(in crate::transfer) fn open(
        folder: &'a Path,
        manifest: &Manifest,
        decompress: &'a Decompress,
    ) -> Result<Self, UnreadReason> {
        let mut streams = Vec::new();
        for files in runs(manifest)? {
            streams.extend(RecordStream::open(folder, decompress, files)?);
        }
        Ok(Self { streams, last: LastVersion::default() })
    }

    /// The key of the last record that `walk` gave, or has passed because it is removed.
    pub(in crate::transfer) fn last_key(&self) -> Option<&[u8]> {
        self.last.is_there.then_some(&self.last.key[..])
    }

    /// Calls `each` with key and value of the records that follow, until it breaks. True: all have been given.
    pub(in crate::transfer) fn walk(
        &mut self,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<bool, UnreadReason> {
        while let Some(least) = self.least(None)? {
            // While the key is below those of all other streams, no other one is looked at.
            let bound = self.least(Some(least))?;
            loop {
                let stream = &self.streams[least];
                let version = stream.version()?;
                if bound.is_some_and(|bound| self.streams[bound].version().is_ok_and(|other| other < version))
                {
                    break;
                }
                let is_older = match &self.last {
                    LastVersion { is_there: true, key, change } => match key.as_slice().cmp(version.key) {
                        std::cmp::Ordering::Less => false,
                        // The same one twice: LevelDB's repair takes every table file that it finds, and so those
                        // that a compaction wrote before it was killed beside those that it read.
                        std::cmp::Ordering::Equal if version.change <= *change => true,
                        _ => return Err(UnreadReason::Disordered),
                    },
                    _ => false,
                };
                if !is_older {
                    self.last.set(version);
                    match version.change as u8 {
                        SETS => {
                            if each(version.key, stream.value()).is_break() {
                                return Ok(false);
                            }
                        }
                        REMOVES => {}
                        _ => return Err(UnreadReason::Unknown),
                    }
                }
                if !self.streams[least].next()? {
                    self.streams.swap_remove(least);
                    break;
                }
            }
        }
        Ok(true)
    }

    /// The stream with the least version, `other` left out.
    fn least(&self, other: Option<usize>) -> Result<Option<usize>, UnreadReason> {
        let mut least: Option<(usize, Version<'_>)> = None;
        for (at, stream) in self.streams.iter().enumerate().filter(|(at, _)| Some(*at) != other) {
            let version = stream.version()?;
            if least.is_none_or(|(_, least)| version < least) {
                least = Some((at, version));
            }
        }
        Ok(least.map(|(at, _)| at))
    }
}

/// The files of a database in runs: inside each the keys ascend from file to file.
fn runs(manifest: &Manifest) -> Result<Vec<Vec<TableFile>>, UnreadReason> {
    let mut runs: Vec<Vec<TableFile>> = Vec::new();
    let mut level_of_last = 0;
    for (&(level, _), file) in &manifest.files {
        if level == 0 || level != level_of_last {
            runs.push(Vec::new());
        }
        level_of_last = level;
        if let Some(run) = runs.last_mut() {
            run.push(file.clone());
        }
    }
    for run in &mut runs {
        if run.iter().any(|file| Version::of(&file.smallest).is_none()) {
            return Err(UnreadReason::Unknown);
        }
        run.sort_by(|a, b| Version::of(&a.smallest).cmp(&Version::of(&b.smallest)));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::manifest::masked;
    use std::collections::BTreeMap;

    /// A file with a block for each list of keys, numbers of changes, and values; no value removes the key.
    fn table(blocks: &[&[(&str, u64, Option<&str>)]]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut index = Vec::new();
        for entries in blocks {
            let mut block = Vec::new();
            for (key, change, value) in *entries {
                let kind = if value.is_some() { SETS } else { REMOVES };
                let change = (change << 8 | u64::from(kind)).to_le_bytes();
                entry(&mut block, &[key.as_bytes(), &change].concat(), value.unwrap_or_default().as_bytes());
            }
            let handle = add_block(&mut file, block);
            entry(&mut index, b"any key", &handle);
        }
        let filters = add_block(&mut file, Vec::new());
        let index = add_block(&mut file, index);
        let mut footer = [filters, index].concat();
        footer.resize(40, 0);
        file.extend_from_slice(&footer);
        file.extend_from_slice(&0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        file
    }

    fn entry(block: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        block.extend_from_slice(&[0, key.len() as u8, value.len() as u8]);
        block.extend_from_slice(key);
        block.extend_from_slice(value);
    }

    /// Adds a block with its end, and returns what refers to it.
    fn add_block(file: &mut Vec<u8>, mut block: Vec<u8>) -> Vec<u8> {
        block.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0]);
        let handle = [length(file.len()), length(block.len())].concat();
        block.push(0);
        let sum = masked(crc32c::crc32c(&block));
        file.extend_from_slice(&block);
        file.extend_from_slice(&sum.to_le_bytes());
        handle
    }

    fn length(mut len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while len >= 0x80 {
            bytes.push(len as u8 | 0x80);
            len >>= 7;
        }
        bytes.push(len as u8);
        bytes
    }

    /// The records in files, each with its level and its first key, and how the walk ended.
    fn read(files: &[(u64, &str, Vec<u8>)]) -> (BTreeMap<String, String>, Result<bool, UnreadReason>) {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::default();
        for (number, (level, first, bytes)) in (1..).zip(files) {
            let suffix = if number % 2 == 0 { "sst" } else { "ldb" };
            std::fs::write(folder.path().join(format!("{number:06}.{suffix}")), bytes).unwrap();
            let smallest = [first.as_bytes(), &u64::MAX.to_le_bytes()].concat();
            let file = TableFile { number, bytes: bytes.len() as u64, smallest };
            manifest.files.insert((*level, number), file);
        }
        let (mut found, none) = (BTreeMap::new(), Decompress::default());
        let mut records = match DatabaseRecords::open(folder.path(), &manifest, &none) {
            Ok(records) => records,
            Err(why) => return (found, Err(why)),
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let ended = records.walk(|key, value| {
            assert_eq!(found.insert(text(key), text(value)), None, "twice");
            ControlFlow::Continue(())
        });
        (found, ended)
    }

    #[test]
    fn the_newest_version_of_each_key_counts_and_removed_ones_are_left_out() {
        let old_a = table(&[&[("a", 1, Some("old")), ("b", 2, Some("old"))], &[("c", 3, Some("old"))]]);
        let old_m = table(&[&[("m", 4, Some("old")), ("z", 5, Some("old"))]]);
        let newer = table(&[&[("b", 12, None), ("b", 9, Some("newer")), ("m", 11, Some("newer"))]]);
        let newest =
            table(&[&[("a", 20, Some("newest")), ("b", 8, Some("between")), ("x", 21, Some("newest"))]]);
        let only = table(&[&[("k", 7, None)], &[]]);
        let files = [(1, "m", old_m), (1, "a", old_a), (0, "b", newer), (0, "a", newest), (2, "k", only)];
        let (found, ended) = read(&files);
        let expected = [("a", "newest"), ("c", "old"), ("m", "newer"), ("x", "newest"), ("z", "old")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!((found, ended), (BTreeMap::from(expected), Ok(true)));
        assert_eq!(read(&[]), (BTreeMap::new(), Ok(true)));
    }

    /// As LevelDB's repair leaves it that found a table beside those that it was written from.
    #[test]
    fn a_record_that_is_in_two_files_counts_once() {
        let table = table(&[&[("a", 1, Some("one")), ("b", 3, None), ("b", 2, Some("two"))]]);
        let files = [(0, "a", table.clone()), (0, "a", table)];
        assert_eq!(read(&files), (BTreeMap::from([("a".to_owned(), "one".to_owned())]), Ok(true)));
    }

    #[test]
    fn keys_that_do_not_ascend_are_told() {
        for entries in [[("b", 1, Some("")), ("a", 2, Some(""))], [("a", 1, Some("")), ("a", 2, Some(""))]] {
            assert_eq!(read(&[(0, "a", table(&[&entries]))]).1, Err(UnreadReason::Disordered));
        }
    }

    /// Whatever byte of a file is another one: a checksum tells, or the records are the same.
    #[test]
    fn a_changed_byte_is_told() {
        let whole = table(&[&[("a", 1, Some("one"))], &[("b", 2, Some("two"))]]);
        let records = read(&[(1, "a", whole.clone())]);
        assert_eq!((records.0.len(), &records.1), (2, &Ok(true)));
        let mut told = 0;
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x11;
            let (found, ended) = read(&[(1, "a", changed)]);
            assert!(
                (&found, &ended) == (&records.0, &records.1) || ended == Err(UnreadReason::Unknown),
                "byte {at}"
            );
            told += usize::from(ended.is_err());
            assert_eq!(read(&[(1, "a", whole[..at].to_vec())]).1, Err(UnreadReason::Unknown), "cut at {at}");
        }
        // All but the unused bytes of the end, and the block of filters.
        assert!(told > whole.len() - 60, "{told} of {}", whole.len());
    }
}
