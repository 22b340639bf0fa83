//! Versions, as in LevelDB's memtable: each batch has a number; a record carries the number of its batch and refers
//! to the older version of its key, as long as a reader at an older number may need it. A version that no reader
//! needs when its key is written is freed at once. For the others one record of their chain stands in the queue, which
//! each batch sweeps.

use crate::change_list::Change;
use crate::order::Direction;
use crate::tree::node::{LeafNode, QUEUED, QUEUED_BELOW, RecordVersion};
use crate::tree::tree::{MAGIC, Readers, RecordTree, Refusal, TreeMemory, WalkStart};
use std::ptr;

/// Records of the queue that each batch examines.
const SWEEP_MAX: usize = 8;
/// Versions of a key that a write of the key examines.
const PRUNE_MAX: usize = 64;

/// What a batch has done to one key so far: enough to undo it.
struct AppliedChange {
    record: *mut RecordVersion,
    /// The newest version before; null where there was none.
    before: *mut RecordVersion,
    /// Bytes of key and value; none of a deletion.
    bytes: Option<u64>,
}

impl<M: TreeMemory> RecordTree<M> {
    /// A new record, which nothing refers to yet.
    pub(super) fn record(&self, number: u64, key: &[u8], value: Option<&[u8]>) -> Option<*mut RecordVersion> {
        let bytes = RecordVersion::bytes(key, value)?;
        let record = self.memory.alloc(bytes, align_of::<RecordVersion>()).cast::<RecordVersion>();
        if record.is_null() {
            return None;
        }
        self.memory.wrote(record.cast(), bytes);
        // SAFETY: a fresh block of that many bytes.
        unsafe { RecordVersion::put(record, number, key, value) };
        Some(record)
    }

    /// Applies the changes as one batch, and returns its number.
    pub(crate) fn apply<'a>(
        &mut self,
        changes: impl Iterator<Item = Change<'a>>,
        readers: &Readers,
    ) -> Result<u64, Refusal> {
        let root = self.root;
        let number = self.head().number + 1;
        let mut steps = Vec::with_capacity(changes.size_hint().0);
        // Changes insert, and remove nothing until all are applied: so a leaf stays live.
        let mut near = ptr::null_mut();
        for change in changes {
            let done = match change {
                Change::Put(key, value) => self.supersede(number, key, Some(value), &mut near),
                Change::Delete(key) => self.supersede(number, key, None, &mut near),
            };
            let refused = match done {
                Ok(step) => {
                    steps.push(step);
                    None
                }
                Err(refused) => Some(refused),
            };
            let refused = if self.order.answered() { refused } else { Some(Refusal::NoAnswer) };
            if let Some(refused) = refused {
                self.take_back(steps);
                self.order.answered();
                return Err(refused);
            }
        }
        self.begin_number(number);
        let mut size = self.size();
        for step in steps {
            self.finish(step, readers, &mut size);
        }
        // SAFETY: the root is the tree's.
        unsafe {
            self.set(&raw mut (*root).records, size.0);
            self.set(&raw mut (*root).bytes, size.1);
        }
        self.sweep(readers, SWEEP_MAX);
        // A removal without an answer leaves a record that marks its key as deleted.
        self.order.answered();
        Ok(number)
    }

    /// Makes `number` the number of the last batch.
    pub(super) fn begin_number(&mut self, number: u64) {
        let root = self.root;
        // SAFETY: the root is the tree's.
        unsafe {
            self.set(&raw mut (*root).number, number);
            if self.head().magic != MAGIC {
                self.set(&raw mut (*root).magic, MAGIC);
            }
        }
    }

    /// Puts a new version of a key before the others. `near`: the leaf where the batch's change before this one
    /// ended, or null.
    fn supersede(
        &mut self,
        number: u64,
        key: &[u8],
        value: Option<&[u8]>,
        near: &mut *mut LeafNode,
    ) -> Result<AppliedChange, Refusal> {
        let record = self.record(number, key, value).ok_or(Refusal::Full)?;
        let bytes = value.map(|value| (key.len() + value.len()) as u64);
        // SAFETY: nothing was removed since the leaf was noted; the record is fresh.
        unsafe {
            if self.append(*near, key, record) {
                return Ok(AppliedChange { record, before: ptr::null_mut(), bytes });
            }
        }
        let (path, leaf) = self.path(key);
        *near = leaf;
        // SAFETY: a live leaf, and positions in it; the record is fresh.
        unsafe {
            let at = match self.position(leaf, key) {
                Ok(at) => {
                    let slot = Self::slot(leaf, at);
                    let before = (*slot).record;
                    (*record).older = before;
                    self.set(&raw mut (*slot).record, record);
                    return Ok(AppliedChange { record, before, bytes });
                }
                Err(at) => at,
            };
            if let Err(refused) = self.insert(key, record, &path, leaf, at) {
                self.memory.free(record.cast());
                return Err(refused);
            }
        }
        Ok(AppliedChange { record, before: ptr::null_mut(), bytes })
    }

    /// Undoes changes, the last first. Needs no memory.
    fn take_back(&mut self, mut steps: Vec<AppliedChange>) {
        steps.reverse();
        steps.retain(|&AppliedChange { record, before, .. }| {
            // SAFETY: the step's record is live, and so is the one before it.
            unsafe {
                let gone = if before.is_null() { self.remove(record) } else { self.replace(record, before) };
                if gone {
                    self.memory.free(record.cast());
                }
                !gone
            }
        });
        if !steps.is_empty() {
            self.take_back_unordered(steps);
        }
    }

    /// Replaces `old` by `new`, if a search for its key ends there. Returns whether it did.
    ///
    /// # Safety
    /// Both live.
    unsafe fn replace(&mut self, old: *mut RecordVersion, new: *mut RecordVersion) -> bool {
        // SAFETY: the caller's promise; nodes of the tree are live.
        unsafe {
            let leaf = self.descend((*old).key(), |_, _| {});
            match self.position(leaf, (*old).key()) {
                Ok(at) if (*Self::slot(leaf, at)).record == old => {
                    self.set(&raw mut (*Self::slot(leaf, at)).record, new);
                    true
                }
                _ => false,
            }
        }
    }

    /// Undoes changes without using the order, which is not what it was: visits every record once. Leaves stay, even
    /// empty ones.
    #[cold]
    fn take_back_unordered(&mut self, mut steps: Vec<AppliedChange>) {
        steps.sort_unstable_by_key(|step| step.record.addr());
        let step_of = |record: *mut RecordVersion| {
            steps.binary_search_by_key(&record.addr(), |step| step.record.addr()).ok().map(|at| &steps[at])
        };
        let mut leaf = self.place(WalkStart::End, Direction::Forward).leaf;
        // SAFETY: nodes of the tree are live, and so is what a change replaced. A block that no leaf refers to stays
        // allocated, because something else may refer to it.
        unsafe {
            while !leaf.is_null() {
                let mut at = 0;
                while at < usize::from((*leaf).order.count) {
                    let slot = Self::slot(leaf, at);
                    let newest = (*slot).record;
                    let mut record = newest;
                    while let Some(step) = step_of(record) {
                        self.memory.free(record.cast());
                        record = step.before;
                    }
                    if record.is_null() {
                        let mut order = (*leaf).order;
                        order.remove(at);
                        self.set(&raw mut (*leaf).order, order);
                        continue;
                    }
                    if record != newest {
                        self.set(&raw mut (*slot).record, record);
                    }
                    at += 1;
                }
                leaf = (*leaf).next;
            }
        }
    }

    /// Completes a change of an applied batch: adds it to the count of records and bytes, and frees the versions that
    /// it replaced or has them queued.
    fn finish(&mut self, step: AppliedChange, readers: &Readers, (records, sum): &mut (u64, u64)) {
        let AppliedChange { record, before, bytes } = step;
        if let Some(bytes) = bytes {
            (*records, *sum) = (*records + 1, *sum + bytes);
            if before.is_null() {
                return;
            }
        }
        // SAFETY: both live until freed here; `before` is not the newest of its key any more.
        unsafe {
            if !before.is_null() && !(*before).is_deleted() {
                let bytes = ((*before).key().len() + (*before).value().len()) as u64;
                (*records, *sum) = (*records - 1, *sum - bytes);
            }
            self.prune(record, readers, PRUNE_MAX);
            let older = (*record).older;
            if !older.is_null() {
                match (*older).queued {
                    0 => self.enqueue(record),
                    _ => self.set(&raw mut (*record).queued, QUEUED_BELOW),
                }
                return;
            }
            if (*record).is_deleted() && self.remove(record) {
                self.memory.free(record.cast());
            }
        }
    }

    /// Frees, of the next `count` versions older than `newest`, those that no reader sees and that do not stand in the
    /// queue.
    ///
    /// # Safety
    /// A live record.
    unsafe fn prune(&mut self, newest: *mut RecordVersion, readers: &Readers, count: usize) {
        let mut newer = newest;
        for _ in 0..count {
            // SAFETY: the caller's promise; what a record refers to is live.
            unsafe {
                let version = (*newer).older;
                if version.is_null() {
                    return;
                }
                if (*version).queued & QUEUED != 0 || readers.see((*version).number, (*newer).number) {
                    newer = version;
                    continue;
                }
                self.set(&raw mut (*newer).older, (*version).older);
                self.memory.free(version.cast());
            }
        }
    }

    /// # Safety
    /// A live record that is not in the queue.
    unsafe fn enqueue(&mut self, record: *mut RecordVersion) {
        let root = self.root;
        // SAFETY: the caller's promise; the queue's records are live.
        unsafe {
            self.set(&raw mut (*record).queued, QUEUED);
            let last = self.head().queue_last;
            if last.is_null() {
                self.set(&raw mut (*root).queue_first, record);
            } else {
                self.set(&raw mut (*last).queue_next, record);
            }
            self.set(&raw mut (*root).queue_last, record);
        }
    }

    /// Frees versions that no reader needs, of the keys of at most `count` records of the queue.
    pub(crate) fn sweep(&mut self, readers: &Readers, count: usize) {
        let root = self.root;
        for _ in 0..count {
            let record = self.head().queue_first;
            // SAFETY: the queue's records are live, and so is what they refer to.
            unsafe {
                if record.is_null() || !readers.all_from((*record).number) {
                    break;
                }
                let next = (*record).queue_next;
                self.set(&raw mut (*root).queue_first, next);
                if next.is_null() {
                    self.set(&raw mut (*root).queue_last, next);
                }
                self.set(&raw mut (*record).queued, (*record).queued & !QUEUED);
                self.set(&raw mut (*record).queue_next, ptr::null_mut());
                self.settle(record, readers);
            }
        }
        // A search without an answer leaves versions behind, and fails no write.
        self.order.answered();
    }

    /// Frees what no reader needs of the chain of a record that has left the queue, and queues another of the chain if
    /// something remains.
    ///
    /// # Safety
    /// A live record.
    unsafe fn settle(&mut self, record: *mut RecordVersion, readers: &Readers) {
        // SAFETY: the caller's promise; records of the tree are live.
        unsafe {
            let mut newest = self.newest((*record).key());
            let mut version = newest;
            while !version.is_null() && version != record {
                version = (*version).older;
            }
            if version.is_null() {
                // The comparator does not lead to the record any more: what is older can go nonetheless.
                newest = record;
            }
            self.prune(newest, readers, usize::MAX);
            if (*newest).older.is_null() {
                self.set(&raw mut (*newest).queued, (*newest).queued & QUEUED);
                if (*newest).queued == 0 && (*newest).is_deleted() && self.remove(newest) {
                    self.memory.free(newest.cast());
                }
                return;
            }
            let (mut deepest, mut before_last) = (ptr::null_mut(), newest);
            version = newest;
            while !version.is_null() {
                if (*version).queued & QUEUED != 0 {
                    deepest = version;
                }
                if !(*version).older.is_null() {
                    before_last = version;
                }
                version = (*version).older;
            }
            if deepest.is_null() {
                // The oldest version can go when all readers read at the number of the next.
                self.enqueue(before_last);
                deepest = before_last;
            }
            let mut below = QUEUED_BELOW;
            version = newest;
            while !version.is_null() {
                if version == deepest {
                    below = 0;
                }
                let queued = (*version).queued & QUEUED | below;
                if (*version).queued != queued {
                    self.set(&raw mut (*version).queued, queued);
                }
                version = (*version).older;
            }
        }
    }

    /// Queues all versions of a key but the oldest, as earlier builds did. The queue holds nothing else.
    #[cfg(test)]
    pub(crate) fn queue_every_version(&mut self, key: &[u8]) {
        let (root, mut version) = (self.root, self.newest(key));
        let mut behind = ptr::null_mut();
        // SAFETY: records of the tree are live.
        unsafe {
            self.set(&raw mut (*root).queue_last, version);
            while !(*version).older.is_null() {
                self.set(&raw mut (*version).queued, QUEUED);
                self.set(&raw mut (*version).queue_next, behind);
                self.set(&raw mut (*root).queue_first, version);
                behind = version;
                version = (*version).older;
            }
        }
    }
}
