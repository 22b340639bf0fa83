//! EPallocator: chunks of 56 objects in singly linked lists (Algorithms 2 and 6, Fig. 2).
//!
//! Chunk: header word {bitmap:56, next free:6, full indicator:2}, PNext word, 56 objects. The
//! chunks of a class lie side by side, so the chunk of an object is found by division.

use mangrove_pool::Region;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

/// Objects in a chunk.
pub(super) const OBJECTS: u64 = 56;
const BITMAP: u64 = (1 << OBJECTS) - 1;

/// First words of the region: PHead of each class.
const HEADS: u64 = 64;
/// Update logs, one a handle, a cache line each: {PLeaf, POldV, PNewV}.
pub(super) const UPDATE_LOGS: u64 = 4096;
/// Number of update logs.
pub(super) const UPDATE_LOGS_MAX: u64 = 64;
/// Recycle logs, one a class: {PCurrent, PPrev}.
const RECYCLE_LOGS: u64 = UPDATE_LOGS + 64 * UPDATE_LOGS_MAX;
/// Chunks begin here.
const CHUNKS: u64 = RECYCLE_LOGS + 4096;

const NONE: u32 = u32::MAX;

/// Volatile state of a chunk.
#[derive(Clone, Copy)]
struct Chunk {
    /// Objects that are used, or reserved by an operation that has not set the bit yet.
    taken: u64,
    /// In the class's stack of chunks that may have free objects.
    stacked: bool,
    /// In the durable list.
    linked: bool,
    prev: u32,
    next: u32,
}

const FRESH: Chunk = Chunk { taken: 0, stacked: false, linked: false, prev: NONE, next: NONE };

#[derive(Default)]
struct Lists {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    roomy: Vec<u32>,
    head: Option<u32>,
    linked: u64,
}

/// One size of objects and its chunk list.
pub(super) struct ObjectClass {
    region: Region,
    which: u64,
    base: u64,
    end: u64,
    object_bytes: u64,
    lists: Mutex<Lists>,
}

/// Formats the fixed part of a fresh region.
pub(super) fn format(region: &Region) {
    region.grow(region.len()).expect("emulated memory grows within its reservation");
    region.zero(0, CHUNKS as usize);
    region.flush(0, CHUNKS as usize);
    region.fence();
}

impl ObjectClass {
    /// Leaves and their values share the region three to one, for objects of 40 bytes and of 8.
    pub(super) fn leaves(region: &Region) -> Self {
        Self::over(region, 0, CHUNKS, region.len() / 4 * 3, 40)
    }

    /// 8-byte values.
    pub(super) fn values(region: &Region) -> Self {
        Self::over(region, 1, region.len() / 4 * 3, region.len(), 8)
    }

    fn over(region: &Region, which: u64, base: u64, end: u64, object_bytes: u64) -> Self {
        let base = base.next_multiple_of(64);
        Self { region: region.clone(), which, base, end, object_bytes, lists: Mutex::default() }
    }

    fn chunk_bytes(&self) -> u64 {
        16 + OBJECTS * self.object_bytes
    }

    fn chunk_at(&self, number: u32) -> u64 {
        self.base + u64::from(number) * self.chunk_bytes()
    }

    /// MemChunkOf: number of the chunk and of the object in it.
    fn locate(&self, object: u64) -> (u32, u64) {
        let number = (object - self.base) / self.chunk_bytes();
        let within = (object - self.base) % self.chunk_bytes();
        (number as u32, (within - 16) / self.object_bytes)
    }

    /// A dense number for an object.
    pub(super) fn number(&self, object: u64) -> u64 {
        let (chunk, bit) = self.locate(object);
        u64::from(chunk) * OBJECTS + bit
    }

    fn head_word(&self) -> u64 {
        HEADS + 8 * self.which
    }

    fn recycle_log(&self) -> u64 {
        RECYCLE_LOGS + 64 * self.which
    }

    fn persist_word(&self, place: u64, value: u64) {
        self.region.store(place, value, Ordering::Release);
        self.region.flush(place, 8);
        self.region.fence();
    }

    /// EPMalloc (Algorithm 2): a free object, reserved until `release`.
    pub(super) fn allocate(&self) -> u64 {
        let mut lists = self.lists.lock();
        while let Some(&number) = lists.roomy.last() {
            let chunk = &mut lists.chunks[number as usize];
            if chunk.linked && chunk.taken != BITMAP {
                let bit = u64::from(chunk.taken.trailing_ones());
                chunk.taken |= 1 << bit;
                return self.chunk_at(number) + 16 + bit * self.object_bytes;
            }
            chunk.stacked = false;
            lists.roomy.pop();
        }
        let number = self.add_chunk(&mut lists);
        lists.chunks[number as usize].taken = 1;
        self.chunk_at(number) + 16
    }

    /// AllocMemChunk and Insert2ChunkList: the header is durable before the list leads to it.
    fn add_chunk(&self, lists: &mut Lists) -> u32 {
        let number = lists.free.pop().unwrap_or_else(|| {
            lists.chunks.push(FRESH);
            lists.chunks.len() as u32 - 1
        });
        let chunk = self.chunk_at(number);
        assert!(
            chunk + self.chunk_bytes() <= self.end,
            "the region of HART-paper is full; give the bench fewer records"
        );
        let next = lists.head.map_or(0, |n| self.chunk_at(n));
        self.region.store(chunk, 0, Ordering::Release);
        self.region.store(chunk + 8, next, Ordering::Release);
        self.region.flush(chunk, 16);
        self.region.fence();
        self.persist_word(self.head_word(), chunk);
        if let Some(head) = lists.head {
            lists.chunks[head as usize].prev = number;
        }
        let stacked = lists.chunks[number as usize].stacked;
        lists.chunks[number as usize] =
            Chunk { taken: 0, stacked: true, linked: true, prev: NONE, next: lists.head.unwrap_or(NONE) };
        if !stacked {
            lists.roomy.push(number);
        }
        lists.head = Some(number);
        lists.linked += 1;
        number
    }

    /// Sets and persists the bit of an object.
    pub(super) fn set_bit(&self, object: u64) {
        self.change_bit(object, true);
    }

    /// Resets and persists the bit of an object.
    pub(super) fn reset_bit(&self, object: u64) {
        self.change_bit(object, false);
    }

    fn change_bit(&self, object: u64, on: bool) {
        let (number, bit) = self.locate(object);
        let header = self.chunk_at(number);
        let mut seen = self.region.word(header).load(Ordering::Acquire);
        loop {
            let bitmap = if on { seen & BITMAP | 1 << bit } else { seen & BITMAP & !(1 << bit) };
            let full = u64::from(bitmap == BITMAP);
            let next = u64::from(bitmap.trailing_ones()).min(OBJECTS - 1);
            match self.region.compare_exchange(header, seen, bitmap | next << OBJECTS | full << 62) {
                Ok(_) => break,
                Err(found) => seen = found,
            }
        }
        self.region.flush(header, 8);
        self.region.fence();
    }

    /// True when the object's bit is set.
    #[inline]
    pub(super) fn bit(&self, object: u64) -> bool {
        let (number, bit) = self.locate(object);
        let header = self.chunk_at(number);
        self.region.reading(header, 8);
        self.region.word(header).load(Ordering::Acquire) >> bit & 1 == 1
    }

    /// Ends the reservation of an object whose bit is not set, and recycles its chunk (Algorithm 6)
    /// if nothing in it is used or reserved.
    pub(super) fn release(&self, object: u64) {
        let (number, bit) = self.locate(object);
        let mut lists = self.lists.lock();
        let chunk = &mut lists.chunks[number as usize];
        chunk.taken &= !(1 << bit);
        if chunk.taken == 0 {
            self.recycle(&mut lists, number);
        } else if !chunk.stacked {
            chunk.stacked = true;
            lists.roomy.push(number);
        }
    }

    /// EPRecycle (Algorithm 6, lines 3-12).
    fn recycle(&self, lists: &mut Lists, number: u32) {
        let (log, chunk) = (self.recycle_log(), self.chunk_at(number));
        let Chunk { prev, next, .. } = lists.chunks[number as usize];
        let next_place = if next == NONE { 0 } else { self.chunk_at(next) };
        self.persist_word(log, chunk);
        if prev == NONE {
            self.persist_word(self.head_word(), next_place);
            lists.head = (next != NONE).then_some(next);
        } else {
            self.persist_word(log + 8, self.chunk_at(prev));
            self.persist_word(self.chunk_at(prev) + 8, next_place);
            lists.chunks[prev as usize].next = next;
        }
        if next != NONE {
            lists.chunks[next as usize].prev = prev;
        }
        let stacked = lists.chunks[number as usize].stacked;
        lists.chunks[number as usize] = Chunk { stacked, ..FRESH };
        lists.free.push(number);
        lists.linked -= 1;
        self.reclaim_recycle_log();
    }

    fn reclaim_recycle_log(&self) {
        let log = self.recycle_log();
        self.region.store(log + 8, 0, Ordering::Release);
        self.region.store(log, 0, Ordering::Release);
        self.region.flush(log, 16);
        self.region.fence();
    }

    /// Durable bytes of the chunks in the list.
    pub(super) fn durable_bytes(&self) -> u64 {
        self.lists.lock().linked * self.chunk_bytes()
    }

    /// Finishes a recycling that a crash interrupted, then reads the list. Calls `object` for every object whose
    /// bit is set. The object is reserved if `object` returns true, and reset otherwise.
    pub(super) fn recover(&self, mut object: impl FnMut(u64) -> bool) {
        self.replay_recycle_log();
        let mut lists = self.lists.lock();
        let mut order = Vec::new();
        let mut at = self.region.word(self.head_word()).load(Ordering::Acquire);
        while at != 0 {
            let number = ((at - self.base) / self.chunk_bytes()) as u32;
            order.push(number);
            self.region.reading(at, 16);
            at = self.region.word(at + 8).load(Ordering::Acquire);
        }
        let count = order.iter().max().map_or(0, |&n| n as usize + 1);
        lists.chunks = vec![FRESH; count];
        for (i, &number) in order.iter().enumerate() {
            let place = self.chunk_at(number);
            let mut bitmap = self.region.word(place).load(Ordering::Acquire) & BITMAP;
            let mut taken = 0;
            while bitmap != 0 {
                let bit = u64::from(bitmap.trailing_zeros());
                bitmap &= bitmap - 1;
                let item = place + 16 + bit * self.object_bytes;
                if object(item) {
                    taken |= 1 << bit;
                } else {
                    self.reset_bit(item);
                }
            }
            let prev = if i == 0 { NONE } else { order[i - 1] };
            let next = order.get(i + 1).copied().unwrap_or(NONE);
            let roomy = taken != BITMAP;
            lists.chunks[number as usize] = Chunk { taken, stacked: roomy, linked: true, prev, next };
            if roomy {
                lists.roomy.push(number);
            }
        }
        lists.head = order.first().copied();
        lists.linked = order.len() as u64;
        lists.free = (0..count as u32).filter(|&n| !lists.chunks[n as usize].linked).collect();
    }

    fn replay_recycle_log(&self) {
        let gone = self.region.word(self.recycle_log()).load(Ordering::Acquire);
        if gone != 0 {
            let after = self.region.word(gone + 8).load(Ordering::Acquire);
            let mut link = self.head_word();
            loop {
                let to = self.region.word(link).load(Ordering::Acquire);
                if to == gone {
                    self.persist_word(link, after);
                }
                if to == gone || to == 0 {
                    break;
                }
                link = to + 8;
            }
        }
        self.reclaim_recycle_log();
    }
}
