//! CPUID.

use std::arch::x86_64::{__cpuid_count, CpuidResult};

/// The standard library's function is unsafe in some of the compilers that build this, and safe in others.
const CPUID: unsafe fn(u32, u32) -> CpuidResult = __cpuid_count;

/// A leaf of CPUID; of a leaf with several parts, the first.
pub(crate) fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 CPU has the instruction, and it changes nothing.
    unsafe { CPUID(leaf, 0) }
}
