//! Cache-line write-back and ordering: clwb, clflushopt, clflush, sfence.

use std::fmt;

/// Bytes of one cache line, the unit in which caches write back to the medium.
pub const CACHE_LINE_BYTES: usize = 64;

/// The instruction that asks one cache line to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushInstruction {
    /// Writes back and keeps the line; ordered by the next fence.
    Clwb,
    /// Writes back and evicts the line; ordered by the next fence.
    Clflushopt,
    /// Writes back and evicts the line; ordered by itself.
    Clflush,
    /// The persistence domain holds the caches: nothing to ask for.
    None,
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clwb => "clwb",
            Self::Clflushopt => "clflushopt",
            Self::Clflush => "clflush",
            Self::None => "none",
        })
    }
}

impl FlushInstruction {
    /// True when this CPU has the instruction.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            // Leaf 7, EBX: bit 24 is CLWB, bit 23 CLFLUSHOPT (Intel SDM vol. 2A, CPUID).
            let leaf = std::arch::x86_64::__cpuid_count(7, 0);
            match self {
                Self::Clwb => leaf.ebx & (1 << 24) != 0,
                Self::Clflushopt => leaf.ebx & (1 << 23) != 0,
                Self::Clflush | Self::None => true,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::None
        }
    }

    /// The cheapest instruction that this CPU has.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            [Self::Clwb, Self::Clflushopt].into_iter().find(|i| i.is_available()).unwrap_or(Self::Clflush)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            Self::None
        }
    }
}

/// Asks every cache line of `len` bytes at `ptr` to be written back with `instruction`.
///
/// # Safety
/// The range must be mapped.
#[inline]
pub unsafe fn flush_range(instruction: FlushInstruction, ptr: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::asm;
        if len == 0 || matches!(instruction, FlushInstruction::None) {
            return;
        }
        let mut line = (ptr as usize) & !(CACHE_LINE_BYTES - 1);
        let end = ptr as usize + len;
        while line < end {
            // SAFETY: the caller vouches that the line is mapped; CPUID vouched for the instruction.
            unsafe {
                match instruction {
                    FlushInstruction::Clwb => {
                        asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    FlushInstruction::Clflushopt => {
                        asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                    }
                    _ => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
                }
            }
            line += CACHE_LINE_BYTES;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (instruction, ptr, len);
    }
}

/// Orders every earlier flush and store of this thread before every later store.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: sfence has no precondition.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Asks for the line of `ptr` to be brought near; a hint, never a fault.
#[inline]
pub fn prefetch_read(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address, mapped or not, has no effect but on the cache.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(ptr.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Asks for the line of `ptr` to be brought near to be written to; a hint, never a fault.
#[inline]
pub fn prefetch_write(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address, mapped or not, has no effect but on the cache; processors without the
    // instruction take it for one that does nothing (Intel SDM vol. 2B, PREFETCHW).
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}
