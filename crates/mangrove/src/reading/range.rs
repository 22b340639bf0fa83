//! Ordered walks.

use crate::convert::engine;
use crate::{Error, Result};
use mangrove_sys::LeftInChild;
use std::any::Any;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// A share of a map, as one keeps it whose only wish is that the map stays open.
pub(crate) type Share = Arc<dyn Any + Send + Sync>;

/// An ordered walk over the records that were there when it was made, from both ends: writes during the walk do not
/// show. Holds a snapshot until dropped. One of [`crate::Map::range_owned`] also owns a share of its map.
///
/// Each step costs some tens of nanoseconds plus the copy of key and value; [`Range::visit`] copies nothing.
///
/// ```
/// # fn main() -> mangrove::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("mangrove-doc-range-{}", std::process::id()));
/// use mangrove::Map;
///
/// let map = Map::open(&dir)?;
/// for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
///     map.put(key, value)?;
/// }
/// let (last, _) = map.range("a".."c")?.next_back().unwrap()?;
/// assert_eq!(last, b"b");
/// # drop(map);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Range<'map> {
    /// A child of fork leaves it alone, as it does a snapshot.
    inner: LeftInChild<mangrove_hart::Range<'map>>,
    path: &'map Path,
    /// Why the walk ended before its last record, which must not look like its end. Boxed: it is rare, and large.
    broken: Option<Box<Error>>,
    /// The iterator has returned an error.
    ended: bool,
    /// Never read: keeps the map open, where the walk owns a share of it. Below what borrows from it.
    _owner: Option<Share>,
}

impl<'map> Range<'map> {
    pub(crate) fn new(inner: mangrove_hart::Range<'map>, path: &'map Path) -> Self {
        Self { inner: LeftInChild::new(inner), path, broken: None, ended: false, _owner: None }
    }

    /// Fails in a child of the process that made the walk.
    #[inline]
    fn must_be_here(&self) -> Result<()> {
        if self.inner.is_here() { Ok(()) } else { Err(mangrove_pool::Error::forked(self.path).into()) }
    }

    /// This walk with a share of its map, if one is given.
    pub(crate) fn owning(self, owner: Option<Share>) -> Self {
        Self { _owner: owner, ..self }
    }

    /// Calls `visit` for each remaining record, in order and without copying it, until it returns `Break`. The slices
    /// are valid during the call.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`], [`crate::Error::NoMemory`]; from then on always, [`crate::Error::Poisoned`] when what
    /// was there was never made durable, and [`crate::Error::SnapshotExpired`].
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.must_be_here()?;
        let visited = self.inner.for_each_ref(|key, value| visit(key, value).is_continue());
        self.visited(visited)
    }

    /// The next record, as the iterator's `next` returns it, but borrowed until the next step: nothing is allocated for
    /// it. [`crate::Error::Poisoned`] and [`crate::Error::SnapshotExpired`] are returned by each call from then on.
    #[inline]
    pub fn next_borrowed(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        if let Err(e) = self.must_be_here() {
            return Some(Err(e));
        }
        match self.inner.next_borrowed() {
            Some(Ok(record)) => Some(Ok(record)),
            Some(Err(e)) => Some(Err(noted(&mut self.broken, self.path, e))),
            None => self.broken.as_deref().cloned().map(Err),
        }
    }

    /// As [`Range::next_borrowed`], from the far end.
    #[inline]
    pub fn next_back_borrowed(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        if let Err(e) = self.must_be_here() {
            return Some(Err(e));
        }
        match self.inner.next_back_borrowed() {
            Some(Ok(record)) => Some(Ok(record)),
            Some(Err(e)) => Some(Err(noted(&mut self.broken, self.path, e))),
            None => self.broken.as_deref().cloned().map(Err),
        }
    }

    /// As [`Range::visit`], from the far end.
    ///
    /// # Errors
    /// As there.
    pub fn visit_back(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.must_be_here()?;
        let visited = self.inner.for_each_ref_back(|key, value| visit(key, value).is_continue());
        self.visited(visited)
    }

    /// A step of the iterator; nothing follows an error.
    fn step(
        &mut self,
        take: impl FnOnce(&mut mangrove_hart::Range<'map>) -> Option<mangrove_hart::Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        if self.ended {
            return None;
        }
        let step = self.must_be_here().map(|()| take(&mut self.inner)).transpose()?;
        let step = step.and_then(|record| record.map_err(|e| noted(&mut self.broken, self.path, e)));
        self.ended = step.is_err();
        Some(step)
    }

    fn visited(&mut self, visited: mangrove_hart::Result<()>) -> Result<()> {
        visited.map_err(|e| noted(&mut self.broken, self.path, e))?;
        self.broken.as_deref().map_or(Ok(()), |e| Err(e.clone()))
    }
}

/// The error of a step; kept, unless it is that of a record behind which the walk continues.
#[cold]
fn noted(broken: &mut Option<Box<Error>>, path: &Path, error: mangrove_hart::Error) -> Error {
    let error = engine(path, error);
    if !matches!(error, Error::Corrupt { .. } | Error::NoMemory { .. }) {
        *broken = Some(Box::new(error.clone()));
    }
    error
}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl Iterator for Range<'_> {
    /// A record, or why there can be no more: an error as of [`Range::visit`]. After an error the walk has ended, and
    /// returns `None`: so a loop that drops errors ends, too.
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(mangrove_hart::Range::next)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(mangrove_hart::Range::next_back)
    }
}
