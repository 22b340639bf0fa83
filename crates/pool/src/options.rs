//! How a pool is opened or created.

use crate::config::{Create, Medium, PoolConfig};
use crate::format::superblock::Superblock;
use crate::limits::{
    CAPACITY_BYTES_DEFAULT, CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, KIND_BYTES_MAX, LOG_BYTES_DEFAULT,
    LOG_BYTES_MAX, LOG_BYTES_MIN,
};
use crate::mapped::domain::PersistenceDomain;
use crate::stat::MediumKind;
use crate::storage::os::OsStorage;
use crate::storage::traits::Storage;
use crate::{ByteRange, Error, Result};
use mangrove_sys::FlushInstruction;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where in the address space a new file pool's region shall lie, in this and every later process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressChoice {
    /// Anywhere, at a new address in each process: the region holds offsets, not pointers.
    #[default]
    Anywhere,
    /// At an address that the pool chooses when it is created, and keeps: the region may hold pointers into itself.
    Chosen,
    /// At this address (whole pages).
    At(u64),
}

/// How the data file is loaded when a file pool is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// It is read, and every page is compared with its checksum, before opening returns.
    #[default]
    Read,
    /// It is mapped, copy on write: ready at once, whatever its size. A background thread (with `background`)
    /// compares every page with its checksum. A page that does not match poisons the pool, but the program may have
    /// read it before. A page that cannot be read ends the process with SIGBUS instead of an error. On dax and emulated
    /// no page is compared: damage is found by [`Pool::check`](crate::Pool::check) of the closed pool. After a crash
    /// opening applies the log first, so it grows to 256 MiB instead of 1 GiB, unless a length was asked for.
    CopyOnWrite,
}

/// Tells the part of a region that its owner does not read in a closed pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    /// Bytes of the region's beginning that `part` gets.
    pub(crate) header_bytes: u64,
    pub(crate) part: fn(&[u8]) -> ByteRange,
}

/// How a pool is opened or created.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(crate) config: PoolConfig,
    pub(crate) instruction: Option<FlushInstruction>,
    pub(crate) kind: String,
    pub(crate) new_capacity: u64,
    pub(crate) address: AddressChoice,
    pub(crate) start: Start,
    pub(crate) background: bool,
    pub(crate) finish_later: bool,
    pub(crate) away: bool,
    pub(crate) salvage: bool,
    pub(crate) unlocked: bool,
    /// Another process writes to the pool meanwhile (`look`).
    pub(crate) beside_writer: bool,
    pub(crate) unread: Option<Unread>,
    pub(crate) ended: Option<Arc<AtomicBool>>,
    /// Since it was locked, the pool's directory has been found to have no file that may continue the log.
    pub(crate) nothing_left: bool,
    pub(crate) storage: Arc<dyn Storage>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            config: PoolConfig { create: Create::Never, ..PoolConfig::default() },
            instruction: None,
            kind: String::new(),
            new_capacity: CAPACITY_BYTES_DEFAULT,
            address: AddressChoice::Anywhere,
            start: Start::Read,
            background: true,
            finish_later: false,
            away: false,
            salvage: false,
            unlocked: false,
            beside_writer: false,
            unread: None,
            ended: None,
            nothing_left: false,
            storage: Arc::new(OsStorage),
        }
    }
}

impl PoolOptions {
    /// Open an existing pool, read and write, durable at each acknowledgement. Unlike the doors' options, these do
    /// not create a pool unless asked to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::pool_config_setters! { config:
        config, create, read_only, medium, devdax, durability, nowait_within, busy_wait, keeps_recent, memory_bytes_max,
        capacity("64 KiB to 64 TiB. Default: 1 TiB."),
        log_bytes, domain, bulk_load,
    }

    /// The capacity of a pool that is created, where [`capacity`](PoolOptions::capacity) asks for none; an existing
    /// pool keeps its own. Default: 1 TiB.
    #[must_use]
    pub fn new_capacity(mut self, bytes: u64) -> Self {
        self.new_capacity = bytes;
        self
    }

    /// Which instruction flushes a line, instead of the one that `MANGROVE_FLUSH` (`clwb`, `clflushopt`, `clflush`)
    /// names or the CPU executes best.
    #[must_use]
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.instruction = Some(instruction);
        self
    }

    /// The engine that owns the region, up to 16 bytes (`"map"`): recorded in a new pool, compared
    /// in an existing one. Empty: any, when opening.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        kind.clone_into(&mut self.kind);
        self
    }

    /// Where a new pool's region shall lie. An existing pool keeps its address. File medium only: on dax and
    /// emulated the region is the medium itself, and `mangrove-shadow` reserves a working copy at an address of its
    /// own.
    #[must_use]
    pub fn address(mut self, address: AddressChoice) -> Self {
        self.address = address;
        self
    }

    /// How the data file is loaded. A read-only opening always reads it. On dax and emulated the region is the data
    /// file itself, and `CopyOnWrite` means that opening does not compare a closed pool's pages with their
    /// checksums.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// False: no background thread. A thread whose flush finds the log full then runs the checkpoint itself, and
    /// with `Interval` only `sync` makes writes durable. Deterministic; for tests and the simulator.
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.background = yes;
        self
    }

    /// True: opening a file pool (with `background`) returns as soon as the region is loaded. Meanwhile a
    /// background thread searches the rest of the log and writes again what the last process may have left in a
    /// cache. The caller must call [`Pool::finish`](crate::Pool::finish) before it shows any caller what the region
    /// holds.
    #[must_use]
    pub fn finish_later(mut self, yes: bool) -> Self {
        self.finish_later = yes;
        self
    }

    /// True: in this process the region of a file pool may lie anywhere, although it has an address of its own. For a
    /// caller that copies bytes and follows no pointer in them.
    #[must_use]
    pub fn away(mut self, yes: bool) -> Self {
        self.away = yes;
        self
    }

    /// True: with `read_only`, a file pool opens although its data file, page checksums, log or spill files are
    /// damaged, if its file `pool` is not. The region then holds what the files hold, and
    /// [`Pool::damage`](crate::Pool::damage) tells what does not match: the caller must compare everything that it
    /// reads with checksums of its own. A page that the medium cannot read (EIO) counts as zeros, and as damage.
    #[must_use]
    pub fn salvage(mut self, yes: bool) -> Self {
        self.salvage = yes;
        self
    }

    /// True: with `read_only`, the pool opens although an opener has it. The caller knows that nothing changes its
    /// files meanwhile: it is that opener, and its medium has failed. With [`Pool::storage`](crate::Pool::storage) of
    /// its pool it finds these files, and not those of another pool that has got the path.
    #[must_use]
    pub fn unlocked(mut self, yes: bool) -> Self {
        self.unlocked = yes;
        self
    }

    /// Which part of the region its owner does not read, in a dax or emulated pool that was closed. Then opening does
    /// not read it either, nor compare its whole pages with their checksums; [`Pool::check`](crate::Pool::check) does.
    /// The function gets the first `header_bytes` of the region (in whole pages, or what there is of them), which have
    /// been compared. By default there is no such part.
    #[must_use]
    pub fn unread_when_closed(mut self, header_bytes: u64, part: fn(&[u8]) -> ByteRange) -> Self {
        self.unread = Some(Unread { header_bytes, part });
        self
    }

    /// Fails once the opening shall end.
    pub(crate) fn check_ended(&self, directory: &Path) -> Result<()> {
        // Relaxed: nothing is read that the other thread wrote before.
        match &self.ended {
            Some(ended) if ended.load(Ordering::Relaxed) => Err(Error::Closed { path: directory.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Bytes that the log of a new pool begins with, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn log_bytes_first(mut self, bytes: u64) -> Self {
        self.config.log_bytes_first = Some(bytes);
        self
    }

    /// Where the files live, instead of the operating system's file systems.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = storage;
        self
    }

    /// Resolves `Auto` for a pool to be created at `path`, by the mount options of its file system. True when the
    /// pool will be dax or emulated, so that its region is the medium itself.
    #[must_use]
    pub fn settle_medium(&mut self, path: impl AsRef<Path>) -> bool {
        if self.config.medium == Medium::Auto {
            let dax = self.config.devdax.is_some() || crate::mapped::dax::is_on_dax_mount(path.as_ref());
            self.config.medium = if dax { Medium::Dax } else { Medium::File };
        }
        self.config.medium != Medium::File
    }

    /// A number from the storage that cannot be guessed and does not repeat.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.storage.random()
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.config.capacity.unwrap_or(self.new_capacity)
    }

    /// What the log of a new pool may grow to, in whole pages.
    pub(crate) fn log_bytes_max(&self) -> u64 {
        self.config.log_bytes.unwrap_or(LOG_BYTES_DEFAULT).next_multiple_of(4096)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let unsupported = |what: String| Err(Error::Unsupported { what });
        self.config.durability.validate()?;
        if self.kind.len() > KIND_BYTES_MAX {
            return unsupported(format!(
                "the kind tag {:?} is longer than {KIND_BYTES_MAX} bytes",
                self.kind
            ));
        }
        if !(CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&self.capacity_bytes()) {
            return unsupported(format!(
                "a pool's capacity is {CAPACITY_BYTES_MIN} to {CAPACITY_BYTES_MAX} bytes, not {}",
                self.capacity_bytes()
            ));
        }
        if let Some(bytes) = self.config.log_bytes.filter(|b| !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(b)) {
            return unsupported(format!("a log has {LOG_BYTES_MIN} to {LOG_BYTES_MAX} bytes, not {bytes}"));
        }
        if let AddressChoice::At(address) = self.address
            && (address == 0 || !address.is_multiple_of(4096))
        {
            return unsupported(format!("a pool cannot lie at address {address:#x}: it is not a page's"));
        }
        if let Some(device) = &self.config.devdax
            && !matches!(self.config.medium, Medium::Auto | Medium::Dax)
        {
            return unsupported(format!(
                "the device {} is for the medium dax, and {} was asked for",
                device.display(),
                self.config.medium
            ));
        }
        if self.config.read_only && self.config.create == Create::New {
            return unsupported("a pool cannot be created read-only; open it for writing first".into());
        }
        if self.unlocked && !self.config.read_only {
            return unsupported("a pool is opened without its lock only read-only".into());
        }
        if self.salvage && !self.config.read_only {
            return unsupported("a damaged pool is opened read-only; copy what is sound to a new one".into());
        }
        Ok(())
    }

    pub(crate) fn domain_resolved(&self) -> Result<PersistenceDomain> {
        PersistenceDomain::resolve(self.config.domain, self.instruction)
    }

    /// Changes the superblock of an existing pool as these options ask: its capacity, and what its log may grow to. The
    /// opening saves it when nothing can fail any more for what it finds.
    ///
    /// # Errors
    /// `Unsupported` for what cannot be changed so.
    pub(crate) fn change(&self, directory: &Path, sb: &mut Superblock) -> Result<()> {
        let refuse =
            |what: String| Err(Error::Unsupported { what: format!("{}: {what}", directory.display()) });
        let wanted = self.config.capacity.map_or(sb.capacity, |bytes| bytes.next_multiple_of(4096));
        // A pool on a device has no more than the device.
        if wanted != sb.capacity && !(sb.devdax.is_some() && wanted > sb.capacity) {
            let now = sb.capacity;
            if wanted < now {
                return refuse(format!(
                    "its capacity is {now} bytes and can only become greater, not {wanted}; open it without a capacity"
                ));
            }
            if self.config.read_only {
                return refuse(format!(
                    "its capacity is {now} bytes; to make it {wanted}, open the pool for writing"
                ));
            }
            sb.resize(wanted, sb.log_bytes_max);
        }
        if self.config.read_only || sb.medium != MediumKind::File {
            return Ok(());
        }
        let kept = sb.log_bytes_kept();
        let wanted = self.config.log_bytes.map_or(kept, |bytes| bytes.next_multiple_of(4096));
        if wanted < sb.log_bytes {
            return refuse(format!(
                "its log has {} bytes and does not become shorter, so {wanted} cannot be its most; open it without a \
                 size of the log, or with a greater one",
                sb.log_bytes
            ));
        }
        if wanted != kept {
            sb.resize(sb.capacity, wanted);
        }
        Ok(())
    }

    /// An existing pool keeps its kind and its medium; a caller that asks for another one gets an error.
    pub(crate) fn refuse_other(&self, directory: &Path, sb: &Superblock) -> Result<()> {
        if !self.kind.is_empty() && sb.kind != self.kind {
            return Err(Error::WrongKind {
                path: directory.to_owned(),
                found: sb.kind.clone(),
                wanted: self.kind.clone(),
            });
        }
        if let Some(wanted) = &self.config.devdax
            && sb.devdax != Some(std::fs::canonicalize(wanted).unwrap_or_else(|_| wanted.clone()))
        {
            let on = sb.devdax.as_deref().map_or("a file".into(), |device| device.display().to_string());
            return Err(Error::Unsupported {
                what: format!(
                    "the data of {} are on {on}, not on {}; open it without naming a device",
                    directory.display(),
                    wanted.display()
                ),
            });
        }
        let wanted = match self.config.medium {
            Medium::Auto => return Ok(()),
            Medium::File => MediumKind::File,
            Medium::Dax => MediumKind::Dax,
            Medium::Emulated(_) => MediumKind::Emulated,
        };
        if sb.medium == wanted {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: format!(
                "{} lies on the medium {}, not {wanted}; open it with `auto`",
                directory.display(),
                sb.medium
            ),
        })
    }
}
