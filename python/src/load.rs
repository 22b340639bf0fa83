//! Filling a new pool without a log: a thread puts what Python's iterator yields.
//!
//! The iterator runs on the caller's thread, since what it reads from (a cursor of another database, say) may be bound
//! to that thread. Records go over in chunks, so that the two threads work side by side. A child that the iterator or a
//! signal's handler forks has the caller's thread alone, and gets an exception.

use crate::arguments::{allowed_capacity, bytes, path as path_of};
use crate::errors::{checked, exception};
use crate::shutdown::{calling, detached};
use crate::wait::wait;
use mangrove::{Error, Map, MapOptions};
use mangrove_sys::{ProcessMark, without_signals};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes at which a chunk goes to the thread that puts.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait for it.
const CHUNKS_WAITING_MAX: usize = 4;

/// Records, one after another.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// The lengths of each key and its value.
    lengths: Vec<(usize, usize)>,
}

impl Chunk {
    /// Bytes that it takes in memory.
    fn len(&self) -> usize {
        self.bytes.len() + self.lengths.len() * size_of::<(usize, usize)>()
    }
}

enum Message {
    Records(Chunk),
    /// There are no more. Without it the caller has given up.
    End,
}

/// Makes a new map at `path` with the records of an iterable of (key, value) pairs, whole and durable or not at all;
/// returns how many it has.
#[pyfunction]
#[pyo3(signature = (path, records, *, capacity=None, memory_bytes_max=None))]
pub(crate) fn load(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    records: &Bound<'_, PyAny>,
    capacity: Option<u64>,
    memory_bytes_max: Option<u64>,
) -> PyResult<u64> {
    let mut options = MapOptions::new();
    if let Some(bytes) = allowed_capacity(capacity)? {
        options = options.capacity(bytes);
    }
    if let Some(bytes) = memory_bytes_max {
        options = options.memory_bytes_max(bytes);
    }
    let path: PathBuf = path_of(path)?;
    let records = records.try_iter()?;
    let home = ProcessMark::here();
    let (sender, receiver) = sync_channel(CHUNKS_WAITING_MAX);
    let thread = std::thread::Builder::new().name("mangrove-fill".into());
    let fill = move || options.load(path, |map| put_all(map, &receiver));
    // Signals are for the program's own threads.
    let loader = without_signals(|| thread.spawn(fill)).map_err(|e| {
        // The map that is loaded needs threads of its own, so there is no other way.
        exception(py, "Error", &format!("cannot start the thread mangrove-fill: {e}"), None, None)
    })?;
    let sent = send_all(py, records, &sender, home);
    if !home.is_here() {
        // The channel's lock may be taken by the thread, which is the parent's.
        std::mem::forget((sender, loader));
        let message = "this process was forked while the map was loaded: the load is the parent's";
        return Err(sent.err().unwrap_or_else(|| exception(py, "Forked", message, None, None)));
    }
    // Without an end before, the load is given up.
    drop(sender);
    if let Err(raised) = sent {
        let _ = detached(py, move || loader.join());
        return Err(raised);
    }
    match wait(py, move |_| loader.join())? {
        Ok(loaded) => checked(py, loaded),
        Err(_) => Err(PyRuntimeError::new_err("the thread that loads has panicked")),
    }
}

/// Sends all records to the loading thread, and then the end. Stops early when that thread has ended, and in a child
/// that was forked meanwhile: a process other than `home`.
fn send_all(
    py: Python<'_>,
    mut records: Bound<'_, pyo3::types::PyIterator>,
    to: &SyncSender<Message>,
    home: ProcessMark,
) -> PyResult<()> {
    let mut chunk = Chunk::default();
    while let Some(record) = calling(py, || records.next()) {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = record?.extract()?;
        let (key, value) = (bytes(&key, "key")?, bytes(&value, "value")?);
        chunk.bytes.extend_from_slice(&key);
        chunk.bytes.extend_from_slice(&value);
        chunk.lengths.push((key.len(), value.len()));
        if chunk.len() >= CHUNK_BYTES {
            let full = Message::Records(std::mem::take(&mut chunk));
            py.check_signals()?;
            if !home.is_here() || detached(py, || to.send(full)).is_err() {
                // The loader's error is the reason, or the fork.
                return Ok(());
            }
        }
    }
    if !home.is_here() {
        return Ok(());
    }
    // An error here is the loader's, too.
    let _ = detached(py, || to.send(Message::Records(chunk)).and_then(|()| to.send(Message::End)));
    Ok(())
}

/// Puts what comes, until the end.
fn put_all(map: &Map, chunks: &Receiver<Message>) -> mangrove::Result<u64> {
    loop {
        match chunks.recv() {
            Ok(Message::Records(chunk)) => {
                let mut rest = &chunk.bytes[..];
                for &(key_len, value_len) in &chunk.lengths {
                    let (key, after) = rest.split_at(key_len);
                    let (value, after) = after.split_at(value_len);
                    map.put(key, value)?;
                    rest = after;
                }
            }
            Ok(Message::End) => return map.len(),
            Err(_) => return Err(Error::Stopped),
        }
    }
}
