//! The superblock: what a pool is. Two copies of one page, written in turn; the newer valid one counts.
//! docs/format/pool.md describes the bytes.
//!
//! Invariants:
//! 1. A copy is written whole and synced before anything that depends on it; so of two copies at most the one being
//!    written can be torn.
//! 2. Every byte of a copy is under its CRC.

use crate::format::ring_layout::RingLayout;
use crate::stat::{MediumKind, PoolInfo};
use crate::{Error, Lsn, Result, crc32c};
use std::path::{Path, PathBuf};

/// Bytes of one copy.
pub(crate) const COPY_BYTES: usize = 4096;
/// Bytes of the file `pool`.
pub(crate) const FILE_BYTES: usize = 2 * COPY_BYTES;
/// Version that this code writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 5;
/// Since this version `image_bytes` of a mapped pool is current even if the pool was not closed.
pub(crate) const VERSION_OF_IMAGE_BYTES: u32 = 3;
const MAGIC: [u8; 8] = *b"MANGROVE";
/// The file `pool` begins so while its pool is filled without a log. No superblock does: the bytes after the magic
/// number are a version, and this one comes with another mark of the byte order.
const LOADING: [u8; 16] = *b"MANGROVE-LOADING";
const ENDIAN_MARK: u32 = 0x0a0b_0c0d;
/// Greatest number of changes, and greatest position, that is accepted: counting on from it never overflows.
const NUMBER_MAX: u64 = u64::MAX / 4;
/// Longest name of a devdax device.
pub(crate) const DEVDAX_BYTES_MAX: usize = 1024;

const AT_VERSION: usize = 8;
const AT_ENDIAN: usize = 12;
const AT_SEQ: usize = 16;
const AT_UUID: usize = 24;
const AT_MEDIUM: usize = 40;
const AT_CLEAN: usize = 41;
const AT_KIND: usize = 48;
const AT_CAPACITY: usize = 64;
const AT_IMAGE_BYTES: usize = 72;
const AT_LOG_BYTES: usize = 80;
const AT_TAIL: usize = 88;
const AT_TARGET: usize = 96;
const AT_NONCE: usize = 104;
const AT_DEVDAX_LEN: usize = 112;
const AT_DEVDAX: usize = 116;
const AT_ADDRESS: usize = 1144;
/// In the reserved bytes of version 2: a program that does not know the field ignores it and leaves zero.
const AT_SUMS_DIGEST: usize = 1152;
const AT_GROUP: usize = 1160;
const AT_GROUP_NONCE: usize = 1168;
const AT_MADE: usize = 1176;
const AT_SHIFT: usize = 1184;
const AT_LOG_BYTES_MAX: usize = 1192;
const AT_CRC: usize = COPY_BYTES - 4;
const _: () = assert!(AT_DEVDAX + DEVDAX_BYTES_MAX <= AT_ADDRESS && AT_LOG_BYTES_MAX + 8 <= AT_CRC);

/// A group of the log that was durable when the superblock recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedGroup {
    /// Position of its header.
    pub(crate) lsn: Lsn,
    pub(crate) nonce: u64,
}

/// One copy of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The version that wrote it; a change makes it [`VERSION`].
    pub(crate) version: u32,
    /// Counts the writes; its parity says which copy this is.
    pub(crate) seq: u64,
    pub(crate) uuid: [u8; 16],
    pub(crate) medium: MediumKind,
    /// Closed, and nothing written since.
    pub(crate) clean: bool,
    pub(crate) kind: String,
    pub(crate) capacity: u64,
    /// The data file is at least this long.
    pub(crate) image_bytes: u64,
    pub(crate) log_bytes: u64,
    /// The byte at a position of the log stands at (position + shift) mod `log_bytes`. Zero in older versions, and
    /// until the log has grown.
    pub(crate) shift: u64,
    /// The log does not grow beyond this; 0 where it is not known.
    pub(crate) log_bytes_max: u64,
    /// The log starts here; everything before is in the data file.
    pub(crate) tail: Lsn,
    /// A checkpoint of the log up to here is under way; equal to `tail` when none is.
    pub(crate) target: Lsn,
    /// Nonce of the last group before `tail`: the first group after it has the same one, or starts a new one.
    pub(crate) nonce: u64,
    pub(crate) devdax: Option<PathBuf>,
    /// Where the region lies in every process; 0 for anywhere. Version 1 had no such field.
    pub(crate) address: u64,
    /// Of a clean pool: [`PageChecksums::digest`](crate::format::page_sums::PageChecksums::digest) when it was
    /// closed; 0 for not known.
    pub(crate) sums_digest: u64,
    /// Of a pool that is not clean: a group that its log contains, unless the log is not the one that was written.
    /// None before the first group of an opening, and in older versions.
    pub(crate) group: Option<RecordedGroup>,
    /// The owner has made its object: a region that is blank is damaged.
    pub(crate) made: bool,
    /// The other copy was not whole when this one was read. It may be the newer one: what it says is true until
    /// something else is written, and it is overwritten before that, because a torn write could make it whole again.
    pub(crate) alone: bool,
    /// This opening has changed capacity or limit of the log, and neither copy says so yet: what they say.
    pub(crate) unsaved: Option<SavedSizes>,
}

/// The sizes that an opening may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedSizes {
    pub(crate) capacity: u64,
    pub(crate) log_bytes_max: u64,
}

impl Superblock {
    /// Changes sizes, which are not saved by that.
    pub(crate) fn resize(&mut self, capacity: u64, log_bytes_max: u64) {
        let saved = SavedSizes { capacity: self.capacity, log_bytes_max: self.log_bytes_max };
        self.unsaved.get_or_insert(saved);
        (self.capacity, self.log_bytes_max) = (capacity, log_bytes_max);
    }

    /// The log's ring.
    pub(crate) fn ring(&self) -> RingLayout {
        RingLayout { bytes: self.log_bytes, shift: self.shift }
    }

    /// What the log may grow to.
    pub(crate) fn log_bytes_kept(&self) -> u64 {
        if self.log_bytes_max == 0 { crate::limits::LOG_BYTES_DEFAULT } else { self.log_bytes_max }
    }

    /// Seed of every CRC in this pool's log.
    pub(crate) fn seed(&self) -> u32 {
        crc32c(0, &self.uuid)
    }

    pub(crate) fn encode(&self) -> Box<[u8; COPY_BYTES]> {
        let mut b = Box::new([0u8; COPY_BYTES]);
        b[..8].copy_from_slice(&MAGIC);
        b[AT_VERSION..][..4].copy_from_slice(&self.version.to_le_bytes());
        b[AT_ENDIAN..][..4].copy_from_slice(&ENDIAN_MARK.to_le_bytes());
        b[AT_UUID..][..16].copy_from_slice(&self.uuid);
        b[AT_MEDIUM] = match self.medium {
            MediumKind::File => 1,
            MediumKind::Dax => 2,
            MediumKind::Emulated => 3,
        };
        b[AT_CLEAN] = u8::from(self.clean);
        b[AT_MADE] = u8::from(self.made);
        let (group, group_nonce) = self.group.map_or((0, 0), |group| (group.lsn + 1, group.nonce));
        b[AT_KIND..][..self.kind.len()].copy_from_slice(self.kind.as_bytes());
        for (at, value) in [
            (AT_SEQ, self.seq),
            (AT_CAPACITY, self.capacity),
            (AT_IMAGE_BYTES, self.image_bytes),
            (AT_LOG_BYTES, self.log_bytes),
            (AT_TAIL, self.tail),
            (AT_TARGET, self.target),
            (AT_NONCE, self.nonce),
            (AT_ADDRESS, self.address),
            (AT_SUMS_DIGEST, self.sums_digest),
            (AT_GROUP, group),
            (AT_GROUP_NONCE, group_nonce),
            (AT_SHIFT, self.shift),
            (AT_LOG_BYTES_MAX, self.log_bytes_max),
        ] {
            b[at..][..8].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(device) = &self.devdax {
            use std::os::unix::ffi::OsStrExt;
            let name = device.as_os_str().as_bytes();
            b[AT_DEVDAX_LEN..][..4].copy_from_slice(&(name.len() as u32).to_le_bytes());
            b[AT_DEVDAX..][..name.len()].copy_from_slice(name);
        }
        let crc = crc32c(0, &b[..AT_CRC]);
        b[AT_CRC..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// The superblock's content, for the user.
    pub(crate) fn info(&self, path: &Path) -> PoolInfo {
        PoolInfo {
            path: path.to_owned(),
            version: self.version,
            uuid: self.uuid,
            kind: self.kind.clone(),
            medium: self.medium,
            devdax: self.devdax.clone(),
            address: self.address,
            capacity: self.capacity,
            image_bytes: self.image_bytes,
            log_bytes: self.log_bytes,
            log_bytes_max: if self.log_bytes_max == 0 { self.log_bytes } else { self.log_bytes_max },
            tail: self.tail,
            clean: self.clean,
            made: self.made,
        }
    }
}

/// Why a copy cannot be used.
#[derive(Debug)]
enum CopyFault {
    /// All zero: never written.
    Blank,
    /// Not a pool's, or of another byte order.
    Foreign(String),
    /// A pool's, but newer.
    Newer(u32),
    /// A pool's, but not as it was written.
    Damaged(String),
}

fn decode_copy(b: &[u8], place: u64) -> std::result::Result<Superblock, CopyFault> {
    let le32 = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    let le64 = |at: usize| u64::from(le32(at)) | u64::from(le32(at + 4)) << 32;
    if b.iter().all(|&byte| byte == 0) {
        return Err(CopyFault::Blank);
    }
    let crc_ok = le32(AT_CRC) == crc32c(0, &b[..AT_CRC]);
    if b[..8] != MAGIC {
        return Err(CopyFault::Foreign("its first bytes are not those of a pool".into()));
    }
    if le32(AT_ENDIAN) == ENDIAN_MARK.swap_bytes() {
        return Err(CopyFault::Foreign("it was written on a machine of the other byte order".into()));
    }
    // A newer version may have moved the CRC, so its number is accepted without one.
    let version = le32(AT_VERSION);
    if version > VERSION && le32(AT_ENDIAN) == ENDIAN_MARK {
        return Err(CopyFault::Newer(version));
    }
    if !crc_ok {
        return Err(CopyFault::Damaged("the checksum of the superblock does not match".into()));
    }
    let damaged = |what: &str| Err(CopyFault::Damaged(what.to_owned()));
    if version == 0 {
        return damaged("format version 0 was never written");
    }
    let medium = match b[AT_MEDIUM] {
        1 => MediumKind::File,
        2 => MediumKind::Dax,
        3 => MediumKind::Emulated,
        _ => return damaged("the medium has an unknown number"),
    };
    let kind = &b[AT_KIND..AT_CAPACITY];
    let kind = &kind[..kind.iter().position(|&c| c == 0).unwrap_or(kind.len())];
    let Ok(kind) = std::str::from_utf8(kind) else { return damaged("the kind tag is not text") };
    let devdax_len = le32(AT_DEVDAX_LEN) as usize;
    if devdax_len > DEVDAX_BYTES_MAX {
        return damaged("the device name is too long");
    }
    let devdax = (devdax_len > 0).then(|| {
        use std::os::unix::ffi::OsStrExt;
        PathBuf::from(std::ffi::OsStr::from_bytes(&b[AT_DEVDAX..][..devdax_len]))
    });
    let group = match le64(AT_GROUP) {
        0 => None,
        position => Some(RecordedGroup { lsn: position - 1, nonce: le64(AT_GROUP_NONCE) }),
    };
    let sb = Superblock {
        version,
        seq: le64(AT_SEQ),
        uuid: b[AT_UUID..][..16].try_into().unwrap_or_default(),
        medium,
        clean: b[AT_CLEAN] != 0,
        kind: kind.to_owned(),
        capacity: le64(AT_CAPACITY),
        image_bytes: le64(AT_IMAGE_BYTES),
        log_bytes: le64(AT_LOG_BYTES),
        shift: le64(AT_SHIFT),
        log_bytes_max: le64(AT_LOG_BYTES_MAX),
        tail: le64(AT_TAIL),
        target: le64(AT_TARGET),
        nonce: le64(AT_NONCE),
        devdax,
        address: le64(AT_ADDRESS),
        sums_digest: le64(AT_SUMS_DIGEST),
        group,
        made: b[AT_MADE] != 0,
        alone: false,
        unsaved: None,
    };
    if sb.seq & 1 != place {
        return damaged("this copy of the superblock belongs in the other place");
    }
    check_geometry(&sb).map_err(CopyFault::Damaged)?;
    Ok(sb)
}

/// Checks that a writer of this version can have written the numbers: a hostile superblock with a valid CRC must
/// not mislead the reader either.
fn check_geometry(sb: &Superblock) -> std::result::Result<(), String> {
    use crate::limits::{CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, LOG_BYTES_MAX, LOG_BYTES_MIN};
    if sb.seq > NUMBER_MAX {
        return Err(format!("a superblock that was changed {} times cannot be", sb.seq));
    }
    if !(CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&sb.capacity) || !sb.capacity.is_multiple_of(4096)
    {
        return Err(format!("a capacity of {} bytes cannot be", sb.capacity));
    }
    if sb.image_bytes > sb.capacity || !sb.image_bytes.is_multiple_of(4096) {
        return Err(format!(
            "an image of {} bytes in a capacity of {} cannot be",
            sb.image_bytes, sb.capacity
        ));
    }
    if sb.devdax.is_some() && sb.medium != MediumKind::Dax {
        return Err(format!("a pool on the medium {} on a device cannot be", sb.medium));
    }
    let end = sb.address.checked_add(sb.capacity);
    let placed = sb.address == 0 || (sb.medium == MediumKind::File && end.is_some_and(|e| e <= 1 << 56));
    if !placed || !sb.address.is_multiple_of(4096) {
        return Err(format!("a region at address {:#x} cannot be", sb.address));
    }
    if sb.medium == MediumKind::File {
        if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&sb.log_bytes) || !sb.log_bytes.is_multiple_of(4096) {
            return Err(format!("a log of {} bytes cannot be", sb.log_bytes));
        }
        if sb.shift >= sb.log_bytes || !sb.shift.is_multiple_of(512) {
            return Err(format!("a log that is shifted by {} bytes cannot be", sb.shift));
        }
        let grows_to = sb.log_bytes_max;
        if grows_to != 0
            && !((sb.log_bytes..=LOG_BYTES_MAX).contains(&grows_to) && grows_to.is_multiple_of(4096))
        {
            return Err(format!("a log that grows up to {} bytes cannot be", sb.log_bytes_max));
        }
        let sane = sb.tail.is_multiple_of(512)
            && sb.target.is_multiple_of(512)
            && sb.tail <= sb.target
            && (!sb.clean || sb.tail == sb.target)
            && sb.target - sb.tail <= sb.log_bytes
            && sb.target <= NUMBER_MAX;
        if !sane {
            return Err(format!("log positions {} and {} cannot be", sb.tail, sb.target));
        }
        if let Some(RecordedGroup { lsn, .. }) = sb.group
            && (!lsn.is_multiple_of(512) || lsn > NUMBER_MAX)
        {
            return Err(format!("a log group at position {lsn} cannot be"));
        }
    }
    Ok(())
}

/// Reads the superblock from the bytes of the file `pool` at `path`.
///
/// # Errors
/// `Foreign`, `Newer` or `Corrupt`, about the whole file.
pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<Superblock> {
    if bytes.len() != FILE_BYTES {
        if bytes.len() >= 8 && bytes[..8] == MAGIC {
            return Err(Error::Corrupt {
                path: path.to_owned(),
                offset: bytes.len() as u64,
                what: format!("a superblock file has {FILE_BYTES} bytes, this one {}", bytes.len()),
            });
        }
        return Err(Error::Foreign {
            path: path.to_owned(),
            what: format!("a superblock file has {FILE_BYTES} bytes, this one {}", bytes.len()),
        });
    }
    let (a, b) = bytes.split_at(COPY_BYTES);
    match (decode_copy(a, 0), decode_copy(b, 1)) {
        (Ok(a), Ok(b)) => Ok(if a.seq >= b.seq { a } else { b }),
        // The other copy is torn by a crash, or damaged. This one is whole; at worst it is older.
        (Ok(sb), Err(_)) | (Err(_), Ok(sb)) => Ok(Superblock { alone: true, ..sb }),
        (Err(_), Err(_)) if is_loading(bytes) => Err(Error::Foreign {
            path: path.to_owned(),
            what: "a bulk load is under way here, or was interrupted: there is no pool yet".into(),
        }),
        (Err(a), Err(b)) => Err(worse(path, a, b)),
    }
}

/// The file `pool` of a pool that is filled without a log: no copy of the superblock is whole.
pub(crate) fn loading() -> Box<[u8; FILE_BYTES]> {
    let mut bytes = Box::new([0; FILE_BYTES]);
    bytes[..LOADING.len()].copy_from_slice(&LOADING);
    bytes
}

/// True for the file `pool` of a pool that was filled without a log, up to its end: unless the other copy of the
/// superblock is whole, there is no pool.
pub(crate) fn is_loading(bytes: &[u8]) -> bool {
    bytes.starts_with(&LOADING)
}

/// True for the beginning of a copy in this place as the creation of a pool writes it. A later change has another
/// number, and a newer version may write it in another way.
pub(crate) fn begins_unchanged(head: &[u8], place: u64) -> bool {
    let version = head.get(AT_VERSION..AT_ENDIAN).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let seq = head.get(AT_SEQ..AT_UUID).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let is_known = version.is_some_and(|version| (1..=VERSION).contains(&version));
    head.starts_with(&MAGIC) && is_known && seq == Some(place)
}

/// The copies that are not whole (for `check`): for each, its offset and a message.
pub(crate) fn copy_faults(bytes: &[u8]) -> Vec<(u64, String)> {
    let mut faults = Vec::new();
    for (i, copy) in bytes.chunks_exact(COPY_BYTES).take(2).enumerate() {
        if i == 0 && is_loading(bytes) {
            // The process died between the two copies that end a bulk load.
            continue;
        }
        let what = match decode_copy(copy, i as u64) {
            Ok(_) => continue,
            Err(CopyFault::Blank) => "this copy of the superblock is blank".to_owned(),
            Err(CopyFault::Foreign(what) | CopyFault::Damaged(what)) => what,
            Err(CopyFault::Newer(v)) => format!("this copy of the superblock has format version {v}"),
        };
        faults.push(((i * COPY_BYTES) as u64, what));
    }
    faults
}

fn worse(path: &Path, a: CopyFault, b: CopyFault) -> Error {
    let path = path.to_owned();
    match (a, b) {
        (CopyFault::Newer(found), CopyFault::Newer(_) | CopyFault::Blank)
        | (CopyFault::Blank, CopyFault::Newer(found)) => Error::Newer { path, found, supported: VERSION },
        (CopyFault::Foreign(what), CopyFault::Foreign(_) | CopyFault::Blank)
        | (CopyFault::Blank, CopyFault::Foreign(what)) => Error::Foreign { path, what },
        (CopyFault::Damaged(what), _) => Error::Corrupt { path, offset: 0, what },
        (_, CopyFault::Damaged(what)) => Error::Corrupt { path, offset: COPY_BYTES as u64, what },
        (CopyFault::Blank, CopyFault::Blank) => {
            Error::Foreign { path, what: "its superblock is blank".into() }
        }
        (CopyFault::Newer(_), CopyFault::Foreign(what)) | (CopyFault::Foreign(what), CopyFault::Newer(_)) => {
            Error::Corrupt { path, offset: 0, what }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            version: VERSION,
            seq: 0x0102_0304_0506_0708,
            uuid: *b"0123456789abcdef",
            medium: MediumKind::Dax,
            clean: true,
            kind: "map".into(),
            capacity: 1 << 30,
            image_bytes: 5 << 12,
            log_bytes: 0,
            shift: 0x1a00,
            log_bytes_max: 0x0300_0000,
            tail: 512,
            target: 512,
            nonce: 0x1122_3344_5566_7788,
            devdax: Some("/dev/dax0.0".into()),
            address: 0,
            sums_digest: 0x0123_4567_89ab_cdef,
            group: Some(RecordedGroup { lsn: 0x7_7e00, nonce: 0x0fed_cba9_8765_4321 }),
            made: true,
            alone: false,
            unsaved: None,
        }
    }

    #[test]
    fn the_page_about_the_pool_tells_the_same_superblock() {
        let sb = sample();
        let bytes = sb.encode();
        let mut covered = vec![false; COPY_BYTES];
        let page = include_str!("../../../../docs/format/pool.md");
        for line in page.lines() {
            let mut cells = line.split('|').skip(1).map(|c| c.trim().trim_matches('`'));
            let (Some(Ok(offset)), Some(Ok(len))) =
                (cells.next().map(str::parse::<usize>), cells.next().map(str::parse::<usize>))
            else {
                continue;
            };
            let field = cells.next().unwrap();
            let expected = match field {
                "magic" => MAGIC.to_vec(),
                "version" => VERSION.to_le_bytes().to_vec(),
                "endian" => ENDIAN_MARK.to_le_bytes().to_vec(),
                "seq" => sb.seq.to_le_bytes().to_vec(),
                "uuid" => sb.uuid.to_vec(),
                "medium" => vec![2],
                "clean" => vec![1],
                "kind" => b"map\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
                "capacity" => sb.capacity.to_le_bytes().to_vec(),
                "image_bytes" => sb.image_bytes.to_le_bytes().to_vec(),
                "log_bytes" => sb.log_bytes.to_le_bytes().to_vec(),
                "tail" => sb.tail.to_le_bytes().to_vec(),
                "target" => sb.target.to_le_bytes().to_vec(),
                "nonce" => sb.nonce.to_le_bytes().to_vec(),
                "address" => sb.address.to_le_bytes().to_vec(),
                "sums_digest" => sb.sums_digest.to_le_bytes().to_vec(),
                "group" => (0x7_7e00u64 + 1).to_le_bytes().to_vec(),
                "group_nonce" => 0x0fed_cba9_8765_4321u64.to_le_bytes().to_vec(),
                "made" => vec![1],
                "shift" => 0x1a00u64.to_le_bytes().to_vec(),
                "log_bytes_max" => 0x0300_0000u64.to_le_bytes().to_vec(),
                "devdax_len" => 11u32.to_le_bytes().to_vec(),
                "devdax" => [b"/dev/dax0.0".to_vec(), vec![0; DEVDAX_BYTES_MAX - 11]].concat(),
                "crc" => crc32c(0, &bytes[..AT_CRC]).to_le_bytes().to_vec(),
                other => panic!("the page tells of a field {other} that there is not"),
            };
            assert_eq!(bytes[offset..offset + len], expected, "{field}");
            covered[offset..offset + len].fill(true);
        }
        let untold = bytes.iter().zip(&covered).position(|(&byte, &told)| byte != 0 && !told);
        assert_eq!(untold, None, "the page does not tell of this byte");
        assert_eq!(
            covered.iter().filter(|&&c| c).count(),
            42 + 16 + 6 * 8 + 4 + DEVDAX_BYTES_MAX + 8 + 8 + 2 * 8 + 1 + 2 * 8 + 4
        );
    }

    #[test]
    fn a_copy_reads_as_it_was_written() {
        let mut sb = sample();
        for (version, group, made) in [(VERSION, sb.group, true), (VERSION, None, false), (2, None, false)] {
            (sb.version, sb.group, sb.made) = (version, group, made);
            let mut other = sb.clone();
            other.seq += 1;
            let bytes = [&sb.encode()[..], &other.encode()[..]].concat();
            assert_eq!(decode(Path::new("pool"), &bytes).unwrap(), other);
        }
    }

    /// Otherwise a pool could name any file, and what its log holds would be written there.
    #[test]
    fn a_superblock_of_another_medium_than_dax_names_no_device() {
        let log_bytes = crate::limits::LOG_BYTES_MIN;
        for medium in [MediumKind::File, MediumKind::Emulated] {
            let mut sb = Superblock { medium, log_bytes, seq: 2, ..sample() };
            assert!(matches!(decode_copy(&sb.encode()[..], 0), Err(CopyFault::Damaged(_))), "{medium}");
            sb.devdax = None;
            assert_eq!(decode_copy(&sb.encode()[..], 0).unwrap(), sb);
        }
    }

    #[test]
    fn of_two_copies_the_newer_whole_one_counts() {
        let path = Path::new("pool");
        let (mut a, mut b) = (sample(), sample());
        (a.seq, b.seq) = (10, 11);
        b.nonce = 1;
        let file = |a: &Superblock, b: &Superblock| [&a.encode()[..], &b.encode()[..]].concat();
        let whole = file(&a, &b);
        assert_eq!(decode(path, &whole).unwrap(), b);
        let mut torn = whole.clone();
        torn[COPY_BYTES + 100] ^= 1;
        assert_eq!(decode(path, &torn).unwrap(), Superblock { alone: true, ..a.clone() });
        torn[100] ^= 1;
        assert!(matches!(decode(path, &torn), Err(Error::Corrupt { .. })));
        (a.seq, b.seq) = (12, 11);
        assert_eq!(decode(path, &file(&a, &b)).unwrap(), a);
        assert!(
            matches!(decode(path, &file(&b, &a)), Err(Error::Corrupt { .. })),
            "copies in each other's place"
        );
    }
}
