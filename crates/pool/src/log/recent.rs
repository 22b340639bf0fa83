//! Recent writes: the newest records of the log in a file that nothing syncs. So what a call has copied there survives
//! the death of the process, whatever ends it, and after a power cut a part of it. docs/format/log.md describes the
//! bytes.
//!
//! Invariants:
//! 1. The file is a ring of its own, of one of the lengths of [`rings`]. A group grows there: first its new records are
//!    stored, then one word of its header, which says how many bytes count and what their checksum is. A process that
//!    dies in between leaves the word before, whose bytes have not changed. Nothing else of a header changes.
//! 2. The header's checksum covers position, nonce and all bytes that count, and the header says how many counted in
//!    the group before. So recovery takes only what continues the log without a gap, whatever mixture of old and new
//!    bytes a power cut left: after an old header, whose group had grown since, no group is taken.
//! 3. The next opening for writing makes what it takes durable in the log, and only then removes the file. The groups
//!    that it takes get its own nonce there: groups of the dead process may lie behind them in the log, left over from
//!    a write that was torn, and must not follow them.
//! 4. A store to the file as memory that fails is a write from then on, which succeeds or says why not.
//! 5. Everything copied from the durable end of the log on has its place: what does not fit is not copied, and its call
//!    waits until it is durable. The ring changes its length only while nothing that was copied is not durable.
//! 6. After a store that failed nothing is copied any more, and every call that has something to copy fails: the next
//!    word of the header would count bytes that are not there, and recovery would not take the group.

use crate::crc32c;
use crate::format::log::{GROUP_HEADER_BYTES, GROUP_MAGIC, GroupHeader, group_crc, group_total};
use crate::format::ring_layout::RingLayout;
use crate::pool_files::{PoolFile, kind_of, names_in};
use crate::stat::Damage;
use crate::storage::traits::{FileMap, OpenHow, PathKind, Storage, here};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::{Error, Lsn, Result};
use mangrove_sys::ProcessMark;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The beginning of the file's name; sixteen digits follow, the nonce of the process that writes it.
const NAME: &str = "recent-";
/// Bytes of the shortest ring, and how much longer each further one is.
const RING_BYTES: u64 = 128 << 10;
const RING_GROWTH: u64 = 4;
/// A ring becomes so long where calls fill it faster than the log is written. It is short, so that its pages stay
/// mapped and in the processor's cache.
const RING_BYTES_MAX: u64 = 8 << 20;
/// No log is longer than the longest of so many.
const RINGS: u32 = 20;
/// "MGre" read as a little-endian number.
const RECENT_MAGIC: u32 = u32::from_le_bytes(*b"MGre");

/// The rings that a file may have. A reader tries each, for the file does not say which.
fn rings() -> impl Iterator<Item = RingLayout> {
    (0..RINGS).map(|step| RingLayout { bytes: RING_BYTES * RING_GROWTH.pow(step), shift: 0 })
}

/// The nonce in the name of a file of recent writes.
fn nonce_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// True for names of files of recent writes.
pub(crate) fn is_name(name: &str) -> bool {
    nonce_of(name).is_some()
}

/// A part of the log: whole records of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentGroup {
    /// Position of the header.
    pub(crate) start: Lsn,
    /// End of the records.
    pub(crate) end: Lsn,
    pub(crate) flags: u32,
    /// Bytes of records in the group before, or [`NOT_KNOWN`].
    pub(crate) before: u64,
}

/// No group is before it: the log was empty when the process began.
pub(crate) const NOT_KNOWN: u64 = u64::MAX;

/// How far a group has been copied, and where.
pub(crate) struct Copied {
    start: Lsn,
    end: Lsn,
    /// Checksum of the records up to `end`.
    crc: u32,
    /// The file as memory, where it can be that.
    map: Option<Box<dyn FileMap>>,
    ring: RingLayout,
    /// The file did not grow when it was to.
    is_full_grown: bool,
    /// What failed (invariant 6).
    pub(crate) failed: Option<Error>,
    /// Empty, and kept for its memory.
    pub(crate) groups: Vec<RecentGroup>,
}

/// The file of recent writes of an open pool.
pub(crate) struct Recent {
    file: PoolFile,
    seed: u32,
    nonce: u64,
    /// Where begins what this process took from another's file, and where that ends.
    taken: std::ops::Range<Lsn>,
    /// Everything before this position has been copied or is durable.
    upto: AtomicU64,
    /// This lock comes before that of the open group.
    copied: Mutex<Copied>,
}

/// A file of recent writes that no pool uses yet. Dropped, it is removed.
pub(crate) struct UnusedRecent {
    recent: Option<Recent>,
    storage: Arc<dyn Storage>,
    /// A child of fork leaves its parent's file.
    process: ProcessMark,
}

impl UnusedRecent {
    /// Makes the file for a process that begins to write the log, which is empty, at `end`.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(crate) fn create(storage: &Arc<dyn Storage>, directory: &Path, seed: u32, end: Lsn) -> Result<Self> {
        let recent = Recent::create(&**storage, directory, seed, storage.random(), end..end)?;
        Ok(Self { recent: Some(recent), storage: Arc::clone(storage), process: ProcessMark::here() })
    }

    pub(crate) fn into_used(mut self) -> Option<Recent> {
        self.recent.take()
    }
}

impl Drop for UnusedRecent {
    fn drop(&mut self) {
        if let Some(recent) = self.recent.as_ref().filter(|_| self.process.is_here()) {
            recent.remove(&*self.storage);
        }
    }
}

impl Copied {
    /// Stores to the file as memory. False where it must be written: it is not memory, or is none from now on, since
    /// the store failed (invariant 4).
    fn through_map(&mut self, store: impl FnOnce(&mut dyn FileMap) -> io::Result<()>) -> bool {
        let is_stored = self.map.as_deref_mut().is_some_and(|map| store(map).is_ok());
        if !is_stored {
            self.map = None;
        }
        is_stored
    }
}

impl Recent {
    /// Makes the file of the process that writes groups with `nonce` from the end of `taken` on; those of `taken` were
    /// in another's file.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(crate) fn create(
        storage: &dyn Storage,
        directory: &Path,
        seed: u32,
        nonce: u64,
        taken: std::ops::Range<Lsn>,
    ) -> Result<Self> {
        let Some(ring) = rings().find(|ring| ring.bytes >= taken.end - taken.start) else {
            return Err(Error::Unsupported { what: "recent writes are longer than any ring".into() });
        };
        let path = directory.join(format!("{NAME}{nonce:016x}"));
        let file = PoolFile::open(storage, path.clone(), OpenHow::Create, "create")?;
        if let Err(e) = file.allocate(0, ring.bytes, here()) {
            // The next opening for writing removes it as well.
            let _ = storage.remove(&path, here());
            return Err(e.doing_with_space("allocate space in", ring.bytes));
        }
        let map = file.map();
        let copied = Mutex::new(Copied {
            start: 0,
            end: 0,
            crc: 0,
            map,
            ring,
            is_full_grown: false,
            failed: None,
            groups: Vec::new(),
        });
        let upto = AtomicU64::new(taken.end);
        Ok(Self { file, seed, nonce, taken, upto, copied })
    }

    /// The nonce of the groups in it.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Whether what the log holds up to `upto` has its place in the ring; everything before `durable` is durable, if
    /// this process has written anything.
    #[inline]
    pub(crate) fn fits(&self, copied: &Copied, durable: Lsn, upto: Lsn) -> bool {
        // Until then what was taken counts as durable, and may be in these files only.
        let needed = if durable > self.taken.end { durable } else { self.taken.start };
        upto <= needed + copied.ring.bytes
    }

    /// Makes the ring longer, if it may be and nothing that it holds is needed. On a full medium it stays as it is.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn make_longer(&self, durable: impl FnOnce() -> Lsn) -> Result<()> {
        let mut copied = self.copied.lock();
        let old = copied.ring.bytes;
        // Durable-order: invariant 5. Recovery would look for what was copied at other places, and lose it.
        if copied.is_full_grown || old >= RING_BYTES_MAX || durable() < self.upto() {
            return Ok(());
        }
        let bytes = old * RING_GROWTH;
        match self.file.allocate(old, bytes - old, here()) {
            Ok(()) => copied.ring.bytes = bytes,
            Err(e) if e.is_no_space() => copied.is_full_grown = true,
            Err(e) => return Err(e.doing_with_space("allocate space in", bytes - old)),
        }
        Ok(())
    }

    /// Removes the file: the log is empty, or names nothing that is only there.
    pub(crate) fn remove(&self, storage: &dyn Storage) {
        // If this fails, the next opening for writing removes it.
        let _ = storage.remove(self.file.path(), here());
    }

    #[inline]
    pub(crate) fn upto(&self) -> Lsn {
        // Acquire pairs with the Release in `set_upto`.
        self.upto.load(Ordering::Acquire)
    }

    pub(crate) fn set_upto(&self, lsn: Lsn) {
        // Release pairs with the Acquire in `upto`.
        self.upto.store(lsn, Ordering::Release);
    }

    /// While the caller has this, it alone copies, and no space of the log is freed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Copied> {
        self.copied.lock()
    }

    /// Copies the records of `group` that have not been copied. `read` returns the bytes at a position of the log, so
    /// many.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub(crate) fn copy<'a>(
        &self,
        copied: &mut Copied,
        group: RecentGroup,
        read: impl FnOnce(Lsn, u64) -> &'a [u8],
    ) -> Result<()> {
        let begins = group.start + GROUP_HEADER_BYTES as u64;
        let is_new = copied.start != group.start || copied.end < begins;
        if is_new {
            (copied.start, copied.end, copied.crc) = (group.start, begins, self.seed);
        }
        let from = copied.end;
        let records = read(from, group.end - from);
        copied.crc = crc32c(copied.crc, records);
        copied.end = group.end;
        let mut header = [0; GROUP_HEADER_BYTES];
        let fields = GroupHeader {
            crc: 0,
            lsn: group.start,
            payload: (group.end - begins) as u32,
            flags: group.flags,
            nonce: self.nonce,
            durable: 0,
        };
        encode(&fields, group.before, copied.crc, &mut header);
        // Durable-order: invariant 1.
        self.store(copied, from, records)?;
        let (word, rest) = header.split_at(WORD_BYTES);
        if is_new {
            self.store(copied, group.start + WORD_BYTES as u64, rest)?;
        }
        self.store_word(copied, group.start, word.try_into().expect("a word's bytes"))
    }

    /// Stores bytes at a position of the log, in two parts where the ring ends.
    fn store(&self, copied: &mut Copied, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        let ring = copied.ring;
        let physical = ring.place(lsn);
        let (first, rest) = bytes.split_at(bytes.len().min((ring.bytes - physical) as usize));
        for (at, part) in [(physical, first), (0, rest)] {
            if part.is_empty() {
                continue;
            }
            if !copied.through_map(|map| map.store(at, part, here())) {
                self.file.write_at(at, part, here())?;
            }
        }
        Ok(())
    }

    /// Stores the first word of the header at a position of the log.
    fn store_word(&self, copied: &mut Copied, lsn: Lsn, word: [u8; WORD_BYTES]) -> Result<()> {
        let at = copied.ring.place(lsn);
        if copied.through_map(|map| map.store_word(at, word, here())) {
            return Ok(());
        }
        self.file.write_at(at, &word, here())
    }
}

/// Bytes of the word of a header that changes while the group grows.
const WORD_BYTES: usize = 8;
/// Where a header has its parts; the checksum covers what is behind it. The others lie where a group of the log has
/// them.
const CRC: std::ops::Range<usize> = 0..4;
const PAYLOAD: std::ops::Range<usize> = 4..8;
const MAGIC: std::ops::Range<usize> = 16..20;
/// Says how many bytes of records the group before has.
const BEFORE: std::ops::Range<usize> = 32..40;

/// Writes the header of a group whose records have the checksum `records_crc`.
fn encode(fields: &GroupHeader, before: u64, records_crc: u32, bytes: &mut [u8; GROUP_HEADER_BYTES]) {
    fields.encode(bytes);
    bytes[PAYLOAD].copy_from_slice(&fields.payload.to_le_bytes());
    bytes[MAGIC].copy_from_slice(&RECENT_MAGIC.to_le_bytes());
    bytes[BEFORE].copy_from_slice(&before.to_le_bytes());
    let crc = crc32c(records_crc, &bytes[CRC.end..]);
    bytes[CRC].copy_from_slice(&crc.to_le_bytes());
}

/// A file of recent writes that an earlier process left.
pub(crate) struct LeftRecent {
    file: PoolFile,
    nonce: u64,
}

impl LeftRecent {
    /// The nonce of the process that wrote it.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// As [`PoolFile::noting_unread`].
    pub(crate) fn noting_unread(self) -> Self {
        Self { file: self.file.noting_unread(), nonce: self.nonce }
    }

    /// As [`PoolFile::unread`].
    pub(crate) fn unread(&self) -> Vec<Damage> {
        self.file.unread()
    }

    /// Those in a pool's directory.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn all_in(storage: &dyn Storage, directory: &Path) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for name in names_in(storage, directory)? {
            let path = directory.join(&name);
            if let Some(nonce) = nonce_of(&name)
                && kind_of(storage, &path)? == PathKind::File
            {
                found.push(Self { file: PoolFile::open(storage, path, OpenHow::Read, "read")?, nonce });
            }
        }
        Ok(found)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove(&self, storage: &dyn Storage) -> Result<()> {
        storage.remove(self.file.path(), here()).map_err(|e| self.file.error("remove", &e))
    }

    /// Makes what it holds durable, for a reader that uses it.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_for_reader(here())
    }

    /// The group at `lsn`, in whole sectors, as the log shall have it: with a right checksum,
    /// and with what `change` puts into its header. `takes` decides by its header, and by the bytes of records in the
    /// group before.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn group_at(
        &self,
        lsn: Lsn,
        log: RingLayout,
        seed: u32,
        change: impl Fn(&mut GroupHeader),
        takes: impl Fn(&GroupHeader, u64) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        // Earlier builds used the places of the log, whose ring `log` is.
        for ring in rings().chain([log]) {
            let found = self.group_in(ring, lsn, seed, &change, &takes)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn group_in(
        &self,
        ring: RingLayout,
        lsn: Lsn,
        seed: u32,
        change: impl Fn(&mut GroupHeader),
        takes: impl Fn(&GroupHeader, u64) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; GROUP_HEADER_BYTES];
        self.file.read_ring(lsn, ring, &mut bytes)?;
        let Some((mut header, before)) = decode(&bytes) else { return Ok(None) };
        if (header.lsn, header.nonce) != (lsn, self.nonce)
            || header.total() > ring.bytes
            || !takes(&header, before)
        {
            return Ok(None);
        }
        bytes.resize(GROUP_HEADER_BYTES + header.payload as usize, 0);
        self.file.read_ring(lsn, ring, &mut bytes)?;
        let mut wanted = [0; GROUP_HEADER_BYTES];
        encode(&header, before, crc32c(seed, &bytes[GROUP_HEADER_BYTES..]), &mut wanted);
        if bytes[..GROUP_HEADER_BYTES] != wanted {
            return Ok(None);
        }
        change(&mut header);
        header.encode(&mut bytes);
        header.crc = group_crc(seed, &bytes);
        header.encode(&mut bytes);
        bytes.resize(group_total(header.payload as usize) as usize, 0);
        Ok(Some(bytes))
    }
}

/// Reads a header, and the bytes of records before it; `None` when it cannot be one.
fn decode(bytes: &[u8]) -> Option<(GroupHeader, u64)> {
    let mut head: [u8; GROUP_HEADER_BYTES] = bytes.get(..GROUP_HEADER_BYTES)?.try_into().ok()?;
    if head[MAGIC] != RECENT_MAGIC.to_le_bytes() {
        return None;
    }
    let before = u64::from_le_bytes(head[BEFORE].try_into().ok()?);
    head.copy_within(PAYLOAD, MAGIC.start);
    head[..4].copy_from_slice(&GROUP_MAGIC.to_le_bytes());
    head[BEFORE].fill(0);
    Some((GroupHeader::decode(&head)?, before))
}
