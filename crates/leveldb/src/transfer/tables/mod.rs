//! LevelDB's files of records, read without LevelDB: faster than its own iterators, and with the same checks.

mod block;
mod records;
mod stream;
mod table;
mod unread;

pub(super) use records::DatabaseRecords;
pub(super) use unread::UnreadReason;
