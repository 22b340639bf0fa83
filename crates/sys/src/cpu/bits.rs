//! Instructions of the CPU for bits and bytes that the compiler does not use by itself.

/// The number of one bits, as `u64::count_ones`.
#[inline(always)]
#[must_use]
pub fn count_ones(word: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("popcnt") {
        let count: u64;
        // SAFETY: the CPU has the instruction; it reads and writes only the named registers and the flags.
        unsafe {
            std::arch::asm!(
                "popcnt {count}, {word}",
                word = in(reg) word,
                count = lateout(reg) count,
                options(pure, nomem, nostack)
            );
        }
        return count as u32;
    }
    word.count_ones()
}

/// Which of the 16 bytes of `words`, the lowest of the first word first, equal `byte`: bit i for byte i. Without a
/// branch.
#[inline]
#[must_use]
pub fn equal_bytes(words: [u64; 2], byte: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        // SAFETY: every x86-64 processor has SSE2, and these work on registers alone.
        unsafe {
            let bytes = _mm_set_epi64x(words[1].cast_signed(), words[0].cast_signed());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()))).cast_unsigned()
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let bytes = words.map(u64::to_le_bytes);
        bytes.iter().flatten().enumerate().fold(0, |mask, (at, b)| mask | u32::from(*b == byte) << at)
    }
}

#[cfg(test)]
mod tests {
    use super::{count_ones, equal_bytes};

    #[test]
    fn counts_as_the_standard_library_does() {
        for shift in 0..64 {
            for word in [u64::MAX >> shift, 1 << shift, 0x0123_4567_89ab_cdef_u64.rotate_left(shift), 0] {
                assert_eq!(count_ones(word), word.count_ones());
            }
        }
    }

    #[test]
    fn bytes_that_are_equal_are_found_wherever_they_are() {
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0980];
        for (at, byte) in words.map(u64::to_le_bytes).iter().flatten().enumerate() {
            assert_eq!(equal_bytes(words, *byte), 1 << at);
        }
        assert_eq!((equal_bytes(words, 8), equal_bytes([0; 2], 0)), (0, 0xffff));
    }
}
