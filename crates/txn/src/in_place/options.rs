//! How memory that transactions change in place is opened or created.

use mangrove_pool::{FlushInstruction, PoolConfig, PoolOptions, Storage};
use std::sync::Arc;

/// The kind of its pool: who owns the bytes.
pub const KIND: &str = "in-place";

/// Data of new memory in bytes, if the options name no size: 64 MiB.
const BYTES_DEFAULT: u64 = 64 << 20;
/// Entries of a new undo log, if the options name no number: 2 MiB.
const UNDO_ENTRIES_DEFAULT: u64 = 1 << 16;

/// How memory that transactions change in place is opened or created.
#[derive(Clone, Debug)]
pub struct InPlaceOptions {
    pub(super) config: PoolConfig,
    pub(super) pool: PoolOptions,
    pub(super) instruction: Option<FlushInstruction>,
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

impl Default for InPlaceOptions {
    fn default() -> Self {
        Self {
            config: PoolConfig::default(),
            pool: PoolOptions::new().kind(KIND),
            instruction: None,
            bytes: BYTES_DEFAULT,
            entries: UNDO_ENTRIES_DEFAULT,
        }
    }
}

impl InPlaceOptions {
    /// Options that create the memory when it is missing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    mangrove_pool::pool_config_setters! { config: create, medium, domain, }

    /// Bytes of data of new memory, at least 8; rounded up to a multiple of 8. It never grows. Default: 64 MiB.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Entries of a new undo log: so many writes can a transaction make that has the lock. 1 to
    /// [`UNDO_ENTRIES_MAX`](crate::UNDO_ENTRIES_MAX), of 32 bytes each. Default: 65,536.
    #[must_use]
    pub fn undo_entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Which instruction flushes a line, where caches are volatile.
    #[must_use]
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.instruction = Some(instruction);
        self.pool = self.pool.flush_instruction(instruction);
        self
    }

    /// Where the files live, instead of the operating system's file systems.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.pool = self.pool.storage(storage);
        self
    }
}
