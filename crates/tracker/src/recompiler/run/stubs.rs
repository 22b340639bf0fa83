//! The entry points of the machine code in `trampolines.rs`, for the Rust code that calls it or jumps to it, and
//! the numbers that pass between them.

/// What `enter` returns.
pub(crate) const LEFT_NORMALLY: u64 = 0;
pub(crate) const LEFT_BY_EXCEPTION: u64 = 1;
pub(crate) const LEFT_ABANDONED: u64 = 2;
pub(crate) const LEFT_ESCAPED: u64 = 3;

/// Exit numbers that are not indices into the list of exits.
pub(crate) const EXIT_BRANCH: u32 = u32::MAX;
pub(crate) const EXIT_RECORD: u32 = u32::MAX - 1;

unsafe extern "C" {
    /// Runs `f(arg)` translated; `targets` is the branch table to start with.
    pub(crate) fn mangrove_tracker_enter(f: usize, arg: usize, targets: usize) -> u64;
    /// The called function's return address. If the function returns here natively, the call has escaped.
    pub(crate) fn mangrove_tracker_return();
    /// Where the dispatcher sends a function that returned.
    pub(crate) fn mangrove_tracker_leave();
    /// Landing pad of exceptions; it runs translated and ends at `mangrove_tracker_thrown`.
    pub(crate) fn mangrove_tracker_caught();
    pub(crate) fn mangrove_tracker_thrown();
    pub(crate) fn mangrove_tracker_leave_thrown();
    pub(crate) fn mangrove_tracker_abandon();
    pub(crate) fn mangrove_tracker_dispatch();
    pub(crate) fn mangrove_tracker_branch_miss();
    pub(crate) fn mangrove_tracker_slow();
    pub(crate) fn mangrove_tracker_slow_exact();
    pub(crate) fn mangrove_tracker_slow_masked();
    pub(crate) fn mangrove_tracker_slow_copy();
    pub(crate) fn mangrove_tracker_slow_range();
    pub(crate) fn mangrove_tracker_check_own_stack();
    pub(crate) fn mangrove_tracker_check_foreign_stack();
}
