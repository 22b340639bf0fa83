//! CPUID.

use std::arch::x86_64::{__cpuid_count, CpuidResult};

/// The standard library's function is unsafe in some of the compilers that build this, and safe in others.
const CPUID: unsafe fn(u32, u32) -> CpuidResult = __cpuid_count;

/// A leaf of CPUID; of a leaf with several parts, the first. All zero for a leaf that the CPU does not have: Intel's
/// answer with the bits of another leaf then (Intel SDM vol. 2A, CPUID).
pub(crate) fn cpuid(leaf: u32) -> CpuidResult {
    // SAFETY: every x86-64 CPU has the instruction, and it changes nothing.
    let read = |leaf| unsafe { CPUID(leaf, 0) };
    // The first leaf of each half tells the last one.
    if leaf <= read(leaf & 0x8000_0000).eax {
        read(leaf)
    } else {
        CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_that_no_cpu_has_says_nothing() {
        assert_ne!(cpuid(0).eax, 0);
        for leaf in [0x7fff_ffff, 0xffff_ffff] {
            let CpuidResult { eax, ebx, ecx, edx } = cpuid(leaf);
            assert_eq!([eax, ebx, ecx, edx], [0; 4], "{leaf:#x}");
        }
    }
}
