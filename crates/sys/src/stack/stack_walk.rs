//! Which functions wait on the calling thread's stack.

use std::ffi::c_void;

/// Whether a call waits on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// It waits.
    Waits,
    /// It does not: it has returned, or was left. So it seems, too, where code without unwind tables ends the walk.
    Left,
    /// This thread is in a signal handler, and the code that the signal interrupted has no unwind tables. (The stubs by
    /// which a shared library calls others have none, if LLD linked it.)
    Unknown,
}

/// Whether a call of `function` waits for the caller of this, and `place` lies in its frame. Allocates nothing, and
/// takes no lock (with glibc 2.35 or later).
///
/// Time: in proportion to the frames below.
#[must_use]
pub fn call_state(place: usize, function: usize) -> CallState {
    struct Walk {
        place: usize,
        wanted: usize,
        /// Of the frame that was met last: its function, and its lowest address.
        function: usize,
        low: usize,
        state: CallState,
    }

    unsafe extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> i32 {
        // SAFETY: the walk below; and the context that the unwinder passes.
        unsafe {
            let walk = &mut *walk.cast::<Walk>();
            let high = _Unwind_GetCFA(context);
            if walk.function == walk.wanted && (walk.low..high).contains(&walk.place) {
                walk.state = CallState::Waits;
                return URC_NORMAL_STOP;
            }
            let mut interrupted = 0;
            let ip = _Unwind_GetIPInfo(context, &raw mut interrupted);
            // Of a call the instruction before the one that is returned to: that may be another function's first.
            let at = ip.wrapping_sub(usize::from(interrupted == 0));
            walk.function = _Unwind_FindEnclosingFunction(std::ptr::without_provenance_mut(at)).addr();
            if interrupted != 0 && walk.function == 0 {
                // The unwinder goes no further.
                walk.state = CallState::Unknown;
            }
            walk.low = high;
            URC_NO_REASON
        }
    }

    let mut walk = Walk { place, wanted: function, function: 0, low: 0, state: CallState::Left };
    // SAFETY: the unwinder calls `step` with each frame of this thread, and with `walk`.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.state
}

const URC_NO_REASON: i32 = 0;
const URC_NORMAL_STOP: i32 = 4;

// The unwinder of the system's compiler (Itanium C++ ABI, Level I), which Rust's standard library links.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        step: unsafe extern "C" fn(*mut c_void, *mut c_void) -> i32,
        argument: *mut c_void,
    ) -> i32;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetIPInfo(context: *mut c_void, interrupted: *mut i32) -> usize;
    fn _Unwind_FindEnclosingFunction(instruction: *mut c_void) -> *mut c_void;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[inline(never)]
    fn waits(then: &mut dyn FnMut(usize)) {
        let mut word = 7u32;
        then(black_box(&raw mut word).addr());
        black_box(word);
    }

    #[test]
    fn a_call_is_found_while_it_waits() {
        let function = waits as *const () as usize;
        let mut left = 0;
        waits(&mut |place| {
            left = place;
            assert_eq!(call_state(place, function), CallState::Waits);
            let other = a_call_is_found_while_it_waits as *const () as usize;
            assert_eq!(call_state(place, other), CallState::Left);
            let mut here = 7u32;
            assert_eq!(call_state(black_box(&raw mut here).addr(), function), CallState::Left, "below it");
            waits(&mut |inner| {
                assert_eq!([inner, place].map(|at| call_state(at, function)), [CallState::Waits; 2])
            });
        });
        assert_eq!(call_state(left, function), CallState::Left, "it has returned");
    }

    // Code without unwind tables that a signal interrupts: `int3` raises SIGTRAP.
    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(
        ".globl mangrove_sys_test_traps",
        "mangrove_sys_test_traps:",
        "nop",
        "int3",
        "ret",
    );

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_signal_in_code_without_tables_says_nothing_of_the_calls_above() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        static PLACE: AtomicUsize = AtomicUsize::new(0);
        static UNKNOWN: AtomicUsize = AtomicUsize::new(0);

        unsafe extern "C" {
            fn mangrove_sys_test_traps();
        }

        extern "C" fn on_trap(_: i32) {
            let state = call_state(PLACE.load(Ordering::Relaxed), waits as *const () as usize);
            UNKNOWN.fetch_add(usize::from(state == CallState::Unknown), Ordering::Relaxed);
        }

        // SAFETY: the handler only reads its stack; no other test raises SIGTRAP.
        unsafe { libc::signal(libc::SIGTRAP, on_trap as *const () as usize) };
        waits(&mut |place| {
            PLACE.store(place, Ordering::Relaxed);
            // SAFETY: it returns, and changes no register.
            unsafe { mangrove_sys_test_traps() };
            assert_eq!(call_state(place, waits as *const () as usize), CallState::Waits);
        });
        assert_eq!(UNKNOWN.load(Ordering::Relaxed), 1);
    }
}
