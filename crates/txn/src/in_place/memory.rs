//! Memory that lies on the medium itself: a pool of its own kind on dax or emulated.

use super::layout::{AT_LOG, InPlaceLayout, UNDO_ENTRIES_MAX};
use super::options::{InPlaceOptions, KIND};
use super::recover::recover;
use super::undo_log::DurableUndo;
use crate::sync::{AtomicU64, Ordering};
use mangrove_pool::{Error, MediumKind, PersistenceDomain, Pool, PoolConfig, Region, Result};
use mangrove_sys::ProcessMark;
use std::path::{Path, PathBuf};

/// Durable memory that transactions change in place: no working copy, no redo log. Protocol: [`HtmSgl`](crate::HtmSgl).
///
/// It holds plain bytes, all zero when made; offsets count from [`base`](Self::base), which may differ from opening to
/// opening. Dropping it without [`close`](Self::close) is an orderly crash.
///
/// A child of fork(2) has the parent's bytes, not a copy of them: its transactions and its `close` fail with
/// `Unsupported`, and store nothing.
///
/// ```
/// use mangrove_txn::{Domain, Halt, HtmSgl, InPlaceOptions, Isolation, Latency, Medium, TxAccess, TxThread};
/// use std::convert::Infallible;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("accounts");
/// let options = InPlaceOptions::new().medium(Medium::Emulated(Latency::default())).bytes(1 << 16);
/// let memory = Arc::new(options.domain(Domain::Eadr).open(&path)?);
/// let account = memory.base().addr();
/// let executor = HtmSgl::one_lock(Arc::clone(&memory))?;
/// executor
///     .thread()
///     .run(|tx| -> Result<(), Halt<Infallible>> { Ok(tx.write_word(account, 70)?) })
///     .expect("the medium works"); // durable
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct InPlaceMemory {
    undo: DurableUndo,
    domain: PersistenceDomain,
    /// 1 while an executor uses it.
    taken: AtomicU64,
    path: PathBuf,
    process: ProcessMark,
    /// Ends last: the region is its.
    pool: Option<Pool>,
}

impl InPlaceMemory {
    pub(super) fn open(path: &Path, options: &InPlaceOptions) -> Result<Self> {
        let config = PoolConfig { capacity: None, ..options.config.clone() };
        let mut pool = options.pool.clone().config(config);
        let is_file = match pool.inspect(path) {
            // Opening reports a pool of another kind.
            Ok(info) => info.medium == MediumKind::File && info.kind == KIND,
            // There is no pool, or opening will report the error.
            Err(_) => !pool.settle_medium(path),
        };
        if is_file {
            return Err(Error::Unsupported { what: FILE_REFUSED.into() });
        }
        let capacity = options.layout(0)?.end().max(mangrove_pool::CAPACITY_BYTES_MIN);
        let pool = pool.new_capacity(capacity).open(path)?;
        let memory = Self::over(pool.region().clone(), options, path, pool.info().made);
        match memory.and_then(|memory| pool.set_made().map(|()| memory)) {
            Ok(memory) => Ok(Self { pool: Some(pool), ..memory }),
            Err(error) => {
                pool.undo_creation();
                Err(error)
            }
        }
    }

    /// `made`: the region is known to hold the memory.
    pub(super) fn over(region: Region, options: &InPlaceOptions, path: &Path, made: bool) -> Result<Self> {
        if region.medium().capabilities().has_units {
            return Err(Error::Unsupported { what: FILE_REFUSED.into() });
        }
        let domain = PersistenceDomain::resolve(options.config.domain, options.instruction)?;
        region.grow(AT_LOG.min(region.len()))?;
        let layout = match InPlaceLayout::read(&region, path)? {
            Some(layout) => layout,
            None if made => {
                return Err(Error::Corrupt {
                    path: path.join("image"),
                    offset: 0,
                    what: "memory was made here, but its header is blank".into(),
                });
            }
            None => {
                let layout = options.layout(options.pool.random())?;
                layout.write(&region)?;
                layout
            }
        };
        region.grow(layout.end())?;
        let undo = recover(region, layout, !domain.eadr, path)?;
        let (taken, process) = (AtomicU64::new(0), ProcessMark::here());
        Ok(Self { undo, domain, taken, path: path.to_owned(), process, pool: None })
    }

    /// The first byte of the data. Loads are free while no transaction writes there; store by transactions only.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.undo.region.at(self.undo.layout.data())
    }

    /// Bytes of data.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.undo.layout.bytes
    }

    /// Which bytes a power cut keeps by itself.
    #[must_use]
    pub fn domain(&self) -> PersistenceDomain {
        self.domain
    }

    /// Where the pool lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything durable and marks the pool clean. No executor may be left. O(bytes) with persistent caches: no
    /// store was reported to the pool, so the checksums of all pages are computed.
    ///
    /// # Errors
    /// The pool's; it is then as after a crash. `Unsupported` in a child of the process that opened it.
    pub fn close(self) -> Result<()> {
        if let Err(error) = self.refuse_child() {
            // The parent still uses the pool.
            std::mem::forget(self);
            return Err(error);
        }
        let Self { undo, pool, .. } = self;
        if !undo.flushes {
            // The medium learns of changed pages by flushes.
            undo.region.flush(0, undo.layout.end() as usize);
        }
        drop(undo);
        pool.map_or(Ok(()), Pool::close)
    }

    /// False in a child of the process that opened it: the bytes are the parent's, and so is what keeps its threads
    /// apart. One load.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_here()
    }

    /// `Unsupported` in a child of the process that opened it.
    #[inline]
    pub(crate) fn refuse_child(&self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(Error::forked(&self.path)) }
    }

    pub(crate) fn undo(&self) -> &DurableUndo {
        &self.undo
    }

    /// Takes the memory for an executor; false if another one has it.
    pub(crate) fn take(&self) -> bool {
        // Acquire pairs with the Release in `give_back`.
        self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn give_back(&self) {
        // Release pairs with the Acquire in `take`.
        self.taken.store(0, Ordering::Release);
    }
}

const FILE_REFUSED: &str = "HTM+SGL on the file medium: its transactions store in place, which only dax and \
                            emulated make durable; use a heap";

impl InPlaceOptions {
    /// Opens the memory in the directory `path`, or creates it there. After a crash, a transaction that had the lock is
    /// undone. O(entries of the undo log), and after a closing O(bytes): pages are compared with their checksums.
    ///
    /// # Errors
    /// See [`Error`](mangrove_pool::Error). `Unsupported` on the file medium.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<InPlaceMemory> {
        InPlaceMemory::open(path.as_ref(), self)
    }

    /// The memory in a region that the caller keeps; makes it where there is none. (For the crash simulator.)
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn on_region(&self, region: Region) -> Result<InPlaceMemory> {
        InPlaceMemory::over(region, self, Path::new("a region"), false)
    }

    fn layout(&self, nonce: u64) -> Result<InPlaceLayout> {
        let bytes = self.bytes.checked_next_multiple_of(8).unwrap_or(u64::MAX);
        if bytes == 0 || bytes > mangrove_pool::CAPACITY_BYTES_MAX / 2 {
            return Err(Error::Unsupported {
                what: format!("memory changed in place has 8 bytes or more, not {}", self.bytes),
            });
        }
        if self.entries == 0 || self.entries > UNDO_ENTRIES_MAX {
            return Err(Error::Unsupported {
                what: format!("an undo log has 1 to {UNDO_ENTRIES_MAX} entries, not {}", self.entries),
            });
        }
        Ok(InPlaceLayout { bytes, entries: self.entries, nonce })
    }
}
