//! Keys fall into buckets by a hash: what a table notes of a bucket holds for every key in it.

/// Buckets; a power of two.
pub const KEY_BUCKET_COUNT: usize = 4096;

/// The bucket of a key, below [`KEY_BUCKET_COUNT`].
#[inline]
#[must_use]
pub fn key_bucket(key: &[u8]) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(29) ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    (hash >> (64 - KEY_BUCKET_COUNT.ilog2())) as usize
}
