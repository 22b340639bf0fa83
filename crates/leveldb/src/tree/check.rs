//! Reads a whole tree and reports what breaks its rules.

use crate::order::Direction;
use crate::tree::node::{QUEUED, RecordVersion};
use crate::tree::tree::{RecordTree, TreeMemory, WalkStart};
use std::cmp::Ordering;

impl<M: TreeMemory> RecordTree<M> {
    /// Reads everything; returns one message for each rule that is broken. Time: all records.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let (mut records, mut bytes) = (0, 0);
        let mut last: Option<&[u8]> = None;
        let mut leaf = self.place(WalkStart::End, Direction::Forward).leaf;
        // SAFETY: nodes and records of the tree are live; checksums below the tree have refused one that is not
        // whole.
        unsafe {
            while !leaf.is_null() {
                for position in 0..usize::from((*leaf).order.count) {
                    let slot = *Self::slot(leaf, position);
                    let record = &*slot.record;
                    let key = record.key();
                    if slot.prefix != self.order.prefix(key, usize::from((*leaf).order.skip)) {
                        problems.push(format!("the key {key:?} has not the prefix that its leaf says"));
                    }
                    if last.is_some_and(|last| self.order.compare(last, key) != Ordering::Less) {
                        problems
                            .push(format!("the key {key:?} stands behind one that does not come before it"));
                    }
                    if self.newest(key) != slot.record {
                        problems.push(format!("the key {key:?} is not found where it is"));
                    }
                    if !record.older.is_null() && !Self::stands_in_queue(record) {
                        problems.push(format!("the key {key:?} has versions that will never be freed"));
                    }
                    if !record.is_deleted() {
                        (records, bytes) = (records + 1, bytes + (key.len() + record.value().len()) as u64);
                    }
                    last = Some(key);
                }
                leaf = (*leaf).next;
            }
        }
        if (records, bytes) != self.size() {
            problems.push(format!(
                "there are {records} records of {bytes} bytes, and the root says {:?}",
                self.size()
            ));
        }
        problems
    }
    /// Whether a version of the record's key stands in the queue.
    ///
    /// # Safety
    /// Begins a chain of live records.
    unsafe fn stands_in_queue(record: &RecordVersion) -> bool {
        let mut version: *const RecordVersion = record;
        // SAFETY: the caller's promise.
        unsafe {
            while !version.is_null() && (*version).queued & QUEUED == 0 {
                version = (*version).older;
            }
        }
        !version.is_null()
    }
}
