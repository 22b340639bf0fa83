//! CRC32C of short inputs by the CPU's instruction, without the set-up that pays only for long ones.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// The CPU's instruction for CRC32C: who has this value has found it there.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(());

/// What [`Crc32c::store`] has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The checksums of the first and of the second words.
    pub crcs: [u32; 2],
    /// The greatest first word; 0 of none.
    pub greatest: u64,
    /// Every bit that is set in some first word.
    pub bits: u64,
}

impl Crc32c {
    /// The instruction, if the CPU has it.
    #[must_use]
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            is_x86_feature_detected!("sse4.2").then_some(Self(()))
        }
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Continues `crc` by a little-endian word. The upper half of `crc` does not count, and that of the result is zero.
    #[inline(always)]
    fn word(self, crc: u64, word: u64) -> u64 {
        let mut crc = crc;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has the instruction, which reads and writes registers alone. Not the intrinsic, which is
        // inlined only where the whole program requires such a CPU.
        unsafe {
            std::arch::asm!("crc32 {}, {}", inout(reg) crc, in(reg) word, options(pure, nomem, nostack));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (&mut crc, word);
        crc
    }

    /// Continues `crc` by the lowest `bytes` (1, 2 or 4) bytes of `word`.
    #[inline(always)]
    fn part(self, crc: u64, word: u64, bytes: usize) -> u64 {
        let mut crc = crc;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `word`.
        unsafe {
            use std::arch::asm;
            match bytes {
                4 => asm!("crc32 {0:e}, {1:e}", inout(reg) crc, in(reg) word, options(pure, nomem, nostack)),
                2 => asm!("crc32 {0:e}, {1:x}", inout(reg) crc, in(reg) word, options(pure, nomem, nostack)),
                _ => asm!("crc32 {0:e}, {1:l}", inout(reg) crc, in(reg) word, options(pure, nomem, nostack)),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (&mut crc, word, bytes);
        crc
    }

    /// Copies `len` bytes from `from` to `to`, and returns the CRC32C of the little-endian bytes of `head` and of
    /// those that it copied. Each word is loaded once, atomically, so others may store to `from` meanwhile.
    ///
    /// # Safety
    /// `from` is aligned to 8 and valid for reads of `len` bytes, rounded up to whole words; nothing but atomic stores
    /// changes what it points to, or the caller discards the result. `to` is valid for writes of `len` bytes, which
    /// nothing else uses meanwhile.
    #[inline(always)]
    #[must_use]
    pub unsafe fn copy(self, head: u32, from: *const u64, len: usize, to: *mut u8) -> u32 {
        let mut crc = self.part(u64::from(u32::MAX), u64::from(head), 4);
        // SAFETY: the caller's promises: `at` is below `len`, rounded up to whole words.
        let load =
            |at: usize| unsafe { AtomicU64::from_ptr(from.byte_add(at).cast_mut()) }.load(Ordering::Relaxed);
        let mut at = 0;
        while at + 8 <= len {
            let word = load(at);
            crc = self.word(crc, word);
            // SAFETY: the caller's promises: 8 bytes from `at` on are within `len`.
            unsafe { to.add(at).cast::<u64>().write_unaligned(word) };
            at += 8;
        }
        if at < len {
            let mut word = load(at);
            for bytes in [4, 2, 1] {
                if len & bytes != 0 {
                    crc = self.part(crc, word, bytes);
                    let low = word.to_le_bytes();
                    // SAFETY: the bits of `len % 8` add up to the bytes that are left.
                    unsafe { to.add(at).copy_from_nonoverlapping(low.as_ptr(), bytes) };
                    word >>= 8 * bytes;
                    at += bytes;
                }
            }
        }
        !(crc as u32)
    }

    /// As [`crc32c_pairs`] of the pairs that `pair` makes of `entries`, continued from the checksum of `head` (itself
    /// continued from `seed`) and from its inverse; and stores the pairs to `to`, word by word, in the time of summing
    /// them.
    ///
    /// # Safety
    /// `to` must be valid for writes of as many pairs as there are entries and aligned to 8, and no other thread may
    /// use that memory meanwhile.
    #[inline(always)]
    pub unsafe fn store<T>(
        self,
        seed: u32,
        head: [u64; 3],
        entries: &[T],
        mut pair: impl FnMut(&T) -> [u64; 2],
        to: *mut u64,
    ) -> Stored {
        let first = head.into_iter().fold(u64::from(!seed), |crc, word| self.word(crc, word));
        let mut crcs = [first, u64::from(!(first as u32))];
        let (mut to, mut greatest, mut bits) = (to, 0, 0);
        for entry in entries {
            let [one, other] = pair(entry);
            crcs = [self.word(crcs[0], one), self.word(crcs[1], other)];
            (greatest, bits) = (one.max(greatest), one | bits);
            // SAFETY: the caller's promises. Two stores, as there are two loads: a CPU forwards the store of a word to
            // a load of that word, and keeps a longer load waiting.
            unsafe {
                to.write(one);
                to.add(1).write(other);
                to = to.add(2);
            }
        }
        Stored { crcs: crcs.map(|crc| !(crc as u32)), greatest, bits }
    }
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
        let Some(crc) = Crc32c::detect() else { return };
        let pairs: Vec<_> = (0..5u64).map(|n| [n * 8, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).collect();
        for count in 0..pairs.len() {
            let (head, pairs, mut copy) = ([count as u64, 7, 4096], &pairs[..count], [[1; 2]; 6]);
            // SAFETY: the copy has room for more pairs.
            let stored = unsafe { crc.store(3, head, pairs, |pair| *pair, copy.as_mut_ptr().cast()) };
            let Stored { crcs, greatest, bits } = stored;
            assert_eq!(greatest, pairs.last().map_or(0, |pair| pair[0]));
            assert_eq!(bits, pairs.iter().fold(0, |bits, pair| bits | pair[0]));
            assert_eq!((&copy[..count], copy[count]), (pairs, [1; 2]));
            let bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
            let crc = crc32c_short(3, &bytes);
            let wanted = crc.and_then(|crc| crc32c_pairs([crc, !crc], pairs));
            assert_eq!(Some(crcs), wanted);
        }
    }

    #[test]
    fn a_copy_of_any_length_is_exact_and_summed() {
        let Some(crc) = Crc32c::detect() else { return };
        let words: [u64; 6] = std::array::from_fn(|n| (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for len in 0..=bytes.len() {
            let mut copy = [0xAA; 56];
            // SAFETY: six words are there, and the copy has room for them.
            let sum = unsafe { crc.copy(len as u32, words.as_ptr(), len, copy.as_mut_ptr()) };
            assert_eq!(copy[..len], bytes[..len]);
            assert!(copy[len..].iter().all(|byte| *byte == 0xAA), "{len}: a byte after the copy changed");
            let head = crc32c_short(0, &(len as u32).to_le_bytes());
            assert_eq!(Some(sum), head.and_then(|seed| crc32c_short(seed, &bytes[..len])), "{len}");
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
