//! `mangrove map load`.

use super::input::{Format, Input, NextInput, Record};
use crate::open_args::OpenArgs;
use crate::terminal::exit::{self, Exit};
use crate::terminal::size::{count, human};
use crate::terminal::{interrupt, output, progress, stderr};
use anyhow::Context;
use indicatif::ProgressBar;
use mangrove::{Batch, Durability, Error, Map};
use serde_json::{Value, json};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Put the records of a file or of standard input into a map.
///
/// With --durability sync (the default) each record, or each batch, is durable before the next one
/// of its thread begins; all threads share each device write. Ctrl-C stops between two records:
/// what was acknowledged stays, and loading the same file again finishes the work. When standard input
/// or a pipe pauses, what was read until then is written.
///
/// With --bulk the pool is new and gets no log: it appears whole and durable at the end, with a quarter of the bytes
/// written, or not at all.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove map load words.pool /usr/share/dict/words          one key a line, value: the line's number
  mangrove map load pairs.pool pairs.tsv --threads 32
  zcat big.tsv.gz | mangrove map load big.pool - --batch 1000 --json
  mangrove map load fast.pool big.tsv --durability interval=10
  mangrove map load new.pool big.tsv --bulk                    a new pool, without a log: all or nothing")]
pub(crate) struct Args {
    /// The pool; created when it is not there
    pool: PathBuf,
    /// The file of records; - is standard input
    #[arg(default_value = "-")]
    input: PathBuf,
    /// How records stand in the file
    #[arg(long, default_value = "auto")]
    format: Format,
    /// Threads that put; they share the device writes, so more threads load faster (--bulk: at most one a processor)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Records that each thread writes as one atomic batch (fewer before a pause, and at the end)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Make a new pool without a redo log: it appears when all records are in it and durable
    #[arg(long, conflicts_with_all = ["report", "durability"])]
    bulk: bool,
    /// Print a JSON object at the end
    #[arg(long)]
    json: bool,
    /// Write the number of each acknowledged line to standard output, 8 bytes little endian
    #[arg(long, hide = true, conflicts_with = "json")]
    report: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// Records that go to a thread at once, in whole batches.
const CHUNK_RECORDS: usize = 64;
/// The same in a bulk load, which acknowledges none before the end.
const BULK_CHUNK_RECORDS: usize = 1024;
/// Fewer when they have as many bytes: what waits for a slow disk is in memory.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of records that may be on their way to the map, over all threads. A chunk that has more goes alone.
const UNDER_WAY_BYTES_MAX: usize = 256 << 20;
/// Line numbers in one report, so that one write to a pipe is not torn (4,096 bytes).
const REPORT_LINES_MAX: usize = 512;

/// What the loading threads share.
struct Loader<'a> {
    map: &'a Map,
    batch: usize,
    chunk_records: usize,
    report: Option<File>,
    acknowledged: AtomicU64,
    stop: AtomicBool,
    error: Mutex<Option<anyhow::Error>>,
    bar: ProgressBar,
    under_way: UnderWay,
}

/// The records that were handed over and are not yet put: they are in memory beside the map.
struct UnderWay {
    state: Mutex<Counted>,
    fewer: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct Counted {
    bytes: usize,
    /// A thread has ended: no thread makes space for what it had.
    ended: bool,
}

impl UnderWay {
    fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), fewer: Condvar::new(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for `bytes` more, or nothing else is under way. False when a thread has ended.
    fn add(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        while !state.ended && state.bytes > 0 && state.bytes + bytes > self.bytes_max {
            state = self.fewer.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes += bytes;
        !state.ended
    }

    fn take_off(&self, bytes: usize) {
        self.lock().bytes -= bytes;
        self.fewer.notify_all();
    }
}

/// Held by a thread that puts.
struct Putting<'a>(&'a UnderWay);

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.fewer.notify_all();
    }
}

/// Records that go to a thread together. They share their memory: it is freed by another thread than the one that took
/// it, which is slow for each record by itself.
#[derive(Default)]
struct Chunk {
    /// Key and value of each record.
    bytes: Vec<u8>,
    records: Vec<RecordAt>,
}

/// A record of a chunk: its line, and how long key and value are.
struct RecordAt {
    line: u64,
    key: usize,
    value: usize,
}

impl Chunk {
    fn add(&mut self, record: &Record) {
        self.bytes.extend_from_slice(&record.key);
        self.bytes.extend_from_slice(&record.value);
        let (key, value) = (record.key.len(), record.value.len());
        self.records.push(RecordAt { line: record.line, key, value });
    }

    /// Bytes that it takes in memory.
    fn len(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<RecordAt>()
    }
}

/// The way to one thread.
struct Lane {
    sender: SyncSender<Chunk>,
    /// Records that were read and not yet handed over.
    chunk: Chunk,
}

impl Lane {
    fn new(sender: SyncSender<Chunk>) -> Self {
        Self { sender, chunk: Chunk::default() }
    }

    /// Takes a record; true when it is time to hand over.
    fn take(&mut self, record: &Record, batch: usize, chunk_records: usize) -> bool {
        self.chunk.add(record);
        let count = self.chunk.records.len();
        count.is_multiple_of(batch) && (count >= chunk_records || self.chunk.len() >= CHUNK_BYTES)
    }

    /// Hands over what was read; false when a thread is gone.
    fn hand_over(&mut self, under_way: &UnderWay) -> bool {
        if self.chunk.records.is_empty() {
            return true;
        }
        if !under_way.add(self.chunk.len()) {
            return false;
        }
        // The next one will be about as long.
        let next = Chunk {
            bytes: Vec::with_capacity(self.chunk.bytes.len()),
            records: Vec::with_capacity(self.chunk.records.len()),
        };
        self.sender.send(std::mem::replace(&mut self.chunk, next)).is_ok()
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut input = Input::open(&args.input, args.format)?;
    if args.bulk {
        return run_bulk(args, &mut input);
    }
    let map = args.opening.create(&args.pool)?;
    interrupt::catch()?;
    let report = args.report.then(|| std::io::stdout().as_fd().try_clone_to_owned()).transpose()?;
    let loader = Loader::new(&map, args, CHUNK_RECORDS, report.map(File::from), input.len());
    let start = Instant::now();
    let read = loader.load(&mut input, usize::from(args.threads));
    let synced = map.sync();
    let seconds = start.elapsed().as_secs_f64();
    let (records, loaded) = loader.end(read);

    let stay = match synced {
        Err(_) if args.opening.durability != Durability::Sync => "were written, and the newest may be lost",
        _ => "were acknowledged and stay",
    };
    let failed = loaded.err().or(synced.err().map(Into::into));
    let interrupted = interrupt::asked();
    if failed.is_some() || interrupted {
        let then = match &failed {
            Some(error) if exit::is_refused(error) => "correct the file and load it again",
            _ => "load the same file again to finish",
        };
        stderr::line(format_args!("mangrove: stopped; {} records {stay}; {then}", count(records)));
    } else {
        tell_cut(&input);
    }
    let closed = map_close(map, args, records, seconds, failed.is_none() && !interrupted);
    match failed {
        Some(error) => Err(error),
        None => closed.map(|()| if interrupted { Exit::Interrupted } else { Exit::Ok }),
    }
}

/// Makes a new pool without a log.
fn run_bulk(args: &Args, input: &mut Input) -> anyhow::Result<Exit> {
    interrupt::catch()?;
    let start = Instant::now();
    // No put waits for the device, so more threads than processors only take turns.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = usize::from(args.threads).min(processors);
    let loaded = args.opening.options().load(&args.pool, |map| -> anyhow::Result<(u64, u64)> {
        let loader = Loader::new(map, args, BULK_CHUNK_RECORDS, None, input.len());
        let read = loader.load(input, threads);
        let (records, loaded) = loader.end(read);
        loaded?;
        if interrupt::asked() { Err(Error::Stopped.into()) } else { Ok((records, map.len()?)) }
    });
    let seconds = start.elapsed().as_secs_f64();
    let (records, in_map) = match loaded {
        Ok(done) => done,
        Err(error) if matches!(error.downcast_ref(), Some(Error::Stopped)) => {
            stderr::line(format_args!("mangrove: interrupted; nothing was left at {}", args.pool.display()));
            return Ok(Exit::Interrupted);
        }
        Err(error) => return Err(error),
    };
    tell_cut(input);
    let report = Report { records, seconds, in_map };
    if args.json {
        output::json(&report.json(args, true, json!({ "bulk": true, "threads": threads })))?;
    } else {
        output::lines([report.sentence("without a log")])?;
    }
    Ok(Exit::Ok)
}

/// Tells of a last record of which there may be more: a file by hand may end so, and an export that was cut off does.
fn tell_cut(input: &Input) {
    if let Some(line) = input.cut_line() {
        stderr::line(format_args!(
            "mangrove: line {line}, the last one, has no newline; if the input was cut off, its record is not whole, \
             and others are missing"
        ));
    }
}

/// What a load tells at its end.
struct Report {
    records: u64,
    seconds: f64,
    in_map: u64,
}

impl Report {
    fn records_per_second(&self) -> f64 {
        self.records as f64 / self.seconds.max(1e-9)
    }

    /// As JSON, with the fields `more`.
    fn json(&self, args: &Args, complete: bool, more: Value) -> Value {
        let mut report = json!({
            "records": self.records,
            "complete": complete,
            "seconds": self.seconds,
            "records_per_second": self.records_per_second(),
            "threads": args.threads,
            "batch": args.batch,
            "records_in_map": self.in_map,
        });
        if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
            report.extend(more);
        }
        report
    }

    fn sentence(&self, how: &str) -> String {
        format!(
            "{} records in {:.2} s ({} a second), {how}; {} in the map",
            count(self.records),
            self.seconds,
            count(self.records_per_second() as u64),
            count(self.in_map),
        )
    }
}

fn map_close(map: Map, args: &Args, records: u64, seconds: f64, tell: bool) -> anyhow::Result<()> {
    map.checkpoint()?;
    let stat = map.stat();
    map.close()?;
    let written = stat.log_bytes_written + stat.image_bytes_written;
    let report = Report { records, seconds, in_map: stat.records };
    if args.json {
        let more = json!({
            "durability": args.opening.durability.to_string(),
            "device_writes": stat.group_commits,
            "bytes_written": written,
        });
        return output::json(&report.json(args, tell, more));
    }
    if tell && !args.report {
        let how = format!("durability {}", args.opening.durability);
        output::lines([format!("{}; {} written to the device", report.sentence(&how), human(written))])?;
    }
    Ok(())
}

impl<'a> Loader<'a> {
    fn new(map: &'a Map, args: &Args, chunk_records: usize, report: Option<File>, input_bytes: u64) -> Self {
        Self {
            map,
            batch: args.batch as usize,
            chunk_records,
            report,
            acknowledged: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            error: Mutex::new(None),
            bar: progress::bytes("load", input_bytes),
            under_way: UnderWay::new(UNDER_WAY_BYTES_MAX),
        }
    }

    /// Ends what is shown of the progress. Returns how many records were acknowledged, and the first error, of which
    /// `read` is that of reading.
    fn end(self, read: anyhow::Result<()>) -> (u64, anyhow::Result<()>) {
        self.bar.finish_and_clear();
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        (self.acknowledged.load(Ordering::Acquire), error.map_or(read, Err))
    }

    /// Reads records and hands each to the thread of its key, so that of two records of one key the
    /// later one wins.
    fn load(&self, input: &mut Input, threads: usize) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let mut lanes: Vec<Lane> = Vec::new();
            for _ in 0..threads {
                let (sender, receiver) = sync_channel(4);
                let started = std::thread::Builder::new().spawn_scoped(scope, move || self.work(&receiver));
                match started {
                    Ok(_) => lanes.push(Lane::new(sender)),
                    Err(e) if lanes.is_empty() => return Err(e).context("cannot start a thread"),
                    // As many as the process may have.
                    Err(_) => break,
                }
            }
            let threads = lanes.len();
            let (start, mut record) = (Instant::now(), Record::default());
            loop {
                let goes_on = match input.next(&mut record)? {
                    NextInput::Record => {
                        let mut hasher = DefaultHasher::new();
                        record.key.hash(&mut hasher);
                        let lane = &mut lanes[(hasher.finish() % threads as u64) as usize];
                        if !lane.take(&record, self.batch, self.chunk_records) {
                            continue;
                        }
                        lane.hand_over(&self.under_way)
                    }
                    NextInput::Pause => lanes.iter_mut().all(|lane| lane.hand_over(&self.under_way)),
                    NextInput::End => break,
                };
                if !goes_on || self.stopped() {
                    return Ok(());
                }
                self.bar.set_position(input.at());
                let rate = self.acknowledged.load(Ordering::Relaxed) as f64
                    / start.elapsed().as_secs_f64().max(1e-9);
                self.bar.set_message(format!("{} records/s", count(rate as u64)));
            }
            // A thread that is gone has left its error behind.
            lanes.iter_mut().for_each(|lane| _ = lane.hand_over(&self.under_way));
            Ok(())
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || interrupt::asked()
    }

    fn work(&self, receiver: &Receiver<Chunk>) {
        let _putting = Putting(&self.under_way);
        for chunk in receiver {
            let mut bytes = &chunk.bytes[..];
            for part in chunk.records.chunks(self.batch) {
                if self.stopped() {
                    return;
                }
                if let Err(error) = self.put(part, &mut bytes) {
                    self.stop.store(true, Ordering::Relaxed);
                    let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(error);
                    return;
                }
            }
            let len = chunk.len();
            drop(chunk);
            self.under_way.take_off(len);
        }
    }

    /// Puts records, whose keys and values `bytes` begins with, and takes those off.
    fn put(&self, records: &[RecordAt], bytes: &mut &[u8]) -> anyhow::Result<()> {
        let mut next = |record: &RecordAt| {
            let (key, rest) = bytes.split_at(record.key);
            let (value, rest) = rest.split_at(record.value);
            *bytes = rest;
            (key, value)
        };
        let result = match records {
            [one] => {
                let (key, value) = next(one);
                self.map.put(key, value)
            }
            many => {
                let mut batch = Batch::new();
                for record in many {
                    let (key, value) = next(record);
                    batch.put(key, value);
                }
                self.map.write(batch)
            }
        };
        result.with_context(|| match records {
            [one] => format!("line {}", one.line),
            [first, .., last] => format!("a batch of lines {} to {}", first.line, last.line),
            [] => String::new(),
        })?;
        self.acknowledged.fetch_add(records.len() as u64, Ordering::AcqRel);
        if let Some(mut report) = self.report.as_ref() {
            for part in records.chunks(REPORT_LINES_MAX) {
                let bytes: Vec<u8> = part.iter().flat_map(|r| r.line.to_le_bytes()).collect();
                report.write_all(&bytes).context("cannot report an acknowledged line")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn long_records_are_handed_over_early_in_whole_batches() {
        let record = |len: usize| Record { line: 1, key: Vec::new(), value: vec![0; len] };
        for (batch, len, count) in [(1, 0, 64), (3, 0, 66), (1, CHUNK_BYTES, 1), (3, CHUNK_BYTES, 3)] {
            let mut lane = Lane::new(sync_channel(4).0);
            let taken = (1..).find(|_| lane.take(&record(len), batch, CHUNK_RECORDS));
            assert_eq!(taken, Some(count), "batches of {batch} records of {len} bytes");
        }
    }

    #[test]
    fn records_wait_while_too_many_bytes_are_under_way() {
        let under_way = UnderWay::new(1 << 20);
        let (sender, receiver) = sync_channel(4);
        let mut lane = Lane::new(sender);
        let mut hand_over = || {
            lane.take(&Record { line: 1, key: Vec::new(), value: vec![0; 700 << 10] }, 1, CHUNK_RECORDS);
            lane.hand_over(&under_way)
        };
        // One goes, also where it is too long.
        assert!(hand_over());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (hand_over(), hand_over()));
            std::thread::sleep(Duration::from_millis(100));
            let first: Chunk = receiver.try_recv().unwrap();
            assert!(receiver.try_recv().is_err(), "the second did not wait");
            under_way.take_off(first.len());
            assert_eq!(receiver.recv_timeout(Duration::from_secs(120)).unwrap().records.len(), 1);
            // A thread that ends leaves what it had; no thread waits for it.
            drop(Putting(&under_way));
            assert_eq!(reader.join().unwrap(), (true, false));
        });
    }

    #[test]
    fn a_load_that_waits_for_room_ends_also_where_a_put_fails() {
        for (longest_key, is_loaded) in [(8, true), (2000, false)] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("in.tsv");
            let line =
                |i: usize| format!("{}{i}\t{}\n", "k".repeat(i * longest_key / 300), "v".repeat(i * 50));
            std::fs::write(&file, (0..300).map(line).collect::<String>()).unwrap();
            let map = Map::options().log_bytes(1 << 20).open(folder.path().join("pool")).unwrap();
            let loader = Loader {
                map: &map,
                batch: 7,
                chunk_records: CHUNK_RECORDS,
                report: None,
                acknowledged: AtomicU64::new(0),
                stop: AtomicBool::new(false),
                error: Mutex::new(None),
                bar: ProgressBar::hidden(),
                under_way: UnderWay::new(50_000),
            };
            loader.load(&mut Input::open(&file, Format::Tsv).unwrap(), 3).unwrap();
            assert_eq!(loader.error.lock().unwrap().is_none(), is_loaded);
            // Where loading failed, nothing is known of what was loaded.
            assert_eq!(
                (map.len().is_ok_and(|n| n == 300), loader.under_way.lock().bytes == 0),
                (is_loaded, is_loaded)
            );
        }
    }
}
