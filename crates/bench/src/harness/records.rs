//! The records of the sections on a disk: 16-byte keys in no order, and 100-byte values that can be checked against
//! their key.

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: usize = 100;
/// Bytes that a put has to make durable.
pub(crate) const PAYLOAD_BYTES: usize = KEY_BYTES + VALUE_BYTES;

/// A bijection of 64-bit numbers without visible order (the finaliser of SplitMix64).
fn scramble(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// The `number`-th key: 16 hexadecimal digits.
pub(crate) fn key(number: u64) -> [u8; KEY_BYTES] {
    let x = scramble(number);
    std::array::from_fn(|i| b"0123456789abcdef"[(x >> (60 - 4 * i) & 15) as usize])
}

/// The `number`-th key with a common prefix, so that all such keys fall in one tree of a HART.
pub(crate) fn prefixed_key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = key(number);
    // 12 digits are left, which are distinct for far more numbers than the bench draws.
    key.copy_within(0..KEY_BYTES - 4, 4);
    key[..4].copy_from_slice(b"user");
    key
}

/// The value of a key.
pub(crate) fn value(key: &[u8]) -> [u8; VALUE_BYTES] {
    let mut x = key.iter().fold(1u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01B3));
    let mut value = [0; VALUE_BYTES];
    for part in value.chunks_mut(8) {
        x = scramble(x.wrapping_add(0x9E37_79B9_7F4A_7C15));
        part.copy_from_slice(&x.to_le_bytes()[..part.len()]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_values_belong_to_them() {
        let keys: HashSet<_> = (0..50_000).map(key).collect();
        assert_eq!(keys.len(), 50_000);
        let prefixed: HashSet<_> = (0..50_000).map(prefixed_key).collect();
        assert_eq!(prefixed.len(), 50_000);
        assert!(prefixed.iter().all(|k| k.starts_with(b"user")));
        assert_ne!(value(&key(1)), value(&key(2)));
    }
}
