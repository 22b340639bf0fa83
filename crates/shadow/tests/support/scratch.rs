//! Where a test's shadow lies, and its bytes.

use mangrove_shadow::Shadow;

/// A directory in memory, where there is one.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[expect(clippy::mut_from_ref, reason = "each test uses its working copy alone")]
pub(crate) fn bytes(shadow: &Shadow) -> &mut [u8] {
    // SAFETY: the usable part, and one test uses it alone.
    unsafe { std::slice::from_raw_parts_mut(shadow.base(), shadow.len() as usize) }
}
