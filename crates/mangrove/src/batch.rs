//! Batches: writes that take effect together.

/// A list of puts and deletes for [`crate::Map::write`]: after a crash all of them are there or none. Later entries
/// of the same key win. Costs the memory of its keys and values.
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

    /// Entries added.
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

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.inner.clear();
        self.bytes = 0;
    }
}
