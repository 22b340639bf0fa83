//! A region over any medium that can suppress the calls of its engine.

use crate::machine::site::{SiteKind, Sites};
use mangrove_pool::{ByteRange, Capabilities, Error, Lsn, MediumOps, Region, Result, Site};
use std::ptr::NonNull;
use std::sync::Arc;

struct Filter {
    inner: Region,
    sites: Arc<Sites>,
}

/// Returns `region` with the engine's calls noted in `sites`, and suppressed at the call site that `sites` names.
pub(crate) fn filtered(region: Region, sites: &Arc<Sites>) -> Region {
    let base = NonNull::new(region.base()).expect("a mapped region");
    let len = region.len();
    let medium = Arc::new(Filter { inner: region, sites: sites.clone() });
    // SAFETY: the filter keeps the inner region, and so its memory, alive.
    unsafe { Region::new(base, len, medium) }
}

impl MediumOps for Filter {
    fn capabilities(&self) -> Capabilities {
        Capabilities { may_refuse: false, ..self.inner.medium().capabilities() }
    }

    unsafe fn flush(&self, offset: u64, ptr: *const u8, len: usize, site: Site) {
        if !self.sites.suppressed(SiteKind::Flush, site) {
            // SAFETY: the caller's promise, passed on.
            unsafe { self.inner.medium().flush(offset, ptr, len, site) };
        }
    }

    unsafe fn flush_unit(&self, base: *const u8, ranges: &[ByteRange], site: Site) -> Result<Lsn> {
        if self.sites.suppressed(SiteKind::Flush, site) {
            return Ok(self.appended());
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.medium().flush_unit(base, ranges, site) }
    }

    fn fence(&self, site: Site) {
        if !self.sites.suppressed(SiteKind::Fence, site) {
            self.inner.medium().fence(site);
        }
    }

    fn leave_unawaited(&self) {
        self.inner.medium().leave_unawaited();
    }

    fn appended(&self) -> Lsn {
        self.inner.medium().appended()
    }

    fn durable(&self) -> Lsn {
        self.inner.medium().durable()
    }

    fn wait(&self, lsn: Lsn, site: Site) -> Result<()> {
        if self.sites.suppressed(SiteKind::Wait, site) { Ok(()) } else { self.inner.medium().wait(lsn, site) }
    }

    fn sync(&self, lsn: Lsn, site: Site) -> Result<()> {
        if self.sites.suppressed(SiteKind::Wait, site) { Ok(()) } else { self.inner.medium().sync(lsn, site) }
    }

    fn grow(&self, bytes: u64) -> Result<()> {
        self.inner.medium().grow(bytes)
    }

    fn provide(&self, range: ByteRange) -> Result<()> {
        self.inner.medium().provide(range)
    }

    unsafe fn give_back(&self, range: ByteRange, site: Site) -> Result<bool> {
        if self.sites.suppressed(SiteKind::GiveBack, site) {
            // SAFETY: inside the region, and the caller needs nothing that is there.
            unsafe { self.inner.base().add(range.offset as usize).write_bytes(0, range.len as usize) };
            return Ok(true);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.medium().give_back(range, site) }
    }

    unsafe fn release(&self, range: ByteRange, site: Site) -> Result<bool> {
        // No site that can be suppressed: what lies there does not matter, so nothing but the space would be missed.
        // SAFETY: the caller's promise, passed on.
        unsafe { self.inner.medium().release(range, site) }
    }

    fn without_space(&self) -> Vec<ByteRange> {
        self.inner.medium().without_space()
    }

    fn grown(&self) -> u64 {
        self.inner.medium().grown()
    }

    fn checkpoint(&self) -> Result<()> {
        self.inner.medium().checkpoint()
    }

    fn poisoned(&self) -> Option<Error> {
        self.inner.medium().poisoned()
    }
}
