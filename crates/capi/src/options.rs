//! The options object.

use crate::bytes::handle_mut;
use crate::status::mangrove_status::*;
use crate::status::{Answer, Failure, guard, mangrove_status};
use mangrove::{Domain, Durability, Latency, Locking, MapOptions, Medium};
use std::time::Duration;

/// How to open a map. Threads: one at a time for setting; any for opening with it.
pub struct mangrove_options {
    all: MapOptions,
    create: bool,
    read_only: bool,
}

impl mangrove_options {
    /// The facade's options. Read-only wins over creation, whichever was set first.
    pub(crate) fn for_open(&self) -> MapOptions {
        self.all.clone().create(self.create && !self.read_only).read_only(self.read_only)
    }
}

/// What a pool lies on.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_medium {
    /// What an existing pool says; for a new one dax where the directory can, else file.
    MANGROVE_MEDIUM_AUTO = 0,
    /// Any file system: working copy in DRAM, redo log, image behind it.
    MANGROVE_MEDIUM_FILE = 1,
    /// Persistent memory mapped with MAP_SYNC, or a devdax character device.
    MANGROVE_MEDIUM_DAX = 2,
    /// DRAM that pretends to be persistent memory, for figures and tests. On tmpfs it survives the
    /// process, never the machine.
    MANGROVE_MEDIUM_EMULATED = 3,
}

/// Which stores survive a power cut on persistent memory.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_domain {
    /// What the platform says.
    MANGROVE_DOMAIN_AUTO = 0,
    /// Only what was written back from the CPU's caches.
    MANGROVE_DOMAIN_ADR = 1,
    /// The caches too.
    MANGROVE_DOMAIN_EADR = 2,
}

/// How writers exclude each other.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_locking {
    /// Readers take no lock, writers lock single nodes.
    MANGROVE_LOCKING_OPTIMISTIC = 0,
    /// One lock for all keys that share their first two bytes, as in the HART paper.
    MANGROVE_LOCKING_PER_TREE = 1,
}

use mangrove_domain::*;
use mangrove_locking::*;
use mangrove_medium::*;

/// The C name of a medium.
pub(crate) fn medium_number(medium: Medium) -> i32 {
    match medium {
        Medium::File => MANGROVE_MEDIUM_FILE as i32,
        Medium::Dax => MANGROVE_MEDIUM_DAX as i32,
        Medium::Emulated(_) => MANGROVE_MEDIUM_EMULATED as i32,
        _ => MANGROVE_MEDIUM_AUTO as i32,
    }
}

/// New options: create the pool when it is missing, read and write, durability sync, all else
/// automatic; the same that NULL stands for in mangrove_map_open. Never NULL.
/// Give back with mangrove_options_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_options_new() -> *mut mangrove_options {
    Box::into_raw(Box::new(mangrove_options { all: MapOptions::new(), create: true, read_only: false }))
}

/// Frees options; maps opened with them go on. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_free(options: *mut mangrove_options) {
    if !options.is_null() {
        // SAFETY: from mangrove_options_new and, by contract, not freed before.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Replaces the builder inside by what `change` makes of it.
unsafe fn set(
    options: *mut mangrove_options,
    change: impl FnOnce(MapOptions) -> Result<MapOptions, Failure>,
) -> mangrove_status {
    guard(|| -> Answer {
        // SAFETY: passed on from the caller.
        let options = unsafe { handle_mut(options, "options") }?;
        options.all = change(options.all.clone())?;
        Ok(MANGROVE_OK)
    })
}

unsafe fn set_flag(
    options: *mut mangrove_options,
    change: impl FnOnce(&mut mangrove_options),
) -> mangrove_status {
    guard(|| {
        // SAFETY: passed on from the caller.
        change(unsafe { handle_mut(options, "options") }?);
        Ok(MANGROVE_OK)
    })
}

/// Whether to create the pool when there is none. Default: true.
/// With false, opening a missing pool answers MANGROVE_ERR_POOL_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_create(
    options: *mut mangrove_options,
    create: bool,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set_flag(options, |o| o.create = create) }
}

/// Whether the pool must be new: opening an existing one answers MANGROVE_ERR_POOL_EXISTS.
/// Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_create_new(
    options: *mut mangrove_options,
    create_new: bool,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set(options, |o| Ok(o.create_new(create_new))) }
}

/// Whether to open without writing a byte: recovery happens in private memory, the lock is shared
/// with other read-only openers, writes answer MANGROVE_ERR_READ_ONLY, nothing is created.
/// Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_read_only(
    options: *mut mangrove_options,
    read_only: bool,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set_flag(options, |o| o.read_only = read_only) }
}

/// What a new pool shall lie on, or an existing one is expected to: one of mangrove_medium.
/// Default: MANGROVE_MEDIUM_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_medium(
    options: *mut mangrove_options,
    medium: i32,
) -> mangrove_status {
    let change = |o: MapOptions| {
        let medium = match medium {
            m if m == MANGROVE_MEDIUM_AUTO as i32 => Medium::Auto,
            m if m == MANGROVE_MEDIUM_FILE as i32 => Medium::File,
            m if m == MANGROVE_MEDIUM_DAX as i32 => Medium::Dax,
            m if m == MANGROVE_MEDIUM_EMULATED as i32 => Medium::Emulated(Latency::default()),
            m => return Err(Failure::invalid(format!("{m} is no mangrove_medium"))),
        };
        Ok(o.medium(medium))
    };
    // SAFETY: passed on from the caller.
    unsafe { set(options, change) }
}

/// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line
/// that is read from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_emulated_latency(
    options: *mut mangrove_options,
    write_ns: u32,
    read_ns: u32,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set(options, |o| Ok(o.medium(Medium::Emulated(Latency { write_ns, read_ns })))) }
}

/// A write returns once it is durable; one device write serves all threads that wait. The default.
/// A property of this opening, not of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_durability_sync(
    options: *mut mangrove_options,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set(options, |o| Ok(o.durability(Durability::Sync))) }
}

/// A write returns at once and is durable at most `milliseconds` (1 to 60000) later. A crash keeps a
/// prefix of the writes, in the order in which they took effect; mangrove_map_sync waits for all.
/// A property of this opening, not of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_durability_interval(
    options: *mut mangrove_options,
    milliseconds: u32,
) -> mangrove_status {
    let change = |o: MapOptions| {
        if !(1..=60_000).contains(&milliseconds) {
            return Err(Failure::invalid(format!(
                "an interval is 1 to 60000 milliseconds and {milliseconds} is not"
            )));
        }
        Ok(o.durability(Durability::Interval(Duration::from_millis(milliseconds.into()))))
    };
    // SAFETY: passed on from the caller.
    unsafe { set(options, change) }
}

/// The most bytes that a new pool can grow to, 1 MiB to 64 TiB: address space, not disk space.
/// Default: 128 GiB. It cannot be changed later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_capacity(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set(options, |o| Ok(o.capacity(bytes))) }
}

/// Bytes of a new pool's redo log, preallocated (file medium). Bounds the time of recovery and the
/// burst of writes that is taken without waiting. Default: 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_log_bytes(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set(options, |o| Ok(o.log_bytes(bytes))) }
}

/// The persistence domain to assume on persistent memory: one of mangrove_domain. The environment
/// variable MANGROVE_DOMAIN says the same. Default: MANGROVE_DOMAIN_AUTO. A wrong claim of EADR
/// loses acknowledged writes in a power cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_domain(
    options: *mut mangrove_options,
    domain: i32,
) -> mangrove_status {
    let change = |o: MapOptions| {
        let domain = match domain {
            d if d == MANGROVE_DOMAIN_AUTO as i32 => Domain::Auto,
            d if d == MANGROVE_DOMAIN_ADR as i32 => Domain::Adr,
            d if d == MANGROVE_DOMAIN_EADR as i32 => Domain::Eadr,
            d => return Err(Failure::invalid(format!("{d} is no mangrove_domain"))),
        };
        Ok(o.domain(domain))
    };
    // SAFETY: passed on from the caller.
    unsafe { set(options, change) }
}

/// How writers exclude each other: one of mangrove_locking. Default: MANGROVE_LOCKING_OPTIMISTIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_locking(
    options: *mut mangrove_options,
    locking: i32,
) -> mangrove_status {
    let change = |o: MapOptions| {
        let locking = match locking {
            l if l == MANGROVE_LOCKING_OPTIMISTIC as i32 => Locking::Optimistic,
            l if l == MANGROVE_LOCKING_PER_TREE as i32 => Locking::PerTree,
            l => return Err(Failure::invalid(format!("{l} is no mangrove_locking"))),
        };
        Ok(o.locking(locking))
    };
    // SAFETY: passed on from the caller.
    unsafe { set(options, change) }
}

/// Bytes of DRAM that the snapshots may hold for old values before they expire. Default: 1 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_snapshot_bytes_max(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    // SAFETY: passed on from the caller.
    unsafe { set(options, |o| Ok(o.snapshot_bytes_max(bytes))) }
}

/// Threads that rebuild the index while the pool is opened, 1 to 1024. Default: one a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_recovery_threads(
    options: *mut mangrove_options,
    threads: u32,
) -> mangrove_status {
    let change = |o: MapOptions| {
        if !(1..=1024).contains(&threads) {
            return Err(Failure::invalid(format!("recovery threads are 1 to 1024 and {threads} is not")));
        }
        Ok(o.recovery_threads(threads as usize))
    };
    // SAFETY: passed on from the caller.
    unsafe { set(options, change) }
}
