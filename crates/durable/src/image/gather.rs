//! What of a write set a commit takes: the ranges that lie in the region, sorted and joined.

use mangrove_arena::FreeBytes;
use mangrove_tracker::WriteSet;

/// Writes to `out` the ranges of the write set that lie in the region, sorted and joined. If the batch freed blocks,
/// ranges that no longer lie in a block are left out.
pub(crate) fn gather(
    writes: &WriteSet,
    base: usize,
    len: usize,
    free: Option<FreeBytes<'_>>,
    out: &mut Vec<(usize, usize)>,
) {
    out.clear();
    let block = writes.block_bytes();
    out.extend(
        writes
            .blocks()
            .iter()
            .map(|&b| b as usize)
            .filter(|b| b.wrapping_sub(base) < len)
            .map(|b| (b, block)),
    );
    for &(from, bytes) in writes.large() {
        let (from, until) = (from.max(base), (from + bytes).min(base + len));
        if from < until {
            out.push((from, until - from));
        }
    }
    out.sort_unstable();
    if let Some(mut free) = free {
        out.retain(|&(from, bytes)| !free.hold(from, bytes));
    }
    let mut kept = 0;
    for at in 0..out.len() {
        let (from, bytes) = out[at];
        if kept > 0 && from <= out[kept - 1].0 + out[kept - 1].1 {
            let last = &mut out[kept - 1];
            last.1 = last.1.max(from + bytes - last.0);
        } else {
            out[kept] = (from, bytes);
            kept += 1;
        }
    }
    out.truncate(kept);
}
