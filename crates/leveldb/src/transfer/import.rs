//! From LevelDB to this library.
//!
//! One thread reads with LevelDB, and begins before there is a database to write to; the calling one writes to the
//! engine, without a log; threads of the pool's write the data file.

use super::foreign::{ForeignDb, ForeignLibrary, must_be_bytewise};
use super::options::{BATCH_BYTES, TransferOptions, open_ours};
use super::outcome::{Result, TransferError, TransferProgress, Transferred};
use super::partial::Partial;
use super::room::Need;
use super::source_view::SourceView;
use crate::api::db::leveldb_t;
use crate::change_list::ChangeBytes;
use crate::engine::catalog;
use crate::status::Failure;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Batches that wait for the engine.
const BATCHES_WAITING_MAX: usize = 8;
/// Bytes of records between two looks at how much memory files take that are mapped.
const LOOK_BYTES: usize = 16 << 20;
/// Bytes of mapped files beyond which LevelDB's are given back. The 64 files that it has open at a time
/// (`FILES_OPEN_MAX`) take less, unless the program that wrote them asked for more than 2 MiB a file.
const MAPPED_BYTES_MAX: u64 = 160 << 20;
/// Bytes of records that are read to find out how far LevelDB has compressed them.
const SAMPLE_BYTES: u64 = 4 << 20;
/// Bytes that a record takes in memory beside its key and value, and in the data file.
const RECORD_BYTES: u64 = 72;
/// Memory for what is under way, and on the disk for what LevelDB writes when it replays its log.
const WORK_BYTES: u64 = 64 << 20;
const WORK_DISK_BYTES: u64 = 16 << 20;

/// Copies the LevelDB database in `source` into a new database `target`, which appears under its name when it is whole
/// and durable. `source` stays as it is. `watch` is called now and then, and can stop it.
///
/// # Errors
/// A message for the user, when there is no new database.
pub fn import(
    source: &Path,
    target: &Path,
    options: &TransferOptions,
    watch: &mut dyn FnMut(TransferProgress) -> ControlFlow<()>,
) -> Result<Transferred> {
    refuse_ours(source)?;
    let library = ForeignLibrary::load(options.library.as_deref())?;
    let partial = Partial::begin(target)?;
    let view = SourceView::create(source, partial.join("source"))?;
    must_be_bytewise(source, &view.manifest.comparator)?;
    if !options.force {
        // At the least; LevelDB itself writes when it replays a log.
        Expected { records: 0, bytes: view.bytes }.need().must_fit(&partial.join("."))?;
    }
    let told = |why: String| TransferError::Failed(format!("{}: LevelDB says: {why}", source.display()));
    let from = ForeignDb::open(&library, &view.folder, false).map_err(told)?;
    let expected = expected(&from, view.bytes).map_err(told)?;
    if !options.force {
        expected.need().must_fit(&partial.join("."))?;
    }
    let mut progress = TransferProgress { bytes_expected: expected.bytes, ..TransferProgress::default() };
    let (sender, receiver) = sync_channel(BATCHES_WAITING_MAX);
    // The way back of batches that were written: memory that is new must be cleared by the kernel.
    let (give_back, used) = sync_channel(BATCHES_WAITING_MAX + 2);
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().name("import-read".into());
        let view = &view;
        let reader = reader
            .spawn_scoped(scope, move || read_all(from, view, &sender, &used))
            .map_err(|e| TransferError::Failed(format!("cannot start a thread: {e}")))?;
        let to = open_ours(&partial.built(), true)?;
        if load_all(&to, target, (receiver, &give_back), &mut progress, watch)? {
            return finish(&to, progress.records);
        }
        // Without an end the reader has failed.
        let read = reader.join().unwrap_or_else(|_| Err("the thread that reads panicked".into()));
        read.map_err(told)
    })?;
    partial.publish()?;
    Ok(Transferred { records: progress.records, bytes: progress.bytes })
}

/// Refuses a database of this library.
fn refuse_ours(source: &Path) -> Result<()> {
    match catalog::Catalog::read(source) {
        Ok(None) => Ok(()),
        _ => Err(TransferError::refused(format!(
            "{}: is a database of Mangrove's already; programs open it as it is",
            source.display()
        ))),
    }
}

/// About what is in a database.
struct Expected {
    records: u64,
    bytes: u64,
}

impl Expected {
    fn need(&self) -> Need {
        let records = self.bytes + self.records * RECORD_BYTES;
        Need { memory: records + WORK_BYTES, disk: records + WORK_DISK_BYTES }
    }
}

/// Estimates from the first records and from the sizes of the files.
fn expected(from: &ForeignDb<'_>, files_bytes: u64) -> std::result::Result<Expected, String> {
    let (mut cursor, mut records, mut bytes, mut last) = (from.cursor(), 0, 0, Vec::new());
    while let Some((key, value)) = cursor.record()? {
        records += 1;
        bytes += (key.len() + value.len()) as u64;
        if bytes >= SAMPLE_BYTES {
            last = key.to_vec();
            break;
        }
        cursor.next();
    }
    if last.is_empty() {
        return Ok(Expected { records, bytes });
    }
    // Records that are in the log alone have no size yet; then the files say how many bytes there are.
    let sampled = from.size_up_to(&last);
    let times = if sampled < SAMPLE_BYTES / 64 {
        files_bytes as f64 / bytes as f64
    } else {
        files_bytes as f64 / sampled as f64
    };
    let times = times.max(1.0);
    Ok(Expected { records: (records as f64 * times) as u64, bytes: (bytes as f64 * times) as u64 })
}

/// Records that were read.
struct Read {
    batch: ChangeBytes,
    /// Bytes of keys and values.
    bytes: u64,
    is_last: bool,
}

/// Sends all records in batches, in batches that come back, and closes the database, while the end of the load is
/// written. Ends early when the receiver is gone.
fn read_all(
    from: ForeignDb<'_>,
    view: &SourceView,
    to: &SyncSender<Read>,
    used: &Receiver<ChangeBytes>,
) -> std::result::Result<(), String> {
    let (mut cursor, mut batch, mut bytes, mut unseen) = (from.cursor(), ChangeBytes::default(), 0, 0);
    loop {
        let record = cursor.record()?;
        if let Some((key, value)) = record {
            batch.put(key, value);
            bytes += (key.len() + value.len()) as u64;
        }
        let is_last = record.is_none();
        if batch.len() >= BATCH_BYTES || is_last {
            unseen += batch.len();
            if unseen >= LOOK_BYTES {
                unseen = 0;
                view.give_back_mapped(MAPPED_BYTES_MAX);
            }
            let next = used.try_recv().unwrap_or_default();
            let read = Read { batch: std::mem::replace(&mut batch, next), bytes, is_last };
            bytes = 0;
            if to.send(read).is_err() || is_last {
                return Ok(());
            }
        }
        cursor.next();
    }
}

/// Loads all batches into the new database. False when they end without the last one.
fn load_all(
    to: &leveldb_t,
    target: &Path,
    (batches, used): (Receiver<Read>, &SyncSender<ChangeBytes>),
    progress: &mut TransferProgress,
    watch: &mut dyn FnMut(TransferProgress) -> ControlFlow<()>,
) -> Result<bool> {
    let failed = |e: Failure| TransferError::Failed(format!("{}: {}", target.display(), e.message()));
    let engine = to.engine().map_err(failed)?;
    for Read { mut batch, bytes, is_last } in batches {
        engine.load(batch.list()).map_err(failed)?;
        progress.records += batch.list().len() as u64;
        progress.bytes += bytes;
        batch.clear();
        // The channel holds all batches. At the end the reader is gone, and the batch is dropped.
        let _ = used.try_send(batch);
        engine.page_out_loaded().map_err(failed)?;
        if watch(*progress).is_break() {
            return Err(TransferError::Stopped);
        }
        if is_last {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ends the load, which makes the database; every record must be there.
fn finish(to: &leveldb_t, records: u64) -> Result<()> {
    let engine = to.engine()?;
    engine.compact()?;
    let there = engine.record_count()?;
    if there != records {
        return Err(TransferError::Failed(format!("{records} records were read, and {there} are there")));
    }
    Ok(())
}
