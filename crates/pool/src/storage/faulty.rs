//! A storage that fails on demand: the n-th matching operation ends with an error, or writes only half, or is the
//! last operation of this process.

use crate::Site;
use crate::storage::traits::{LockKind, OpenHow, PathKind, Storage, StorageFile};
use parking_lot::Mutex;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Kinds of operations that a fault can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultyOperation {
    /// `create_dir`, `open` with `Create`, `remove`.
    Name,
    /// `open` of an existing file, `prepare_durable`.
    Open,
    /// `read_at`, `read_past_cache`.
    Read,
    /// `write_at`, `write_durable` and `cut_off`.
    Write,
    /// `punch`. It returns false where it fails with EOPNOTSUPP.
    Punch,
    /// `sync`, and `sync_dir`.
    Sync,
    /// `allocate` and `prepare_range`.
    Allocate,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Fails with this error code of the operating system, once.
    Errno(i32),
    /// Fails with this error code, now and at every later matching operation.
    ErrnoForEver(i32),
    /// A write leaves its first half on the medium, then fails with ENOSPC.
    Short,
    /// A write leaves its first half; then this and every later operation fails, as if the process were dead.
    Halt,
}

/// Which operation fails, and how.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Only files of this name; any if `None`.
    pub file: Option<String>,
    /// Only these operations; if empty, any of those that change something.
    pub operations: Vec<FaultyOperation>,
    /// The matching operation that is struck, counted from 0.
    pub nth: u64,
    /// What it does.
    pub kind: FaultKind,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    seen: u64,
    /// The file that the fault has struck.
    struck: Option<PathBuf>,
    halted: bool,
}

/// A storage that wraps another one and fails on demand.
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Arc<dyn Storage>,
    state: Arc<Mutex<State>>,
}

enum Verdict {
    Pass,
    Fail(io::Error),
    HalfThenFail(io::Error),
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

impl Faulty {
    /// Passes everything on until a fault is injected.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// Injects a fault; the fault before, and its count, are forgotten.
    pub fn plant(&self, fault: Fault) {
        *self.state.lock() = State { fault: Some(fault), ..State::default() };
    }

    /// Removes the fault; a halted storage works again.
    pub fn heal(&self) {
        *self.state.lock() = State::default();
    }

    /// Matching operations seen since the fault was injected.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.state.lock().seen
    }

    /// True when the fault has struck.
    #[must_use]
    pub fn struck(&self) -> bool {
        self.state.lock().struck.is_some()
    }

    /// True when the fault has struck a file of this name.
    #[must_use]
    pub fn struck_file(&self, name: &str) -> bool {
        self.state.lock().struck.as_deref().is_some_and(|path| path.ends_with(name))
    }

    fn judge(&self, path: &Path, operation: FaultyOperation) -> Verdict {
        let mut state = self.state.lock();
        if state.halted {
            return Verdict::Fail(io::Error::other("the process is dead"));
        }
        let Some(fault) = state.fault.clone() else { return Verdict::Pass };
        let named = fault.file.as_deref().is_none_or(|f| path.file_name().is_some_and(|name| name == f));
        let changes = !matches!(operation, FaultyOperation::Read | FaultyOperation::Open);
        let meant = if fault.operations.is_empty() { changes } else { fault.operations.contains(&operation) };
        if !named || !meant {
            return Verdict::Pass;
        }
        let n = state.seen;
        state.seen += 1;
        let strikes = n == fault.nth || (n > fault.nth && matches!(fault.kind, FaultKind::ErrnoForEver(_)));
        if !strikes {
            return Verdict::Pass;
        }
        state.struck = Some(path.to_owned());
        match fault.kind {
            FaultKind::Errno(code) | FaultKind::ErrnoForEver(code) => Verdict::Fail(errno(code)),
            FaultKind::Short => Verdict::HalfThenFail(errno(libc::ENOSPC)),
            FaultKind::Halt => {
                state.halted = true;
                Verdict::HalfThenFail(io::Error::other("the process is dead"))
            }
        }
    }

    fn pass(&self, path: &Path, operation: FaultyOperation) -> io::Result<()> {
        match self.judge(path, operation) {
            Verdict::Pass => Ok(()),
            Verdict::Fail(e) | Verdict::HalfThenFail(e) => Err(e),
        }
    }
}

impl Storage for Faulty {
    fn kind(&self, path: &Path) -> io::Result<PathKind> {
        self.inner.kind(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn create_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.pass(path, FaultyOperation::Name)?;
        self.inner.create_dir(path, site)
    }

    fn open(&self, path: &Path, how: OpenHow, site: Site) -> io::Result<Box<dyn StorageFile>> {
        self.pass(path, if how == OpenHow::Create { FaultyOperation::Name } else { FaultyOperation::Open })?;
        let inner = self.inner.open(path, how, site)?;
        Ok(Box::new(FaultyFile { inner, path: path.to_owned(), faulty: self.clone() }))
    }

    fn remove(&self, path: &Path, site: Site) -> io::Result<()> {
        self.pass(path, FaultyOperation::Name)?;
        self.inner.remove(path, site)
    }

    fn remove_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.pass(path, FaultyOperation::Name)?;
        self.inner.remove_dir(path, site)
    }

    fn sync_dir(&self, path: &Path, site: Site) -> io::Result<()> {
        self.pass(path, FaultyOperation::Sync)?;
        self.inner.sync_dir(path, site)
    }

    fn hold(&self, directory: &Path) -> io::Result<Option<Arc<dyn Storage>>> {
        let held = self.inner.hold(directory)?;
        Ok(held.map(|inner| Arc::new(Self { inner, state: Arc::clone(&self.state) }) as Arc<dyn Storage>))
    }

    fn is_named(&self, path: &Path, file: &dyn StorageFile) -> io::Result<bool> {
        self.inner.is_named(path, file)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

struct FaultyFile {
    inner: Box<dyn StorageFile>,
    path: PathBuf,
    faulty: Faulty,
}

impl FaultyFile {
    fn write(&self, bytes: &[u8], write: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self.faulty.judge(&self.path, FaultyOperation::Write) {
            Verdict::Pass => write(bytes),
            Verdict::Fail(e) => Err(e),
            Verdict::HalfThenFail(e) => {
                // Whole sectors, so that half of a durable write is a durable write.
                let half = bytes.len() / 2 / 512 * 512;
                if half > 0 {
                    write(&bytes[..half])?;
                }
                Err(e)
            }
        }
    }
}

impl StorageFile for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.faulty.pass(&self.path, FaultyOperation::Read)?;
        self.inner.read_at(offset, bytes)
    }

    fn read_past_cache(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.faulty.pass(&self.path, FaultyOperation::Read)?;
        self.inner.read_past_cache(offset, bytes)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.inner.will_read(offset, len);
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.inner.next_data(offset)
    }

    fn next_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        self.inner.next_hole(offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.write(bytes, |part| self.inner.write_at(offset, part, site))
    }

    fn write_past_cache(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.write(bytes, |part| self.inner.write_past_cache(offset, part, site))
    }

    fn prepare_durable(&self) -> io::Result<()> {
        self.faulty.pass(&self.path, FaultyOperation::Open)?;
        self.inner.prepare_durable()
    }

    fn write_durable(&self, offset: u64, bytes: &[u8], site: Site) -> io::Result<()> {
        self.write(bytes, |part| self.inner.write_durable(offset, part, site))
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        self.faulty.pass(&self.path, FaultyOperation::Sync)?;
        self.inner.sync(site)
    }

    fn allocate(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        self.faulty.pass(&self.path, FaultyOperation::Allocate)?;
        self.inner.allocate(offset, len, site)
    }

    fn prepare_range(&self, offset: u64, len: u64, site: Site) -> io::Result<()> {
        self.faulty.pass(&self.path, FaultyOperation::Allocate)?;
        self.inner.prepare_range(offset, len, site)
    }

    fn cut_off(&self, len: u64, site: Site) -> io::Result<()> {
        match self.faulty.judge(&self.path, FaultyOperation::Write) {
            Verdict::Pass => self.inner.cut_off(len, site),
            Verdict::Fail(e) | Verdict::HalfThenFail(e) => Err(e),
        }
    }

    fn punch(&self, offset: u64, len: u64, site: Site) -> io::Result<bool> {
        match self.faulty.judge(&self.path, FaultyOperation::Punch) {
            Verdict::Pass => self.inner.punch(offset, len, site),
            Verdict::Fail(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
            Verdict::Fail(e) => Err(e),
            Verdict::HalfThenFail(e) => {
                let half = len / 2 / 4096 * 4096;
                if half > 0 {
                    self.inner.punch(offset, half, site)?;
                }
                Err(e)
            }
        }
    }

    fn keep_from_children(&self) {
        self.inner.keep_from_children();
    }

    fn lock(&self, kind: LockKind) -> io::Result<bool> {
        self.inner.lock(kind)
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
}
