//! The options object.

use crate::status::{Failure, guard_unit, mangrove_status};
use mangrove::{Create, Domain, Durability, Latency, Locking, MapOptions, Medium};
use mangrove_cabi::{Checked, from_c_enum, give, path, set_option, take_back};
use std::ffi::c_char;
use std::ops::RangeInclusive;
use std::time::Duration;

/// A new map can grow to so many bytes.
const CAPACITY_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 40;
/// A log has so many.
pub(crate) const LOG_BYTES: RangeInclusive<u64> = 16 << 10..=1 << 30;

/// How to open a map. Threads: one at a time for setting; any for opening with it.
pub struct mangrove_options {
    all: MapOptions,
    create: bool,
    create_new: bool,
    read_only: bool,
}

impl mangrove_options {
    /// The facade's options. Read-only takes precedence over creation, whichever was set first.
    pub(crate) fn for_open(&self) -> MapOptions {
        let create = match (self.create_new, self.create) {
            (true, _) => Create::New,
            (false, true) => Create::IfMissing,
            (false, false) => Create::Never,
        };
        self.all.clone().create(create).read_only(self.read_only)
    }
}

/// The medium of a pool.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_medium {
    /// That of an existing pool; for a new one dax where the directory supports it, else file.
    MANGROVE_MEDIUM_AUTO = 0,
    /// Any file system: working copy in DRAM, redo log, and a data file that checkpoints bring up to
    /// date.
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
    /// What the platform reports.
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

pub(crate) fn medium_of(number: i32) -> Checked<Medium> {
    from_c_enum!(number, mangrove_medium {
        MANGROVE_MEDIUM_AUTO => Medium::Auto,
        MANGROVE_MEDIUM_FILE => Medium::File,
        MANGROVE_MEDIUM_DAX => Medium::Dax,
        MANGROVE_MEDIUM_EMULATED => Medium::Emulated(Latency::default()),
    })
}

pub(crate) fn domain_of(number: i32) -> Checked<Domain> {
    from_c_enum!(number, mangrove_domain {
        MANGROVE_DOMAIN_AUTO => Domain::Auto,
        MANGROVE_DOMAIN_ADR => Domain::Adr,
        MANGROVE_DOMAIN_EADR => Domain::Eadr,
    })
}

fn locking_of(number: i32) -> Checked<Locking> {
    from_c_enum!(number, mangrove_locking {
        MANGROVE_LOCKING_OPTIMISTIC => Locking::Optimistic,
        MANGROVE_LOCKING_PER_TREE => Locking::PerTree,
    })
}

pub(crate) fn interval_of(milliseconds: u32) -> Result<Durability, Failure> {
    if !(1..=60_000).contains(&milliseconds) {
        let what = format!("an interval is 1 to 60000 milliseconds and {milliseconds} is not");
        return Err(Failure::invalid(what));
    }
    Ok(Durability::interval_ms(milliseconds))
}

/// Refused where it is set, in the caller's own number: what is derived from it when the pool is opened would be
/// refused in other words.
pub(crate) fn bytes_of(bytes: u64, range: RangeInclusive<u64>, what: &str) -> Result<u64, Failure> {
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = range.into_inner();
    Err(Failure::invalid(match most {
        u64::MAX => format!("{what} is at least {least} bytes, not {bytes}"),
        _ => format!("{what} is {least} to {most} bytes, not {bytes}"),
    }))
}

fn limit_of(milliseconds: u32) -> Result<Duration, Failure> {
    if milliseconds > 60_000 {
        return Err(Failure::invalid(format!(
            "a limit is 0 to 60000 milliseconds and {milliseconds} is not"
        )));
    }
    Ok(Duration::from_millis(milliseconds.into()))
}

fn threads_of(count: u32) -> Result<usize, Failure> {
    if !(1..=1024).contains(&count) {
        return Err(Failure::invalid(format!("recovery threads are 1 to 1024 and {count} is not")));
    }
    Ok(count as usize)
}

/// New options: create the pool when it is missing, read and write, durability sync, all else
/// automatic; the same that NULL stands for in mangrove_map_open. Never NULL.
/// Give back with mangrove_options_free. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_options_new() -> *mut mangrove_options {
    give(mangrove_options { all: MapOptions::new(), create: true, create_new: false, read_only: false })
}

/// Frees options; maps opened with them stay open. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_free(options: *mut mangrove_options) {
    // SAFETY: NULL, or from mangrove_options_new and, by contract, not freed before.
    unsafe { take_back(options) };
}

/// Whether to create the pool when there is none. Default: true. With false, opening a missing pool
/// returns MANGROVE_ERR_POOL_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_create(
    options: *mut mangrove_options,
    create: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.create = create)
}

/// Whether the pool must be new: opening an existing one returns MANGROVE_ERR_POOL_EXISTS.
/// Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_create_new(
    options: *mut mangrove_options,
    create_new: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.create_new = create_new)
}

/// Whether to open without writing a byte: recovery happens in private memory, writes return
/// MANGROVE_ERR_READ_ONLY, nothing is created. On the file medium another process may have the pool open
/// for writing: what is read is one durable instant, with all that was durable before this opening.
/// Opening again reads a later one. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_read_only(
    options: *mut mangrove_options,
    read_only: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.read_only = read_only)
}

/// The medium of a new pool, or the expected one of an existing pool: one of mangrove_medium.
/// Default: MANGROVE_MEDIUM_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_medium(
    options: *mut mangrove_options,
    medium: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.medium(medium_of(medium)?))
}

/// The devdax device ("/dev/dax0.0") that holds the data of a new pool on the medium dax; the pool's directory may lie
/// on any file system. Creation zeroes the device, and fails if its first page is not blank. An existing pool keeps
/// its device, and another one is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_devdax(
    options: *mut mangrove_options,
    device: *const c_char,
) -> mangrove_status {
    // SAFETY: the header's contract for paths.
    set_option!(guard_unit, options.all.devdax(unsafe { path(device, "device") }?))
}

/// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line
/// that is read from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_emulated_latency(
    options: *mut mangrove_options,
    write_ns: u32,
    read_ns: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.medium(Medium::Emulated(Latency::new(write_ns, read_ns))))
}

/// A write returns once it is durable; one device write serves all threads that wait. The default.
/// A property of this opening, not of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_durability_sync(
    options: *mut mangrove_options,
) -> mangrove_status {
    set_option!(guard_unit, options.all.durability(Durability::Sync))
}

/// A write returns at once and is durable at most `milliseconds` (1 to 60000) later. A crash keeps a
/// prefix of the writes, in the order in which they took effect; mangrove_map_sync waits for all.
/// A property of this opening, not of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_durability_interval(
    options: *mut mangrove_options,
    milliseconds: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.durability(interval_of(milliseconds)?))
}

/// With durability sync on the medium file, a write that no thread waits for (mangrove_map_put_nowait) is
/// durable at most about `milliseconds` (0 to 60000) later. 0: never by itself. Default: 100.
/// A property of this opening, not of the pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_nowait_within(
    options: *mut mangrove_options,
    milliseconds: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.nowait_within(limit_of(milliseconds)?))
}

/// The most memory that this process may have, in bytes, on the medium file (what it uses elsewhere counts too).
/// Opening a pool that needs more, and a write that would make it grow beyond, fail with
/// MANGROVE_ERR_NO_MEMORY before the system would end the process. What the snapshots and iterators keep of old
/// values is no growth: it may come to a quarter of this, and lie beyond it, before they expire. Default: nine
/// tenths of what the machine and the process's control groups have, swap space included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_memory_max(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    set_option!(guard_unit, options.all.memory_bytes_max(bytes))
}

/// How long opening waits, in milliseconds, until another opener of this process or of another one has closed
/// the pool; then it fails with MANGROVE_ERR_POOL_BUSY. Default: 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_busy_wait(
    options: *mut mangrove_options,
    milliseconds: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.busy_wait(Duration::from_millis(milliseconds.into())))
}

/// The most bytes that the pool can grow to, 1 MiB to 64 TiB: address space, not disk space. Default: 128 GiB for a
/// new pool. A pool that has less gets it in place when it is opened for writing; one that has more is not opened
/// (MANGROVE_ERR_UNSUPPORTED). Values of each size class that is used take at least a segment of 256 KiB, so with
/// values of many lengths a map of a few MiB is full (MANGROVE_ERR_FULL) when it holds little: give it 16 MiB at least.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_capacity(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    set_option!(guard_unit, options.all.capacity(bytes_of(bytes, CAPACITY_BYTES, "the capacity of a map")?))
}

/// Bytes that the pool's redo log may grow to, 16 KiB to 1 GiB (file medium). The log begins small and grows with use.
/// This limit bounds the time of recovery, and the burst of writes that is accepted without waiting. The pool records
/// it; a limit below the log's present size is refused. Default: 1 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_log_bytes(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    set_option!(guard_unit, options.all.log_bytes(bytes_of(bytes, LOG_BYTES, "the log of a map")?))
}

/// The persistence domain to assume on persistent memory: one of mangrove_domain. The environment
/// variable MANGROVE_DOMAIN sets the same. Default: MANGROVE_DOMAIN_AUTO. A wrong claim of EADR
/// loses acknowledged writes in a power cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_domain(
    options: *mut mangrove_options,
    domain: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.domain(domain_of(domain)?))
}

/// How writers exclude each other: one of mangrove_locking. Default: MANGROVE_LOCKING_OPTIMISTIC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_locking(
    options: *mut mangrove_options,
    locking: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.locking(locking_of(locking)?))
}

/// Bytes of DRAM that the snapshots and iterators may hold for old values before they expire; but no more than
/// a quarter of what mangrove_options_set_memory_max says, or of its default. UINT64_MAX: they never expire,
/// whatever memory they take. Default: 1 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_snapshot_bytes_max(
    options: *mut mangrove_options,
    bytes: u64,
) -> mangrove_status {
    set_option!(guard_unit, options.all.snapshot_bytes_max(bytes))
}

/// Threads that rebuild the index while the pool is opened, 1 to 1024. Default: one a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_recovery_threads(
    options: *mut mangrove_options,
    threads: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.recovery_threads(threads_of(threads)?))
}

/// Whether a map on the file medium compacts itself, in a thread of its own, when at least 32 MiB and
/// a quarter of the space in use would come back. It does what mangrove_map_compact does, in smaller
/// steps and with pauses, and only while no snapshot and no iterator lives. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_background_compaction(
    options: *mut mangrove_options,
    yes: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.all.background_compaction(yes))
}

/// Whether opening a map returns before the map is recovered, if it lies on the file medium, was
/// closed, has a data file of at least 16 MiB, and is opened for writing. A thread then reads the
/// data file and builds the index. Meanwhile gets of records that are there are answered from the
/// files; every other call waits for the thread: a write, an iterator, a get of a key that is
/// absent. Damage that the thread finds, and other errors that it meets, these calls report, and not
/// the opening. Closing a map leaves what such gets need, 5 bytes a record. mangrove_map_load,
/// mangrove_map_backup and mangrove_map_salvage leave none: opening what they made takes its whole
/// time, the first time. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_options_set_background_recovery(
    options: *mut mangrove_options,
    yes: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.all.background_recovery(yes))
}
