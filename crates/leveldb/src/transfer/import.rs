//! From LevelDB to this library.
//!
//! One thread reads LevelDB's files, and begins before there is a database to write to; the calling one writes to the
//! engine, without a log; threads of the pool's write the data file.

use super::foreign::{ForeignDb, ForeignLibrary, must_be_bytewise};
use super::options::{BATCH_BYTES, TransferOptions, open_ours};
use super::outcome::{Result, TransferError, TransferProgress, Transferred};
use super::partial::Partial;
use super::room::Need;
use super::source_view::SourceView;
use super::tables::{DatabaseRecords, UnreadReason};
use crate::api::db::leveldb_t;
use crate::change_list::ChangeBytes;
use crate::engine::catalog;
use crate::status::Failure;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Batches that wait for the engine.
const BATCHES_WAITING_MAX: usize = 4;
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
/// A message for the user, when there is no new database, or its name may not survive a power cut.
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
        let (library, view) = (&library, &view);
        let read = move || {
            let batches = Batches { to: &sender, used: &used, batch: ChangeBytes::default(), bytes: 0 };
            read_all(library, from, view, batches)?;
            // Beside the end of the load. What is left goes with the work's directory.
            let _ = std::fs::remove_dir_all(&view.folder);
            Ok(())
        };
        let reader = reader
            .spawn_scoped(scope, read)
            .map_err(|e| TransferError::Failed(format!("cannot start a thread: {e}")))?;
        let to = open_ours(&partial.built(), true)?;
        if load_all(&to, target, (receiver, &give_back), &mut progress, watch)? {
            return finish(&to, progress.records);
        }
        // Without an end the reader has failed.
        let read = reader.join().unwrap_or_else(|_| Err("the thread that reads panicked".into()));
        read.map_err(|why: String| TransferError::Failed(format!("{}: {why}", source.display())))
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

/// Batches on their way to the engine.
struct Batches<'a> {
    to: &'a SyncSender<Read>,
    /// Batches that come back.
    used: &'a Receiver<ChangeBytes>,
    batch: ChangeBytes,
    bytes: u64,
}

impl Batches<'_> {
    /// Adds a record. Breaks when the receiver is gone.
    #[inline]
    fn add(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.batch.put(key, value);
        self.bytes += (key.len() + value.len()) as u64;
        if self.batch.len() < BATCH_BYTES { ControlFlow::Continue(()) } else { self.send(false) }
    }

    fn send(&mut self, is_last: bool) -> ControlFlow<()> {
        let next = self.used.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        let read = Read { batch, bytes: std::mem::take(&mut self.bytes), is_last };
        if self.to.send(read).is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Sends all records in batches. Ends early when the receiver is gone.
///
/// LevelDB has replayed its log by now, and is closed: all records are in files of tables, which are read without it in
/// a fraction of the time. Where one of them has something unknown or damaged, LevelDB is opened again, and reads what
/// follows, or reports what is wrong.
fn read_all(
    library: &ForeignLibrary,
    from: ForeignDb<'_>,
    view: &SourceView,
    mut batches: Batches<'_>,
) -> std::result::Result<(), String> {
    // Its own thread may be about to write files anew.
    drop(from);
    let records = view.manifest_now().map_err(|_| UnreadReason::Unknown);
    let records =
        records.and_then(|manifest| DatabaseRecords::open(&view.folder, &manifest, library.decompress()));
    let last = match records {
        Ok(mut records) => match records.walk(|key, value| batches.add(key, value)) {
            Ok(is_whole) => {
                if is_whole {
                    let _ = batches.send(true);
                }
                return Ok(());
            }
            Err(UnreadReason::Disordered) => {
                return Err("is damaged: the keys of a file do not ascend".into());
            }
            Err(UnreadReason::Unknown) => records.last_key().map(<[u8]>::to_vec),
        },
        Err(_) => None,
    };
    let read = || -> std::result::Result<(), String> {
        let from = ForeignDb::open(library, &view.folder, false)?;
        read_with_leveldb(&from, view, last.as_deref(), batches)
    };
    read().map_err(|why| format!("LevelDB says: {why}"))
}

/// Sends the records behind all up to `last`.
fn read_with_leveldb(
    from: &ForeignDb<'_>,
    view: &SourceView,
    last: Option<&[u8]>,
    mut batches: Batches<'_>,
) -> std::result::Result<(), String> {
    let (mut cursor, mut unseen) = (from.cursor(), 0);
    if let Some(last) = last {
        cursor.go_behind(last)?;
    }
    while let Some((key, value)) = cursor.record()? {
        unseen += key.len() + value.len();
        if batches.add(key, value).is_break() {
            return Ok(());
        }
        if unseen >= LOOK_BYTES {
            unseen = 0;
            view.give_back_mapped(MAPPED_BYTES_MAX);
        }
        cursor.next();
    }
    let _ = batches.send(true);
    Ok(())
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
    engine.end_load()?;
    let there = engine.record_count()?;
    if there != records {
        return Err(TransferError::Failed(format!("{records} records were read, and {there} are there")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change_list::Change;
    use std::collections::BTreeMap;

    type DatabaseRecords = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A LevelDB database of records that do not compress, before others that do; some are there twice.
    fn fill(library: &ForeignLibrary, folder: &Path) -> DatabaseRecords {
        let db = ForeignDb::open(library, folder, true).unwrap();
        let (mut records, mut random) = (DatabaseRecords::new(), 88_172_645_463_325_252_u64);
        for round in 0..2 {
            let mut batch = db.batch();
            for number in (0..20_000_u64).step_by(round * 6 + 1) {
                let mut value = vec![b'v'; 100];
                for byte in value.iter_mut().filter(|_| number < 10_000) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    *byte = random as u8;
                }
                let key = format!("{number:08}").into_bytes();
                batch.put(&key, &value);
                records.insert(key, value);
            }
            batch.write(true).unwrap();
        }
        records
    }

    /// What an import reads.
    fn read(
        library: &ForeignLibrary,
        source: &Path,
        folder: &Path,
    ) -> std::result::Result<DatabaseRecords, String> {
        let view = SourceView::create(source, folder.to_owned()).unwrap();
        let from = ForeignDb::open(library, &view.folder, false)?;
        let ((to, batches), (_back, used)) = (sync_channel(1000), sync_channel(1));
        let sending = Batches { to: &to, used: &used, batch: ChangeBytes::default(), bytes: 0 };
        let outcome = read_all(library, from, &view, sending);
        drop(to);
        let (mut records, mut has_ended) = (DatabaseRecords::new(), false);
        for read in batches {
            has_ended |= read.is_last;
            for change in read.batch.list().changes() {
                let Change::Put(key, value) = change else { panic!("a key was removed") };
                assert_eq!(records.insert(key.to_vec(), value.to_vec()), None, "twice");
            }
        }
        assert_eq!(has_ended, outcome.is_ok());
        outcome.map(|()| records)
    }

    #[test]
    fn leveldb_reads_on_where_its_files_cannot_be_read_without_it() {
        let Ok(mut library) = ForeignLibrary::load(None) else {
            return eprintln!("LevelDB is not here (Debian: libleveldb1d): nothing is tested");
        };
        let above = tempfile::tempdir().unwrap();
        let (source, view) = (above.path().join("source"), above.path().join("view"));
        let written = fill(&library, &source);
        // How far the files are read without LevelDB.
        let alone = |library: &ForeignLibrary| {
            let newest = SourceView::create(&source, above.path().join("alone")).unwrap();
            drop(ForeignDb::open(library, &newest.folder, false).unwrap());
            let manifest = newest.manifest_now().unwrap();
            let mut count = 0;
            let mut records =
                super::DatabaseRecords::open(&newest.folder, &manifest, library.decompress()).unwrap();
            let ended = records.walk(|_, _| {
                count += 1;
                ControlFlow::Continue(())
            });
            std::fs::remove_dir_all(&newest.folder).unwrap();
            (count, ended)
        };
        assert_eq!(alone(&library), (20_000, Ok(true)));
        assert!(read(&library, &source, &view).unwrap() == written);
        std::fs::remove_dir_all(&view).unwrap();
        // Those of the records; the file's index is longer.
        library.forget_blocks_below(5_000);
        let (count, ended) = alone(&library);
        assert!(count > 5_000 && count < 10_100 && ended == Err(UnreadReason::Unknown), "{count} {ended:?}");
        assert!(read(&library, &source, &view).unwrap() == written);
    }
}
