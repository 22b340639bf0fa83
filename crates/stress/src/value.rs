//! Values that validate themselves: each names the operation that wrote it and the key it belongs to.
//!
//! Short form, 8 bytes (they live inline, beside their key): round 2, thread 1, number 3, check 2.
//! Long form, 24 bytes and more: round 4, thread 4, number 8, noise, check 8. All little endian; the
//! check is a hash of everything before it, the key and the length.

use std::fmt;

/// The longest value that the stress writes: an extent of several segments.
const LONG_BYTES_MAX: usize = 600_000;

/// One operation of one writer thread of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterOperation {
    pub(crate) round: u16,
    pub(crate) thread: u8,
    /// 1, 2, 3, ... in its thread.
    pub(crate) number: u32,
}

impl fmt::Display for WriterOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}t{} {}", self.round, self.thread, self.number)
    }
}

/// A value for `key`, of a length that `noise` chooses: mostly inline or small, sometimes pages,
/// seldom a large extent.
pub(crate) fn encode(operation: WriterOperation, key: &[u8], noise: u64) -> Vec<u8> {
    let WriterOperation { round, thread, number } = operation;
    let extra = match noise % 64 {
        0..24 => {
            let mut value = Vec::with_capacity(8);
            value.extend(round.to_le_bytes());
            value.push(thread);
            value.extend(&number.to_le_bytes()[..3]);
            let check = hash(&value, key) as u16;
            value.extend(check.to_le_bytes());
            return value;
        }
        24..56 => noise / 64 % 200,
        56..63 => noise / 64 % 9_000,
        _ if (noise / 64).is_multiple_of(16) => noise / 1024 % (LONG_BYTES_MAX as u64 - 24),
        _ => noise / 64 % 40_000,
    };
    let mut value = Vec::with_capacity(24 + extra as usize);
    value.extend(u32::from(round).to_le_bytes());
    value.extend(u32::from(thread).to_le_bytes());
    value.extend(u64::from(number).to_le_bytes());
    let mut state = noise;
    while value.len() < 16 + extra as usize {
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let left = 16 + extra as usize - value.len();
        value.extend(&state.to_le_bytes()[..left.min(8)]);
    }
    let check = hash(&value, key);
    value.extend(check.to_le_bytes());
    value
}

/// The operation that wrote `value` for `key`, or what is wrong with it.
pub(crate) fn decode(value: &[u8], key: &[u8]) -> Result<WriterOperation, String> {
    let word = |at: usize, len: usize| {
        value[at..at + len].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte))
    };
    let (operation, body) = match value.len() {
        8 => ([word(0, 2), word(2, 1), word(3, 3)], 6),
        24.. => ([word(0, 4), word(4, 4), word(8, 8)], value.len() - 8),
        len => return Err(format!("{len} bytes, a length that was never written")),
    };
    let (found, expected) = (word(body, value.len() - body), hash(&value[..body], key));
    let expected = if body == 6 { expected & 0xffff } else { expected };
    if found != expected {
        return Err(format!("{} bytes with check {found:x} instead of {expected:x}", value.len()));
    }
    let [round, thread, number] = operation;
    match (round.try_into(), thread.try_into(), number.try_into()) {
        (Ok(round), Ok(thread), Ok(number)) => Ok(WriterOperation { round, thread, number }),
        _ => Err(format!("names an operation that cannot be: {operation:?}")),
    }
}

fn hash(body: &[u8], key: &[u8]) -> u64 {
    let mut state = (body.len() as u64) << 32 | key.len() as u64;
    for part in [body, key] {
        for chunk in part.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            state = mix(state ^ u64::from_le_bytes(word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
    }
    mix(state)
}

/// The finisher of splitmix64: every input bit changes every output bit with probability one half.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_operation_and_any_flipped_bit_shows() {
        for seed in 0..2_000u64 {
            let operation =
                WriterOperation { round: seed as u16, thread: seed as u8, number: seed as u32 + 1 };
            let value = encode(operation, b"key", mix(seed));
            assert_eq!(decode(&value, b"key"), Ok(operation));
            assert!(decode(&value, b"kez").is_err(), "seed {seed} is right for another key");
            let mut bad = value.clone();
            let at = mix(seed + 7) as usize % value.len();
            bad[at] ^= 1 << (seed % 8);
            assert!(decode(&bad, b"key").is_err(), "seed {seed}: byte {at} may change unseen");
            assert!(decode(&value[..value.len() - 1], b"key").is_err());
        }
    }
}
