//! Batches: writes that take effect together.

/// A list of puts and deletes for [`crate::Map::write`]: after a crash all of them are there or none. Later entries
/// of the same key win. Costs the memory of its keys and values.
///
/// With [`Batch::expect`] the batch takes effect only if records are as the caller has read them: a transfer between
/// two keys needs no lock of its own.
///
/// ```
/// # fn main() -> mangrove::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("mangrove-doc-batch-{}", std::process::id()));
/// use mangrove::{Batch, Error, Map};
///
/// let map = Map::open(&dir)?;
/// let mut first = Batch::new();
/// first.put("alice", "100").put("bob", "0");
/// map.write(first)?;
///
/// let mut transfer = Batch::new();
/// transfer.expect("alice", Some(b"100")).expect("bob", Some(b"0")); // as they were read
/// transfer.put("alice", "70").put("bob", "30");
/// let again = transfer.clone();
/// map.write(transfer)?;
/// match map.write(again) {
///     Err(Error::Mismatch { key }) => assert_eq!(key, b"alice"), // read both again, and retry
///     other => panic!("{other:?}"),
/// }
/// # drop(map);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) inner: mangrove_hart::Batch,
    bytes: u64,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds "set `key` to `value`". [`crate::Map::write`] checks the limits.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.bytes += (key.len() + value.len()) as u64;
        self.inner.put(key, value);
        self
    }

    /// Adds "remove `key`", which need not be there.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.bytes += key.as_ref().len() as u64;
        self.inner.delete(key.as_ref());
        self
    }

    /// Adds a condition: the batch takes effect only if `key` has this value at that moment, or is absent where it is
    /// `None`. Otherwise [`crate::Map::write`] fails with [`crate::Error::Mismatch`], and changes nothing.
    pub fn expect(&mut self, key: impl AsRef<[u8]>, value: Option<&[u8]>) -> &mut Self {
        self.bytes += (key.as_ref().len() + value.map_or(0, <[u8]>::len)) as u64;
        self.inner.expect(key, value);
        self
    }

    /// Puts and deletes added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// True when nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Bytes of all keys and values added.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes all entries and conditions.
    pub fn clear(&mut self) {
        self.inner.clear();
        self.bytes = 0;
    }
}
