//! Counters of an application.

use crate::app::{app, mangrove_app};
use crate::status::{Failure, guard, mangrove_app_status};

/// Counters since the opening. Set nothing; mangrove_app_stat fills as many bytes as it is told.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_app_counters {
    /// Batches that were executed.
    pub batches: u64,
    /// Write commands in them.
    pub commands: u64,
    /// Names the newest committed batch; grows.
    pub committed: u64,
    /// Names the newest durable one; behind `committed` while a sync is under way.
    pub durable: u64,
    /// 1 after an error latched: writes fail, see mangrove_app_status of any write.
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
    let handle = app;
    guard(|| {
        // SAFETY: passed on from the caller.
        let app = unsafe { self::app(handle) }?;
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        if !(8..=4096).contains(&bytes) {
            let what = format!("'bytes' is {bytes}; pass sizeof(mangrove_app_counters)");
            return Err(Failure::invalid(what));
        }
        let stat = app.runtime.stat();
        let counters = mangrove_app_counters {
            batches: stat.batches,
            commands: stat.commands,
            committed: stat.committed.0,
            durable: stat.durable.0,
            failed: u64::from(stat.failure.is_some()),
        };
        let known = bytes.min(size_of::<mangrove_app_counters>());
        // SAFETY: the caller's struct has `bytes` bytes; ours `known`.
        unsafe {
            std::ptr::write_bytes(out.cast::<u8>(), 0, bytes);
            std::ptr::copy_nonoverlapping((&raw const counters).cast::<u8>(), out.cast::<u8>(), known);
        }
        Ok(())
    })
}
