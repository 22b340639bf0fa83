//! Loads a new map without a redo log: whole, or not at all.
//!
//! There is a whole map or none: see `mangrove_pool::appear`.

use crate::{Create, Error, Map, MapOptions};
use mangrove_pool::appear;
use std::path::Path;
use std::sync::Arc;

impl MapOptions {
    /// Makes a new map at `path` with what `fill` puts into the map that it gets. The new map appears whole and durable
    /// when this returns, or not at all: an error or a panic of `fill` leaves nothing at `path`, and a crash at any
    /// moment nothing or the whole map. (A killed process leaves a directory under a temporary name beside `path`; the
    /// next load or backup to `path` removes it.)
    ///
    /// On the medium `file` the map is written without a redo log, each page of it once or a few times, most of it in
    /// the background: with a quarter of the bytes that writes to an existing map cost, and without the log's memory.
    /// Its writes do not wait for the disk, whatever the durability, because none is durable before all are.
    /// [`Map::checkpoint`] ends the load: what `fill` writes after it fails. On persistent memory, where there is no
    /// log, only the name is given at the end.
    ///
    /// Any number of threads may put at the same time; it may read, too. Keys in order are not needed. Time:
    /// O(length of the key) a put, then O(bytes) for those that have not been written yet, and one sync. Memory: the
    /// map's own, since a map lies in memory.
    ///
    /// # Errors
    /// Those of `fill`; [`Error::Exists`], [`Error::Foreign`] where something else lies at `path`, [`Error::Busy`]:
    /// another load or backup there is at work; [`Error::Unsupported`] in a pool's directory, or for options that open
    /// read-only; [`Error::NoSpace`], [`Error::FileLimit`], [`Error::MemoryLimit`], [`Error::Io`].
    ///
    /// ```
    /// # fn main() -> mangrove::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("mangrove-doc-load-{}", std::process::id()));
    /// use mangrove::{Error, Map};
    ///
    /// let count = Map::options().load(&dir, |map| -> mangrove::Result<u64> {
    ///     for number in 0..1000_u32 {
    ///         map.put(number.to_be_bytes(), "leaf")?;
    ///     }
    ///     map.len()
    /// })?;
    /// assert_eq!(count, 1000);
    /// let again = Map::options().load(&dir, |_| Ok(()));
    /// assert!(matches!(again, Err(Error::Exists { .. })));
    ///
    /// let map = Map::open(&dir)?; // an ordinary map from now on
    /// assert_eq!(map.get(7_u32.to_be_bytes())?, Some(b"leaf".to_vec()));
    /// # drop(map);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn load<R, E: From<Error>>(
        &self,
        path: impl AsRef<Path>,
        fill: impl FnOnce(&Map) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.load_shared(path, |map| fill(map))
    }

    /// As [`MapOptions::load`], for a `fill` that needs snapshots and walks which own a share of the map
    /// ([`Map::snapshot_owned`], [`Map::range_owned`]). It must let go of all shares before it returns:
    /// otherwise the load fails, and what it wrote stays under the temporary name, and the next load
    /// or backup to `path` removes it.
    ///
    /// # Errors
    /// As [`MapOptions::load`]; [`Error::Unsupported`]: a share of the map is left when `fill` has returned.
    pub fn load_shared<R, E: From<Error>>(
        &self,
        path: impl AsRef<Path>,
        fill: impl FnOnce(&Arc<Map>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let options = self.clone().create(Create::New).bulk_load(true);
        let filled = appear(path.as_ref(), None, |part| -> std::result::Result<R, Failed<E>> {
            let unfinished = Unfinished::open(&options, part)?;
            let result = fill(unfinished.map()).map_err(Failed)?;
            unfinished.close()?;
            Ok(result)
        });
        filled.map_err(|Failed(error)| error)
    }
}

/// An error of the caller's type.
struct Failed<E>(E);

impl<E: From<Error>> From<Error> for Failed<E> {
    fn from(error: Error) -> Self {
        Self(error.into())
    }
}

impl<E: From<Error>> From<mangrove_pool::Error> for Failed<E> {
    fn from(error: mangrove_pool::Error) -> Self {
        Self(Error::from(error).into())
    }
}

/// A new map that is loaded. Dropped before it is closed, it is removed, and not written first.
pub(crate) struct Unfinished(Option<Arc<Map>>);

impl Unfinished {
    pub(crate) fn open(options: &MapOptions, path: &Path) -> crate::Result<Self> {
        options.open(path).map(|map| Self(Some(Arc::new(map))))
    }

    pub(crate) fn map(&self) -> &Arc<Map> {
        match &self.0 {
            Some(map) => map,
            None => unreachable!("only `close`, which takes the value, empties it"),
        }
    }

    pub(crate) fn close(mut self) -> crate::Result<()> {
        let Some(map) = self.0.take() else { return Ok(()) };
        let map = Arc::into_inner(map).ok_or_else(|| Error::Unsupported {
            what: "a snapshot or a walk holds the map that is being loaded; drop it before the load ends"
                .into(),
        })?;
        map.close()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(map) = self.0.take().and_then(Arc::into_inner) {
            map.undo_creation();
        }
    }
}
