//! What the paper's figures compare: an ordered index of short keys with 8-byte values.

/// One structure under test, or one thread's handle to it.
pub(crate) trait BenchIndex: Send {
    /// Adds a key that is not there.
    fn insert(&mut self, key: &[u8], value: u64);
    /// The value of a key.
    fn get(&mut self, key: &[u8]) -> Option<u64>;
    /// Changes the value of a key that is there.
    fn update(&mut self, key: &[u8], value: u64) -> bool;
    /// Removes a key; false when it was not there.
    fn delete(&mut self, key: &[u8]) -> bool;
    /// Visits up to `count` records in ascending order from `from` on; returns how many.
    fn scan(&mut self, from: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], u64)) -> usize;
    /// True when the paper has no ordered scan for it and searches every key of a range.
    fn scans_by_search(&self) -> bool {
        false
    }
    /// A handle for another thread, where the structure allows several.
    fn handle(&self) -> Option<Box<dyn BenchIndex>> {
        None
    }
    /// Durable bytes in use; 0 for volatile structures.
    fn durable_bytes(&self) -> u64 {
        0
    }
}
