//! Files of the operating system; before each read and each write of one a function is called, so that a test can have
//! anything happen in the midst of the pool's work.

use mangrove_pool::{LockKind, OpenHow, OsStorage, PathKind, Site, Storage, StorageFile};
use std::fmt::{Debug, Formatter};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// What is about to happen to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Called with what is about to happen, the file's name and which of its bytes; an error is that of the access.
type Hook = Arc<dyn Fn(Access, &str, Range<u64>) -> io::Result<()> + Send + Sync>;

#[derive(Clone)]
struct Hooked {
    inner: Arc<dyn Storage>,
    hook: Hook,
}

/// The files, with `hook` before each read and each write; it gets the offset.
pub(crate) fn hooked(hook: impl Fn(Access, &str, u64) + Send + Sync + 'static) -> Arc<dyn Storage> {
    failing(move |access, name, range| {
        hook(access, name, range.start);
        Ok(())
    })
}

/// The files, in which each access may fail.
pub(crate) fn failing(
    hook: impl Fn(Access, &str, Range<u64>) -> io::Result<()> + Send + Sync + 'static,
) -> Arc<dyn Storage> {
    Arc::new(Hooked { inner: Arc::new(OsStorage), hook: Arc::new(hook) })
}

impl Debug for Hooked {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Storage for Hooked {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        self.inner.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn create_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.inner.create_dir(path, site)
    }

    fn open(&self, path: &Path, how: OpenHow, site: Site) -> io::Result<Box<dyn StorageFile>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hook = Arc::clone(&self.hook);
        Ok(Box::new(HookedFile { inner: self.inner.open(path, how, site)?, name, hook }))
    }

    fn remove(&self, path: &Path, site: Site) -> io::Result<()> {
        self.inner.remove(path, site)
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.inner.sync_dir(path, site)
    }

    fn hold(&self, directory: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        let held = self.inner.hold(directory)?;
        Ok(held.map(|inner| Arc::new(Self { inner, hook: Arc::clone(&self.hook) }) as Arc<dyn Storage>))
    }

    fn is_named(&self, path: &Path, file: &dyn StorageFile) -> io::Result<bool> {
        self.inner.is_named(path, file)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

struct HookedFile {
    inner: Box<dyn StorageFile>,
    name: String,
    hook: Hook,
}

impl StorageFile for HookedFile {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        (self.hook)(Access::Read, &self.name, offset..offset + bytes.len() as u64)?;
        self.inner.read_at(offset, bytes)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        (self.hook)(Access::Write, &self.name, offset..offset + bytes.len() as u64)?;
        self.inner.write_at(offset, bytes, site)
    }

    fn write_durable(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.inner.write_durable(offset, bytes, site)
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.inner.sync(site)
    }

    fn allocate(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        self.inner.allocate(offset, len, site)
    }

    fn punch(&self, offset: u64, len: u64, site: Site) -> io::Result<bool> {
        self.inner.punch(offset, len, site)
    }

    fn cut_off(&self, len: u64, site: Site) -> io::Result<()> {
        self.inner.cut_off(len, site)
    }

    fn lock(&self, kind: LockKind) -> io::Result<bool> {
        self.inner.lock(kind)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}
