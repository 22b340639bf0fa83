//! Keys fall into buckets by a hash: what a table notes of a bucket holds for every key in it.

/// Buckets; a power of two.
pub const KEY_BUCKET_COUNT: usize = 4096;

/// The bucket of a key, below [`KEY_BUCKET_COUNT`].
#[inline]
#[must_use]
pub fn key_bucket(key: &[u8]) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    // Single bytes: a copy of a few bytes to memory would be loaded back as a word before it has arrived there.
    if !rest.is_empty() {
        mix(rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    (hash >> (64 - KEY_BUCKET_COUNT.ilog2())) as usize
}
