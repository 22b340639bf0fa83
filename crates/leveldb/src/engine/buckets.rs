//! Keys by bucket: what is noted of a bucket holds for all its keys.

/// Buckets; a power of two.
pub(crate) const BUCKET_COUNT: usize = 4096;

/// The bucket of a key.
#[inline]
pub(crate) fn bucket_of(key: &[u8]) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash.rotate_left(29) ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    (hash >> 52) as usize % BUCKET_COUNT
}
