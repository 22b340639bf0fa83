//! Why LevelDB's files could not be read without it.

/// Why records were not read.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::transfer) enum UnreadReason {
    /// Something is damaged, or of a form that only LevelDB knows: LevelDB shall continue, or say what is wrong.
    Unknown,
    /// The keys of a file do not ascend, so LevelDB cannot continue at a key.
    Disordered,
}

impl From<std::io::Error> for UnreadReason {
    fn from(_: std::io::Error) -> Self {
        Self::Unknown
    }
}
