//! The bytes of a shadow on dax and emulated: header, log rings, durable copy. docs/format/shadow.md describes
//! them; a test compares the two.
//!
//! Invariants:
//! 1. The words of the header's first line do not change once its magic number is there. One exception: recovery of a
//!    shadow of version 1 changes `version` and `crc`, once.
//! 2. Words that change are 8 bytes, aligned, and have one writer at a time: a growing thread writes `len` and
//!    `dirty_end`, the replayer `upto` and `head`, a marking thread `marker`, and recovery `upto`, `head` and the
//!    generation.
//! 3. An atomic group's checksum covers all its bytes but the padding, and through its seed the shadow, the log and
//!    the generation.
//! 4. No line of a ring holds bytes of two atomic groups: flushing one never writes the other's line again. (In a
//!    shadow of version 1 two neighbours share a line.)

use crate::order::Generation;
use crate::{Error, Result};
use mangrove_pool::{ByteRange, Region, crc32c};
use std::sync::atomic::Ordering;

/// "MGshadow" read as a little-endian number.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MGshadow");
/// Version that this code writes. It reads those before it, and recovery makes them this one.
pub(crate) const VERSION: u64 = 2;
/// All sizes here are multiples of it.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Least bytes of one ring.
pub(crate) const RING_BYTES_MIN: u64 = 4096;
/// Bytes of one ring unless asked otherwise.
pub(crate) const RING_BYTES_DEFAULT: u64 = 64 << 20;
/// Greatest bytes of one ring.
pub(crate) const RING_BYTES_MAX: u64 = 1 << 30;

pub(crate) const AT_MAGIC: u64 = 0;
/// What is wrong with a header that is blank, in a pool in which a shadow was made.
pub(crate) const BLANK_HEADER: &str =
    "a shadow was made here, but its header is blank; restore the files of the pool together";
pub(crate) const AT_VERSION: u64 = 8;
pub(crate) const AT_ADDRESS: u64 = 16;
pub(crate) const AT_CAPACITY: u64 = 24;
pub(crate) const AT_RING_BYTES: u64 = 32;
pub(crate) const AT_LOG_COUNT: u64 = 40;
pub(crate) const AT_NONCE: u64 = 48;
pub(crate) const AT_CRC: u64 = 56;
/// Bytes of the header: one line.
pub(crate) const HEADER_BYTES: u64 = 64;
const _: () = assert!(AT_MAGIC == 0 && AT_CRC + 8 == HEADER_BYTES);
/// Bytes of the working copy that may be used: one line of its own.
pub(crate) const AT_LEN: u64 = 64;
/// Bytes of the durable copy after which the region is still zero: one line of its own.
pub(crate) const AT_DIRTY_END: u64 = 128;
/// The generation: counts the openings, and invalidates atomic groups of earlier ones. One line of its own.
/// (docs/format calls the field `incarnation`; `order.rs` has its bits.)
pub(crate) const AT_GENERATION: u64 = 192;
/// The durable marker of `Order::Marker`: one line of its own. 0 in a shadow of before.
pub(crate) const AT_MARKER: u64 = 256;
/// The words of each log, two lines for each.
pub(crate) const AT_LOGS: u64 = PAGE_BYTES;
pub(crate) const LOG_BYTES: u64 = 128;
pub(crate) const IN_LOG_UPTO: u64 = 64;
pub(crate) const IN_LOG_HEAD: u64 = 72;
/// The first ring.
pub(crate) const AT_RINGS: u64 =
    AT_LOGS + (crate::LOG_COUNT_MAX as u64 * LOG_BYTES).next_multiple_of(PAGE_BYTES);

/// Atomic groups begin at multiples of it: a cache line.
pub(crate) const UNIT_ALIGN: u64 = 64;
/// As [`UNIT_ALIGN`], in a shadow of version 1.
const UNIT_ALIGN_OLD: u64 = 8;

/// Bytes of a WORDS_COMMIT record, the first of an atomic group that consists of words.
pub(crate) const WORDS_COMMIT_BYTES: u64 = 24;
/// Bytes of a word in an atomic group: its offset and its value.
pub(crate) const WORD_BYTES: u64 = 16;
/// Bytes of a WORDS record before its words.
pub(crate) const WORDS_BYTES: u64 = 8;
/// Bytes of a COMMIT record, the first of any other atomic group.
pub(crate) const COMMIT_BYTES: u64 = 32;
/// Bytes of a REDO record before its data.
pub(crate) const REDO_BYTES: u64 = 16;
/// Bytes of a SPILL record.
pub(crate) const SPILL_BYTES: u64 = 32;
/// Kinds of records: the low byte of their first word.
pub(crate) const KIND_COMMIT: u64 = 0xc1;
pub(crate) const KIND_REDO: u64 = 0xd2;
pub(crate) const KIND_SPILL: u64 = 0xa3;
pub(crate) const KIND_WORDS: u64 = 0xb4;
pub(crate) const KIND_WORDS_COMMIT: u64 = 0xe5;
/// In the count of a WORDS_COMMIT record: [`WordsCommit::follows_deferred`].
const FOLLOWS_DEFERRED: u64 = 1 << 48;

/// The kinds that an atomic group begins with.
pub(crate) const HEAD_KINDS: [u64; 2] = [KIND_COMMIT, KIND_WORDS_COMMIT];

/// The geometry: the content of the header's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShadowLayout {
    /// The format that its atomic groups have.
    pub(crate) version: u64,
    /// Where the working copy lies in every process; 0 for anywhere.
    pub(crate) address: u64,
    /// Bytes that the working copy may grow to.
    pub(crate) capacity: u64,
    /// Bytes of one ring.
    pub(crate) ring_bytes: u64,
    /// Rings.
    pub(crate) log_count: u64,
    /// Distinguishes this shadow's records from any other's.
    pub(crate) nonce: u64,
}

impl ShadowLayout {
    fn words(&self) -> [(u64, u64); 6] {
        [
            (AT_VERSION, self.version),
            (AT_ADDRESS, self.address),
            (AT_CAPACITY, self.capacity),
            (AT_RING_BYTES, self.ring_bytes),
            (AT_LOG_COUNT, self.log_count),
            (AT_NONCE, self.nonce),
        ]
    }

    fn crc(&self) -> u64 {
        let crc = self.words().iter().fold(0, |crc, (_, word)| crc32c(crc, &word.to_le_bytes()));
        u64::from(crc)
    }

    /// Where the durable copy begins.
    pub(crate) fn image_start(&self) -> u64 {
        AT_RINGS + self.log_count * self.ring_bytes
    }

    /// Where the words of a log lie.
    pub(crate) fn log(&self, log: usize) -> u64 {
        AT_LOGS + log as u64 * LOG_BYTES
    }

    /// Where the byte at `position` of the endless log lies.
    #[inline]
    pub(crate) fn ring(&self, log: usize, position: u64) -> u64 {
        AT_RINGS + log as u64 * self.ring_bytes + position % self.ring_bytes
    }

    /// Atomic groups begin at multiples of it.
    pub(crate) fn unit_align(&self) -> u64 {
        if self.version < 2 { UNIT_ALIGN_OLD } else { UNIT_ALIGN }
    }

    /// Seed of the checksums of a log's atomic groups.
    pub(crate) fn seed(&self, log: usize, generation: Generation) -> u32 {
        crc32c(crc32c(log as u32, &self.nonce.to_le_bytes()), &generation.0.to_le_bytes())
    }

    /// Writes the header of a fresh, zero region; durable with the caller's next fence.
    ///
    /// Durable-order: every other word before the magic number. Otherwise a crash could leave a shadow whose
    /// geometry is not there. They share one cache line, and stores to one line persist in their order.
    pub(crate) fn write(&self, region: &Region) -> Result<()> {
        region.grow(self.image_start())?;
        for (at, word) in self.words() {
            region.store(at, word, Ordering::Release);
        }
        region.store(AT_CRC, self.crc(), Ordering::Release);
        region.store(AT_MAGIC, MAGIC, Ordering::Release);
        region.flush(AT_MAGIC, HEADER_BYTES as usize);
        Ok(())
    }

    /// Makes a shadow of an earlier version one of [`VERSION`]; durable with the caller's next fence. Its logs are
    /// empty, and their heads are multiples of [`UNIT_ALIGN`].
    ///
    /// Durable-order: the version before its checksum (stores to one line persist in their order). `read` takes the
    /// new version with the old checksum for what it is.
    pub(crate) fn upgrade(&mut self, region: &Region) {
        self.version = VERSION;
        region.store(AT_VERSION, self.version, Ordering::Release);
        region.store(AT_CRC, self.crc(), Ordering::Release);
        region.flush(AT_MAGIC, HEADER_BYTES as usize);
    }

    /// The layout in the words of a header; `None` when they do not match their checksum.
    fn decode(word: impl Fn(u64) -> u64) -> Option<Self> {
        let layout = Self {
            version: word(AT_VERSION),
            address: word(AT_ADDRESS),
            capacity: word(AT_CAPACITY),
            ring_bytes: word(AT_RING_BYTES),
            log_count: word(AT_LOG_COUNT),
            nonce: word(AT_NONCE),
        };
        // A crash in `upgrade` may leave the checksum of the version before. Then the logs are empty, and either
        // version is right: the upgrade is repeated.
        let old = Self { version: layout.version.saturating_sub(1), ..layout };
        let layout = if layout.version > 1 && word(AT_CRC) == old.crc() { old } else { layout };
        (word(AT_CRC) == layout.crc() && layout.version > 0).then_some(layout)
    }

    /// Whether there can be such a shadow.
    fn is_sane(&self) -> bool {
        (1..=crate::LOG_COUNT_MAX as u64).contains(&self.log_count)
            && (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&self.ring_bytes)
            && self.ring_bytes.is_multiple_of(PAGE_BYTES)
            && self.capacity.is_multiple_of(PAGE_BYTES)
            && self.address.is_multiple_of(PAGE_BYTES)
            && self.address <= 1 << 56
            && self.capacity <= crate::options::CAPACITY_BYTES_MAX
    }

    /// Where the rings lie, as the first bytes of the region say: nothing there counts in a shadow that was closed.
    /// Nowhere if they are no header.
    pub(crate) fn rings(header: &[u8]) -> ByteRange {
        let words = header.as_chunks::<8>().0;
        let word = |at: u64| words.get(at as usize / 8).map_or(0, |word| u64::from_le_bytes(*word));
        let layout = Self::decode(word).filter(|layout| word(AT_MAGIC) == MAGIC && layout.is_sane());
        layout.map_or_else(ByteRange::default, |layout| ByteRange {
            offset: AT_RINGS,
            len: layout.image_start() - AT_RINGS,
        })
    }

    /// Reads the header; `None` when its creation was not finished. The first `AT_RINGS` bytes are usable.
    ///
    /// # Errors
    /// `Corrupt` or `Newer`; `Unsupported` where this process may reserve less address space than the one that
    /// created the shadow.
    pub(crate) fn read(region: &Region) -> Result<Option<Self>> {
        let corrupt = |offset, what: &str| {
            Err(Error::Corrupt { path: "the shadow's image".into(), offset, what: what.into() })
        };
        if region.len() < AT_RINGS {
            return Ok(None);
        }
        // Relaxed: no thread writes yet.
        let word = |at: u64| region.word(at).load(Ordering::Relaxed);
        match word(AT_MAGIC) {
            0 => return Ok(None),
            MAGIC => {}
            _ => return corrupt(AT_MAGIC, "its first bytes are not those of a shadow"),
        }
        if word(AT_VERSION) > VERSION {
            let found = u32::try_from(word(AT_VERSION)).unwrap_or(u32::MAX);
            return Err(Error::Newer { path: "the shadow's image".into(), found, supported: VERSION as u32 });
        }
        let Some(layout) = Self::decode(word) else {
            return corrupt(AT_CRC, "the checksum of its header does not match");
        };
        if !layout.is_sane() || layout.image_start() > region.len() {
            return corrupt(AT_ADDRESS, "its header describes what cannot be");
        }
        let needed = layout.image_start() + layout.capacity;
        if needed > region.len() {
            return Err(Error::Unsupported {
                what: format!(
                    "the pool needs {needed} bytes of address space, {} could be reserved; raise the limit (ulimit -v)",
                    region.len()
                ),
            });
        }
        Ok(Some(layout))
    }
}

/// The first words of an atomic group that consists of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitRecord {
    /// Bytes of the atomic group, this record and its padding included.
    pub(crate) bytes: u64,
    /// Number among the atomic groups of all logs, from 1.
    pub(crate) seq: u64,
    /// Position of this record in its log.
    pub(crate) position: u64,
    /// Records that follow.
    pub(crate) records: u32,
    /// CRC32C of the first three words, `records`, and every record without padding.
    pub(crate) crc: u32,
}

impl CommitRecord {
    pub(crate) fn words(&self) -> [u64; 4] {
        [
            self.bytes << 8 | KIND_COMMIT,
            self.seq,
            self.position,
            u64::from(self.records) << 32 | u64::from(self.crc),
        ]
    }

    /// The record in these words, if it is a COMMIT record of `position` in a log with this alignment.
    pub(crate) fn decode(words: [u64; 4], position: u64, align: u64) -> Option<Self> {
        let commit = Self {
            bytes: words[0] >> 8,
            seq: words[1],
            position: words[2],
            records: (words[3] >> 32) as u32,
            crc: words[3] as u32,
        };
        let right = words[0] & 0xff == KIND_COMMIT
            && commit.position == position
            && commit.bytes >= COMMIT_BYTES
            && commit.bytes.is_multiple_of(align);
        right.then_some(commit)
    }

    /// The checksum over the words before the records.
    pub(crate) fn crc_of_head(&self, seed: u32) -> u32 {
        let mut head = [0; 28];
        let words = self.words();
        for (to, word) in head.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        head[24..].copy_from_slice(&self.records.to_le_bytes());
        crc32c(seed, &head)
    }
}

/// The first words of an atomic group that consists of words: 24 bytes, so that two words share its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordsCommit {
    /// Words that follow, each as its offset in the working copy and its value.
    pub(crate) count: u64,
    /// Number among the atomic groups of all logs, from 1.
    pub(crate) seq: u64,
    /// Those before it in its log may not have been durable when it was begun: it proves nothing about them.
    pub(crate) follows_deferred: bool,
    /// CRC32C of `count` with [`FOLLOWS_DEFERRED`], `seq`, the position and the offsets; and of the values.
    pub(crate) crcs: [u32; 2],
}

impl WordsCommit {
    pub(crate) fn words(&self) -> [u64; 3] {
        let [offsets, values] = self.crcs.map(u64::from);
        [self.marked_count() << 8 | KIND_WORDS_COMMIT, self.seq, values << 32 | offsets]
    }

    #[inline]
    fn marked_count(&self) -> u64 {
        self.count | if self.follows_deferred { FOLLOWS_DEFERRED } else { 0 }
    }

    /// What its checksums cover before the words.
    #[inline]
    pub(crate) fn head(&self, position: u64) -> [u64; 3] {
        [self.marked_count(), self.seq, position]
    }

    /// The record in these words, if it is a WORDS_COMMIT record.
    pub(crate) fn decode(words: [u64; 3]) -> Option<Self> {
        let (marked, crcs) = (words[0] >> 8, [words[2] as u32, (words[2] >> 32) as u32]);
        let count = marked & !FOLLOWS_DEFERRED;
        let right = words[0] & 0xff == KIND_WORDS_COMMIT && count <= RING_BYTES_MAX / WORD_BYTES;
        right.then_some(Self { count, seq: words[1], follows_deferred: marked != count, crcs })
    }

    /// Bytes of an atomic group of so many words, with its padding.
    #[inline]
    pub(crate) fn bytes(count: u64) -> u64 {
        (WORDS_COMMIT_BYTES + count * WORD_BYTES).next_multiple_of(UNIT_ALIGN)
    }

    /// The checksums to be continued over the words.
    #[inline]
    pub(crate) fn seeds(&self, seed: u32, position: u64) -> [u32; 2] {
        let head = le_bytes::<3, 24>(self.head(position));
        let crc = mangrove_sys::crc32c_short(seed, &head).unwrap_or_else(|| crc32c(seed, &head));
        [crc, !crc]
    }
}

/// The checksums of words, continued from `crcs`: one over the offsets, one over the values. A CPU computes two side
/// by side in the time of one.
#[inline]
pub(crate) fn crcs_of_words(crcs: [u32; 2], words: &[[u64; 2]]) -> [u32; 2] {
    mangrove_sys::crc32c_pairs(crcs, words).unwrap_or_else(|| {
        words.iter().fold(crcs, |crcs, word| {
            [crc32c(crcs[0], &word[0].to_le_bytes()), crc32c(crcs[1], &word[1].to_le_bytes())]
        })
    })
}

/// The head of an atomic group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupHead {
    Records(CommitRecord),
    Words(WordsCommit),
}

impl GroupHead {
    /// The head in these words, which stand at `position`.
    #[inline]
    pub(crate) fn decode(words: [u64; 4], position: u64, align: u64) -> Option<Self> {
        let [first, second, third, _] = words;
        match first & 0xff {
            KIND_WORDS_COMMIT if align == UNIT_ALIGN => {
                WordsCommit::decode([first, second, third]).map(Self::Words)
            }
            _ => CommitRecord::decode(words, position, align).map(Self::Records),
        }
    }

    /// Its number.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        match self {
            Self::Records(commit) => commit.seq,
            Self::Words(commit) => commit.seq,
        }
    }

    /// Whether those before it in its log may not have been durable when it was begun.
    pub(crate) fn follows_deferred(&self) -> bool {
        matches!(self, Self::Words(commit) if commit.follows_deferred)
    }

    /// Whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Records(commit) => commit.records == 0,
            Self::Words(commit) => commit.count == 0,
        }
    }

    /// Bytes of the atomic group.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Records(commit) => commit.bytes,
            Self::Words(commit) => WordsCommit::bytes(commit.count),
        }
    }
}

/// The first words of a REDO record: `len` bytes for `offset` of the working copy follow, padded to 8.
pub(crate) fn redo_words(offset: u64, len: u64) -> [u64; 2] {
    [len << 8 | KIND_REDO, offset]
}

/// Bytes that a REDO record of `len` bytes takes.
#[inline]
pub(crate) fn redo_total(len: u64) -> u64 {
    REDO_BYTES + len.next_multiple_of(8)
}

pub(crate) fn le_bytes<const N: usize, const B: usize>(words: [u64; N]) -> [u8; B] {
    let mut bytes = [0; B];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_about_the_shadow_tells_the_same_header() {
        let page = include_str!("../../../docs/format/shadow.md");
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.split('|').skip(1).map(|c| c.trim().trim_matches('`').to_owned());
            let (offset, bytes): (u64, u64) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
            Some((offset, bytes, cells.next()?))
        });
        let rows: Vec<_> = rows.collect();
        let words = [
            ("magic", AT_MAGIC),
            ("version", AT_VERSION),
            ("address", AT_ADDRESS),
            ("capacity", AT_CAPACITY),
            ("ring_bytes", AT_RING_BYTES),
            ("log_count", AT_LOG_COUNT),
            ("nonce", AT_NONCE),
            ("crc", AT_CRC),
            ("len", AT_LEN),
            ("dirty_end", AT_DIRTY_END),
            ("incarnation", AT_GENERATION),
            ("marker", AT_MARKER),
        ];
        let told: Vec<_> =
            rows.iter().map(|(offset, bytes, field)| (field.as_str(), *offset, *bytes)).collect();
        assert_eq!(told, words.map(|(field, offset)| (field, offset, 8)));
        assert_eq!((AT_LOGS, LOG_BYTES, AT_RINGS), (4096, 128, 12288));
        assert_eq!((IN_LOG_UPTO, IN_LOG_HEAD), (64, 72));
        assert_eq!((KIND_COMMIT, KIND_REDO, KIND_SPILL), (0xc1, 0xd2, 0xa3));
        assert_eq!((KIND_WORDS, KIND_WORDS_COMMIT), (0xb4, 0xe5));
    }

    #[test]
    fn heads_return_and_know_their_place() {
        let commit = CommitRecord { bytes: 64, seq: 7, position: 4096, records: 2, crc: 0x1234_5678 };
        let unit = GroupHead::decode(commit.words(), 4096, UNIT_ALIGN);
        assert_eq!(unit, Some(GroupHead::Records(commit)));
        assert_eq!(GroupHead::decode(commit.words(), 8192, UNIT_ALIGN), None, "of another lap");
        assert_ne!(commit.crc_of_head(1), commit.crc_of_head(2));
        let words = WordsCommit { count: 2, seq: 7, follows_deferred: false, crcs: [1, 0xffff_ffff] };
        let [first, second, third] = words.words();
        let unit = GroupHead::decode([first, second, third, 0], 4096, UNIT_ALIGN);
        assert_eq!(unit, Some(GroupHead::Words(words)));
        assert_eq!((unit.unwrap().bytes(), WordsCommit::bytes(3)), (64, 128));
        assert_eq!(
            GroupHead::decode([first, second, third, 0], 4096, UNIT_ALIGN_OLD),
            None,
            "version 1 has none"
        );
        assert_ne!(words.seeds(1, 4096), words.seeds(1, 8192), "of another lap");
        let follows = WordsCommit { follows_deferred: true, ..words };
        let [first, second, third] = follows.words();
        let unit = GroupHead::decode([first, second, third, 0], 4096, UNIT_ALIGN).unwrap();
        assert_eq!((unit, unit.bytes(), unit.follows_deferred()), (GroupHead::Words(follows), 64, true));
        assert_ne!(words.seeds(1, 4096), follows.seeds(1, 4096), "the checksums cover it");
    }

    #[test]
    fn the_checksums_of_words_are_those_of_their_bytes() {
        let words: Vec<_> = (0..50u64).map(|n| [n * 8, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).collect();
        for count in 0..words.len() {
            let halves = [0, 1].map(|half| {
                words[..count].iter().flat_map(|word| word[half].to_le_bytes()).collect::<Vec<u8>>()
            });
            assert_eq!(
                crcs_of_words([3, 9], &words[..count]),
                [crc32c(3, &halves[0]), crc32c(9, &halves[1])]
            );
        }
    }
}
