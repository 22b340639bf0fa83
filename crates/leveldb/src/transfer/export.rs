//! From this library to LevelDB.

use super::foreign::{ForeignDb, ForeignLibrary, must_be_bytewise};
use super::options::{BATCH_BYTES, TransferOptions, open_ours};
use super::outcome::{Result, TransferError, TransferProgress, Transferred};
use super::partial::Partial;
use super::room::Need;
use crate::api::db::leveldb_t;
use crate::engine::catalog::Catalog;
use std::ops::ControlFlow;
use std::path::Path;

/// Memory and disk that LevelDB takes beside the records: its write buffers, its log, files that it merges.
const WORK_BYTES: u64 = 64 << 20;

/// Copies the database in `source` into a new LevelDB database `target`, which appears under its name when it is whole
/// and durable. `watch` is called now and then, and can stop it.
///
/// # Errors
/// A message for the user, when there is no new database, or its name may not survive a power cut.
pub fn export(
    source: &Path,
    target: &Path,
    options: &TransferOptions,
    watch: &mut dyn FnMut(TransferProgress) -> ControlFlow<()>,
) -> Result<Transferred> {
    let Some(catalog) = Catalog::read(source)? else {
        return Err(TransferError::refused(format!(
            "{}: holds no database of Mangrove's (it has no file MANGROVE)",
            source.display()
        )));
    };
    must_be_bytewise(source, &catalog.comparator)?;
    let library = ForeignLibrary::load(options.library.as_deref())?;
    let from = open_ours(source, false)?;
    let partial = Partial::begin(target)?;
    let bytes = from.engine()?.figures().record_bytes;
    if !options.force {
        Need { memory: WORK_BYTES, disk: bytes + WORK_BYTES }.must_fit(&partial.join("."))?;
    }
    let told = |why: String| TransferError::Failed(format!("{}: LevelDB says: {why}", target.display()));
    let to = ForeignDb::open(&library, &partial.built(), true).map_err(told)?;
    let mut progress = TransferProgress { bytes_expected: bytes, ..TransferProgress::default() };
    write_all(&from, &to, &mut progress, watch, &told)?;
    drop(to);
    partial.publish()?;
    Ok(Transferred { records: progress.records, bytes: progress.bytes })
}

/// Writes all records of this instant, the last batch durably.
fn write_all(
    from: &leveldb_t,
    to: &ForeignDb<'_>,
    progress: &mut TransferProgress,
    watch: &mut dyn FnMut(TransferProgress) -> ControlFlow<()>,
    told: &dyn Fn(String) -> TransferError,
) -> Result<()> {
    let mut cursor = from.engine()?.view()?.cursor();
    let mut batch = to.batch();
    cursor.seek_to_first()?;
    while let Some((key, value)) = cursor.record() {
        must_fit(key, value.len())?;
        batch.put(key, value);
        progress.records += 1;
        progress.bytes += (key.len() + value.len()) as u64;
        if batch.bytes >= BATCH_BYTES {
            batch.write(false).map_err(told)?;
            if watch(*progress).is_break() {
                return Err(TransferError::Stopped);
            }
        }
        cursor.next()?;
    }
    batch.write(true).map_err(told)
}

/// Refuses a record that LevelDB would take for a shorter one: its lengths have 32 bits.
fn must_fit(key: &[u8], value_len: usize) -> Result<()> {
    /// Bytes of the key that a message shows.
    const SHOWN_BYTES_MAX: usize = 64;
    if u32::try_from(key.len().max(value_len)).is_ok() {
        return Ok(());
    }
    Err(TransferError::refused(format!(
        "LevelDB holds no keys and values of 4 GiB and more; here the key that begins with '{}' has {} bytes, and its \
         value {value_len}",
        key[..key.len().min(SHOWN_BYTES_MAX)].escape_ascii(),
        key.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_leveldb_would_cut_is_refused() {
        must_fit(b"key", u32::MAX as usize).unwrap();
        let said = must_fit(b"key\xff", 1 << 32).unwrap_err().to_string();
        assert!(said.ends_with("with 'key\\xff' has 4 bytes, and its value 4294967296"), "{said}");
    }
}
