//! CRC32C of short inputs by the CPU's instruction, without the set-up that pays only for long ones.

/// CRC32C (Castagnoli) of `bytes`, continued from `seed` (0 to start); nothing where the CPU has no instruction.
#[inline]
#[must_use]
pub fn crc32c_short(seed: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the CPU has the instruction, as just tested.
        is_x86_feature_detected!("sse4.2").then(|| unsafe { by_instruction(seed, bytes) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (seed, bytes);
        None
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut rest) = bytes.as_chunks::<8>();
    let mut crc = u64::from(!seed);
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    if let Some((word, tail)) = rest.split_first_chunk::<4>() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
        rest = tail;
    }
    for byte in rest {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

/// CRC32C of the first words of `pairs`, and of their second words, both little-endian and continued from `seeds`;
/// nothing where the CPU has no instruction. The two chains run side by side, in the time of one.
#[inline]
#[must_use]
pub fn crc32c_pairs(seeds: [u32; 2], pairs: &[[u64; 2]]) -> Option<[u32; 2]> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the CPU has the instruction, as just tested.
        is_x86_feature_detected!("sse4.2").then(|| unsafe { pairs_by_instruction(seeds, pairs) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (seeds, pairs);
        None
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn pairs_by_instruction(seeds: [u32; 2], pairs: &[[u64; 2]]) -> [u32; 2] {
    use std::arch::x86_64::_mm_crc32_u64;
    let mut crcs = seeds.map(|seed| u64::from(!seed));
    for [first, second] in pairs {
        crcs = [_mm_crc32_u64(crcs[0], *first), _mm_crc32_u64(crcs[1], *second)];
    }
    crcs.map(|crc| !(crc as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // RFC 3720, appendix B.4, and the usual check value.
        for (bytes, wanted) in
            [(&b""[..], 0), (b"123456789", 0xe306_9283), (&[0; 32], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43)]
        {
            assert_eq!(crc32c_short(0, bytes).unwrap_or(wanted), wanted);
            for cut in 0..bytes.len() {
                let (a, b) = bytes.split_at(cut);
                let both = crc32c_short(0, a).and_then(|seed| crc32c_short(seed, b));
                assert_eq!(both.unwrap_or(wanted), wanted);
            }
        }
    }
}
