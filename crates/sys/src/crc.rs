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

/// As [`crc32c_pairs`], continued from the checksum of `head` (itself continued from `seed`) and from its inverse; and
/// copies the pairs to `to`, word by word, in the time of summing them. Nothing, and no copy, where the CPU has no
/// instruction.
///
/// # Safety
/// `to` must be valid for writes of as many pairs and aligned to 8, and no other thread may use that memory meanwhile.
#[inline]
#[must_use]
pub unsafe fn crc32c_copied(seed: u32, head: [u64; 3], pairs: &[[u64; 2]], to: *mut u64) -> Option<[u32; 2]> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the CPU has the instruction, as just tested; for the rest the caller's promises.
        return Some(unsafe { copied_by_instruction(seed, head, pairs, to) });
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (seed, head, pairs, to);
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn copied_by_instruction(seed: u32, head: [u64; 3], pairs: &[[u64; 2]], to: *mut u64) -> [u32; 2] {
    use std::arch::x86_64::_mm_crc32_u64;
    let first = head.into_iter().fold(u64::from(!seed), |crc, word| _mm_crc32_u64(crc, word));
    let mut crcs = [first, u64::from(!(first as u32))];
    let mut to = to;
    for [one, other] in pairs {
        crcs = [_mm_crc32_u64(crcs[0], *one), _mm_crc32_u64(crcs[1], *other)];
        // SAFETY: the caller's promises. Two stores, as there are two loads: a CPU forwards the store of a word to a
        // load of that word, and keeps a longer load waiting.
        unsafe {
            to.write(*one);
            to.add(1).write(*other);
            to = to.add(2);
        }
    }
    crcs.map(|crc| !(crc as u32))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
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
    fn a_copy_is_summed_behind_its_head() {
        let pairs: Vec<_> = (0..5u64).map(|n| [n * 8, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).collect();
        for count in 0..pairs.len() {
            let (head, pairs, mut copy) = ([count as u64, 7, 4096], &pairs[..count], [[1; 2]; 6]);
            // SAFETY: the copy has room for more pairs.
            let crcs = unsafe { crc32c_copied(3, head, pairs, copy.as_mut_ptr().cast()) };
            let Some(crcs) = crcs else { continue };
            assert_eq!((&copy[..count], copy[count]), (pairs, [1; 2]));
            let bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
            let crc = crc32c_short(3, &bytes);
            let wanted = crc.and_then(|crc| crc32c_pairs([crc, !crc], pairs));
            assert_eq!(Some(crcs), wanted);
        }
    }

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
