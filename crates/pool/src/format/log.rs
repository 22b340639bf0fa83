//! The bytes of the log: groups and records. docs/format/log.md describes them; a test compares the two.
//!
//! Invariants:
//! 1. A group starts at a multiple of [`SECTOR_BYTES`]; its LSN is its position in the endless log, of which the
//!    file holds the last `log_bytes` as a ring.
//! 2. The CRC covers everything after it: header, payload, and (through its seed) the pool's UUID. With the LSN and
//!    the nonce, which it covers, a group of another pool, lap or generation is never taken for the one expected.

use crate::storage::traits::SECTOR_BYTES;
use crate::{Lsn, crc32c};

/// Bytes of a group's header.
pub(crate) const GROUP_HEADER_BYTES: usize = 40;
/// "MGgr" read as a little-endian number.
pub(crate) const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"MGgr");
/// Flag: the first group that a process wrote.
pub(crate) const FLAG_FIRST: u32 = 1;
/// Flag: the atomic group at the end of this group continues in the next one.
pub(crate) const FLAG_CONTINUES: u32 = 2;
/// Flag: the payload is the reference to a spill file.
pub(crate) const FLAG_SPILLED: u32 = 4;
/// Longest header of a record: two varints of 10 bytes, or of a range that was given back three, one of them of 1 byte
/// and none of more than 9.
pub(crate) const RECORD_HEADER_BYTES_MAX: usize = 20;
/// Longest range that one record gives back: bounds what a log can make recovery do.
pub(crate) const GIVEN_BACK_BYTES_MAX: u64 = 64 << 20;
/// Greatest payload of a group.
pub(crate) const GROUP_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Greatest position of a group that is accepted: its end never overflows. No log gets so far.
pub(crate) const LSN_MAX: Lsn = u64::MAX / 2;

/// The header of a group, before its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub(crate) crc: u32,
    /// Position of the header.
    pub(crate) lsn: Lsn,
    /// Bytes of records; the group ends there and is padded with zeros to whole sectors.
    pub(crate) payload: u32,
    /// [`FLAG_FIRST`], [`FLAG_CONTINUES`], [`FLAG_SPILLED`].
    pub(crate) flags: u32,
    /// A number drawn when the pool was opened: distinguishes the writes of one process from another's.
    pub(crate) nonce: u64,
    /// The durable position when this group's write was issued. A damaged place before it is damage; a damaged
    /// place at or after it may be a write torn by the crash.
    pub(crate) durable: Lsn,
}

const _: () = assert!(GROUP_HEADER_BYTES == 4 + 4 + 8 + 4 + 4 + 8 + 8);
const _: () = assert!(GROUP_HEADER_BYTES < SECTOR_BYTES);

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

impl GroupHeader {
    /// Reads a header; `None` when the magic, the lengths or the positions cannot be a group's. Others may still be any
    /// bytes that a user stored: nothing is compared with the checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < GROUP_HEADER_BYTES || le32(bytes, 0) != GROUP_MAGIC {
            return None;
        }
        let header = Self {
            crc: le32(bytes, 4),
            lsn: le64(bytes, 8),
            payload: le32(bytes, 16),
            flags: le32(bytes, 20),
            nonce: le64(bytes, 24),
            durable: le64(bytes, 32),
        };
        let sane = header.payload as usize <= GROUP_PAYLOAD_BYTES_MAX
            && header.payload > 0
            && header.lsn <= LSN_MAX
            && header.lsn.is_multiple_of(SECTOR_BYTES as u64)
            && header.durable.is_multiple_of(SECTOR_BYTES as u64)
            && header.durable <= header.lsn
            && header.flags & !(FLAG_FIRST | FLAG_CONTINUES | FLAG_SPILLED) == 0;
        sane.then_some(header)
    }

    /// Writes everything but the CRC.
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        bytes[0..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.payload.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.flags.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.to_le_bytes());
    }

    /// Bytes of the whole sectors that the group takes.
    pub(crate) fn total(&self) -> u64 {
        group_total(self.payload as usize)
    }
}

/// Bytes of the whole sectors that a group with `payload` bytes of records takes.
pub(crate) fn group_total(payload: usize) -> u64 {
    (GROUP_HEADER_BYTES + payload).next_multiple_of(SECTOR_BYTES) as u64
}

/// CRC of a whole group (`bytes` = header and payload) in a pool with `seed`.
pub(crate) fn group_crc(seed: u32, bytes: &[u8]) -> u32 {
    crc32c(seed, &bytes[8..])
}

/// Writes `value` in 7-bit pieces, low ones first; returns the bytes used (at most 10).
#[inline]
pub(crate) fn put_varint(bytes: &mut [u8], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        bytes[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    bytes[at] = value as u8;
    at + 1
}

/// Reads a varint; `None` when it does not end or does not fit.
#[inline]
pub(crate) fn get_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        let piece = u64::from(byte & 0x7f);
        if at == 9 && piece > 1 {
            return None;
        }
        value |= piece << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// One flushed range, or one that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRecord<'a> {
    pub(crate) offset: u64,
    /// What was flushed; empty in a range that was given back.
    pub(crate) bytes: &'a [u8],
    /// Bytes that were given back, and are zero; 0 in a flushed range.
    pub(crate) zeros: u64,
}

impl LogRecord<'_> {
    /// Bytes of the range; at least one.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64 + self.zeros
    }

    /// The range.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + self.len()
    }
}

/// The records of a payload, in order. Ends early, and sets `damaged()`, at bytes that are no record.
pub(crate) struct LogRecords<'a> {
    rest: &'a [u8],
    capacity: u64,
    damaged: bool,
}

impl<'a> LogRecords<'a> {
    /// Records of `payload`, all of which must lie within `capacity` bytes.
    pub(crate) fn new(payload: &'a [u8], capacity: u64) -> Self {
        Self { rest: payload, capacity, damaged: false }
    }

    /// True when iteration ended at bytes that are no record.
    pub(crate) fn damaged(&self) -> bool {
        self.damaged
    }

    /// Bytes of the payload not yet read.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<LogRecord<'a>> {
        let (offset, a) = get_varint(self.rest)?;
        let (len, b) = get_varint(&self.rest[a..])?;
        let body = &self.rest[a + b..];
        let (zeros, body) = if len > 0 {
            (0, body)
        } else {
            let (zeros, c) =
                get_varint(body).filter(|(zeros, _)| (1..=GIVEN_BACK_BYTES_MAX).contains(zeros))?;
            (zeros, &body[c..])
        };
        if len > body.len() as u64 || offset > self.capacity || len.max(zeros) > self.capacity - offset {
            return None;
        }
        let (bytes, rest) = body.split_at(len as usize);
        self.rest = rest;
        Some(LogRecord { offset, bytes, zeros })
    }
}

impl<'a> Iterator for LogRecords<'a> {
    type Item = LogRecord<'a>;

    fn next(&mut self) -> Option<LogRecord<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.take();
        if record.is_none() {
            self.damaged = true;
            self.rest = &[];
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_return_and_refuse_what_does_not_fit() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX] {
            let mut bytes = [0; 10];
            let n = put_varint(&mut bytes, value);
            assert_eq!(get_varint(&bytes[..n]), Some((value, n)));
            assert_eq!(get_varint(&bytes[..n - 1]), None);
        }
        assert_eq!(get_varint(&[0xff; 10]), None);
        assert_eq!(get_varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
    }

    #[test]
    fn records_beyond_the_region_or_the_payload_are_refused() {
        let mut payload = vec![0; 3];
        put_varint(&mut payload, 100);
        payload[1] = 2; // two bytes announced, one there
        let mut records = LogRecords::new(&payload, 1000);
        assert_eq!(records.next(), None);
        assert!(records.damaged());
        let mut records = LogRecords::new(&[100, 1, 7], 100);
        assert_eq!(records.next(), None);
        assert!(records.damaged());
        let mut records = LogRecords::new(&[100, 1, 7], 101);
        assert_eq!(records.next(), Some(LogRecord { offset: 100, bytes: &[7], zeros: 0 }));
        assert_eq!(records.next(), None);
        assert!(!records.damaged());
    }

    #[test]
    fn a_range_that_was_given_back_has_a_count_and_no_bytes() {
        let payload = [4, 0, 96, 100, 1, 7];
        let mut records = LogRecords::new(&payload, 101);
        assert_eq!(records.next(), Some(LogRecord { offset: 4, bytes: &[], zeros: 96 }));
        assert_eq!(records.next(), Some(LogRecord { offset: 100, bytes: &[7], zeros: 0 }));
        assert!(records.next().is_none() && !records.damaged());
        // Beyond the region, none, no count, half a count, and one more than there may be.
        for wrong in [&[4, 0, 97][..], &[4, 0, 0], &[4, 0], &[4, 0, 0x80], &[0, 0, 0x81, 0x80, 0x80, 0x20]] {
            let capacity = if wrong.len() == 6 { 1 << 30 } else { 100 };
            let mut records = LogRecords::new(wrong, capacity);
            assert!(records.next().is_none() && records.damaged(), "{wrong:?}");
        }
    }

    /// Rows `| offset | bytes | field | ...` of a page of docs/format.
    fn table(page: &str) -> Vec<(usize, usize, String)> {
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.split('|').skip(1).map(|c| c.trim().trim_matches('`').to_owned());
            Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?, cells.next()?))
        });
        rows.collect()
    }

    #[test]
    fn the_page_about_the_log_tells_the_same_header() {
        let header = GroupHeader {
            crc: 0x1122_3344,
            lsn: 0x0102_0304_0506_0800,
            payload: 77,
            flags: FLAG_FIRST,
            nonce: 0x99aa_bbcc_ddee_ff00,
            durable: 0x0102_0304_0506_0600,
        };
        let mut bytes = [0; GROUP_HEADER_BYTES];
        header.encode(&mut bytes);
        let rows = table(include_str!("../../../../docs/format/log.md"));
        assert_eq!(rows.iter().map(|(_, len, _)| len).sum::<usize>(), GROUP_HEADER_BYTES);
        for (offset, len, field) in rows {
            let expected = match &*field {
                "magic" => b"MGgr".to_vec(),
                "crc" => header.crc.to_le_bytes().to_vec(),
                "lsn" => header.lsn.to_le_bytes().to_vec(),
                "payload" => header.payload.to_le_bytes().to_vec(),
                "flags" => header.flags.to_le_bytes().to_vec(),
                "nonce" => header.nonce.to_le_bytes().to_vec(),
                "durable" => header.durable.to_le_bytes().to_vec(),
                other => panic!("the page tells of a field {other} that there is not"),
            };
            assert_eq!(bytes[offset..offset + len], expected, "{field}");
        }
    }

    #[test]
    fn a_header_returns() {
        let header = GroupHeader { crc: 7, lsn: 1024, payload: 9, flags: FLAG_FIRST, nonce: 5, durable: 512 };
        let mut bytes = [0; GROUP_HEADER_BYTES];
        header.encode(&mut bytes);
        assert_eq!(GroupHeader::decode(&bytes), Some(header));
        bytes[0] ^= 1;
        assert_eq!(GroupHeader::decode(&bytes), None);
        for (lsn, is_read) in [(LSN_MAX / 512 * 512, true), (LSN_MAX + 1, false), (u64::MAX - 511, false)] {
            GroupHeader { lsn, ..header }.encode(&mut bytes);
            assert_eq!(GroupHeader::decode(&bytes).is_some(), is_read, "{lsn}");
        }
    }
}
