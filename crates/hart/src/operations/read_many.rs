//! Reading many records, so that their cache misses overlap instead of following each other.

use crate::Result;
use crate::hart::Hart;
use crate::index::WALKS;
use crate::operations::read::check_key;

impl Hart {
    /// Calls `read` for each of `keys`, in their order, with its index and its value, `None` where there is none.
    ///
    /// Each value is what [`Hart::get`] would return at some moment during the call, not all at the same moment.
    /// Time: as many lookups, but the walks of 16 keys wait for memory together.
    ///
    /// # Errors
    /// As [`Hart::get`], at the first key that fails; `KeyTooLong` before anything is read.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        let mut value = Vec::new();
        for (group, keys) in keys.chunks(WALKS).enumerate() {
            self.prefetch_records(keys);
            for (place, key) in keys.iter().enumerate() {
                let found = self.get_into(key.as_ref(), &mut value)?;
                read(group * WALKS + place, found.then_some(&value[..]));
            }
        }
        Ok(())
    }

    /// Prefetches what lookups of up to [`WALKS`] keys will read: the nodes, then the leaves, then the values.
    fn prefetch_records<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let mut asked: [&[u8]; WALKS] = [&[]; WALKS];
        for (place, key) in asked.iter_mut().zip(keys) {
            *place = key.as_ref();
        }
        let mut leaves = [None; WALKS];
        let mut count = 0;
        self.index.walk_abreast(&asked[..keys.len()], |leaf| {
            leaves[count] = Some(leaf);
            count += 1;
        });
        leaves.iter().flatten().for_each(|leaf| self.prefetch_value(*leaf));
    }
}
