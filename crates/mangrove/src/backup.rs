//! Online backup: a copy of one instant, while writers go on.

/// How far a long piece of work is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Records done.
    pub records: u64,
    /// Records in all, as far as known.
    pub records_total: u64,
    /// Bytes of keys and values done.
    pub bytes: u64,
}

impl Progress {
    pub(crate) fn new(records: u64, records_total: u64, bytes: u64) -> Self {
        Self { records, records_total, bytes }
    }
}

/// What [`crate::Map::backup`] wrote.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BackupReport {
    /// Records copied.
    pub records: u64,
    /// Bytes of keys and values copied.
    pub bytes: u64,
}

impl BackupReport {
    pub(crate) fn new(records: u64, bytes: u64) -> Self {
        Self { records, bytes }
    }
}
