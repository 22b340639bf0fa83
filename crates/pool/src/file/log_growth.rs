//! How far the log may grow, and what the threads that let it grow know of each other (`file/grow_log.rs`).

use crate::config::PoolConfig;
use crate::format::superblock::Superblock;
use crate::limits::LOG_BYTES_FREE;
use crate::sync::{AtomicBool, AtomicU64, Mutex};

/// The log becomes four times as long, and from this size on twice.
const DOUBLES_FROM_BYTES: u64 = 8 << 20;

/// What a pool knows of the growth of its log.
pub(crate) struct LogGrowth {
    /// The log does not become longer.
    pub(super) bytes_max: u64,
    /// A log that holds nothing becomes no shorter.
    pub(super) bytes_min: u64,
    pub(super) memory_bytes_max: Option<u64>,
    /// Before this position no growth is tried.
    pub(super) retry_at: AtomicU64,
    /// A thread waits for log space, or for a spill file to be applied.
    pub(super) is_awaited: AtomicBool,
    /// Bytes of the log file that the log has, or that are prepared for it. The lock lets one growth run at a time.
    pub(super) prepared: Mutex<u64>,
}

impl LogGrowth {
    pub(crate) fn new(config: &PoolConfig, sb: &Superblock) -> Self {
        Self {
            bytes_max: sb.log_bytes_kept(),
            bytes_min: config.log_bytes_first.unwrap_or(LOG_BYTES_FREE).next_multiple_of(4096),
            memory_bytes_max: config.memory_bytes_max,
            retry_at: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            prepared: Mutex::new(sb.log_bytes),
        }
    }
}

/// What an empty log of `bytes` becomes when the pool is closed, where the region has `used` bytes that are not zero:
/// as long as it would have become by growth with so much data.
pub(super) fn closing_bytes(bytes: u64, bytes_min: u64, used: u64) -> u64 {
    let mut to = bytes_min;
    while to < used && to < bytes {
        to *= 2;
    }
    to.min(bytes)
}

/// What a log of `bytes` becomes next.
pub(super) fn next_bytes(bytes: u64, bytes_max: u64) -> u64 {
    let next = if bytes < DOUBLES_FROM_BYTES { bytes * 4 } else { bytes * 2 };
    next.min(bytes_max)
}
