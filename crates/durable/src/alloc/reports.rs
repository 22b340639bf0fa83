//! The write set of a command as the arena's receiver of reports.

use mangrove_arena::Writes;
use mangrove_tracker::WriteSet;

/// Puts what is reported into a write set.
pub(crate) struct Reports<'a>(pub(crate) &'a mut WriteSet);

impl Writes for Reports<'_> {
    #[inline]
    fn wrote(&mut self, ptr: usize, len: usize) {
        self.0.record(ptr, len);
    }
}
