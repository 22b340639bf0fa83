//! Which functions wait on the calling thread's stack.

use std::ffi::c_void;

/// Whether a call of `function` waits for the caller of this, and `place` lies in its frame. Allocates nothing, and
/// takes no lock (with glibc 2.35 or later). Code without unwind tables ends the walk: it finds nothing
/// above that.
///
/// Time: in proportion to the frames below.
#[must_use]
pub fn is_in_frame_of(place: usize, function: usize) -> bool {
    struct Walk {
        place: usize,
        wanted: usize,
        /// Of the frame that was met last: its function, and its lowest address.
        function: usize,
        low: usize,
        found: bool,
    }

    unsafe extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> i32 {
        // SAFETY: the walk below; and the context that the unwinder passes.
        unsafe {
            let walk = &mut *walk.cast::<Walk>();
            let high = _Unwind_GetCFA(context);
            if walk.function == walk.wanted && (walk.low..high).contains(&walk.place) {
                walk.found = true;
                return URC_NORMAL_STOP;
            }
            // The instruction before the one that is returned to: that may be another function's first.
            let at = std::ptr::without_provenance_mut(_Unwind_GetIP(context).wrapping_sub(1));
            walk.function = _Unwind_FindEnclosingFunction(at).addr();
            walk.low = high;
            URC_NO_REASON
        }
    }

    let mut walk = Walk { place, wanted: function, function: 0, low: 0, found: false };
    // SAFETY: the unwinder calls `step` with each frame of this thread, and with `walk`.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk.found
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
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
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
            assert!(is_in_frame_of(place, function));
            assert!(!is_in_frame_of(place, a_call_is_found_while_it_waits as *const () as usize));
            let mut here = 7u32;
            assert!(!is_in_frame_of(black_box(&raw mut here).addr(), function), "below it");
            waits(&mut |inner| assert!(is_in_frame_of(inner, function) && is_in_frame_of(place, function)));
        });
        assert!(!is_in_frame_of(left, function), "it has returned");
    }
}
