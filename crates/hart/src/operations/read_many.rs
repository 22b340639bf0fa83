//! Reading many records: their cache misses at the same time, instead of one after the other.

use crate::Result;
use crate::hart::Hart;
use crate::index::WALKS;
use crate::leaf::KIND_BLOCK;
use crate::read::check_key;

impl Hart {
    /// Calls `read` for each of `keys`, in their order, with its place and its value, `None` where there is none.
    ///
    /// Each answer is what [`Hart::get`] would give at some moment during the call, not all of the same moment.
    /// Time: that of as many lookups, but the walks of 16 keys wait for memory together.
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
            self.draw_near(keys);
            for (place, key) in keys.iter().enumerate() {
                let found = self.get_into(key.as_ref(), &mut value)?;
                read(group * WALKS + place, found.then_some(&value[..]));
            }
        }
        Ok(())
    }

    /// Asks for what lookups of up to [`WALKS`] keys will touch: the nodes, then the leaves, then the values.
    fn draw_near<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let mut asked: [&[u8]; WALKS] = [&[]; WALKS];
        for (place, key) in asked.iter_mut().zip(keys) {
            *place = key.as_ref();
        }
        let mut leaves = [0; WALKS];
        let mut count = 0;
        self.index.walk_abreast(&asked[..keys.len()], |leaf| {
            leaves[count] = self.space.offset(leaf);
            count += 1;
        });
        for leaf in &leaves[..count] {
            // Unvalidated: whatever the words say now, only a hint comes of it.
            let (meta, word) = self.space.leaf_words(*leaf);
            if meta.kind() == KIND_BLOCK {
                self.prefetch_block(word);
            }
        }
    }
}
