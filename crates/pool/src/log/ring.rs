//! The redo log of the file medium: a ring in memory that mirrors the ring in the file.
//!
//! Invariants:
//! 1. Records stand in the ring in the order in which `append` took the lock: the program's order for one thread,
//!    and for many threads an order that respects every happens-before among them.
//! 2. `kept <= tail <= durable <= sealed <= group_start <= pos <= space_end`, and the open group will end, padded,
//!    within `space_end` (`kept + log_bytes`; the ring's old end while it grows): sealing never needs space. `kept`
//!    is the position of the group that the superblock records, if it lies before the tail: a write that a crash
//!    tears must not destroy it before a younger group is durable. Otherwise recovery would take the log for
//!    another pool's (`log/scan.rs`).
//! 3. The ring's bytes in `tail..pos` are never overwritten. Those in `durable..sealed` belong to the leaders of
//!    the group commit, each of which sealed a part; the checkpointer reads those before.
//! 4. When the ring grows, everything in `kept..pos` keeps its place, in memory and in the file: so it grows only
//!    while that lies in one piece, and nothing is appended beyond the old end before the superblock says, durably,
//!    that there is more (`file/grow_log.rs`). A shorter ring stays mapped: it is the same memory.
//! 5. Durable-order: a group is durable before any later group counts as durable, although writes overlap.
//!    Otherwise recovery would stop at the hole, and lose the acknowledged groups after it.

use crate::format::log::{
    FLAG_CONTINUES, FLAG_FIRST, FLAG_SPILLED, GROUP_HEADER_BYTES, GROUP_PAYLOAD_BYTES_MAX, GroupHeader,
    RECORD_HEADER_BYTES_MAX, group_crc, group_total, put_varint,
};
use crate::format::ring_layout::RingLayout;
use crate::format::superblock::{RecordedGroup, Superblock};
use crate::log::group_commit::{Failed, GroupCommit, GroupWriter, crowd_here};
use crate::log::recent::{Recent, RecentGroup};
use crate::log::scan::LogScan;
use crate::log::spill::{PendingSpill, REFERENCE_BYTES, SpillReference};
use crate::pool_files::PoolFile;
use crate::storage::traits::{SECTOR_BYTES, here};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::{ByteRange, Lsn, Site};
use mangrove_sys::Mirror;
use std::sync::OnceLock;

/// Longest single write to the file, in bytes.
const WRITE_BYTES_MAX: u64 = 8 << 20;

/// When more closed groups than this wait to be copied to the file of recent writes, the durable ones among them
/// are dropped.
const CLOSED_GROUPS: usize = 64;

/// Lengths that a ring has in one process, at most. It at least doubles each time.
const VIEWS_MAX: usize = 20;

/// The group that is being filled.
struct OpenGroup {
    /// Everything before belongs to closed groups.
    group_start: Lsn,
    /// End of the last record, or `group_start` when the open group is empty.
    pos: Lsn,
    /// Appends (an atomic group counts once) and bytes in them; counted here because the lock is held anyway.
    flushes: u64,
    flushed_bytes: u64,
    /// With a file of recent writes: groups that have been closed and not copied there.
    closed: Vec<RecentGroup>,
    /// Bytes of records in the group closed last, or `NOT_KNOWN` (`log/recent.rs`).
    before: u64,
}

/// Counters for `stat`.
#[derive(Default)]
pub(crate) struct LogCounters {
    pub(crate) groups: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

/// The ring in memory, of one length.
struct View {
    ring: Mirror,
    layout: RingLayout,
    group_payload_max: usize,
}

impl View {
    /// Log bytes that an atomic group of several groups takes at most: every group is filled up, except for a rest
    /// that is too short for another record.
    fn atomic_group_log_bytes(&self, ranges: usize, bytes: usize) -> u64 {
        // A range is cut where a group ends, and each cut takes another record header.
        let least = self.group_payload_max - 2 * RECORD_HEADER_BYTES_MAX;
        let groups = (ranges * RECORD_HEADER_BYTES_MAX + bytes) / least + 1;
        (groups * (group_total(self.group_payload_max) as usize)) as u64
    }

    fn new(ring: Mirror, layout: RingLayout) -> Self {
        assert_eq!(ring.len() as u64, layout.bytes, "the ring has its length");
        // At least four groups fit, so that appending continues while one is written and one is applied.
        let group_payload_max = GROUP_PAYLOAD_BYTES_MAX.min(ring.len() / 4 - 2 * SECTOR_BYTES);
        Self { ring, layout, group_payload_max }
    }

    #[inline]
    fn ptr(&self, lsn: Lsn) -> *mut u8 {
        // SAFETY: the place is below the ring's length, and the ring is mapped twice in a row.
        unsafe { self.ring.base().as_ptr().add(self.layout.place(lsn) as usize) }
    }
}

/// The log of an open pool.
pub(crate) struct Log {
    /// The ring, of each length that it has had in this process.
    views: [OnceLock<View>; VIEWS_MAX],
    /// Number of the view that counts. Changed under the lock of the open group.
    current: AtomicU64,
    /// While the ring grows, its old end: nothing is appended beyond it. Otherwise `u64::MAX`.
    stop: AtomicU64,
    file: PoolFile,
    open: Mutex<OpenGroup>,
    appended: AtomicU64,
    tail: AtomicU64,
    kept: AtomicU64,
    pub(crate) commit: GroupCommit,
    /// Spill files that no checkpoint has applied yet. This lock is the innermost.
    pub(crate) spills: Mutex<Vec<PendingSpill>>,
    seed: u32,
    /// Position of the first group that this process writes.
    first: Lsn,
    /// Nonce of the groups that this process writes.
    nonce: u64,
    /// The file of recent writes, if the pool keeps one.
    pub(crate) recent: Option<Recent>,
    pub(crate) counters: LogCounters,
}

/// Why nothing was appended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AppendError {
    /// The checkpointer must free space first.
    Full,
    /// The atomic group is longer than half the log; the other half must stay free for appends while it is applied.
    /// A log of this many bytes is long enough.
    TooLong(u64),
}

impl Log {
    /// The log of the pool whose superblock is `sb`; the groups that `scan` found are in `ring` already.
    pub(crate) fn new(
        ring: Mirror,
        file: PoolFile,
        sb: &Superblock,
        scan: &LogScan,
        nonce: u64,
        spills: Vec<PendingSpill>,
        recent: Option<Recent>,
    ) -> Self {
        let end = scan.end;
        let views = std::array::from_fn(|_| OnceLock::new());
        views[0].get_or_init(|| View::new(ring, sb.ring()));
        Self {
            views,
            current: AtomicU64::new(0),
            stop: AtomicU64::new(u64::MAX),
            file,
            open: Mutex::new(OpenGroup {
                group_start: end,
                pos: end,
                flushes: 0,
                flushed_bytes: 0,
                closed: Vec::new(),
                before: scan.last_payload,
            }),
            appended: AtomicU64::new(end),
            tail: AtomicU64::new(sb.tail),
            kept: AtomicU64::new(kept_of(sb)),
            commit: GroupCommit::new(end, crowd_here()),
            spills: Mutex::new(spills),
            seed: sb.seed(),
            first: end,
            nonce,
            recent,
            counters: LogCounters::default(),
        }
    }

    /// The ring as it is now. A position that the caller knows of has a place in it.
    #[inline]
    fn view(&self) -> &View {
        // Acquire pairs with the Release in `grow`.
        let current = self.current.load(Ordering::Acquire) as usize;
        self.views[current].get().expect("a view is set before it counts")
    }

    /// Greatest range that one record can hold; longer flushes are split. It never becomes less.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.view().group_payload_max - RECORD_HEADER_BYTES_MAX
    }

    /// The ring of the log's file.
    pub(crate) fn layout(&self) -> RingLayout {
        self.view().layout
    }

    /// A ring of `bytes` bytes that begins with the memory of this one; `None` where the process may not have it.
    pub(crate) fn longer_ring(&self, bytes: u64) -> Option<Mirror> {
        let current = self.current.load(Ordering::Acquire) as usize;
        if current + 1 >= VIEWS_MAX { None } else { self.view().ring.grown(bytes as usize).ok() }
    }

    /// The layout that the ring has when it has grown to `bytes`. Stops appends at its present end, until `grow` is
    /// called. `None`, and nothing changes, while what it holds wraps around.
    pub(crate) fn stop_to_grow(&self, bytes: u64) -> Option<RingLayout> {
        let open = self.open.lock();
        let (kept, layout) = (self.kept.load(Ordering::Acquire), self.layout());
        let end = layout.end_after(kept);
        if open.pos.next_multiple_of(SECTOR_BYTES as u64) > end {
            return None;
        }
        // Relaxed: read under the lock.
        self.stop.store(end, Ordering::Relaxed);
        Some(layout.grown(bytes, kept))
    }

    /// True while `stop_to_grow` would not refuse.
    pub(crate) fn is_in_one_piece(&self) -> bool {
        let open = self.open.lock();
        let kept = self.kept.load(Ordering::Acquire);
        open.pos.next_multiple_of(SECTOR_BYTES as u64) <= self.layout().end_after(kept)
    }

    /// After `stop_to_grow`, when the superblock says durably that the log has this layout: it has grown.
    pub(crate) fn grow(&self, ring: Mirror, layout: RingLayout) {
        let open = self.open.lock();
        // Relaxed: only this function changes it, one call at a time.
        let next = self.current.load(Ordering::Relaxed) + 1;
        self.views[next as usize].get_or_init(|| View::new(ring, layout));
        // Release pairs with the Acquire in `view`.
        self.current.store(next, Ordering::Release);
        self.stop.store(u64::MAX, Ordering::Relaxed);
        drop(open);
        if let Some(last) = self.views[next as usize - 1].get() {
            last.ring.forget_pages();
        }
    }

    #[inline]
    pub(crate) fn appended(&self) -> Lsn {
        // Acquire pairs with the Release in `append`: a position taken covers the record before it.
        self.appended.load(Ordering::Acquire)
    }

    /// As `appended`, read under the lock: ordered with every append, and with what its thread does afterwards.
    pub(crate) fn appended_now(&self) -> Lsn {
        let _open = self.open.lock();
        // Relaxed: `append` stores it under the lock.
        self.appended.load(Ordering::Relaxed)
    }

    pub(crate) fn tail(&self) -> Lsn {
        // Acquire pairs with the Release in `free_by`.
        self.tail.load(Ordering::Acquire)
    }

    /// Everything before the tail of the durable superblock `sb` is in the data file, durably: its space is free,
    /// except for the group that `sb` records.
    pub(crate) fn free_by(&self, sb: &Superblock) {
        // A thread that copies recent writes reads what is not durable when it begins.
        let _copying = self.recent.as_ref().map(Recent::lock);
        self.tail.store(sb.tail, Ordering::Release);
        // Release pairs with the Acquire in `space_end`.
        self.kept.store(kept_of(sb), Ordering::Release);
    }

    /// The position where the ring is full; under the lock of the open group.
    #[inline]
    fn space_end(&self) -> Lsn {
        // Acquire pairs with the Release in `free_by`: space before it may be overwritten.
        let end = self.kept.load(Ordering::Acquire) + self.view().layout.bytes;
        // Relaxed: the lock publishes it.
        end.min(self.stop.load(Ordering::Relaxed))
    }

    /// True when the write that begins at `from` is the first of this process.
    pub(crate) fn is_first(&self, from: Lsn) -> bool {
        from == self.first
    }

    /// The last of the groups in `from..to`, which are durable and not yet freed.
    pub(crate) fn last_group(&self, from: Lsn, to: Lsn) -> Option<RecordedGroup> {
        // SAFETY: no thread writes groups that are durable and not freed (invariant 3).
        let bytes = unsafe { self.bytes(from, to - from) };
        let (mut at, mut last) = (0, None);
        while at < bytes.len() {
            let header = GroupHeader::decode(&bytes[at..]).expect("a durable group starts with its header");
            last = Some(RecordedGroup { lsn: header.lsn, nonce: header.nonce });
            at += header.total() as usize;
        }
        last
    }

    /// Seed of the checksums.
    pub(crate) fn seed(&self) -> u32 {
        self.seed
    }

    /// Bytes of the log that no checkpoint has freed.
    pub(crate) fn used(&self) -> u64 {
        // A checkpoint may have passed what was appended when this began.
        self.appended().saturating_sub(self.tail())
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.view().layout.bytes
    }

    /// The nonce of the groups that this process writes.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Writes `from..to`, which an earlier process wrote, to the file once more, durably.
    #[track_caller]
    pub(crate) fn write_again(&self, from: Lsn, to: Lsn) -> crate::Result<()> {
        let mut at = from;
        while at < to {
            let layout = self.layout();
            let physical = layout.place(at);
            let len = (to - at).min(layout.bytes - physical).min(WRITE_BYTES_MAX);
            // SAFETY: `from..to` is durable or was found so, and not yet freed: no thread writes it.
            let bytes = unsafe { self.bytes(at, len) };
            self.file.write_durable(physical, bytes, here())?;
            at += len;
        }
        Ok(())
    }

    pub(crate) fn file(&self) -> &PoolFile {
        &self.file
    }

    #[inline]
    fn ptr(&self, lsn: Lsn) -> *mut u8 {
        self.view().ptr(lsn)
    }

    /// `len` bytes of the ring at `lsn`.
    ///
    /// # Safety
    /// `len <= log_bytes`, and no thread writes the range meanwhile (invariant 3).
    pub(crate) unsafe fn bytes(&self, lsn: Lsn, len: u64) -> &[u8] {
        debug_assert!(len <= self.log_bytes());
        // SAFETY: contiguous because of the second view; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts(self.ptr(lsn), len as usize) }
    }

    /// As `bytes`, to write.
    ///
    /// # Safety
    /// `len <= log_bytes`, and the caller alone uses the range meanwhile (invariant 3).
    #[expect(
        clippy::mut_from_ref,
        reason = "the ring is shared memory; ranges are handed out by invariant 3"
    )]
    unsafe fn bytes_mut(&self, lsn: Lsn, len: u64) -> &mut [u8] {
        debug_assert!(len <= self.log_bytes());
        // SAFETY: contiguous because of the second view; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(lsn), len as usize) }
    }

    /// Appends one record and returns the position after it.
    ///
    /// # Safety
    /// `src` is valid for reads of `len` bytes; concurrent stores to them are atomic words.
    #[inline]
    pub(crate) unsafe fn append(&self, offset: u64, src: *const u8, len: usize) -> Result<Lsn, AppendError> {
        debug_assert!(len > 0 && len <= self.record_bytes_max());
        let mut header = [0u8; RECORD_HEADER_BYTES_MAX];
        let a = put_varint(&mut header, offset);
        let header_len = a + put_varint(&mut header[a..], len as u64);
        // SAFETY: the caller's promise.
        unsafe { self.append_record(&header[..header_len], src, len) }
    }

    /// Appends a record that says that `len` bytes of the region at `offset` were given back, and returns the position
    /// after it.
    pub(crate) fn append_zeros(&self, offset: u64, len: u64) -> Result<Lsn, AppendError> {
        let mut header = [0u8; RECORD_HEADER_BYTES_MAX];
        let a = put_varint(&mut header, offset);
        let b = a + put_varint(&mut header[a..], 0);
        let header_len = b + put_varint(&mut header[b..], len);
        // SAFETY: no byte is read.
        unsafe { self.append_record(&header[..header_len], std::ptr::NonNull::dangling().as_ptr(), 0) }
    }

    /// Appends a record: its header, and `len` bytes.
    ///
    /// # Safety
    /// As `append`.
    #[inline(always)]
    unsafe fn append_record(&self, header: &[u8], src: *const u8, len: usize) -> Result<Lsn, AppendError> {
        let need = (header.len() + len) as u64;
        let mut open = self.open.lock();
        let mut start = open.group_start;
        let mut at = if open.pos == start { start + GROUP_HEADER_BYTES as u64 } else { open.pos };
        let view = self.view();
        if at + need - start > (GROUP_HEADER_BYTES + view.group_payload_max) as u64 {
            self.close_group(&mut open);
            start = open.group_start;
            at = start + GROUP_HEADER_BYTES as u64;
        }
        let end = at + need;
        if end.next_multiple_of(SECTOR_BYTES as u64) > self.space_end() {
            return Err(AppendError::Full);
        }
        // SAFETY: `at..end` is free (invariant 2) and ours while we hold the lock.
        unsafe {
            let to = view.ptr(at);
            copy_small(header.as_ptr(), to, header.len());
            copy_words(src, to.add(header.len()), len);
        }
        open.pos = end;
        open.flushes += 1;
        open.flushed_bytes += len as u64;
        // Release pairs with the Acquire in `appended`.
        self.appended.store(end, Ordering::Release);
        Ok(end)
    }

    /// Appends `ranges` of the region at `base` as one atomic group, which recovery applies whole or not at all,
    /// and returns the position after it.
    ///
    /// An atomic group that does not fit into the open group begins a new one and continues in as many as it needs.
    /// So a group that is continued holds no record of another caller, and dropping an incomplete atomic group
    /// drops nothing that was acknowledged. The lock is held throughout, so a seal, and with it every durable
    /// position and checkpoint, lies before or after an atomic group, never inside.
    ///
    /// # Safety
    /// Each range is valid for reads; no thread stores to them meanwhile.
    pub(crate) unsafe fn append_atomic_group(
        &self,
        base: *const u8,
        ranges: &[ByteRange],
    ) -> Result<Lsn, AppendError> {
        let bytes = ranges.iter().map(|r| r.len).sum::<u64>() as usize;
        let plain = ranges.len() * RECORD_HEADER_BYTES_MAX + bytes;
        let mut open = self.open.lock();
        let view = self.view();
        let group_max = (GROUP_HEADER_BYTES + view.group_payload_max) as u64;
        let at = if open.pos == open.group_start { open.pos + GROUP_HEADER_BYTES as u64 } else { open.pos };
        let fits = at + plain as u64 - open.group_start <= group_max;
        if !fits {
            self.close_group(&mut open);
        }
        let begin = if fits { at } else { open.group_start };
        let need = if plain <= view.group_payload_max {
            (GROUP_HEADER_BYTES + plain) as u64
        } else {
            view.atomic_group_log_bytes(ranges.len(), bytes)
        };
        if need > view.layout.bytes / 2 {
            return Err(AppendError::TooLong(2 * need));
        }
        if (begin + need).next_multiple_of(SECTOR_BYTES as u64) > self.space_end() {
            // Closing a group above has published nothing: its padding counts only when a record follows.
            return Err(AppendError::Full);
        }
        for range in ranges {
            // SAFETY: the caller guarantees the range.
            unsafe { self.put_range(&mut open, base, *range) };
        }
        open.flushes += 1;
        open.flushed_bytes += bytes as u64;
        // Release pairs with the Acquire in `appended`.
        self.appended.store(open.pos, Ordering::Release);
        Ok(open.pos)
    }

    /// Appends the group that names a spill file; returns the position after it.
    pub(crate) fn append_reference(&self, reference: &SpillReference) -> Result<Lsn, AppendError> {
        let mut open = self.open.lock();
        self.close_group(&mut open);
        let begin = open.group_start;
        if begin + group_total(REFERENCE_BYTES) > self.space_end() {
            return Err(AppendError::Full);
        }
        let at = begin + GROUP_HEADER_BYTES as u64;
        // SAFETY: free (checked) and ours under the lock.
        unsafe { self.bytes_mut(at, REFERENCE_BYTES as u64) }.copy_from_slice(&reference.encode());
        open.pos = at + REFERENCE_BYTES as u64;
        open.flushes += 1;
        open.flushed_bytes += reference.bytes;
        self.close_group_with(&mut open, FLAG_SPILLED);
        // Release pairs with the Acquire in `appended`.
        self.appended.store(open.pos, Ordering::Release);
        Ok(open.pos)
    }

    /// Writes one range of an atomic group at the end of the open group, cut where groups end.
    ///
    /// # Safety
    /// As `append_atomic_group`, with the space checked.
    unsafe fn put_range(&self, open: &mut OpenGroup, base: *const u8, range: ByteRange) {
        let (mut offset, mut len) = (range.offset, range.len as usize);
        while len > 0 {
            let at =
                if open.pos == open.group_start { open.pos + GROUP_HEADER_BYTES as u64 } else { open.pos };
            let group_max = GROUP_HEADER_BYTES + self.view().group_payload_max;
            let left = group_max - (at - open.group_start) as usize;
            if left <= RECORD_HEADER_BYTES_MAX {
                self.close_group_with(open, FLAG_CONTINUES);
                continue;
            }
            let part = len.min(left - RECORD_HEADER_BYTES_MAX);
            let mut header = [0u8; RECORD_HEADER_BYTES_MAX];
            let a = put_varint(&mut header, offset);
            let header_len = a + put_varint(&mut header[a..], part as u64);
            // SAFETY: the range after the open group is free (the caller checked) and ours under the lock; the
            // caller guarantees the source.
            unsafe {
                let to = self.ptr(at);
                copy_small(header.as_ptr(), to, header_len);
                std::ptr::copy_nonoverlapping(base.add(offset as usize), to.add(header_len), part);
            }
            open.pos = at + (header_len + part) as u64;
            offset += part as u64;
            len -= part;
        }
    }

    /// Appends since the pool was opened (an atomic group counts once), and the bytes in them.
    pub(crate) fn flushed(&self) -> (u64, u64) {
        let open = self.open.lock();
        (open.flushes, open.flushed_bytes)
    }

    /// Closes the open group if it holds a record: writes its length into the header, and zeros after it.
    fn close_group(&self, open: &mut OpenGroup) {
        self.close_group_with(open, 0);
    }

    fn close_group_with(&self, open: &mut OpenGroup, flags: u32) {
        if open.pos == open.group_start {
            return;
        }
        let payload = (open.pos - open.group_start) as usize - GROUP_HEADER_BYTES;
        let end = open.group_start + group_total(payload);
        let header = GroupHeader {
            crc: 0,
            lsn: open.group_start,
            payload: payload as u32,
            flags,
            nonce: self.nonce,
            durable: 0,
        };
        // SAFETY: the open group is ours while the lock is held; its padding lies within the log
        // (invariant 2).
        unsafe {
            header.encode(self.bytes_mut(open.group_start, GROUP_HEADER_BYTES as u64));
            self.bytes_mut(open.pos, end - open.pos).fill(0);
        }
        if let Some(recent) = &self.recent {
            if open.closed.len() >= CLOSED_GROUPS {
                let durable = recent.upto().max(self.commit.durable());
                open.closed.retain(|group| group.end > durable);
            }
            let flags = flags | self.first_flag(open.group_start);
            let (start, end, before) = (open.group_start, open.pos, open.before);
            open.closed.push(RecentGroup { start, end, flags, before });
        }
        open.before = payload as u64;
        open.group_start = end;
        open.pos = end;
    }

    /// The flag of the first group that this process writes.
    fn first_flag(&self, start: Lsn) -> u32 {
        if start == self.first { FLAG_FIRST } else { 0 }
    }

    /// Copies what was appended so far to the file of recent writes, if there is one. False where that has no room: it
    /// must be made durable then.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    #[inline]
    pub(crate) fn copy_recent(&self) -> crate::Result<bool> {
        match &self.recent {
            Some(recent) if recent.upto() < self.appended() => self.copy_to(recent),
            _ => Ok(true),
        }
    }

    /// Makes more room for recent writes, if that is possible now.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn make_recent_longer(&self) -> crate::Result<()> {
        self.recent.as_ref().map_or(Ok(()), |recent| recent.make_longer(|| self.commit.durable()))
    }

    /// Copies the groups of `from..to`, which an earlier process left in its file of recent writes, to `recent`, which
    /// is this one's: the process may die before it has written them to the log.
    ///
    /// # Errors
    /// `Io`, `NoSpace`.
    pub(crate) fn copy_taken(
        &self,
        recent: &Recent,
        from: Lsn,
        to: Lsn,
        mut before: u64,
    ) -> crate::Result<()> {
        let (mut copied, mut at) = (recent.lock(), from);
        while at < to {
            // SAFETY: the groups were found there, and are not yet freed: no thread writes them.
            let bytes = unsafe { self.bytes(at, to - at) };
            let header = GroupHeader::decode(bytes).expect("a group that was found starts with its header");
            let end = at + (GROUP_HEADER_BYTES as u64) + u64::from(header.payload);
            let group = RecentGroup { start: at, end, flags: header.flags, before };
            recent.copy(&mut copied, group, |lsn, len| &bytes[(lsn - at) as usize..][..len as usize])?;
            before = u64::from(header.payload);
            at += header.total();
        }
        Ok(())
    }

    fn copy_to(&self, recent: &Recent) -> crate::Result<bool> {
        let appended = self.appended();
        let mut copied = recent.lock();
        if recent.upto() >= appended {
            // Another thread has copied for this one.
            return Ok(true);
        }
        // The caller may have waited for the lock while another thread failed.
        if let Some(e) = &copied.failed {
            return Err(e.clone());
        }
        let durable = self.commit.durable();
        let mut open = self.open.lock();
        let upto = open.pos;
        if !recent.fits(&copied, durable, upto) {
            return Ok(false);
        }
        let mut groups = std::mem::take(&mut copied.groups);
        groups.append(&mut open.closed);
        if upto > open.group_start {
            let flags = self.first_flag(open.group_start);
            groups.push(RecentGroup { start: open.group_start, end: upto, flags, before: open.before });
        }
        drop(open);
        for group in groups.drain(..).filter(|group| group.end > durable) {
            // SAFETY: records are not changed until their space is freed, which waits for the lock that `copied` holds;
            // the headers between them are not read.
            let done = recent.copy(&mut copied, group, |lsn, len| unsafe { self.bytes(lsn, len) });
            done.inspect_err(|e| copied.failed = Some(e.clone()))?;
        }
        copied.groups = groups;
        recent.set_upto(upto);
        Ok(true)
    }

    /// Completes the headers of the closed groups in `from..to`; returns how many.
    fn finish_groups(&self, from: Lsn, to: Lsn, durable: Lsn) -> u64 {
        let mut at = from;
        let mut groups = 0;
        while at < to {
            // SAFETY: `from..to` is sealed and not yet durable: the leader's (invariant 3).
            let bytes = unsafe { self.bytes_mut(at, to - at) };
            let mut header = GroupHeader::decode(bytes).expect("a sealed group starts with its header");
            assert_eq!(header.lsn, at, "a sealed group knows its position");
            header.durable = durable;
            header.flags |= self.first_flag(at);
            header.encode(bytes);
            header.crc = group_crc(self.seed, &bytes[..GROUP_HEADER_BYTES + header.payload as usize]);
            header.encode(bytes);
            at += header.total();
            groups += 1;
        }
        assert_eq!(at, to, "sealed groups fill the sealed range");
        groups
    }

    /// Writes `from..to` of the ring to the file; durable on return.
    fn write_file(&self, from: Lsn, to: Lsn, site: Site) -> crate::Result<()> {
        let mut at = from;
        while at < to {
            let layout = self.layout();
            let physical = layout.place(at);
            let len = (to - at).min(layout.bytes - physical).min(WRITE_BYTES_MAX);
            // SAFETY: as in `finish_groups`.
            let bytes = unsafe { self.bytes(at, len) };
            self.file.write_durable(physical, bytes, site)?;
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.counters.written.fetch_add(len, Ordering::Relaxed);
            at += len;
        }
        Ok(())
    }

    /// Seals the open group; see [`GroupWriter::seal`].
    pub(crate) fn seal(&self) -> Lsn {
        let mut open = self.open.lock();
        self.close_group(&mut open);
        let sealed = open.group_start;
        // Release pairs with the Acquire in `appended`. Padding counts as appended, so that a
        // position taken now never names a group that does not exist.
        self.appended.store(sealed, Ordering::Release);
        sealed
    }

    /// Finishes and writes the sealed groups `from..to`; see [`GroupWriter::write`].
    pub(crate) fn write(&self, from: Lsn, to: Lsn, durable: Lsn) -> crate::Result<()> {
        let groups = self.finish_groups(from, to, durable);
        // Durable-order: the group's bytes before `durable` moves (and with it every acknowledgement).
        self.write_file(from, to, here())?;
        self.counters.groups.fetch_add(groups, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for `lsn`; leads a write when fewer are under way than may be.
    pub(crate) fn wait(&self, lsn: Lsn, writer: &impl GroupWriter) -> Result<(), Failed> {
        // A position beyond the end (of another pool, for example) would never become durable.
        self.commit.wait(lsn.min(self.appended()), writer)
    }
}

/// The position from which the log's bytes are needed: the tail, or the recorded group of a pool that is not clean.
fn kept_of(sb: &Superblock) -> Lsn {
    let recorded = sb.group.filter(|_| !sb.clean).map_or(sb.tail, |group| group.lsn);
    // A recorded group further back has been overwritten, by groups that a scan from the tail has found.
    recorded.clamp(sb.tail.saturating_sub(sb.log_bytes), sb.tail)
}

/// Copies a record header; a loop is faster than a call for so few bytes.
///
/// # Safety
/// As `copy_nonoverlapping`.
#[inline]
unsafe fn copy_small(src: *const u8, to: *mut u8, len: usize) {
    for i in 0..len {
        // SAFETY: the caller guarantees both ranges.
        unsafe { *to.add(i) = *src.add(i) };
    }
}

/// Copies `len` bytes, each aligned 8-byte word of the source at once: a word that another thread stores meanwhile
/// is copied old or new, never mixed.
///
/// # Safety
/// As `copy_nonoverlapping`, except that other threads may store to aligned words of the source atomically.
#[inline]
pub(crate) unsafe fn copy_words(mut src: *const u8, mut to: *mut u8, mut len: usize) {
    // SAFETY: pointers stay inside the two ranges that the caller guarantees.
    unsafe {
        let head = src.align_offset(8).min(len);
        std::ptr::copy_nonoverlapping(src, to, head);
        (src, to, len) = (src.add(head), to.add(head), len - head);
        while len >= 8 {
            // Relaxed: the caller orders the words (by a lock, or because no thread stores).
            let word = (*src.cast::<AtomicU64>()).load(Ordering::Relaxed);
            to.cast::<u64>().write_unaligned(word);
            (src, to, len) = (src.add(8), to.add(8), len - 8);
        }
        std::ptr::copy_nonoverlapping(src, to, len);
    }
}
