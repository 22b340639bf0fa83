//! What a LevelDB database's newest MANIFEST says of the comparator and of its files. Its form is in LevelDB's
//! documentation (doc/log_format.md, doc/impl.md): a log of edits in blocks of 32 KiB.

use super::outcome::{Result, TransferError};
use std::collections::BTreeMap;
use std::path::Path;

const BLOCK_BYTES: usize = 32 << 10;
/// A checksum, a length of 2 bytes, and a kind before each fragment.
const HEADER_BYTES: usize = 7;
/// Kinds of fragments: a whole record, or the first, a middle, the last of one.
const FULL: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// The comparator's name.
    pub(super) comparator: Vec<u8>,
    /// Every file in use has a smaller number; LevelDB's next files get this one and those that follow.
    pub(super) next_file: u64,
    /// The files that hold the records, each by its level and number.
    pub(super) files: BTreeMap<(u64, u64), TableFile>,
}

/// A file of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// Its first key, with the number of its change.
    pub(super) smallest: Vec<u8>,
}

impl Manifest {
    /// Reads the MANIFEST file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| TransferError::io("read", path, &e))?;
        Self::parse(&bytes).ok_or_else(|| TransferError::refused(format!("{}: is damaged", path.display())))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut facts = Self::default();
        for edit in edits(bytes)? {
            facts.apply(&edit)?;
        }
        (!facts.comparator.is_empty()).then_some(facts)
    }

    /// Takes what an edit says: fields, each after a number that tells what it is.
    fn apply(&mut self, mut edit: &[u8]) -> Option<()> {
        let edit = &mut edit;
        let mut added = Vec::new();
        while !edit.is_empty() {
            match number(edit)? {
                1 => self.comparator = string(edit)?.to_vec(),
                3 => self.next_file = number(edit)?,
                // The numbers of the logs and of the last change.
                2 | 4 | 9 => _ = number(edit)?,
                // How far a level has been compacted.
                5 => _ = (number(edit)?, string(edit)?),
                // A file that is gone.
                6 => {
                    let level = number(edit)?;
                    self.files.remove(&(level, number(edit)?));
                }
                // A new file: its level, number and size, its first and its last key.
                7 => {
                    let (level, number, bytes) = (number(edit)?, number(edit)?, number(edit)?);
                    let (smallest, _) = (string(edit)?.to_vec(), string(edit)?);
                    added.push(((level, number), TableFile { number, bytes, smallest }));
                }
                _ => return None,
            }
        }
        // A file that the same edit says is gone has moved to another level, or comes back.
        self.files.extend(added);
        Some(())
    }
}

/// The records of a log. One that is torn at the end was never finished, and is left out.
fn edits(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut edits, mut parts) = (Vec::new(), Vec::new());
    for mut block in bytes.chunks(BLOCK_BYTES) {
        while let Some((header, rest)) = block.split_at_checked(HEADER_BYTES) {
            let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let kind = header[6];
            // Zeros fill what a file system had reserved.
            if kind == 0 && len == 0 {
                break;
            }
            let Some((fragment, next)) = rest.split_at_checked(len) else { break };
            let stored = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            if stored != masked(crc32c::crc32c_append(crc32c::crc32c(&[kind]), fragment)) {
                return None;
            }
            if matches!(kind, FULL | FIRST) {
                parts.clear();
            }
            parts.extend_from_slice(fragment);
            if matches!(kind, FULL | LAST) {
                edits.push(std::mem::take(&mut parts));
            }
            block = next;
        }
    }
    Some(edits)
}

/// A checksum as LevelDB stores it.
pub(super) fn masked(sum: u32) -> u32 {
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// A number of 7 bits a byte, the lowest first.
pub(super) fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A length and that many bytes.
fn string<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(number(bytes)?).ok()?;
    let (string, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let sum = masked(crc32c::crc32c_append(crc32c::crc32c(&[kind]), bytes));
        [&sum.to_le_bytes()[..], &(bytes.len() as u16).to_le_bytes(), &[kind], bytes].concat()
    }

    #[test]
    fn the_last_edit_counts_and_damage_is_told() {
        let first =
            [&b"\x01\x05order\x02\x03\x03\x07\x04\x09"[..], b"\x06\x01\x05", b"\x07\x00\x06\x64\x01a\x01z"]
                .concat();
        let log = [fragment(FULL, &first), fragment(FIRST, b"\x03"), fragment(LAST, b"\xac\x02")].concat();
        let file = TableFile { number: 6, bytes: 100, smallest: b"a".to_vec() };
        let files = BTreeMap::from([((0, 6), file)]);
        let whole = Manifest { comparator: b"order".to_vec(), next_file: 300, files };
        assert_eq!(Manifest::parse(&log), Some(whole.clone()));
        // The last record is not finished.
        let torn = &log[..log.len() - 1];
        assert_eq!(Manifest::parse(torn), Some(Manifest { next_file: 7, ..whole }));
        for at in 0..log.len() {
            let mut damaged = log.clone();
            damaged[at] ^= 0x10;
            let read = Manifest::parse(&damaged);
            // A length that grew beyond the end looks like a record that was not finished.
            assert!(read.as_ref().is_none_or(|m| m.next_file == 7 || m.next_file == 0), "{at}: {read:?}");
        }
        assert_eq!(Manifest::parse(b""), None);
    }

    #[test]
    fn files_are_those_that_were_added_and_are_not_gone() {
        let added = |level: u8, number: u8| [7, level, number, 100, 1, b'a', 1, b'z'];
        let first = [&b"\x01\x05order"[..], &added(0, 5), &added(0, 6)].concat();
        // 6 moves to the next level: the edit names what is new first.
        let second = [&added(1, 6)[..], b"\x06\x00\x06", b"\x06\x00\x05", &added(0, 7)].concat();
        let log = [fragment(FULL, &first), fragment(FULL, &second)].concat();
        let files: Vec<_> = Manifest::parse(&log).unwrap().files.into_keys().collect();
        assert_eq!(files, [(0, 7), (1, 6)]);
        let third = [&added(2, 7)[..], b"\x06\x02\x07"].concat();
        let log = [fragment(FULL, &first), fragment(FULL, &third)].concat();
        let files: Vec<_> = Manifest::parse(&log).unwrap().files.into_keys().collect();
        assert_eq!(files, [(0, 5), (0, 6), (2, 7)]);
    }
}
