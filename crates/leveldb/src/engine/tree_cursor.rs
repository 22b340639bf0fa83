//! Reading the tree at one instant: a view, and cursors over it that fetch records a page at a time.

use crate::engine::engine::{ReadView, RecordCursor};
use crate::engine::tree_store::TreeStore;
use crate::order::Direction;
use crate::status::Result;
use crate::tree::node::RecordVersion;
use crate::tree::tree::{LeafPosition, WalkStart};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Records of the first page of a walk; each further one has four times as many.
const PAGE_COUNT_MIN: usize = 2;
/// The most records of one page.
const PAGE_COUNT_MAX: usize = 128;

/// An instant: the state after one batch.
pub(super) struct TreeView {
    pub(super) store: Arc<TreeStore>,
    pub(super) number: u64,
}

impl Drop for TreeView {
    fn drop(&mut self) {
        self.store.pins.release(self.number);
    }
}

impl ReadView for TreeView {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.store.get(key, Some(self.number), found)
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
struct TreeCursor {
    page: Vec<*const RecordVersion>,
    at: usize,
    walk: Option<PageWalk>,
    view: Arc<TreeView>,
}

// SAFETY: the records are the store's, which the view keeps, and are only read.
unsafe impl Send for TreeCursor {}

impl TreeCursor {
    fn start(&mut self, from: WalkStart<'_>, direction: Direction) -> Result<()> {
        self.page.clear();
        self.at = 0;
        let (view, page) = (&self.view, &mut self.page);
        let walk = view.store.read(|tree| {
            let mut place = tree.place(from, direction);
            tree.collect(&mut place, direction, view.number, PAGE_COUNT_MIN, page);
            let changes = view.store.changes.load(Ordering::Relaxed);
            PageWalk { direction, place, changes, count: PAGE_COUNT_MIN, ended: page.len() < PAGE_COUNT_MIN }
        })?;
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
        view.store.read(|tree| {
            let changes = view.store.changes.load(Ordering::Relaxed);
            if let (true, Some(last)) = (changes != walk.changes, last) {
                // SAFETY: kept by the view's pin.
                walk.place = tree.place(WalkStart::Beyond(unsafe { (*last).key() }), walk.direction);
                walk.changes = changes;
            }
            tree.collect(&mut walk.place, walk.direction, view.number, walk.count, page);
        })?;
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

impl RecordCursor for TreeCursor {
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
