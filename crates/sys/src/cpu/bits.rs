//! Bit counting by the CPU's own instruction, which the baseline of x86-64 does not include.

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

#[cfg(test)]
mod tests {
    use super::count_ones;

    #[test]
    fn counts_as_the_standard_library_does() {
        for shift in 0..64 {
            for word in [u64::MAX >> shift, 1 << shift, 0x0123_4567_89ab_cdef_u64.rotate_left(shift), 0] {
                assert_eq!(count_ones(word), word.count_ones());
            }
        }
    }
}
