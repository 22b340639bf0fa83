//! How far the log may grow, and what the threads that let it grow know of each other (`file/grow_log.rs`).

use crate::config::PoolConfig;
use crate::format::superblock::Superblock;
use crate::limits::{LOG_BYTES_DEFAULT, LOG_BYTES_FIRST, LOG_BYTES_FREE};
use crate::options::Start;
use crate::sync::{AtomicBool, AtomicU64, Mutex};

/// The log becomes four times as long, and from this size on twice.
const DOUBLES_FROM_BYTES: u64 = 8 << 20;
/// How far the log of a pool grows that is opened copy on write: all of it is applied before opening returns, which
/// is the longest part of such an opening.
const COPY_ON_WRITE_LOG_BYTES: u64 = 256 << 20;

/// What a pool knows of the growth of its log.
pub(crate) struct LogGrowth {
    /// The log of the pool may become so long.
    pub(super) bytes_max: u64,
    /// This process lets it become so long.
    pub(super) grows_to: u64,
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
    pub(crate) fn new(config: &PoolConfig, start: Start, sb: &Superblock) -> Self {
        let bytes_max = sb.log_bytes_kept();
        Self {
            bytes_max,
            grows_to: if config.log_bytes.is_some() { bytes_max } else { grows_to(bytes_max, start) },
            bytes_min: config.log_bytes_first.unwrap_or(LOG_BYTES_FIRST).next_multiple_of(4096),
            memory_bytes_max: config.memory_bytes_max,
            retry_at: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            prepared: Mutex::new(sb.log_bytes),
        }
    }
}

/// A log of the default length is bounded by how the pool is opened; a length that was asked for stands.
fn grows_to(bytes_max: u64, start: Start) -> u64 {
    match start {
        Start::CopyOnWrite if bytes_max == LOG_BYTES_DEFAULT => COPY_ON_WRITE_LOG_BYTES,
        _ => bytes_max,
    }
}

/// What an empty log of `bytes` becomes when the pool is closed, where the region has `used` bytes that are not zero:
/// as many, and beyond what is free as long as it would have become by growth with so much data. (Not so below: growth
/// by steps of four would make four times as much of one page more.)
pub(super) fn closing_bytes(bytes: u64, bytes_min: u64, used: u64) -> u64 {
    let mut to = used.min(LOG_BYTES_FREE).next_multiple_of(4096).max(bytes_min);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_copy_on_write_has_a_shorter_log_unless_asked_otherwise() {
        assert_eq!(grows_to(LOG_BYTES_DEFAULT, Start::Read), LOG_BYTES_DEFAULT);
        assert_eq!(grows_to(LOG_BYTES_DEFAULT, Start::CopyOnWrite), COPY_ON_WRITE_LOG_BYTES);
        for asked in [1 << 20, 512 << 20] {
            assert_eq!(grows_to(asked, Start::CopyOnWrite), asked);
        }
    }

    #[test]
    fn a_log_becomes_as_long_as_the_data_are() {
        const MIB: u64 = 1 << 20;
        let closing = |bytes, used| closing_bytes(bytes, LOG_BYTES_FIRST, used);
        assert_eq!(closing(64 * MIB, 0), LOG_BYTES_FIRST);
        assert_eq!(closing(64 * MIB, 4096), LOG_BYTES_FIRST);
        assert_eq!(closing(64 * MIB, 3 * MIB), 3 * MIB);
        assert_eq!(closing(64 * MIB, 3 * MIB + 1), 3 * MIB + 4096);
        assert_eq!(closing(2 * MIB, 3 * MIB), 2 * MIB, "it never grows");
        assert_eq!(closing(512 * MIB, 64 * MIB), 64 * MIB);
        assert_eq!(closing(512 * MIB, 65 * MIB), 128 * MIB);
        assert_eq!(closing(512 * MIB, 300 * MIB), 512 * MIB);
        assert_eq!(closing(512 * MIB, 3000 * MIB), 512 * MIB);
        assert_eq!(closing_bytes(512 * MIB, 80 * MIB, 0), 80 * MIB);
    }
}
