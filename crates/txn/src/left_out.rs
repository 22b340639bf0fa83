//! The mark of a step that the crash simulator can leave out.

/// Whether the crash simulator leaves the caller's step out.
#[inline(always)]
#[track_caller]
pub(crate) fn is_left_out() -> bool {
    #[cfg(feature = "silenced-steps")]
    return crate::lab::leaves_out(std::panic::Location::caller());
    #[cfg(not(feature = "silenced-steps"))]
    false
}
