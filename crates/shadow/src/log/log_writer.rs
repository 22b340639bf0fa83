//! The writer of one log: it assembles an atomic group of words and ranges by value, while its transaction runs.

use crate::layout::{
    COMMIT_BYTES, CommitRecord, KIND_WORDS, REDO_BYTES, ShadowLayout, UNIT_ALIGN, WORD_BYTES, WORDS_BYTES,
    WORDS_COMMIT_BYTES, WordsCommit, crcs_of_words, le_bytes, redo_total, redo_words,
};
use crate::log::spill_area::Spilled;
use mangrove_pool::crc32c;
use mangrove_sys::Crc32c;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Atomic groups up to this size are assembled first and copied at once: each of their lines is flushed once.
pub(crate) const SMALL_BYTES: usize = 8192;
/// Atomic groups of words from this size on are written past the caches.
pub(crate) const LONG_BYTES: u64 = 4096;
/// Why a word is refused.
pub(crate) const NOT_A_WORD: &str = "a word that cannot be added";
/// Room for so many bytes is kept between atomic groups.
const KEPT_BYTES: usize = 1 << 20;
/// Words of a WORDS_COMMIT record.
const HEAD_WORDS: usize = (WORDS_COMMIT_BYTES / 8) as usize;
/// Words that pad an atomic group, at most.
const PADDING_WORDS_MAX: usize = (UNIT_ALIGN / 8) as usize - 1;
/// Room for so many words is there from the beginning.
const KEPT_WORDS_MIN: usize = 1024;

/// What the writer of a log knows of what it deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// The log is closed.
    None,
    /// The log may be open from the position `start` on; the thread with this number has flushed every line.
    ByOwner { start: u64, thread: u64 },
    /// As `ByOwner`; no one thread has flushed every line.
    ByOther(u64),
}

impl Deferred {
    /// As the next owner of the writer sees it.
    pub(crate) fn handed_on(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::ByOwner { start, .. } | Self::ByOther(start) => Self::ByOther(start),
        }
    }

    /// As the thread with this number sees it: a lease may have come from another one, with its writer.
    pub(crate) fn seen_by(self, number: u64) -> Self {
        match self {
            Self::ByOwner { thread, .. } if thread != number => self.handed_on(),
            _ => self,
        }
    }
}

/// The calling thread's number, which no other thread ever has. Costs one load after the first call.
pub(crate) fn thread_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static MINE: Cell<u64> = const { Cell::new(0) };
    }
    if MINE.get() == 0 {
        // Relaxed: only a number.
        MINE.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    MINE.get()
}

/// The writer of one log.
pub(crate) struct LogWriter {
    pub(crate) log: usize,
    /// Where the next atomic group goes.
    pub(crate) position: u64,
    /// Where that lies in the region, and where the ring begins and ends there.
    pub(crate) place: u64,
    pub(crate) ring: std::ops::Range<u64>,
    /// Up to this position there was space when the writer last looked.
    pub(crate) space_end: u64,
    /// Of the checksums of its atomic groups.
    pub(crate) seed: u32,
    /// Number of the atomic group under way, or of the last one.
    pub(crate) seq: u64,
    /// With numbers that the caller gives: that of the atomic group before it.
    pub(crate) seq_before: u64,
    /// Bytes that the atomic group under way takes in the ring.
    pub(crate) bytes: u64,
    pub(crate) spilled: Option<Spilled>,
    /// What was deferred in the log.
    pub(crate) deferred: Deferred,
    /// Before this position it does not ask the replayer for space.
    pub(crate) ask_at: u64,
    /// Atomic groups of words below this size may go from memory to the ring in one pass; 0: none.
    one_pass_bytes: u64,
    /// Sums what is copied, where the CPU does.
    pub(crate) crc: Option<Crc32c>,
    pub(crate) buffer: Box<[u8; SMALL_BYTES]>,
    /// Space for a WORDS_COMMIT record, then the words, each as offset and value; behind these, anything.
    words: Vec<u64>,
    /// Words of `words` in use.
    used: usize,
    /// Space for a COMMIT record, then a REDO record for each range; empty without ranges.
    records: Vec<u8>,
    ranges: u32,
}

impl LogWriter {
    pub(crate) fn new(layout: &ShadowLayout, log: usize, position: u64, seed: u32, seq: u64) -> Self {
        let start = layout.ring(log, 0);
        Self {
            log,
            position,
            place: layout.ring(log, position),
            ring: start..start + layout.ring_bytes,
            space_end: position,
            seed,
            seq,
            seq_before: seq,
            bytes: 0,
            spilled: None,
            deferred: Deferred::None,
            ask_at: position,
            one_pass_bytes: 0,
            crc: Crc32c::detect(),
            buffer: Box::new([0; SMALL_BYTES]),
            words: vec![0; KEPT_WORDS_MIN],
            used: HEAD_WORDS,
            records: Vec::new(),
            ranges: 0,
        }
    }

    /// Whether there is space for what was added, as far as the writer knows, and the log need not be closed for it;
    /// then the space is taken.
    #[inline]
    pub(crate) fn has_space(&mut self) -> bool {
        let total = self.total();
        let fits = self.position + total <= self.space_end && total <= (self.ring.end - self.ring.start) / 2;
        if self.deferred != Deferred::None && !self.has_only_words() {
            return false;
        }
        if fits {
            self.bytes = total;
        }
        fits
    }

    /// From now on short atomic groups of words may go from memory to the ring in one pass.
    pub(crate) fn allow_one_pass(&mut self) {
        self.one_pass_bytes = LONG_BYTES.min((self.ring.end - self.ring.start) / 2);
    }

    /// Takes the space for an atomic group of so many words, and returns what sums them, if nothing was added, it is
    /// short, and the space is known to be there, in one piece.
    #[inline(always)]
    pub(crate) fn take_one_pass(&mut self, words: usize) -> Option<Crc32c> {
        let bytes = WordsCommit::bytes(words as u64);
        let fits = bytes < self.one_pass_bytes
            && self.position + bytes <= self.space_end
            && self.place + bytes <= self.ring.end
            && self.is_empty();
        if !fits {
            return None;
        }
        self.bytes = bytes;
        self.crc
    }

    /// The atomic group ends: the next one stands behind it.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.position += self.bytes;
        self.place += self.bytes;
        if self.place >= self.ring.end {
            self.place -= self.ring.end - self.ring.start;
        }
    }

    /// Adds the word at `offset`.
    #[inline]
    pub(crate) fn word(&mut self, offset: u64, value: u64) {
        self.words(offset, std::iter::once([offset, value]));
    }

    /// Adds words, each as offset, a multiple of 8 up to `last`, and value.
    #[inline]
    pub(crate) fn words(&mut self, last: u64, words: impl ExactSizeIterator<Item = [u64; 2]>) {
        let end = self.used + 2 * words.len();
        if end + PADDING_WORDS_MAX > self.words.len() {
            self.make_room(end + PADDING_WORDS_MAX);
        }
        let (places, _) = self.words[self.used..end].as_chunks_mut::<2>();
        // The greatest offset, and all bits of all: one look at the end in place of one for each word.
        let (mut greatest, mut bits) = (0, 0);
        for (place, word) in places.iter_mut().zip(words) {
            (greatest, bits) = (word[0].max(greatest), word[0] | bits);
            *place = word;
        }
        assert!(greatest <= last && bits.is_multiple_of(8), "{NOT_A_WORD}");
        self.used = end;
    }

    #[cold]
    fn make_room(&mut self, wanted: usize) {
        self.words.resize(wanted.next_power_of_two(), 0);
    }

    /// Adds bytes at `offset`.
    pub(crate) fn range(&mut self, offset: u64, bytes: &[u8]) {
        if self.records.is_empty() {
            self.records.resize(COMMIT_BYTES as usize, 0);
        }
        let len = bytes.len() as u64;
        self.records.extend_from_slice(&le_bytes::<2, 16>(redo_words(offset, len)));
        self.records.extend_from_slice(bytes);
        self.records.resize(self.records.len() + (redo_total(len) - REDO_BYTES - len) as usize, 0);
        self.ranges += 1;
    }

    /// Words added.
    #[inline]
    fn word_count(&self) -> u64 {
        ((self.used - HEAD_WORDS) / 2) as u64
    }

    /// True when neither words nor ranges were added.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == HEAD_WORDS && self.records.is_empty()
    }

    /// Bytes that the atomic group takes in a ring, with its padding.
    #[inline]
    pub(crate) fn total(&self) -> u64 {
        match (self.records.len() as u64, self.word_count()) {
            (0, words) => WordsCommit::bytes(words),
            (records, 0) => records.next_multiple_of(UNIT_ALIGN),
            (records, words) => (records + WORDS_BYTES + words * WORD_BYTES).next_multiple_of(UNIT_ALIGN),
        }
    }

    /// Everything added, as ranges: offset and bytes; words after ranges.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> + Clone {
        let mut at = COMMIT_BYTES as usize;
        let ranges = std::iter::from_fn(move || {
            let (&head, rest) = self.records.get(at..)?.split_first_chunk::<16>()?;
            let [len, offset] =
                [0, 8].map(|n| u64::from_le_bytes(*head[n..].first_chunk().expect("8 bytes")));
            let len = len >> 8;
            at += redo_total(len) as usize;
            Some((offset, &rest[..len as usize]))
        });
        let (words, _) = self.words[HEAD_WORDS..self.used].as_chunks::<2>();
        ranges.chain(words.iter().map(|[offset, value]| (*offset, bytes_of(std::slice::from_ref(value)))))
    }

    /// Forgets what was added.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.used = HEAD_WORDS;
        if self.words.len() > KEPT_BYTES / 8 || !self.records.is_empty() {
            self.clear_all();
        }
    }

    #[cold]
    fn clear_all(&mut self) {
        self.words.truncate(KEPT_BYTES / 8);
        self.words.shrink_to(KEPT_BYTES / 8);
        self.records.clear();
        self.records.shrink_to(KEPT_BYTES);
        self.ranges = 0;
    }

    /// Whether there are only words: `assemble_words` gives the atomic group, otherwise `assemble_records`.
    #[inline]
    pub(crate) fn has_only_words(&self) -> bool {
        self.records.is_empty()
    }

    /// The head of the atomic group of the words that were added, without their checksums; and the words.
    #[inline]
    pub(crate) fn words_unit(&self) -> (WordsCommit, &[[u64; 2]]) {
        let follows_deferred = self.deferred != Deferred::None;
        let commit = WordsCommit { count: self.word_count(), seq: self.seq, follows_deferred, crcs: [0; 2] };
        (commit, self.words[HEAD_WORDS..self.used].as_chunks::<2>().0)
    }

    /// The atomic group of the words that were added, numbered and summed, and padded to whole lines.
    pub(crate) fn assemble_words(&mut self) -> &[u8] {
        let (mut commit, words) = self.words_unit();
        commit.crcs = crcs_of_words(commit.seeds(self.seed, self.position), words);
        self.words[..HEAD_WORDS].copy_from_slice(&commit.words());
        let end = (self.bytes / 8) as usize;
        self.words[self.used..end].fill(0);
        bytes_of(&self.words[..end])
    }

    /// The bytes of the atomic group of what was added, numbered and summed, and padded to whole lines.
    pub(crate) fn assemble_records(&mut self) -> &[u8] {
        let bytes = self.total();
        let count = self.word_count();
        let records = self.ranges + u32::from(count > 0);
        let mut commit = CommitRecord { bytes, seq: self.seq, position: self.position, records, crc: 0 };
        let mut crc = commit.crc_of_head(self.seed);
        let mut at = COMMIT_BYTES as usize;
        while let Some(head) = self.records[at..].first_chunk::<8>() {
            let len = u64::from_le_bytes(*head) >> 8;
            crc = crc32c(crc, &self.records[at..at + (REDO_BYTES + len) as usize]);
            at += redo_total(len) as usize;
        }
        if count > 0 {
            self.records.extend_from_slice(&(count << 8 | KIND_WORDS).to_le_bytes());
            self.records.extend_from_slice(bytes_of(&self.words[HEAD_WORDS..self.used]));
            crc = crc32c(crc, &self.records[at..]);
        }
        commit.crc = crc;
        self.records[..COMMIT_BYTES as usize].copy_from_slice(&le_bytes::<4, 32>(commit.words()));
        self.records.resize(bytes as usize, 0);
        &self.records
    }

    /// Replaces what was added by nothing, under the same number.
    pub(crate) fn make_void(&mut self) {
        self.clear();
        self.bytes = WordsCommit::bytes(0);
    }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: words are bytes without padding, and bytes have no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
