//! Writes that take effect together.

/// A list of puts and deletes for [`crate::Map::write`]: after a crash all of them are there or
/// none. Later entries of the same key win. Costs the memory of its keys and values.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) ops: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: u64,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds "set `key` to `value`". Limits are checked by [`crate::Map::write`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(key.as_ref(), Some(value.as_ref()))
    }

    /// Adds "remove `key`", which need not be there.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(key.as_ref(), None)
    }

    /// Entries added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True when nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Bytes of all keys and values added.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets all entries.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.bytes = 0;
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        self.bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        self.ops.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        self
    }
}
