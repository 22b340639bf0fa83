//! Cache-line write-back and ordering: clwb, clflushopt, clflush, sfence.

use std::fmt;

/// Bytes of one cache line; caches write back whole lines.
pub const CACHE_LINE_BYTES: usize = 64;

/// The instruction that writes one cache line back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushInstruction {
    /// Writes back and keeps the line; ordered by the next fence.
    Clwb,
    /// Writes back and evicts the line; ordered by the next fence.
    Clflushopt,
    /// Writes back and evicts the line; ordered by itself.
    Clflush,
    /// The persistence domain holds the caches: no instruction is needed.
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
            let leaf = crate::cpu::cpuid::cpuid(7);
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

/// Writes back every cache line of `len` bytes at `ptr` with `instruction`; complete after the next [`fence`].
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
            // SAFETY: the caller guarantees that the line is mapped; CPUID has reported the instruction.
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

/// Stores `bytes` at `to` past the caches, where the CPU can: whole lines with non-temporal stores, the rest with
/// plain ones. Every line is written back with `instruction`: a CPU may carry out a non-temporal store to a line that
/// it has in its cache there. Ordered, and durable, by the next [`fence`]. Returns false when the CPU cannot; then
/// nothing has been stored.
///
/// # Safety
/// `to` must be valid for writes of as many bytes, and no other thread may use them meanwhile.
#[inline]
pub unsafe fn write_around(instruction: FlushInstruction, to: *mut u8, bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let head = to.align_offset(CACHE_LINE_BYTES).min(bytes.len());
        let lines = (bytes.len() - head) / CACHE_LINE_BYTES;
        let (first, rest) = bytes.split_at(head);
        let (middle, last) = rest.split_at(lines * CACHE_LINE_BYTES);
        // SAFETY: the parts of `to` that correspond to the parts of `bytes`; whole lines are aligned, and SSE2 is
        // part of x86-64.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), to, first.len());
            flush_range(instruction, to, first.len());
            let mut place = to.add(head);
            for line in middle.chunks_exact(CACHE_LINE_BYTES) {
                let from = line.as_ptr().cast::<__m128i>();
                let parts = [0, 1, 2, 3].map(|n| _mm_loadu_si128(from.add(n)));
                for (n, part) in parts.into_iter().enumerate() {
                    _mm_stream_si128(place.cast::<__m128i>().add(n), part);
                }
                flush_range(instruction, place, CACHE_LINE_BYTES);
                place = place.add(CACHE_LINE_BYTES);
            }
            std::ptr::copy_nonoverlapping(last.as_ptr(), place, last.len());
            flush_range(instruction, place, last.len());
        }
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (instruction, to, bytes);
        false
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

/// Prefetches the line of `ptr`; a hint, never a fault.
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

/// Prefetches every line from that of `ptr` on, up to `bytes` bytes further, at once, so that later accesses in any
/// order do not wait for one line after the other. A hint, never a fault.
#[inline(always)]
pub fn prefetch_lines(ptr: *const u8, bytes: usize) {
    for line in (0..bytes).step_by(CACHE_LINE_BYTES) {
        prefetch_read(ptr.wrapping_add(line));
    }
}

/// Prefetches the line of `ptr` to be written to; a hint, never a fault.
#[inline]
pub fn prefetch_write(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address, mapped or not, has no effect but on the cache; processors without the
    // instruction execute it as one without effect (Intel SDM vol. 2B, PREFETCHW).
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}
