//! A second stack for a thread: a function runs on it until it pauses, and continues when the thread asks for that.
//!
//! Code that leaves the thread's own stack without running destructors (longjmp), or in a way that no Rust frame
//! may stop (pthread_exit, a C++ exception), leaves the frames on the second stack as they are: paused.
//!
//! 1. One side runs at a time, and both are one thread: so thread-local variables are the same on both.
//! 2. The side that pauses has its callee-saved registers and control words (System V ABI, x86-64, 3.2.1) on its own
//!    stack; nothing else of it is kept. What it asked for is where it left it.
//! 3. A panic must not leave the function that runs on the second stack: nothing lies above it.

use std::arch::naked_asm;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};

/// Bytes of a second stack; pages of it that are never used take no memory.
pub const SECOND_STACK_BYTES: usize = 256 << 10;
/// Addresses on each side of it that nothing uses: an overflow faults. (valgrind takes a smaller distance between two
/// stacks for a large variable.)
const GUARD_BYTES: usize = 4 << 20;

/// A stack, and the function that runs on it.
///
/// Not `Send`: what a paused function has on the stack is its thread's.
#[derive(Debug)]
pub struct SecondStack {
    reserved: NonNull<u8>,
    /// Where the side that does not run continues; null while nothing has begun.
    paused: UnsafeCell<*mut u8>,
    runs: Cell<bool>,
}

impl SecondStack {
    /// A stack on which nothing runs.
    ///
    /// # Errors
    /// The system's, usually that there is no memory.
    pub fn new() -> io::Result<Self> {
        let len = SECOND_STACK_BYTES + 2 * GUARD_BYTES;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: fresh addresses, and the middle of them.
        unsafe {
            let reserved = libc::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0);
            if reserved == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = reserved.byte_add(GUARD_BYTES);
            if libc::mprotect(stack, SECOND_STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                let error = io::Error::last_os_error();
                libc::munmap(reserved, len);
                return Err(error);
            }
            let reserved = NonNull::new_unchecked(reserved.cast());
            Ok(Self { reserved, paused: UnsafeCell::new(null_mut()), runs: Cell::new(false) })
        }
    }

    /// Whether a function has begun here and not ended.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.runs.get()
    }

    /// Calls `function` with `argument` on this stack; returns when that has paused or ended.
    ///
    /// # Safety
    /// No panic leaves `function`. What it uses stays valid until it has ended. Everything else happens on this thread.
    ///
    /// # Panics
    /// When another function has begun here and not ended.
    pub unsafe fn start(&self, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) {
        assert!(!self.runs.get(), "a second stack has one function at a time");
        // SAFETY: above the end of the stack's usable bytes no word is written: the first frame has 11 words.
        unsafe {
            let top = self.reserved.as_ptr().add(GUARD_BYTES + SECOND_STACK_BYTES).cast::<u64>();
            // From the top: no caller, what `switch` returns to, and what it pops: rbp, rbx, r12 to r15, the two words.
            let frame = [
                u64::from(INITIAL_MXCSR) | u64::from(INITIAL_CONTROL) << 32,
                0,
                0,
                std::ptr::from_ref(self) as u64,
                argument as u64,
                function as usize as u64,
                0,
                enter as *const () as u64,
                0,
            ];
            let at = top.sub(frame.len());
            at.copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            *self.paused.get() = at.cast();
        }
        self.runs.set(true);
        // SAFETY: the frame is what `switch` expects, and the rest the caller's promise.
        unsafe { switch(self.paused.get()) };
    }

    /// Lets the paused function continue; returns when it has paused again or ended.
    ///
    /// # Safety
    /// Called on the thread that started the function, and not by the function.
    ///
    /// # Panics
    /// When nothing is paused here.
    pub unsafe fn go_on(&self) {
        assert!(self.runs.get(), "nothing is paused on this stack");
        // SAFETY: `paused` is what `pause` left.
        unsafe { switch(self.paused.get()) };
    }

    /// Pauses the function that runs here; returns at the next `go_on`.
    ///
    /// # Safety
    /// Called by that function.
    pub unsafe fn pause(&self) {
        // SAFETY: `paused` is what `start` or `go_on` left.
        unsafe { switch(self.paused.get()) };
    }
}

impl Drop for SecondStack {
    fn drop(&mut self) {
        // What is paused there may be pointed to.
        if self.runs.get() {
            return;
        }
        // SAFETY: mapped by `new`, and nothing runs there.
        unsafe { libc::munmap(self.reserved.as_ptr().cast(), SECOND_STACK_BYTES + 2 * GUARD_BYTES) };
    }
}

/// The control words with which a program starts (System V ABI, 3.4.1): all exceptions masked, nearest rounding.
const INITIAL_MXCSR: u32 = 0x1F80;
const INITIAL_CONTROL: u16 = 0x037F;

/// Continues at `*paused`, and stores there where this side continues.
#[unsafe(naked)]
unsafe extern "C" fn switch(paused: *mut *mut u8) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov rax, [rdi]",
        "mov [rdi], rsp",
        "mov rsp, rax",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// The first frame of a second stack: rbx has the function, r12 its argument, r13 the stack.
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        // Whoever unwinds finds no caller.
        ".cfi_startproc",
        ".cfi_undefined rip",
        "sub rsp, 8",
        "mov rdi, r12",
        "call rbx",
        "mov rdi, r13",
        "call {leave}",
        "ud2",
        ".cfi_endproc",
        leave = sym leave,
    )
}

/// The function has ended.
unsafe extern "C" fn leave(stack: *const SecondStack) {
    // SAFETY: `start` keeps it, as its caller does.
    unsafe {
        (*stack).runs.set(false);
        switch((*stack).paused.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sums {
        stack: SecondStack,
        next: Cell<u64>,
        sum: Cell<u64>,
    }

    unsafe extern "C" fn sum(sums: *mut c_void) {
        // SAFETY: the test's argument, and the function that runs there.
        let sums = unsafe { &*sums.cast::<Sums>() };
        let mut own = 0.0;
        while sums.next.get() != 0 {
            own += sums.next.get() as f64 / 2.0;
            sums.sum.set((own * 2.0) as u64);
            // SAFETY: as above.
            unsafe { sums.stack.pause() };
        }
    }

    #[test]
    fn a_function_goes_on_where_it_paused() {
        let sums = Sums { stack: SecondStack::new().unwrap(), next: Cell::new(1), sum: Cell::new(0) };
        for round in 1..=3 {
            sums.next.set(1);
            assert!(!sums.stack.is_in_use());
            // SAFETY: the function neither panics nor outlives `sums`.
            unsafe { sums.stack.start(sum, (&raw const sums).cast_mut().cast()) };
            for next in 2..=1000 {
                sums.next.set(next);
                // SAFETY: paused, on this thread.
                unsafe { sums.stack.go_on() };
            }
            assert_eq!(sums.sum.get(), 1000 * 1001 / 2, "round {round}");
            assert!(sums.stack.is_in_use());
            sums.next.set(0);
            // SAFETY: as above.
            unsafe { sums.stack.go_on() };
        }
        assert!(!sums.stack.is_in_use());
    }

    unsafe extern "C" fn panics(caught: *mut c_void) {
        let result = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(7u32)));
        // SAFETY: the test's argument.
        unsafe { *caught.cast::<u32>() = *result.unwrap_err().downcast().unwrap() };
    }

    #[test]
    fn a_panic_can_be_caught_there() {
        let stack = SecondStack::new().unwrap();
        let mut caught = 0u32;
        // SAFETY: the panic does not leave the function.
        unsafe { stack.start(panics, (&raw mut caught).cast()) };
        assert_eq!(caught, 7);
    }
}
