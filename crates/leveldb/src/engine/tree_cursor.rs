//! Reading a tree at one instant: a view, and cursors over it that fetch records a page at a time.

use crate::engine::engine::{ReadView, RecordCursor};
use crate::order::{Direction, KeyOrder};
use crate::status::{Failure, Result};
use crate::tree::node::RecordVersion;
use crate::tree::tree::{LeafPosition, RecordTree, TreeMemory, WalkStart};
use std::sync::Arc;

/// What holds a tree, and lets views read it.
pub(super) trait TreeHolder: Send + Sync + 'static {
    /// Where the tree's blocks lie.
    type Memory: TreeMemory;
    /// Runs a read on the tree, concurrently with other reads and not with writes.
    fn read<R>(&self, call: impl FnOnce(&RecordTree<Self::Memory>) -> R) -> Result<R>;
    /// Calls `found` with the value of `key` at `number`.
    fn get_at(&self, key: &[u8], number: u64, found: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// Counts batches: positions in the tree are valid as long as it does not change.
    fn changes(&self) -> u64;
    /// Lets go of the records that a view of `number` kept.
    fn release(&self, number: u64);
}

/// The comparator threw an exception.
#[cold]
pub(super) fn no_answer() -> Failure {
    Failure::invalid("the comparator threw an exception, and so did not order the keys; nothing was changed")
}

/// Fails if a comparison on this thread since the last call had no answer: what was found by it means nothing.
#[inline]
pub(super) fn must_have_answered(order: &KeyOrder) -> Result<()> {
    if order.answered() { Ok(()) } else { Err(no_answer()) }
}

/// Records of the first page of a walk; each further one has four times as many.
const PAGE_COUNT_MIN: usize = 2;
/// The most records of one page.
const PAGE_COUNT_MAX: usize = 128;

/// An instant: the state after one batch.
pub(super) struct TreeView<S: TreeHolder> {
    pub(super) store: Arc<S>,
    pub(super) number: u64,
}

impl<S: TreeHolder> Drop for TreeView<S> {
    fn drop(&mut self) {
        self.store.release(self.number);
    }
}

impl<S: TreeHolder> ReadView for TreeView<S> {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.store.get_at(key, self.number, found)
    }

    fn cursor(self: Arc<Self>) -> Box<dyn RecordCursor> {
        Box::new(TreeCursor { view: self, page: Vec::new(), at: 0, walk: None })
    }
}

/// Where the next page begins.
struct PageWalk {
    direction: Direction,
    place: LeafPosition,
    /// `TreeStore::changes` when the place was found.
    changes: u64,
    count: usize,
    /// There is no further page.
    ended: bool,
}

/// A cursor over the records of an instant. The view's pin keeps the records of a page, which never change; the
/// cursor returns them in place.
struct TreeCursor<S: TreeHolder> {
    page: Vec<*const RecordVersion>,
    at: usize,
    walk: Option<PageWalk>,
    view: Arc<TreeView<S>>,
}

// SAFETY: the records are the store's, which the view keeps, and are only read.
unsafe impl<S: TreeHolder> Send for TreeCursor<S> {}

impl<S: TreeHolder> TreeCursor<S> {
    fn start(&mut self, from: WalkStart<'_>, direction: Direction) -> Result<()> {
        self.page.clear();
        self.at = 0;
        let (view, page) = (&self.view, &mut self.page);
        let walk = view.store.read(|tree| -> Result<PageWalk> {
            let mut place = tree.place(from, direction);
            must_have_answered(tree.order())?;
            tree.collect(&mut place, direction, view.number, PAGE_COUNT_MIN, page);
            let (changes, ended) = (view.store.changes(), page.len() < PAGE_COUNT_MIN);
            Ok(PageWalk { direction, place, changes, count: PAGE_COUNT_MIN, ended })
        })??;
        self.walk = Some(walk);
        Ok(())
    }

    /// Fetches the next page.
    fn turn(&mut self) -> Result<()> {
        let Some(walk) = self.walk.as_mut().filter(|walk| !walk.ended) else {
            self.page.clear();
            self.at = 0;
            return Ok(());
        };
        walk.count = (walk.count * 4).min(PAGE_COUNT_MAX);
        let last = self.page.last().copied();
        let (view, page) = (&self.view, &mut self.page);
        page.clear();
        self.at = 0;
        view.store.read(|tree| -> Result<()> {
            let changes = view.store.changes();
            if let (true, Some(last)) = (changes != walk.changes, last) {
                // SAFETY: kept by the view's pin.
                walk.place = tree.place(WalkStart::Beyond(unsafe { (*last).key() }), walk.direction);
                must_have_answered(tree.order())?;
                walk.changes = changes;
            }
            tree.collect(&mut walk.place, walk.direction, view.number, walk.count, page);
            Ok(())
        })??;
        walk.ended = self.page.len() < walk.count;
        Ok(())
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        if self.at >= self.page.len() {
            return Ok(());
        }
        if self.walk.as_ref().is_some_and(|walk| walk.direction == direction) {
            self.at += 1;
            return if self.at < self.page.len() { Ok(()) } else { self.turn() };
        }
        // SAFETY: kept by the view's pin, beyond the page's own life.
        let key = unsafe { (*self.page[self.at]).key() };
        self.start(WalkStart::Beyond(key), direction)
    }
}

impl<S: TreeHolder> RecordCursor for TreeCursor<S> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.start(WalkStart::End, Direction::Forward)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start(WalkStart::End, Direction::Backward)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(WalkStart::At(key), Direction::Forward)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    #[inline]
    fn record(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: kept by the view's pin.
        let record = unsafe { &**self.page.get(self.at)? };
        Some((record.key(), record.value()))
    }
}
