//! System calls without libc: they leave `errno` alone, and may be those of the tracked program.

use std::arch::asm;

/// Makes system call `number` and returns the kernel's result, `-errno` on failure.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn syscall(number: i64, args: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the caller's promise; the kernel clobbers rcx and r11 only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Largest error number that the kernel returns negated.
pub(crate) const ERRNO_MAX: i64 = 4095;

/// True if a result of `syscall` is an error.
pub(crate) fn failed(result: i64) -> bool {
    (-ERRNO_MAX..0).contains(&result)
}
