//! Counters of an application.

use crate::app::mangrove_app;
use crate::status::{Failure, guard, mangrove_app_status};
use mangrove_cabi::{handle, put_sized};
use mangrove_durable::ArenaStat;

/// Counters since the opening. Nothing needs to be set; mangrove_app_stat fills as many bytes as the
/// caller says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_app_counters {
    /// Batches that were executed.
    pub batches: u64,
    /// Write commands in them.
    pub commands: u64,
    /// The number of the newest committed batch; grows.
    pub committed: u64,
    /// The number of the newest durable batch; smaller than `committed` while a sync is under way.
    pub durable: u64,
    /// 1 when writes fail, with a status that says why: the pool is poisoned, a command ended halfway, or a commit
    /// was refused.
    pub failed: u64,
    /// Ranges of bytes that batches committed.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes of blocks in use in the state's memory, each as its allocation takes, and of memory that
    /// commands mapped.
    pub used_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the log in use.
    pub log_used: u64,
    /// Milliseconds since the last checkpoint, or the opening; 0 where the log is applied all the time
    /// (persistent memory).
    pub checkpoint_age: u64,
    /// Blocks that were freed outside commands and wait for the next batch.
    pub waiting_frees: u64,
}

/// Fills `out`, `bytes` being sizeof(mangrove_app_counters) as the caller's header has it. If used_bytes is
/// among them it waits until no batch of another thread is open, and looks at the whole arena: less than a
/// millisecond for each gigabyte. Errors: MANGROVE_APP_ERR_NESTED; _BATCH: a forked child.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_stat(
    app: *const mangrove_app,
    out: *mut mangrove_app_counters,
    bytes: usize,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: passed on from the caller.
        let app = unsafe { handle(app, "app") }?;
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        if !(8..=4096).contains(&bytes) {
            let what = format!("'bytes' is {bytes}; pass sizeof(mangrove_app_counters)");
            return Err(Failure::invalid(what));
        }
        let stat = app.runtime()?.stat();
        let with_arena = bytes > std::mem::offset_of!(mangrove_app_counters, used_bytes);
        let arena = if with_arena { app.runtime()?.arena()? } else { ArenaStat::default() };
        let counters = mangrove_app_counters {
            batches: stat.batches,
            commands: stat.commands,
            committed: stat.committed.0,
            durable: stat.durable.0,
            failed: u64::from(stat.failure.is_some()),
            ranges: stat.state.ranges,
            bytes: stat.state.bytes,
            used_bytes: arena.used_bytes + arena.mapped_bytes,
            log_bytes: stat.state.log_bytes,
            log_used: stat.state.log_used,
            checkpoint_age: stat.state.checkpoint_age.as_millis() as u64,
            waiting_frees: stat.state.waiting_frees,
        };
        // SAFETY: the caller's struct has `bytes` bytes.
        unsafe { put_sized(out, bytes, counters) };
        Ok(())
    })
}
