//! Copying pages without those that are zero.

const PAGE_BYTES: usize = 4096;
/// The first bytes of a page distinguish most pages from pages of zeros.
const PROBE_BYTES: usize = 8;

/// Copies `len` bytes, page by page, to memory that is zero. Pages of zeros are not copied: there they would take
/// memory, or space in a file, that is not needed. O(len).
///
/// # Safety
/// Both ranges are valid for `len` bytes, do not overlap, and no other thread stores to them meanwhile.
pub unsafe fn copy_nonzero_pages(from: *const u8, to: *mut u8, len: usize) {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    for at in (0..len).step_by(PAGE_BYTES) {
        let count = PAGE_BYTES.min(len - at);
        // SAFETY: the caller's promises; the page lies inside both ranges.
        unsafe {
            let page = std::slice::from_raw_parts(from.add(at), count);
            if !is_zero(&page[..PROBE_BYTES.min(count)]) || !is_zero(page) {
                to.add(at).copy_from_nonoverlapping(page.as_ptr(), count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_and_pages_of_zeros_are_not_stored_to() {
        let mut from = vec![0u8; 4 * PAGE_BYTES + 5];
        // A page whose first bytes are zero, a whole one, a page of zeros, and a part of a page.
        from[PAGE_BYTES - 1] = 1;
        from[PAGE_BYTES..2 * PAGE_BYTES].fill(2);
        *from.last_mut().unwrap() = 3;
        let mut to = vec![0u8; from.len()];
        // Not zero, against the rule: what is stored to shows.
        to[2 * PAGE_BYTES] = 9;
        // SAFETY: two vectors of one length.
        unsafe { copy_nonzero_pages(from.as_ptr(), to.as_mut_ptr(), from.len()) };
        assert_eq!(to[2 * PAGE_BYTES], 9);
        to[2 * PAGE_BYTES] = 0;
        assert!(to == from);
    }
}
