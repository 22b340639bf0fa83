//! How a heap is opened.

use crate::options::{LOG_BYTES, bytes_of, domain_of, interval_of, medium_of};
use crate::status::{Failure, guard_unit, mangrove_status};
use mangrove::heap::{Executor, HardwareLimits, HeapOptions, Protocol, Start, StmOptions};
use mangrove::{Create, Durability, Latency, Medium};
use mangrove_cabi::{Checked, from_c_enum, give, path, set_option, take_back};
use std::ffi::c_char;
use std::ops::RangeInclusive;

/// A new heap can grow to so many bytes: its first blocks fit into the least.
const CAPACITY_BYTES: RangeInclusive<u64> = 8 << 20..=16 << 40;
/// The least limit of memory.
const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// How to open a heap. Threads: one at a time for setting; any for opening with it.
pub struct mangrove_heap_options {
    all: HeapOptions,
    create: bool,
    create_new: bool,
    read_only: bool,
    memory_max: Option<u64>,
}

impl mangrove_heap_options {
    /// The facade's options. Read-only takes precedence over creation, and a limit of memory over the way into memory,
    /// whichever was set first.
    pub(super) fn for_open(&self) -> HeapOptions {
        let create = match (self.create_new, self.create) {
            (true, _) => Create::New,
            (false, true) => Create::IfMissing,
            (false, false) => Create::Never,
        };
        let all = self.all.clone().create(create).read_only(self.read_only);
        match self.memory_max {
            Some(bytes) => all.memory_bytes_max(bytes),
            None => all,
        }
    }
}

/// What isolates the transactions of a heap.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_executor {
    /// Software, on every CPU: ownership records, and none while only one thread has transactions.
    MANGROVE_EXECUTOR_RECORDS = 0,
    /// RTM where it commits transactions, the caches are persistent and the heap lies on persistent memory;
    /// otherwise ownership records. With a protocol of time stamps: RTM, or one lock.
    MANGROVE_EXECUTOR_AUTO = 1,
    /// Intel RTM, and one lock for the transactions that RTM cannot run.
    MANGROVE_EXECUTOR_RTM = 2,
    /// One lock: one transaction at a time.
    MANGROVE_EXECUTOR_ONE_LOCK = 3,
    /// A model of RTM, for tests: slow, for at most 64 threads.
    MANGROVE_EXECUTOR_HARDWARE_MODEL = 4,
}

/// How a commit of a heap becomes durable.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_protocol {
    /// Chosen by executor, medium and persistence domain.
    MANGROVE_PROTOCOL_AUTO = 0,
    /// Commits are numbered without gaps: one fence a commit, none where the caches are persistent.
    MANGROVE_PROTOCOL_ONE_FENCE = 1,
    /// SPHT: time stamps, and a durable marker.
    MANGROVE_PROTOCOL_SPHT = 2,
    /// SPHT-eADR: time stamps, for persistent caches only.
    MANGROVE_PROTOCOL_SPHT_EADR = 3,
    /// SPHT-eADR that flushes the log's lines, and waits for none.
    MANGROVE_PROTOCOL_SPHT_EADR_FLUSH = 4,
}

fn executor_of(number: i32) -> Checked<Executor> {
    from_c_enum!(number, mangrove_executor {
        MANGROVE_EXECUTOR_RECORDS => Executor::Records(StmOptions::default()),
        MANGROVE_EXECUTOR_AUTO => Executor::Automatic,
        MANGROVE_EXECUTOR_RTM => Executor::Rtm,
        MANGROVE_EXECUTOR_ONE_LOCK => Executor::OneLock,
        MANGROVE_EXECUTOR_HARDWARE_MODEL => Executor::HardwareModel(HardwareLimits::default()),
    })
}

fn protocol_of(number: i32) -> Checked<Protocol> {
    from_c_enum!(number, mangrove_protocol {
        MANGROVE_PROTOCOL_AUTO => Protocol::Automatic,
        MANGROVE_PROTOCOL_ONE_FENCE => Protocol::OneFence,
        MANGROVE_PROTOCOL_SPHT => Protocol::Spht,
        MANGROVE_PROTOCOL_SPHT_EADR => Protocol::SphtEadr,
        MANGROVE_PROTOCOL_SPHT_EADR_FLUSH => Protocol::SphtEadrFlush,
    })
}

fn logs_of(count: u32) -> Result<usize, Failure> {
    if !(1..=64).contains(&count) {
        return Err(Failure::invalid(format!("a heap has 1 to 64 logs and {count} is not")));
    }
    Ok(count as usize)
}

/// New options: create the heap when it is missing, durability sync, all else automatic; the same
/// that NULL stands for in mangrove_heap_open. Never NULL. Give back with mangrove_heap_options_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_heap_options_new() -> *mut mangrove_heap_options {
    give(mangrove_heap_options {
        all: HeapOptions::new(),
        create: true,
        create_new: false,
        read_only: false,
        memory_max: None,
    })
}

/// Frees options; heaps opened with them stay open. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_free(options: *mut mangrove_heap_options) {
    // SAFETY: NULL, or from mangrove_heap_options_new and, by contract, not freed before.
    unsafe { take_back(options) };
}

/// Whether to create the heap when there is none. Default: true. With false, opening a missing heap
/// returns MANGROVE_ERR_POOL_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_create(
    options: *mut mangrove_heap_options,
    create: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.create = create)
}

/// Whether the heap must be new: opening an existing one returns MANGROVE_ERR_POOL_EXISTS.
/// Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_create_new(
    options: *mut mangrove_heap_options,
    create_new: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.create_new = create_new)
}

/// Whether to open without writing a byte: recovery happens in private memory, a transaction that wrote is
/// undone and returns MANGROVE_ERR_READ_ONLY, nothing is created. On the file medium another process may have
/// the heap open for writing: what is read is one durable instant, with all that was durable before this
/// opening. Opening again reads a later one. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_read_only(
    options: *mut mangrove_heap_options,
    read_only: bool,
) -> mangrove_status {
    set_option!(guard_unit, options.read_only = read_only)
}

/// The medium of a new heap, or the expected one of an existing heap: one of mangrove_medium.
/// Default: MANGROVE_MEDIUM_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_medium(
    options: *mut mangrove_heap_options,
    medium: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.medium(medium_of(medium)?))
}

/// The devdax device ("/dev/dax0.0") that holds the data of a new heap on the medium dax, as for a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_devdax(
    options: *mut mangrove_heap_options,
    device: *const c_char,
) -> mangrove_status {
    // SAFETY: the header's contract for paths.
    set_option!(guard_unit, options.all.devdax(unsafe { path(device, "device") }?))
}

/// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line
/// that is read from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_emulated_latency(
    options: *mut mangrove_heap_options,
    write_ns: u32,
    read_ns: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.medium(Medium::Emulated(Latency::new(write_ns, read_ns))))
}

/// A transaction returns once it is durable. The default. A property of this opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_durability_sync(
    options: *mut mangrove_heap_options,
) -> mangrove_status {
    set_option!(guard_unit, options.all.durability(Durability::Sync))
}

/// A transaction returns at once and is durable at most `milliseconds` (1 to 60000) later; so is what it
/// read. A crash keeps a prefix of the transactions; mangrove_heap_sync waits for all. A property of this
/// opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_durability_interval(
    options: *mut mangrove_heap_options,
    milliseconds: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.durability(interval_of(milliseconds)?))
}

/// The most bytes that a new heap can grow to, 8 MiB to 16 TiB: address space, not disk space. It cannot
/// be changed later: a heap that has another one is not opened (MANGROVE_ERR_UNSUPPORTED). Default: 256 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_capacity(
    options: *mut mangrove_heap_options,
    bytes: u64,
) -> mangrove_status {
    set_option!(guard_unit, options.all.capacity(bytes_of(bytes, CAPACITY_BYTES, "the capacity of a heap")?))
}

/// Bytes that the heap's redo log may grow to, 16 KiB to 1 GiB; on persistent memory the bytes of each of its
/// logs. They bound the time of recovery, and the burst of transactions that is accepted without waiting.
/// Default: 1 GiB, of which a heap that is opened copy on write uses 256 MiB; on persistent memory 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_log_bytes(
    options: *mut mangrove_heap_options,
    bytes: u64,
) -> mangrove_status {
    set_option!(guard_unit, options.all.log_bytes(bytes_of(bytes, LOG_BYTES, "the log of a heap")?))
}

/// Logs of a new heap on persistent memory, 1 to 64: so many threads commit at the same time. On the
/// file medium all threads share one. Default: the number of CPUs, at least 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_log_count(
    options: *mut mangrove_heap_options,
    count: u32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.log_count(logs_of(count)?))
}

/// The persistence domain to assume on persistent memory: one of mangrove_domain, as for a map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_domain(
    options: *mut mangrove_heap_options,
    domain: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.domain(domain_of(domain)?))
}

/// What isolates transactions: one of mangrove_executor. Default: MANGROVE_EXECUTOR_RECORDS. A property of
/// this opening. mangrove_heap_open returns MANGROVE_ERR_INVALID_ARGUMENT for one that this machine does not
/// have, or that does not go with the protocol; mangrove_last_error says what would work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_executor(
    options: *mut mangrove_heap_options,
    executor: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.executor(executor_of(executor)?))
}

/// How a commit becomes durable: one of mangrove_protocol. Default: MANGROVE_PROTOCOL_AUTO. A property of
/// this opening. The file medium has MANGROVE_PROTOCOL_AUTO alone (group commit). On persistent memory
/// those with time stamps go with every executor but MANGROVE_EXECUTOR_RECORDS, and need CPUs whose time
/// stamp counters agree. mangrove_heap_open returns MANGROVE_ERR_INVALID_ARGUMENT otherwise, also where a
/// busy machine could not compare the counters within 10 seconds: then a retry may help.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_protocol(
    options: *mut mangrove_heap_options,
    protocol: i32,
) -> mangrove_status {
    set_option!(guard_unit, options.all.protocol(protocol_of(protocol)?))
}

/// The most memory that the heap takes, in bytes, at least 4 MiB: so the heap can be larger than the machine's
/// memory. It is mapped copy on write, whatever mangrove_heap_options_set_copy_on_write says. A thread writes
/// changed pages to the file and gives the memory of some back while no transaction runs, a pause of
/// milliseconds; what running transactions write may exceed the limit for that long. Only transactions store to
/// such a heap, also after mangrove_tx_privatise. What the library needs besides, above all memory
/// for the redo log (up to its bytes), comes on top. A heap opened read-only lies in memory as a whole: opening
/// fails with MANGROVE_ERR_INVALID_ARGUMENT if it takes more. Default: no limit. A property of this opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_memory_max(
    options: *mut mangrove_heap_options,
    bytes: u64,
) -> mangrove_status {
    let range = MEMORY_BYTES_MIN..=u64::MAX;
    set_option!(guard_unit, options.memory_max = Some(bytes_of(bytes, range, "the memory of a heap")?))
}

/// Whether the heap is mapped, copy on write, instead of read when it is opened: opening then takes no
/// time. On the file medium the checksums are compared afterwards: a page that does not match poisons the
/// heap, but the program may have read it before. On dax and emulated nothing compares them: a damaged page
/// is read as it is, and closing may give it a new checksum; mangrove_pool_check compares a closed heap. A
/// page that cannot be read ends the process with SIGBUS. Default: false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_options_set_copy_on_write(
    options: *mut mangrove_heap_options,
    copy_on_write: bool,
) -> mangrove_status {
    let start = if copy_on_write { Start::CopyOnWrite } else { Start::Read };
    set_option!(guard_unit, options.all.start(start))
}
