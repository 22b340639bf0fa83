//! The hash map.

use super::counter::{self, Counter, PART_COUNT};
use super::handle::{AT_SHAPE, KIND_MAP, at_root, handle, shape, steps};
use super::key::HeapKey;
use super::map_table::{AT_ENTRIES, BUCKET_KEYS, Bucket, MapTable, Tags, next_of};
use super::reads::Reads;
use crate::heap::{Ptr, Stop, Tx};
use bytemuck::Pod;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;

/// Offsets in the head.
pub(super) const AT_SEED: usize = 8;
pub(super) const AT_TABLE: usize = 16;
pub(super) const AT_COUNTER: usize = 32;
const HEAD_BYTES: usize = AT_COUNTER + counter::BYTES;

/// Keys for each slot from which on a full bucket makes the table double.
const KEYS_A_SLOT: i64 = 3;

handle! {
    /// A hash map in the heap, from keys to plain data.
    ///
    /// The handle is plain data: copy it, store it in the heap, put it into other collections. It does not own the
    /// map: [`free`](Self::free) frees its memory.
    ///
    /// ```
    /// use mangrove_txn::{Heap, HeapMap};
    ///
    /// # fn main() -> mangrove_txn::HeapResult<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let heap = Heap::open(folder.path().join("bank"))?;
    /// let accounts = heap.transaction(|tx| HeapMap::<u64, i64>::at_root(tx, "accounts"))?;
    /// heap.transaction(|tx| {
    ///     let balance = accounts.get(tx, &7)?.unwrap_or(0);
    ///     accounts.insert(tx, &7, balance + 100)
    /// })?;
    /// assert_eq!(heap.read(|tx| accounts.get(tx, &7))?, Some(100));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Every operation is a part of its transaction: a crash keeps all of that or nothing. Each takes O(1) expected
    /// time and writes O(1) words; the exception is an insertion that doubles the table, which writes a word for about
    /// 1,500 keys more. Operations on different keys rarely conflict: there is no word that all of them write. Memory
    /// that removed keys leave is used again by this map, and given back by [`clear`](Self::clear).
    ///
    /// # Errors
    /// Every operation may end with a [`Stop`]. Those that add keys fail the transaction with
    /// [`HeapError::Full`](crate::HeapError::Full) if there is no space, and with
    /// [`HeapError::Invalid`](crate::HeapError::Invalid) in a heap that was created at an address of 2^48 or more.
    ///
    /// # Panics
    /// With a handle that is not one of a map of this heap, which undoes the transaction; at worst it reads or
    /// writes other bytes of the heap.
    HeapMap<K, V>, shape(KIND_MAP, size_of::<K>(), size_of::<V>())
}

/// A key that is there.
struct Found {
    bucket: Bucket,
    /// The one before it in its chain.
    before: Option<Bucket>,
    tags: Tags,
    at: usize,
}

impl<K: HeapKey, V: Pod> HeapMap<K, V> {
    const ALIGN: usize = if align_of::<K>() > align_of::<V>() { align_of::<K>() } else { align_of::<V>() };
    /// Offset of a value behind its key, and of an entry behind the one before it.
    const VALUE: usize = size_of::<K>().next_multiple_of(align_of::<V>());
    const ENTRY: usize = (Self::VALUE + size_of::<V>()).next_multiple_of(Self::ALIGN);
    const BUCKET_BYTES: usize = AT_ENTRIES.next_multiple_of(Self::ALIGN) + BUCKET_KEYS * Self::ENTRY;

    /// A new, empty map, with a seed of its own for its hashes. O(1).
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn create(tx: &mut Tx<'_>) -> Result<Self, Stop> {
        Self::with_seed(tx, std::hash::RandomState::new().build_hasher().finish())
    }

    /// As [`create`](Self::create), with a chosen seed. A client that knows it can choose keys whose hashes are
    /// equal, which makes operations on them O(keys).
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn with_seed(tx: &mut Tx<'_>, seed: u64) -> Result<Self, Stop> {
        let head = tx.alloc_bytes(HEAD_BYTES, 64)?;
        tx.write(Ptr::at(head + AT_SHAPE), Self::SHAPE)?;
        tx.write(Ptr::at(head + AT_SEED), seed)?;
        tx.write(Ptr::at(head + AT_TABLE + 8), 0u64)?;
        Counter(head + AT_COUNTER).clear(tx)?;
        let map = Self::of_head(head);
        map.make_table(tx)?;
        Ok(map)
    }

    /// The map at the root `name`; a new one if there is no such root.
    ///
    /// # Errors
    /// See [`HeapMap`]; the transaction fails with [`HeapError::Root`](crate::HeapError::Root) if the root is not that
    /// of a map with keys and values of these sizes.
    pub fn at_root(tx: &mut Tx<'_>, name: &str) -> Result<Self, Stop> {
        let head = at_root(tx, name, Self::SHAPE, |tx| Ok(Self::create(tx)?.address()))?;
        Ok(Self::of_head(head))
    }

    fn make_table(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        let bucket = Self::make_bucket(tx, 0)?;
        MapTable::make(tx, bucket)?.write(tx, self.address() + AT_TABLE)
    }

    fn make_bucket(tx: &mut Tx<'_>, depth: u32) -> Result<Bucket, Stop> {
        Bucket::make(tx, Self::BUCKET_BYTES, Self::ALIGN, depth)
    }

    #[inline(always)]
    fn table<R: Reads>(self, reads: &mut R) -> Result<MapTable, R::Stop> {
        MapTable::read(reads, self.address() + AT_TABLE)
    }

    #[inline(always)]
    fn seed<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        reads.word(self.address() + AT_SEED)
    }

    fn count(self, tx: &mut Tx<'_>, hash: u64, delta: i64) -> Result<i64, Stop> {
        Counter(self.address() + AT_COUNTER).add(tx, hash >> 48, delta)
    }

    #[inline(always)]
    fn key_at(bucket: Bucket, at: usize) -> Ptr<K> {
        Ptr::at(bucket.0 + AT_ENTRIES.next_multiple_of(Self::ALIGN) + at * Self::ENTRY)
    }

    #[inline(always)]
    fn value_at(bucket: Bucket, at: usize) -> Ptr<V> {
        Ptr::at(Self::key_at(bucket, at).address() + Self::VALUE)
    }

    #[inline(always)]
    fn find<R: Reads>(self, reads: &mut R, hash: u64, key: &K::Query) -> Result<Option<Found>, R::Stop> {
        let (_, mut bucket) = self.table(reads)?.find(reads, hash)?;
        let mut before = None;
        loop {
            let tags = bucket.tags(reads)?;
            let mut candidates = tags.candidates(hash);
            while let Some(at) = next_of(&mut candidates) {
                if reads.read(Self::key_at(bucket, at))?.is(reads, key)? {
                    return Ok(Some(Found { bucket, before, tags, at }));
                }
            }
            // A bucket that is not full may have a chain behind it, since keys are removed.
            let Some(next) = bucket.next(reads)? else { return Ok(None) };
            before = Some(std::mem::replace(&mut bucket, next));
        }
    }

    /// Where the value of `key` lies, if the key is there: to read or write a part of it, or to do both with one
    /// search. The pointer is good until its transaction inserts or removes a key, or ends. O(1) expected.
    ///
    /// # Errors
    /// See [`HeapMap`].
    #[inline(always)]
    pub fn get_ptr<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<Option<Ptr<V>>, R::Stop> {
        let hash = K::hash_query(self.seed(reads)?, key);
        Ok(self.find(reads, hash, key)?.map(|found| Self::value_at(found.bucket, found.at)))
    }

    /// The value of `key`. O(1) expected.
    ///
    /// # Errors
    /// See [`HeapMap`].
    #[inline]
    pub fn get<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<Option<V>, R::Stop> {
        match self.get_ptr(reads, key)? {
            Some(value) => reads.read(value).map(Some),
            None => Ok(None),
        }
    }

    /// Whether `key` is there. O(1) expected.
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn contains<R: Reads>(self, reads: &mut R, key: &K::Query) -> Result<bool, R::Stop> {
        Ok(self.get_ptr(reads, key)?.is_some())
    }

    /// The number of keys. O(1), and every insertion of a new key meanwhile conflicts with it.
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn len<R: Reads>(self, reads: &mut R) -> Result<u64, R::Stop> {
        Counter(self.address() + AT_COUNTER).sum(reads)
    }

    /// Whether there is no key. As [`len`](Self::len).
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn is_empty<R: Reads>(self, reads: &mut R) -> Result<bool, R::Stop> {
        Ok(self.len(reads)? == 0)
    }

    /// Gives `key` this value, and returns the one that it had. O(1) expected.
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn insert(self, tx: &mut Tx<'_>, key: &K::Query, value: V) -> Result<Option<V>, Stop> {
        let hash = K::hash_query(self.seed(tx)?, key);
        if let Some(found) = self.find(tx, hash, key)? {
            let at = Self::value_at(found.bucket, found.at);
            let old = tx.read(at)?;
            tx.write(at, value)?;
            return Ok(Some(old));
        }
        let (_, bucket) = self.table(tx)?.find(tx, hash)?;
        if bucket.tags(tx)?.free_entry().is_some() {
            let key = K::make(tx, key)?;
            self.count(tx, hash, 1)?;
            Self::put(tx, bucket, hash, key, value)?;
        } else {
            tx.whole(|tx| self.add(tx, hash, key, value))?;
        }
        Ok(None)
    }

    /// Adds a key that is not there. Where there is no space, it ends half-way.
    fn add(self, tx: &mut Tx<'_>, hash: u64, key: &K::Query, value: V) -> Result<(), Stop> {
        let key = K::make(tx, key)?;
        let part = self.count(tx, hash, 1)?;
        loop {
            let table = self.table(tx)?;
            let (slot, bucket) = table.find(tx, hash)?;
            let depth = bucket.tags(tx)?.depth();
            if Self::put(tx, bucket, hash, key, value)? {
                return Ok(());
            }
            if depth < table.level() {
                self.split(tx, table, slot, bucket)?;
            } else if table.can_double()
                && part.saturating_mul(PART_COUNT as i64) >> table.level() >= KEYS_A_SLOT
            {
                table.double(tx)?.write(tx, self.address() + AT_TABLE)?;
            } else {
                return Self::put_in_chain(tx, bucket, hash, key, value);
            }
        }
    }

    /// Puts an entry into a bucket, if there is space.
    fn put(tx: &mut Tx<'_>, bucket: Bucket, hash: u64, key: K, value: V) -> Result<bool, Stop> {
        let tags = bucket.tags(tx)?;
        let Some(at) = tags.free_entry() else { return Ok(false) };
        bucket.set_tags(tx, tags.set(at, hash))?;
        tx.write(Self::key_at(bucket, at), key)?;
        tx.write(Self::value_at(bucket, at), value)?;
        Ok(true)
    }

    /// Puts an entry behind a bucket, which is full or will not be used for it.
    fn put_in_chain(tx: &mut Tx<'_>, first: Bucket, hash: u64, key: K, value: V) -> Result<(), Stop> {
        let mut last = first;
        while let Some(next) = last.next(tx)? {
            if Self::put(tx, next, hash, key, value)? {
                return Ok(());
            }
            last = next;
        }
        let new = Self::make_bucket(tx, 0)?;
        Self::put(tx, new, hash, key, value)?;
        last.set_next(tx, Some(new))
    }

    /// Gives the keys whose hashes have one more bit set to a bucket of their own.
    fn split(self, tx: &mut Tx<'_>, table: MapTable, slot: usize, bucket: Bucket) -> Result<(), Stop> {
        let seed = self.seed(tx)?;
        let depth = bucket.tags(tx)?.depth();
        let new = Self::make_bucket(tx, depth + 1)?;
        let old_tags = bucket.tags(tx)?.with_depth(depth + 1);
        bucket.set_tags(tx, old_tags)?;
        let (mut at, mut before) = (bucket, bucket);
        loop {
            let mut tags = at.tags(tx)?;
            let mut used = tags.used();
            while let Some(entry) = next_of(&mut used) {
                let key = tx.read(Self::key_at(at, entry))?;
                let hash = key.hash(tx, seed)?;
                let moves = hash >> depth & 1 == 1;
                // What stays leaves the chain if it can.
                if !moves && (at == bucket || bucket.tags(tx)?.free_entry().is_none()) {
                    continue;
                }
                let value = tx.read(Self::value_at(at, entry))?;
                let to = if moves { new } else { bucket };
                if !Self::put(tx, to, hash, key, value)? {
                    Self::put_in_chain(tx, to, hash, key, value)?;
                }
                tags = tags.clear(entry);
            }
            at.set_tags(tx, tags)?;
            let next = at.next(tx)?;
            if at != bucket && tags.is_empty() {
                before.set_next(tx, next)?;
                tx.free_bytes(at.0)?;
            } else {
                before = at;
            }
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        table.put(tx, slot | 1 << depth, new)
    }

    /// Removes `key`, and returns its value. O(1) expected.
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn remove(self, tx: &mut Tx<'_>, key: &K::Query) -> Result<Option<V>, Stop> {
        let hash = K::hash_query(self.seed(tx)?, key);
        let Some(Found { bucket, before, tags, at }) = self.find(tx, hash, key)? else { return Ok(None) };
        let value = tx.read(Self::value_at(bucket, at))?;
        tx.read(Self::key_at(bucket, at))?.discard(tx)?;
        self.count(tx, hash, -1)?;
        let tags = tags.clear(at);
        match before {
            Some(before) if tags.is_empty() => {
                let next = bucket.next(tx)?;
                before.set_next(tx, next)?;
                tx.free_bytes(bucket.0)?;
            }
            _ => bucket.set_tags(tx, tags)?,
        }
        Ok(Some(value))
    }

    /// A walk through all keys, in no order.
    #[must_use]
    pub const fn walk(self) -> MapWalk<K, V> {
        MapWalk { map: self, slot: 0, bucket: None, left: 0, of: PhantomData }
    }

    /// All keys with their values, in no order. The transaction is borrowed meanwhile; a loop that needs it uses
    /// [`walk`](Self::walk).
    pub fn iter<R: Reads>(
        self,
        reads: &mut R,
    ) -> impl Iterator<Item = Result<(K, V), R::Stop>> + use<'_, K, V, R> {
        steps(reads, self.walk(), MapWalk::next)
    }

    /// Removes all keys, and gives memory back. O(keys), in one transaction. Blocks that values own stay: see
    /// [`clear_with`](Self::clear_with).
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn clear(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.clear_with(tx, |_, _| Ok(()))
    }

    /// As [`clear`](Self::clear), and passes each value to `discard`, which frees what the value owns.
    ///
    /// # Errors
    /// See [`HeapMap`], and those of `discard`.
    pub fn clear_with(
        self,
        tx: &mut Tx<'_>,
        discard: impl FnMut(&mut Tx<'_>, V) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        tx.whole(|tx| {
            self.discard_all(tx, discard)?;
            Counter(self.address() + AT_COUNTER).clear(tx)?;
            self.make_table(tx)
        })
    }

    /// Frees the map. O(keys), in one transaction. A root that points to it must be removed or set anew.
    ///
    /// # Errors
    /// See [`HeapMap`].
    pub fn free(self, tx: &mut Tx<'_>) -> Result<(), Stop> {
        self.free_with(tx, |_, _| Ok(()))
    }

    /// As [`free`](Self::free), and passes each value to `discard`, which frees what the value owns.
    ///
    /// # Errors
    /// See [`HeapMap`], and those of `discard`.
    pub fn free_with(
        self,
        tx: &mut Tx<'_>,
        discard: impl FnMut(&mut Tx<'_>, V) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.discard_all(tx, discard)?;
        tx.free_bytes(self.address())
    }

    fn discard_all(
        self,
        tx: &mut Tx<'_>,
        mut discard: impl FnMut(&mut Tx<'_>, V) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut walk = self.walk();
        while let Some((key, value)) = walk.next(tx)? {
            key.discard(tx)?;
            discard(tx, value)?;
        }
        let table = self.table(tx)?;
        let mut slot = 0;
        while let Some((at, first)) = table.next_bucket(tx, slot)? {
            let mut bucket = Some(first);
            while let Some(here) = bucket {
                bucket = here.next(tx)?;
                tx.free_bytes(here.0)?;
            }
            slot = at + 1;
        }
        table.free(tx)
    }
}

/// A walk through the keys of a [`HeapMap`]. Keys must neither be inserted nor removed between two steps, or some are
/// missed or seen twice, and a step may read memory that was freed; values may be changed.
#[derive(Debug)]
pub struct MapWalk<K, V> {
    map: HeapMap<K, V>,
    /// The first slot that was not looked at.
    slot: usize,
    bucket: Option<usize>,
    /// The entries of the bucket that are left.
    left: u64,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: HeapKey, V: Pod> MapWalk<K, V> {
    /// The next key with its value; none at the end. O(1) expected.
    ///
    /// # Errors
    /// [`Reads::Stop`].
    pub fn next<R: Reads>(&mut self, reads: &mut R) -> Result<Option<(K, V)>, R::Stop> {
        loop {
            if let (Some(bucket), Some(at)) = (self.bucket, next_of(&mut self.left)) {
                let bucket = Bucket(bucket);
                let key = reads.read(HeapMap::<K, V>::key_at(bucket, at))?;
                return Ok(Some((key, reads.read(HeapMap::<K, V>::value_at(bucket, at))?)));
            }
            let chained = match self.bucket {
                Some(bucket) => Bucket(bucket).next(reads)?,
                None => None,
            };
            let bucket = match chained {
                Some(bucket) => bucket,
                None => {
                    let table = self.map.table(reads)?;
                    let Some((slot, bucket)) = table.next_bucket(reads, self.slot)? else { return Ok(None) };
                    self.slot = slot + 1;
                    bucket
                }
            };
            self.bucket = Some(bucket.0);
            self.left = bucket.tags(reads)?.used();
        }
    }
}
