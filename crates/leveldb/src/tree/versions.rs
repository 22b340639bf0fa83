//! Versions, as in LevelDB's memtable: each batch has a number; a record carries the number of its batch and refers
//! to the older version of its key, as long as a reader at an older number may need it. A version that no reader
//! needs is freed at once; the others stand in a queue by number.

use crate::change_list::Change;
use crate::order::Direction;
use crate::tree::node::RecordVersion;
use crate::tree::tree::{MAGIC, Readers, RecordTree, Refusal, TreeMemory, WalkStart};
use std::ptr;

/// Records of the queue that each batch examines.
const SWEEP_MAX: usize = 8;

/// What a batch has done to one key so far: enough to undo it.
struct AppliedChange {
    record: *mut RecordVersion,
    /// The newest version before; null where there was none.
    before: *mut RecordVersion,
}

impl<M: TreeMemory> RecordTree<M> {
    /// A new record, which nothing refers to yet.
    fn record(&self, number: u64, key: &[u8], value: Option<&[u8]>) -> Option<*mut RecordVersion> {
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
        readers: Readers,
    ) -> Result<u64, Refusal> {
        let root = self.root;
        let number = self.head().number + 1;
        let mut steps = Vec::with_capacity(changes.size_hint().0);
        for change in changes {
            let done = match change {
                Change::Put(key, value) => self.supersede(number, key, Some(value)),
                Change::Delete(key) => self.supersede(number, key, None),
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
        // SAFETY: the root is the tree's.
        unsafe {
            self.set(&raw mut (*root).number, number);
            if self.head().magic != MAGIC {
                self.set(&raw mut (*root).magic, MAGIC);
            }
        }
        for step in steps {
            self.finish(step, readers);
        }
        self.sweep(readers, SWEEP_MAX);
        // A removal without an answer leaves a record that marks its key as deleted.
        self.order.answered();
        Ok(number)
    }

    /// Puts a new version of a key before the others.
    fn supersede(&mut self, number: u64, key: &[u8], value: Option<&[u8]>) -> Result<AppliedChange, Refusal> {
        let record = self.record(number, key, value).ok_or(Refusal::Full)?;
        let leaf = self.descend(key, |_, _| {});
        // SAFETY: a live leaf, and positions in it; the record is fresh.
        unsafe {
            if let Ok(at) = self.position(leaf, key) {
                let slot = Self::slot(leaf, at);
                let before = (*slot).record;
                (*record).older = before;
                self.set(&raw mut (*slot).record, record);
                return Ok(AppliedChange { record, before });
            }
            if let Err(refused) = self.insert(key, record) {
                self.memory.free(record.cast());
                return Err(refused);
            }
        }
        Ok(AppliedChange { record, before: ptr::null_mut() })
    }

    /// Undoes changes, the last first. Needs no memory.
    fn take_back(&mut self, mut steps: Vec<AppliedChange>) {
        steps.reverse();
        steps.retain(|&AppliedChange { record, before }| {
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

    /// Completes a change of an applied batch: counts it, and frees or queues the version that it replaced.
    fn finish(&mut self, step: AppliedChange, readers: Readers) {
        let root = self.root;
        let AppliedChange { record, before } = step;
        // SAFETY: both live until freed here; `before` is not the newest of its key any more.
        unsafe {
            let bytes = |r: *const RecordVersion| ((*r).key().len() + (*r).value().len()) as u64;
            let there = !before.is_null() && !(*before).is_deleted();
            let (mut records, mut sum) = self.size();
            if there {
                (records, sum) = (records - 1, sum - bytes(before));
            }
            if !(*record).is_deleted() {
                (records, sum) = (records + 1, sum + bytes(record));
            }
            self.set(&raw mut (*root).records, records);
            self.set(&raw mut (*root).bytes, sum);
            if !before.is_null() {
                if (*before).queued != 0 || !readers.none_from((*before).number) {
                    self.enqueue(record);
                    return;
                }
                self.set(&raw mut (*record).older, ptr::null_mut());
                self.memory.free(before.cast());
            }
            if (*record).is_deleted() && self.remove(record) {
                self.memory.free(record.cast());
            }
        }
    }

    /// # Safety
    /// A live record that is not in the queue, whose number is the greatest.
    unsafe fn enqueue(&mut self, record: *mut RecordVersion) {
        let root = self.root;
        // SAFETY: the caller's promise; the queue's records are live.
        unsafe {
            self.set(&raw mut (*record).queued, 1);
            let last = self.head().queue_last;
            if last.is_null() {
                self.set(&raw mut (*root).queue_first, record);
            } else {
                self.set(&raw mut (*last).queue_next, record);
            }
            self.set(&raw mut (*root).queue_last, record);
        }
    }

    /// Frees versions that no reader needs, of at most `count` records of the queue.
    pub(crate) fn sweep(&mut self, readers: Readers, count: usize) {
        let root = self.root;
        for _ in 0..count {
            let record = self.head().queue_first;
            // SAFETY: the queue's records are live, and so is what they refer to.
            unsafe {
                if record.is_null() || !readers.all_from((*record).number) {
                    return;
                }
                let next = (*record).queue_next;
                self.set(&raw mut (*root).queue_first, next);
                if next.is_null() {
                    self.set(&raw mut (*root).queue_last, next);
                }
                self.set(&raw mut (*record).queued, 0);
                self.set(&raw mut (*record).queue_next, ptr::null_mut());
                // Older versions have left the queue before this one: its chain ends with them.
                let mut older = (*record).older;
                self.set(&raw mut (*record).older, ptr::null_mut());
                while !older.is_null() {
                    let further = (*older).older;
                    self.memory.free(older.cast());
                    older = further;
                }
                if (*record).is_deleted() && self.remove(record) {
                    self.memory.free(record.cast());
                }
            }
        }
    }
}
