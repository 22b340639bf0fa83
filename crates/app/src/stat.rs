//! Counters of an application.

use crate::app::mangrove_app;
use crate::status::{Failure, guard, mangrove_app_status};
use mangrove_cabi::{handle, put_sized};

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
    /// 1 after the pool was poisoned: writes fail with a status that says why.
    pub failed: u64,
}

/// Fills `out`, `bytes` being sizeof(mangrove_app_counters) as the caller's header has it.
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
        let counters = mangrove_app_counters {
            batches: stat.batches,
            commands: stat.commands,
            committed: stat.committed.0,
            durable: stat.durable.0,
            failed: u64::from(stat.failure.is_some()),
        };
        // SAFETY: the caller's struct has `bytes` bytes.
        unsafe { put_sized(out, bytes, counters) };
        Ok(())
    })
}
