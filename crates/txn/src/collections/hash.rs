//! The hash of keys, a part of the format: heaps come back in later versions of this program.
//!
//! Multiply to 128 bits and fold, as in wyhash (Wang Yi): two words a step. The seed, of each map its own, keeps
//! programs that choose keys from choosing collisions; it is no cryptographic hash.

/// Odd numbers with half their bits set (the first digits of pi, as in wyhash's successors).
pub(super) const MIX: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7345];

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A hash that takes its bytes in pieces of [`Hash::PIECE`].
pub(super) struct Hash {
    state: u64,
    seed: u64,
}

impl Hash {
    /// Bytes of each piece but the last.
    pub(super) const PIECE: usize = 16;

    #[inline(always)]
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed ^ MIX[0], seed }
    }

    /// Takes a piece: 16 bytes, or the last ones.
    #[inline(always)]
    pub(super) fn take(&mut self, piece: &[u8]) {
        let (low, high) = if piece.len() > 8 {
            let (low, high) = piece.split_at(8);
            (word(low), word(high))
        } else {
            (word(piece), 0)
        };
        self.state = fold(self.state ^ low, high ^ self.seed ^ MIX[1]);
    }

    /// The hash of what was taken, `len` bytes in all.
    #[inline(always)]
    pub(super) fn end(self, len: usize) -> u64 {
        fold(self.state ^ len as u64, MIX[1])
    }
}

/// Up to 8 bytes as a little-endian number.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(bytes) = bytes.try_into() {
        return u64::from_le_bytes(bytes);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The hash of `bytes`.
#[inline(always)]
pub(super) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = Hash::new(seed);
    bytes.chunks(Hash::PIECE).for_each(|piece| hash.take(piece));
    hash.end(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The format: these values stand in heaps.
    #[test]
    fn hashes_stay_as_they_are() {
        let hashes =
            [&b""[..], b"mangrove", b"a tree that lives in two elements"].map(|bytes| hash(7, bytes));
        assert_eq!(hashes, [0xF4B4_1BF0_A627_1051, 0xD4E1_A93E_E5B9_4FEA, 0x6728_4F94_3165_9355]);
    }

    /// Neighbouring numbers differ in the bits that choose buckets, tags and counters.
    #[test]
    fn every_bit_field_is_spread() {
        for (shift, bits) in [(0, 12), (48, 5), (56, 8)] {
            for seed in [0, 1, u64::MAX] {
                let field = |n: u64| hash(seed, &n.to_le_bytes()) >> shift & ((1 << bits) - 1);
                let values: HashSet<u64> = (0..1 << (bits + 3)).map(field).collect();
                assert!(values.len() >= (1 << bits) - 8, "{} of {} at {shift}", values.len(), 1 << bits);
            }
        }
    }
}
