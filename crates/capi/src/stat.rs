//! Figures of maps and pools. Structs begin with their size, so that fields can be appended.

use crate::bytes::put_sized;
use crate::map::mangrove_map;
use crate::options::medium_number;
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status};
use mangrove::PoolInfo;
use mangrove_cabi::{handle, path, text_array};
use std::ffi::c_char;

/// Figures of an open map. Counters count since it was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_stat {
    /// Set to sizeof(mangrove_stat) before the call. After it: the bytes that this library knows.
    pub size: usize,
    /// Records in the map, those included that a crash could still undo.
    pub records: u64,
    /// DRAM of the index, in bytes.
    pub index_bytes: u64,
    /// DRAM of the allocator's bookkeeping, in bytes.
    pub allocator_bytes: u64,
    /// Bytes of the pool's data file in use by records, with slack.
    pub durable_bytes: u64,
    /// Bytes of the pool's data file that were made usable so far.
    pub image_bytes: u64,
    /// The most bytes that the data file can grow to.
    pub capacity: u64,
    /// Bytes of the redo log; 0 where there is none.
    pub log_bytes: u64,
    /// Bytes of the redo log that wait for a checkpoint.
    pub log_bytes_used: u64,
    /// Device writes of the log, each for all threads that waited.
    pub group_commits: u64,
    /// Bytes written to the log, padding included.
    pub log_bytes_written: u64,
    /// Bytes written to the data file and its page checksums.
    pub image_bytes_written: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Times a write waited for the checkpointer to free log space.
    pub log_full_waits: u64,
    /// Snapshots and iterators alive.
    pub snapshots: u64,
    /// DRAM held for them, in bytes.
    pub snapshot_bytes: u64,
    /// Milliseconds of interval durability; 0 means sync.
    pub interval_ms: u32,
    /// The medium of the pool: one of mangrove_medium.
    pub medium: i32,
    /// True when the map was opened read-only.
    pub read_only: bool,
    /// The I/O error that poisoned the pool (cut to fit); "" when there is none.
    pub poisoned: [c_char; 256],
}

/// What opening a map had to do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_recovery {
    /// Set to sizeof(mangrove_recovery) before the call. After it: the bytes that this library knows.
    pub size: usize,
    /// Records found.
    pub records: u64,
    /// Bytes of the data file that were read and verified.
    pub image_bytes: u64,
    /// Groups of the log replayed.
    pub log_groups: u64,
    /// Wall time of reading the pool, in seconds.
    pub pool_seconds: f64,
    /// Wall time of rebuilding the index, in seconds.
    pub index_seconds: f64,
    /// Wall time of the whole opening, in seconds.
    pub seconds: f64,
    /// True when this opening created the map.
    pub created: bool,
    /// True when the pool had been closed in order: nothing had to be replayed.
    pub clean: bool,
}

/// What a pool's superblock states.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_pool_info {
    /// Set to sizeof(mangrove_pool_info) before the call. After it: the bytes that this library knows.
    pub size: usize,
    /// The most bytes that the data file can grow to.
    pub capacity: u64,
    /// Bytes of the data file that were made usable so far.
    pub image_bytes: u64,
    /// Bytes of the redo log; 0 where there is none.
    pub log_bytes: u64,
    /// Format version.
    pub version: u32,
    /// Its medium: one of mangrove_medium.
    pub medium: i32,
    /// True when it was closed in order.
    pub clean: bool,
    /// True when a process holds it now.
    pub busy: bool,
    /// Name of this one pool, never used twice; NUL-terminated.
    pub uuid: [c_char; 48],
    /// Kind of object in it, as "map"; NUL-terminated.
    pub kind: [c_char; 32],
}

/// The size that the caller set, at the head of its struct.
pub(crate) unsafe fn size_of_caller<T>(pointer: *const T, what: &'static str) -> Result<usize, Failure> {
    // SAFETY: the header's contract; all structs here are repr(C) and begin with a size_t.
    Ok(*unsafe { handle(pointer.cast::<usize>(), what) }?)
}

/// Figures of the map into *stat, whose `size` the caller has set. Costs a few
/// microseconds. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_stat(
    map: *const mangrove_map,
    stat: *mut mangrove_stat,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and sized structs.
        let (map, size) = unsafe { (handle(map, "map")?, size_of_caller(stat, "stat")?) };
        map.map.wait_recovered()?;
        let s = map.map.stat();
        let interval_ms = s.durability.milliseconds();
        let figures = mangrove_stat {
            size: size_of::<mangrove_stat>(),
            records: s.records,
            index_bytes: s.index_bytes,
            allocator_bytes: s.allocator_bytes,
            durable_bytes: s.durable_bytes,
            image_bytes: s.image_bytes,
            capacity: s.capacity,
            log_bytes: s.log_bytes,
            log_bytes_used: s.log_bytes_used,
            group_commits: s.group_commits,
            log_bytes_written: s.log_bytes_written,
            image_bytes_written: s.image_bytes_written,
            checkpoints: s.checkpoints,
            log_full_waits: s.log_full_waits,
            snapshots: s.snapshots,
            snapshot_bytes: s.snapshot_bytes,
            interval_ms,
            medium: medium_number(s.medium),
            read_only: s.read_only,
            poisoned: text_array(s.poisoned.as_deref().unwrap_or_default()),
        };
        // SAFETY: as above.
        unsafe { put_sized(stat, size, figures, "stat") }?;
        Ok(MANGROVE_OK)
    })
}

/// Waits until the map is recovered (mangrove_options_set_background_recovery).
///
/// Errors: those of mangrove_map_open, MANGROVE_ERR_CORRUPT above all. Each later call that needs the
/// whole map fails so, too. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_wait_recovered(map: *const mangrove_map) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        let map = unsafe { handle(map, "map")? };
        map.map.wait_recovered()?;
        Ok(MANGROVE_OK)
    })
}

/// What opening this map had to do, into *recovery, whose `size` the caller has set. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_recovery(
    map: *const mangrove_map,
    recovery: *mut mangrove_recovery,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and sized structs.
        let (map, size) = unsafe { (handle(map, "map")?, size_of_caller(recovery, "recovery")?) };
        map.map.wait_recovered()?;
        let r = map.map.recovery();
        let figures = mangrove_recovery {
            size: size_of::<mangrove_recovery>(),
            records: r.records,
            image_bytes: r.image_bytes,
            log_groups: r.log_groups,
            pool_seconds: r.pool_seconds,
            index_seconds: r.index_seconds,
            seconds: r.seconds,
            created: r.created,
            clean: r.clean,
        };
        // SAFETY: as above.
        unsafe { put_sized(recovery, size, figures, "recovery") }?;
        Ok(MANGROVE_OK)
    })
}

fn info_of(i: &PoolInfo) -> mangrove_pool_info {
    mangrove_pool_info {
        size: size_of::<mangrove_pool_info>(),
        capacity: i.capacity,
        image_bytes: i.image_bytes,
        log_bytes: i.log_bytes,
        version: i.version,
        medium: medium_number(i.medium),
        clean: i.clean,
        busy: i.busy,
        uuid: text_array(&i.uuid),
        kind: text_array(&i.kind),
    }
}

/// What the superblock of an open map's pool states, into *info, whose `size` the caller has set.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_info(
    map: *const mangrove_map,
    info: *mut mangrove_pool_info,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and sized structs.
        let (map, size) = unsafe { (handle(map, "map")?, size_of_caller(info, "info")?) };
        // SAFETY: as above.
        unsafe { put_sized(info, size, info_of(&map.map.info()), "info") }?;
        Ok(MANGROVE_OK)
    })
}

/// What the superblock of the pool at `path` states, into *info, whose `size` the caller has set. Writes
/// nothing; works on a pool that is in use. To find out whether it is, the call holds the pool's lock for an
/// instant; an opening at that moment waits.
/// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _FOREIGN, _NEWER, _CORRUPT, _IO. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_pool_read_info(
    path: *const c_char,
    info: *mut mangrove_pool_info,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for paths and sized structs.
        let (path, size) = unsafe { (self::path(path, "path")?, size_of_caller(info, "info")?) };
        let found = mangrove::pool_info(path)?;
        // SAFETY: as above.
        unsafe { put_sized(info, size, info_of(&found), "info") }?;
        Ok(MANGROVE_OK)
    })
}
