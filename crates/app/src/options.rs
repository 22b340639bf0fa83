//! The options object.

use crate::status::{Failure, guard, mangrove_app_status};
use mangrove_cabi::{Checked, from_c_enum, give, path, set_option, take_back};
use mangrove_durable::{Create, Durability, FenceReport, Latency, Medium, Options, Start, TrackerChoice};
use mangrove_serve::ServerOptions;
use std::ffi::{c_char, c_void};
use std::time::Duration;

/// How to open an application and how to serve it. Threads: one at a time.
#[derive(Clone)]
pub struct mangrove_app_options {
    pub(crate) all: Options,
    pub(crate) server: ServerOptions,
}

impl Default for mangrove_app_options {
    fn default() -> Self {
        Self { all: Options::new(), server: ServerOptions::new() }
    }
}

/// The medium of a pool.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_app_medium {
    /// That of an existing pool; for a new one dax where the directory supports it, else file.
    MANGROVE_APP_MEDIUM_AUTO = 0,
    /// Any file system.
    MANGROVE_APP_MEDIUM_FILE = 1,
    /// Persistent memory mapped with MAP_SYNC, or a devdax character device.
    MANGROVE_APP_MEDIUM_DAX = 2,
    /// DRAM that pretends to be persistent memory, for figures and tests. On tmpfs it survives the
    /// process, never the machine.
    MANGROVE_APP_MEDIUM_EMULATED = 3,
}

/// How the state comes into memory when it is opened.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_app_start {
    /// All of it is read, by all processors, and compared with its checksums first.
    MANGROVE_APP_START_READ = 0,
    /// It is mapped, copy on write: ready at once, whatever its size. On a file system a thread in the
    /// background compares every page with its checksum. A page that does not match poisons the pool,
    /// but commands may have seen it; a page that cannot be read ends the process with SIGBUS. On
    /// persistent memory a state that was closed is not compared. A child of fork must not read the
    /// state: a page that its parent stores to only later shows what the parent makes durable.
    MANGROVE_APP_START_COPY_ON_WRITE = 1,
}

/// How the library learns what write commands write.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_app_tracker {
    /// The best there is: the recompiler on x86-64.
    MANGROVE_APP_TRACKER_AUTO = 0,
    /// Translates what commands reach while they run. Nothing has to be rebuilt.
    MANGROVE_APP_TRACKER_RECOMPILER = 1,
    /// The program was built by clang with -fsanitize-coverage=func,trace-stores and
    /// mangrove_tracker.h. Code that was not built so (libraries) is not seen, and what it writes is
    /// not durable.
    MANGROVE_APP_TRACKER_COMPILER = 2,
    /// The program calls mangrove_app_will_write before it writes. What it forgets is not durable.
    MANGROVE_APP_TRACKER_EXPLICIT = 3,
}

fn create_of(create: bool) -> Create {
    if create { Create::IfMissing } else { Create::Never }
}

fn medium_of(number: i32) -> Checked<Medium> {
    from_c_enum!(number, mangrove_app_medium {
        MANGROVE_APP_MEDIUM_AUTO => Medium::Auto,
        MANGROVE_APP_MEDIUM_FILE => Medium::File,
        MANGROVE_APP_MEDIUM_DAX => Medium::Dax,
        MANGROVE_APP_MEDIUM_EMULATED => Medium::Emulated(Latency::default()),
    })
}

fn start_of(number: i32) -> Checked<Start> {
    from_c_enum!(number, mangrove_app_start {
        MANGROVE_APP_START_READ => Start::Read,
        MANGROVE_APP_START_COPY_ON_WRITE => Start::CopyOnWrite,
    })
}

fn tracker_of(number: i32) -> Checked<TrackerChoice> {
    from_c_enum!(number, mangrove_app_tracker {
        MANGROVE_APP_TRACKER_AUTO => TrackerChoice::Auto,
        MANGROVE_APP_TRACKER_RECOMPILER => TrackerChoice::Recompiler,
        MANGROVE_APP_TRACKER_COMPILER => TrackerChoice::Compiler,
        MANGROVE_APP_TRACKER_EXPLICIT => TrackerChoice::Explicit,
    })
}

fn interval_of(milliseconds: u32) -> Result<Durability, Failure> {
    if !(1..=60_000).contains(&milliseconds) {
        let what = format!("an interval is 1 to 60000 milliseconds and {milliseconds} is not");
        return Err(Failure::invalid(what));
    }
    Ok(Durability::interval_ms(milliseconds))
}

fn duration_of(milliseconds: u32) -> Duration {
    Duration::from_millis(milliseconds.into())
}

fn len_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// New options: create the state when it is missing, durability sync, all else automatic; the same that
/// NULL stands for in mangrove_app_open. Never NULL. Give back with mangrove_app_options_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_options_new() -> *mut mangrove_app_options {
    give(mangrove_app_options::default())
}

/// Frees options; applications opened with them stay open. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_free(options: *mut mangrove_app_options) {
    // SAFETY: NULL, or from mangrove_app_options_new and, by contract, not freed before.
    unsafe { take_back(options) };
}

/// Whether to make the state when there is none. Default: true. With false, opening a missing one
/// returns MANGROVE_APP_ERR_POOL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_create(
    options: *mut mangrove_app_options,
    create: bool,
) -> mangrove_app_status {
    set_option!(guard, options.all.create(create_of(create)))
}

/// The medium of a new state: one of mangrove_app_medium. Default: MANGROVE_APP_MEDIUM_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_medium(
    options: *mut mangrove_app_options,
    medium: i32,
) -> mangrove_app_status {
    set_option!(guard, options.all.medium(medium_of(medium)?))
}

/// The devdax device ("/dev/dax0.0") that holds the data of a new state on the medium dax; the state's directory may
/// lie on any file system. Creation zeroes the device, and fails if its first page is not blank. An existing state
/// keeps its device, and another one is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_devdax(
    options: *mut mangrove_app_options,
    device: *const c_char,
) -> mangrove_app_status {
    // SAFETY: the header's contract for paths.
    set_option!(guard, options.all.devdax(unsafe { path(device, "device") }?))
}

/// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line that
/// is read from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_emulated_latency(
    options: *mut mangrove_app_options,
    write_ns: u32,
    read_ns: u32,
) -> mangrove_app_status {
    set_option!(guard, options.all.medium(Medium::Emulated(Latency::new(write_ns, read_ns))))
}

/// How the state comes into memory: one of mangrove_app_start. Default: MANGROVE_APP_START_READ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_start(
    options: *mut mangrove_app_options,
    start: i32,
) -> mangrove_app_status {
    set_option!(guard, options.all.start(start_of(start)?))
}

/// A result is acknowledged when everything that it depends on is durable. The default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_durability_sync(
    options: *mut mangrove_app_options,
) -> mangrove_app_status {
    set_option!(guard, options.all.durability(Durability::Sync))
}

/// Calls return at once, and what they did is durable at most about `milliseconds` (1 to 60000) later. A
/// crash keeps a prefix of the batches, in the order in which they took effect; mangrove_app_sync
/// waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_durability_interval(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    set_option!(guard, options.all.durability(interval_of(milliseconds)?))
}

/// The most bytes that a new state can grow to: address space, not disk space. It cannot be changed later: a state
/// that has another one is not opened. Default: 256 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_capacity(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    set_option!(guard, options.all.capacity(bytes))
}

/// Bytes that the state's redo log may grow to; on persistent memory, bytes of a new state's log. They bound the
/// time of recovery, and the burst of writes that is accepted without waiting. Default: 1 GiB, of which a
/// state that is opened copy on write uses 256 MiB; on persistent memory 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_log_bytes(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    set_option!(guard, options.all.log_bytes(bytes))
}

/// The most memory that this process may have, in bytes (what it uses elsewhere counts too). Opening a state
/// that needs more returns MANGROVE_APP_ERR_NO_MEMORY, and the allocation of a command that would make the
/// state grow beyond fails: malloc returns NULL. Default: nine tenths of what the machine and the process's
/// control groups have, swap space included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_memory_max(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    set_option!(guard, options.all.memory_bytes_max(bytes))
}

/// How the library learns what commands write: one of mangrove_app_tracker. Default:
/// MANGROVE_APP_TRACKER_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_tracker(
    options: *mut mangrove_app_options,
    tracker: i32,
) -> mangrove_app_status {
    set_option!(guard, options.all.tracker(tracker_of(tracker)?))
}

/// From now on `function` (a pointer to a function, as const void *) runs natively wherever write commands call
/// it, as it would outside of them: what it allocates comes from the process's own heap and not from the
/// state's, and what it writes is not tracked. For work that is not part of the state: making a reply, logging,
/// telling other clients. It must not write to the state, throw, or jump out. Any number of functions. A call
/// that the compiler has inlined is not noticed: name functions of another source file, or functions that are
/// not inlined. Needs MANGROVE_APP_TRACKER_RECOMPILER; with another tracker opening returns
/// MANGROVE_APP_ERR_TRACKER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_native(
    options: *mut mangrove_app_options,
    function: *const c_void,
) -> mangrove_app_status {
    if function.is_null() {
        return guard(|| Err(Failure::null("function")));
    }
    set_option!(guard, options.all.native(&[function as usize]))
}

/// For tests of a port: outside of commands the state's memory is read-only. Each write there is reported,
/// once for each backtrace, and let through: report(address, frames, count, user) gets the addresses in the
/// functions that led to it, innermost first, in a signal handler (SIGSEGV) of the thread that writes. NULL:
/// a line and the backtrace go to standard error. Such writes are lost by the next restart, or survive in
/// part, unless the program knows why they do no harm. Slow; one state of a process has it at a time. A
/// system call that would write there fails with EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_write_fence(
    options: *mut mangrove_app_options,
    report: Option<
        unsafe extern "C" fn(
            address: *const c_void,
            frames: *const *mut c_void,
            count: usize,
            user: *mut c_void,
        ),
    >,
    user: *mut c_void,
) -> mangrove_app_status {
    set_option!(guard, options.all.write_fence(FenceReport { call: report, user: user.expose_provenance() }))
}

/// The block in which writes are deduplicated: 16, 32, 64 or 128 bytes. Default: 32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_block_bytes(
    options: *mut mangrove_app_options,
    bytes: u32,
) -> mangrove_app_status {
    set_option!(guard, options.all.block_bytes(bytes as usize))
}

/// Whether a block that several commands of a batch wrote goes to the log once. Default: true. Without it the
/// log has what each command wrote: for measurements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_deduplicates(
    options: *mut mangrove_app_options,
    yes: bool,
) -> mangrove_app_status {
    set_option!(guard, options.all.deduplicates(yes))
}

/// Whether variables of the program and its libraries (.data, .bss) that commands write are part of the
/// state. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_variables(
    options: *mut mangrove_app_options,
    keep: bool,
) -> mangrove_app_status {
    set_option!(guard, options.all.keeps_variables(keep))
}

/// Promises that the state depends on no address of code, constants or variables of the program and its
/// libraries: neither by pointing there (a commit that does is refused, with MANGROVE_APP_ERR_MOVED), nor
/// by hashing such an address. Then it can be made and opened where the program cannot have the same
/// addresses at each start (mangrove_app_addresses_are_fixed). Default: false: there, opening returns
/// MANGROVE_APP_ERR_MOVED, unless the program and its own libraries are linked at a fixed address
/// (-no-pie) or MANGROVE_RANDOM_ADDRESSES is in the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_random_addresses(
    options: *mut mangrove_app_options,
    promise: bool,
) -> mangrove_app_status {
    set_option!(guard, options.all.random_addresses(promise))
}

/// Event loops of the server, 1 to 1024; another number is taken for the nearest of these. Default: one a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_workers(
    options: *mut mangrove_app_options,
    count: u32,
) -> mangrove_app_status {
    set_option!(guard, options.server.workers(count as usize))
}

/// Longest request in bytes; a client that sends a longer one is disconnected. Default: 512 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_request_bytes_max(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    set_option!(guard, options.server.request_bytes_max(len_of(bytes)))
}

/// Bytes of unsent replies at which a client's further requests wait. Default: 1 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_backlog_bytes_max(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    set_option!(guard, options.server.backlog_bytes_max(len_of(bytes)))
}

/// Clients at a time; more are closed as they come. Default: 10000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_clients_max(
    options: *mut mangrove_app_options,
    count: u32,
) -> mangrove_app_status {
    set_option!(guard, options.server.clients_max(count as usize))
}

/// Milliseconds after which a client that takes nothing of a waiting reply is disconnected. Default: 60000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_stalled_max(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    set_option!(guard, options.server.stalled_max(duration_of(milliseconds)))
}

/// Milliseconds after which a client that sends nothing is disconnected. 0: never, the default (TCP keep-alive
/// finds clients that vanished).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_idle_max(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    set_option!(guard, options.server.idle_max((milliseconds > 0).then(|| duration_of(milliseconds))))
}

/// Milliseconds that a shutdown waits for clients to take their replies. Default: 10000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_shutdown_max(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    set_option!(guard, options.server.shutdown_max(duration_of(milliseconds)))
}
