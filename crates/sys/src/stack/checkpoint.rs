//! A call that returns several times: what `_ITM_beginTransaction` of the ABI of compilers' transactional memory does.
//!
//! The begin of a transaction keeps the callee-saved registers (System V ABI, x86-64, 3.2.1: rbx, rbp, r12 to r15,
//! the control words of SSE and x87), the stack pointer and the return address. An abort restores them: the begin
//! returns once more, with another result, and the body runs again although it is no closure.
//!
//! What must hold:
//! 1. The frame that called [`checkpoint`] is alive at [`Checkpoint::restore`]. That function has not returned:
//!    so only code below it may restore, be it any number of frames deep. Those frames are dropped as by longjmp:
//!    without destructors; none of them is a Rust frame that has any.
//! 2. The compiler of that caller knows that the call returns several times (GCC: `__attribute__((returns_twice))`,
//!    which it implies for `_ITM_beginTransaction`). Rust has no such attribute: no Rust function calls it.
//! 3. Memory is as it was left, the caller's variables included: the code that restores undoes what the body
//!    stored. A compiler spills what it changes in the body, or the transaction's undo log has it.

use std::arch::naked_asm;
use std::ffi::c_void;

/// Where a call of [`checkpoint`] returns, with the registers that it returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    /// As it is when the call has returned.
    rsp: u64,
    /// Where the call returns to.
    rip: u64,
    mxcsr: u32,
    /// The x87 control word, in the lower half.
    control: u32,
}

const _: () = assert!(size_of::<Checkpoint>() == 72, "the instructions below have its offsets");

/// What is called at the first return: it copies the checkpoint, and its answer is what [`checkpoint`] returns.
pub type AtCheckpoint = unsafe extern "C" fn(checkpoint: *const Checkpoint, argument: *mut c_void) -> u32;

/// Calls `at` with a checkpoint, which lives during that call, and returns its answer; and returns again at each
/// [`Checkpoint::restore`] of a copy, with the value given there.
///
/// # Safety
/// The caller is no Rust code: see the module.
#[unsafe(naked)]
pub unsafe extern "C" fn checkpoint(at: AtCheckpoint, argument: *mut c_void) -> u32 {
    naked_asm!(
        ".cfi_startproc",
        // 72 bytes, and the stack aligned for the call.
        "sub rsp, 72",
        ".cfi_adjust_cfa_offset 72",
        "mov [rsp], rbx",
        "mov [rsp + 8], rbp",
        "mov [rsp + 16], r12",
        "mov [rsp + 24], r13",
        "mov [rsp + 32], r14",
        "mov [rsp + 40], r15",
        "lea rax, [rsp + 80]",
        "mov [rsp + 48], rax",
        "mov rax, [rsp + 72]",
        "mov [rsp + 56], rax",
        "stmxcsr [rsp + 64]",
        "mov dword ptr [rsp + 68], 0",
        "fnstcw [rsp + 68]",
        "mov rax, rdi",
        "mov rdi, rsp",
        "call rax",
        "add rsp, 72",
        ".cfi_adjust_cfa_offset -72",
        "ret",
        ".cfi_endproc",
    )
}

impl Checkpoint {
    /// Returns once more from the call of `checkpoint` that made this, with `value`.
    ///
    /// # Safety
    /// That call's caller is alive, on this thread; see the module for what else must hold.
    pub unsafe fn restore(&self, value: u32) -> ! {
        // SAFETY: the caller's promise.
        unsafe { restore(self, value) }
    }
}

/// The registers, the stack, and the jump.
#[unsafe(naked)]
unsafe extern "C" fn restore(checkpoint: *const Checkpoint, value: u32) -> ! {
    naked_asm!(
        "mov eax, esi",
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "ldmxcsr [rdi + 64]",
        "fldcw [rdi + 68]",
        "mov rdx, [rdi + 56]",
        "mov rsp, [rdi + 48]",
        "jmp rdx",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the transaction of a test has: its checkpoint, and what it found.
    #[repr(C)]
    struct Run {
        checkpoint: Checkpoint,
        /// Returns of `checkpoint` that are wanted.
        wanted: u32,
        returns: u32,
        /// Registers that were not as the caller left them, a bit each.
        wrong: u64,
        depth: u32,
    }

    unsafe extern "C" fn at_first(checkpoint: *const Checkpoint, run: *mut c_void) -> u32 {
        // SAFETY: the test's argument.
        unsafe { (*run.cast::<Run>()).checkpoint = *checkpoint };
        1
    }

    /// The body: counts, and begins again from below `depth` frames until there were enough returns.
    unsafe extern "C" fn body(run: *mut Run, value: u32) {
        #[inline(never)]
        unsafe fn deep(run: *mut Run, depth: u32) -> u32 {
            let words = std::hint::black_box([depth; 40]);
            // SAFETY: as below.
            unsafe {
                if depth > 0 {
                    return deep(run, depth - 1) + words[7];
                }
                (*run).checkpoint.restore((*run).returns + 1)
            }
        }
        // SAFETY: the test's argument; the caller of `checkpoint` is `call_body`, which waits for this function.
        unsafe {
            (*run).returns += 1;
            assert_eq!(value, (*run).returns);
            if (*run).returns < (*run).wanted {
                deep(run, (*run).depth);
            }
        }
    }

    /// Fills the callee-saved registers, calls `checkpoint`, compares them after each return, spoils them, and calls
    /// `body`: the caller that no Rust function may be. rdi: the run.
    #[unsafe(naked)]
    unsafe extern "C" fn call_body(run: *mut Run) {
        naked_asm!(
            "push rbp", "push rbx", "push r12", "push r13", "push r14", "push r15",
            "sub rsp, 24",
            "stmxcsr [rsp]",
            "fnstcw [rsp + 4]",
            "mov [rsp + 16], rdi",
            // Rounding towards zero in both control words, which no compiler expects, but the ABI keeps.
            "mov dword ptr [rsp + 8], 0x7F80",
            "ldmxcsr [rsp + 8]",
            "mov word ptr [rsp + 12], 0x0F7F",
            "fldcw [rsp + 12]",
            "mov rbx, 0x1111", "mov rbp, 0x2222", "mov r12, 0x3333",
            "mov r13, 0x4444", "mov r14, 0x5555", "mov r15, 0x6666",
            "mov rsi, rdi",
            "lea rdi, [rip + {at_first}]",
            "call {checkpoint}",
            // Each return comes here.
            "mov esi, eax",
            "mov rdi, [rsp + 16]",
            "xor eax, eax",
            "cmp rbx, 0x1111", "setne al", "mov ecx, eax",
            "cmp rbp, 0x2222", "setne al", "lea ecx, [rcx * 2 + rax]",
            "cmp r12, 0x3333", "setne al", "lea ecx, [rcx * 2 + rax]",
            "cmp r13, 0x4444", "setne al", "lea ecx, [rcx * 2 + rax]",
            "cmp r14, 0x5555", "setne al", "lea ecx, [rcx * 2 + rax]",
            "cmp r15, 0x6666", "setne al", "lea ecx, [rcx * 2 + rax]",
            "stmxcsr [rsp + 8]", "and dword ptr [rsp + 8], 0xFFC0",
            "cmp dword ptr [rsp + 8], 0x7F80", "setne al", "lea ecx, [rcx * 2 + rax]",
            "fnstcw [rsp + 12]",
            "cmp word ptr [rsp + 12], 0x0F7F", "setne al", "lea ecx, [rcx * 2 + rax]",
            "or [rdi + {wrong}], rcx",
            // What the body's code may do with them.
            "mov dword ptr [rsp + 8], 0x1F80", "ldmxcsr [rsp + 8]",
            "mov word ptr [rsp + 12], 0x037F", "fldcw [rsp + 12]",
            "xor ebx, ebx", "xor ebp, ebp", "xor r12d, r12d", "xor r13d, r13d", "xor r14d, r14d", "xor r15d, r15d",
            "call {body}",
            "ldmxcsr [rsp]",
            "fldcw [rsp + 4]",
            "add rsp, 24",
            "pop r15", "pop r14", "pop r13", "pop r12", "pop rbx", "pop rbp",
            "ret",
            at_first = sym at_first,
            checkpoint = sym checkpoint,
            body = sym body,
            wrong = const std::mem::offset_of!(Run, wrong),
        )
    }

    #[test]
    fn each_return_finds_the_registers_of_the_first() {
        for (wanted, depth) in [(1, 0), (2, 0), (1000, 0), (1000, 30)] {
            let mut run = Run { checkpoint: Checkpoint::default(), wanted, returns: 0, wrong: 0, depth };
            // SAFETY: `call_body` is alive while its body runs.
            unsafe { call_body(&raw mut run) };
            assert_eq!((run.returns, run.wrong), (wanted, 0), "from {depth} frames below");
        }
    }
}
