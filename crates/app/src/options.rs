//! The options object.

use crate::status::{Answer, Failure, guard, mangrove_app_status};
use mangrove_durable::{
    CreateMode, Durability, Latency, MediumChoice, Options, ServerOptions, Start, TrackerChoice,
};
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

/// What a pool lies on.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_app_medium {
    /// What an existing pool says; for a new one dax where the directory can, else file.
    MANGROVE_APP_MEDIUM_AUTO = 0,
    /// Any file system.
    MANGROVE_APP_MEDIUM_FILE = 1,
    /// Persistent memory mapped with MAP_SYNC.
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
    /// It is mapped, copy on write: ready at once, whatever its size. On a file system every page is compared
    /// with its checksum by a thread behind; one that does not fit latches an error, but may have been seen, and
    /// a page that cannot be read ends the process with SIGBUS. On persistent memory a state that was closed is
    /// not compared.
    MANGROVE_APP_START_COPY_ON_WRITE = 1,
}

/// Who learns what write commands write.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum mangrove_app_tracker {
    /// The best there is: the recompiler on x86-64.
    MANGROVE_APP_TRACKER_AUTO = 0,
    /// Translates what commands reach while they run. Nothing has to be rebuilt.
    MANGROVE_APP_TRACKER_RECOMPILER = 1,
    /// The program was built by clang with -fsanitize-coverage=func,trace-stores and mangrove_tracker.h.
    /// What was not built so (libraries) is not seen, and what it writes is not durable.
    MANGROVE_APP_TRACKER_COMPILER = 2,
    /// The program calls mangrove_app_will_write before it writes. What it forgets is not durable.
    MANGROVE_APP_TRACKER_EXPLICIT = 3,
}

use mangrove_app_medium::*;
use mangrove_app_start::*;
use mangrove_app_tracker::*;

/// New options: create the state when it is missing, durability sync, all else automatic; the same that
/// NULL stands for in mangrove_app_open. Never NULL. Give back with mangrove_app_options_free.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_options_new() -> *mut mangrove_app_options {
    Box::into_raw(Box::default())
}

/// Frees options; applications opened with them go on. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_free(options: *mut mangrove_app_options) {
    if !options.is_null() {
        // SAFETY: from mangrove_app_options_new and, by contract, not freed before.
        drop(unsafe { Box::from_raw(options) });
    }
}

unsafe fn set(
    options: *mut mangrove_app_options,
    change: impl FnOnce(&mut mangrove_app_options) -> Answer,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: by contract a living object of ours, used by one thread.
        let options = unsafe { options.as_mut() }.ok_or_else(|| Failure::null("options"))?;
        let mut changed = options.clone();
        change(&mut changed)?;
        *options = changed;
        Ok(())
    })
}

/// Sets an option of the state.
unsafe fn set_all(
    options: *mut mangrove_app_options,
    change: impl FnOnce(Options) -> Result<Options, Failure>,
) -> mangrove_app_status {
    // SAFETY: passed on.
    unsafe {
        set(options, |o| {
            o.all = change(o.all.clone())?;
            Ok(())
        })
    }
}

/// Sets an option of the server.
unsafe fn set_server(
    options: *mut mangrove_app_options,
    change: impl FnOnce(ServerOptions) -> ServerOptions,
) -> mangrove_app_status {
    // SAFETY: passed on.
    unsafe {
        set(options, |o| {
            o.server = change(o.server.clone());
            Ok(())
        })
    }
}

/// Whether to make the state when there is none. Default: true. With false, opening a missing one
/// answers MANGROVE_APP_ERR_POOL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_create(
    options: *mut mangrove_app_options,
    create: bool,
) -> mangrove_app_status {
    let mode = if create { CreateMode::CreateIfMissing } else { CreateMode::OpenOnly };
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.create(mode))) }
}

/// What a new state shall lie on: one of mangrove_app_medium. Default: MANGROVE_APP_MEDIUM_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_medium(
    options: *mut mangrove_app_options,
    medium: i32,
) -> mangrove_app_status {
    let change = |o: Options| {
        Ok(o.medium(match medium {
            m if m == MANGROVE_APP_MEDIUM_AUTO as i32 => MediumChoice::Auto,
            m if m == MANGROVE_APP_MEDIUM_FILE as i32 => MediumChoice::File,
            m if m == MANGROVE_APP_MEDIUM_DAX as i32 => MediumChoice::Dax,
            m if m == MANGROVE_APP_MEDIUM_EMULATED as i32 => MediumChoice::Emulated(Latency::default()),
            m => return Err(Failure::invalid(format!("{m} is no mangrove_app_medium"))),
        }))
    };
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, change) }
}

/// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line that
/// is read from memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_emulated_latency(
    options: *mut mangrove_app_options,
    write_ns: u32,
    read_ns: u32,
) -> mangrove_app_status {
    let medium = MediumChoice::Emulated(Latency { write_ns, read_ns });
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.medium(medium))) }
}

/// How the state comes into memory: one of mangrove_app_start. Default: MANGROVE_APP_START_READ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_start(
    options: *mut mangrove_app_options,
    start: i32,
) -> mangrove_app_status {
    let change = |o: Options| {
        Ok(o.start(match start {
            s if s == MANGROVE_APP_START_READ as i32 => Start::Read,
            s if s == MANGROVE_APP_START_COPY_ON_WRITE as i32 => Start::CopyOnWrite,
            s => return Err(Failure::invalid(format!("{s} is no mangrove_app_start"))),
        }))
    };
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, change) }
}

/// An answer is given when what it rests on is durable. The default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_durability_sync(
    options: *mut mangrove_app_options,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.durability(Durability::Sync))) }
}

/// Answers are given at once and are durable at most about `milliseconds` (1 to 60000) later. A crash
/// keeps a prefix of the batches, in the order in which they took effect; mangrove_app_sync waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_durability_interval(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    let change = |o: Options| {
        if !(1..=60_000).contains(&milliseconds) {
            let what = format!("an interval is 1 to 60000 milliseconds and {milliseconds} is not");
            return Err(Failure::invalid(what));
        }
        Ok(o.durability(Durability::Interval(milliseconds)))
    };
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, change) }
}

/// The most bytes that a new state can grow to: address space, not disk space. Default: 256 GiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_capacity(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.capacity(bytes))) }
}

/// Bytes of a new state's redo log. Bounds the time of recovery and the burst of writes that is taken
/// without waiting. Default: 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_log_bytes(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.log_bytes(bytes))) }
}

/// Who learns what commands write: one of mangrove_app_tracker. Default: MANGROVE_APP_TRACKER_AUTO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_tracker(
    options: *mut mangrove_app_options,
    tracker: i32,
) -> mangrove_app_status {
    let change = |o: Options| {
        Ok(o.tracker(match tracker {
            t if t == MANGROVE_APP_TRACKER_AUTO as i32 => TrackerChoice::Auto,
            t if t == MANGROVE_APP_TRACKER_RECOMPILER as i32 => TrackerChoice::Recompiler,
            t if t == MANGROVE_APP_TRACKER_COMPILER as i32 => TrackerChoice::Compiler,
            t if t == MANGROVE_APP_TRACKER_EXPLICIT as i32 => TrackerChoice::Explicit,
            t => return Err(Failure::invalid(format!("{t} is no mangrove_app_tracker"))),
        }))
    };
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, change) }
}

/// The block in which writes are deduplicated: 16, 32, 64 or 128 bytes. Default: 32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_block_bytes(
    options: *mut mangrove_app_options,
    bytes: u32,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.block_bytes(bytes as usize))) }
}

/// Whether variables of the program and its libraries (.data, .bss) that commands write are part of the
/// state. Default: true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_variables(
    options: *mut mangrove_app_options,
    keep: bool,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_all(options, |o| Ok(o.keeps_variables(keep))) }
}

/// Event loops of the server, 1 to 1024. Default: one a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_workers(
    options: *mut mangrove_app_options,
    count: u32,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.workers(count as usize)) }
}

/// Longest request in bytes; a client that sends a longer one is cut off. Default: 512 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_request_bytes_max(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.request_bytes_max(usize::try_from(bytes).unwrap_or(usize::MAX))) }
}

/// Unsent answers in bytes at which a client's further requests wait. Default: 1 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_backlog_bytes_max(
    options: *mut mangrove_app_options,
    bytes: u64,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.backlog_bytes_max(usize::try_from(bytes).unwrap_or(usize::MAX))) }
}

/// Clients at a time; more are closed as they come. Default: 10000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_clients_max(
    options: *mut mangrove_app_options,
    count: u32,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.clients_max(count as usize)) }
}

/// Milliseconds that a client may take none of the answer that waits for it; it is then cut off.
/// Default: 60000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_stalled_max(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.stalled_max(Duration::from_millis(milliseconds.into()))) }
}

/// Milliseconds that a client may say nothing; it is then cut off. 0: for ever, the default (clients
/// that vanished are found by TCP keep-alive).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_idle_max(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    let time = (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()));
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.idle_max(time)) }
}

/// Milliseconds that a shutdown waits for clients to take their answers. Default: 10000.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_options_set_shutdown_max(
    options: *mut mangrove_app_options,
    milliseconds: u32,
) -> mangrove_app_status {
    // SAFETY: passed on from the caller.
    unsafe { set_server(options, |o| o.shutdown_max(Duration::from_millis(milliseconds.into()))) }
}
