//! Pools on every medium that this machine has, made once by the public API: most as a process that died left them.

use super::object::{Object, ObjectKind, Records};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The files of a pool's directory by name.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// A long value; with what else is put, less than half the log, so that no checkpoint begins while files are copied.
const LONG_BYTES: usize = 300_000;
const SPARSE_BYTES: usize = 16 << 10;

/// Directories that this process has made.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A directory of this process on a file system in memory, where there is one: the pools are written a thousand times.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        // Relaxed: only makes the names differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("mangrove-damage-{name}-{}-{number}", std::process::id()));
        // Left by a process of the same number that died.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory for the damaged pools");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A pool that is to be damaged.
pub(super) struct UnclosedPool {
    pub(super) name: &'static str,
    pub(super) kind: ObjectKind,
    /// As the process left them.
    pub(super) files: Files,
    /// Every state that was acknowledged, in order; the last one is that of `files`.
    pub(super) states: Vec<Records>,
    /// Older copies of all files.
    pub(super) older: Vec<Files>,
    /// Bytes of the file `log` that the last write changed: a crash may tear it.
    pub(super) last_write: std::ops::Range<usize>,
    /// On emulated memory: there is no log.
    pub(super) is_mapped: bool,
    pub(super) is_closed: bool,
}

/// Reads a pool's files.
pub(super) fn read_files(path: &Path) -> Files {
    let entries = fs::read_dir(path).expect("the pool's directory");
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("a name in the pool's directory");
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a pool's file"))
    };
    entries.map(read).collect()
}

/// Writes a pool's files, and removes all others.
pub(super) fn write_files(path: &Path, files: &Files) {
    let _ = fs::remove_dir_all(path);
    fs::create_dir(path).expect("a directory for a damaged pool");
    for (name, bytes) in files {
        write_sparse(&path.join(name), bytes).expect("space for a damaged pool");
    }
}

/// Leaves blank parts out: most of a pool's bytes are blank.
fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (number, part) in bytes.chunks(SPARSE_BYTES).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, (number * SPARSE_BYTES) as u64)?;
        }
    }
    Ok(())
}

/// All pools. Built on first use.
pub(super) fn unclosed_pools() -> &'static [UnclosedPool] {
    static POOLS: OnceLock<Vec<UnclosedPool>> = OnceLock::new();
    POOLS.get_or_init(|| {
        use ObjectKind::{GrowingMap, LoadedMap, Map, Pages, RecentMap, ShortLogMap};
        use Step::{Checkpoint, Close, Fill, Free, Killed, Long, Reopen, Spill};
        vec![
            make("file, no checkpoint", Map, false, &[Fill, Fill]),
            make("file, a checkpoint", Map, false, &[Fill, Checkpoint, Fill]),
            make("file, opened twice", Map, false, &[Fill, Reopen, Fill, Checkpoint, Fill]),
            make("file, opened twice, no checkpoint", Map, false, &[Fill, Reopen, Fill]),
            make("file, killed twice", Map, false, &[Fill, Checkpoint, Fill, Killed, Fill]),
            make("file, a long value", Map, false, &[Fill, Checkpoint, Fill, Long, Fill]),
            make("file, a log that grew", GrowingMap, false, &[Fill, Fill, Fill]),
            make("file, closed", Map, false, &[Fill, Reopen, Fill, Close]),
            make(
                "file, space given back",
                Map,
                false,
                &[Fill, Long, Checkpoint, Free, Fill, Checkpoint, Fill],
            ),
            make("file, loaded in bulk", LoadedMap, false, &[Fill, Checkpoint, Fill]),
            make("file, a log that went round", ShortLogMap, false, &[[Fill, Checkpoint]; 5].concat()),
            make("file, recent writes", RecentMap, false, &[Fill]),
            make("file, recent writes after a checkpoint", RecentMap, false, &[Fill, Checkpoint, Fill]),
            make("file, pages", Pages, false, &[Fill, Checkpoint, Fill]),
            make("file, pages, a spill file", Pages, false, &[Fill, Checkpoint, Fill, Spill, Fill]),
            make("emulated", Map, true, &[Fill, Fill]),
            make("emulated, opened twice", Map, true, &[Fill, Reopen, Fill]),
            make("emulated, killed twice", Map, true, &[Fill, Killed, Fill]),
            make("emulated, closed", Map, true, &[Fill, Reopen, Fill, Close]),
            make("emulated, pages", Pages, true, &[Fill, Fill]),
            make("emulated, pages, opened twice", Pages, true, &[Fill, Reopen, Fill]),
        ]
    })
}

/// The files of a pool on the medium of `pool` that has nothing to do with the others.
pub(super) fn another(pool: &UnclosedPool) -> &'static Files {
    static OTHERS: OnceLock<[Files; 2]> = OnceLock::new();
    let plan = [Step::Fill, Step::Checkpoint, Step::Fill];
    let others = OTHERS
        .get_or_init(|| [false, true].map(|mapped| make("another", ObjectKind::Map, mapped, &plan).files));
    &others[usize::from(pool.is_mapped)]
}

/// What is done to a pool while it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Puts, overwrites and deletions, each of them acknowledged.
    Fill,
    /// A put of a long value.
    Long,
    /// Deletes the long value, and gives its space back.
    Free,
    /// An atomic group of pages that is longer than half the log.
    Spill,
    Checkpoint,
    /// Closes the pool and opens it again.
    Reopen,
    /// Goes on in a copy that is not closed.
    Killed,
    Close,
}

/// A pool while it is made.
struct Making {
    object: Object,
    path: PathBuf,
    states: Vec<Records>,
    last_write: std::ops::Range<usize>,
}

fn make(name: &'static str, kind: ObjectKind, is_mapped: bool, plan: &[Step]) -> UnclosedPool {
    let scratch = Scratch::new(&format!("make-{}", name.replace([' ', ','], "-")));
    let path = scratch.path().join("0");
    let object = kind.create(&path, is_mapped);
    let mut older = vec![read_files(&path)];
    let first = object.records().expect("the records of a sound pool");
    let mut making = Making { object, path, states: vec![first], last_write: 0..0 };
    for (round, step) in plan.iter().enumerate() {
        match step {
            Step::Fill => making.fill(round),
            Step::Long => making.put(b"long", &vec![round as u8; LONG_BYTES]),
            Step::Spill => making.spill(round),
            Step::Free => {
                making.delete(b"long");
                making.object.compact().expect("a compaction of a sound map");
            }
            Step::Checkpoint => making.object.checkpoint().expect("a checkpoint of a sound pool"),
            Step::Reopen => {
                making.object.close().expect("closing a sound pool");
                making.object = kind.open(&making.path, false).expect("a pool that was closed");
            }
            Step::Killed => {
                let files = read_files(&making.path);
                making.path = scratch.path().join((round + 1).to_string());
                write_files(&making.path, &files);
                making.object = kind.open(&making.path, false).expect("a pool that was not closed");
            }
            Step::Close => {
                let Making { object, path, states, .. } = making;
                object.close().expect("closing a sound pool");
                let files = read_files(&path);
                return UnclosedPool {
                    name,
                    kind,
                    files,
                    states,
                    older,
                    last_write: 0..0,
                    is_mapped,
                    is_closed: true,
                };
            }
        }
        making.object.wait_grown();
        older.push(read_files(&making.path));
    }
    let files = older.pop().expect("the files after the last step");
    let Making { states, last_write, .. } = making;
    UnclosedPool { name, kind, files, states, older, last_write, is_mapped, is_closed: false }
}

impl Making {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let (key, value) = self.object.put(key, value).expect("a put into a sound pool");
        let mut state = self.states[self.states.len() - 1].clone();
        state.insert(key, value);
        self.states.push(state);
    }

    /// Only pages: each operation of a map fits in the log.
    fn spill(&mut self, round: usize) {
        let records = self.object.spill(round as u8).expect("an atomic group in a sound pool");
        let mut state = self.states[self.states.len() - 1].clone();
        state.extend(records);
        self.states.push(state);
        let is_spilled = read_files(&self.path).keys().any(|name| name.starts_with("unit-"));
        assert!(is_spilled, "there is no spill file");
    }

    fn delete(&mut self, key: &[u8]) {
        let key = self.object.delete(key).expect("a deletion in a sound pool");
        let mut state = self.states[self.states.len() - 1].clone();
        state.remove(&key);
        self.states.push(state);
    }

    fn log(&self) -> Vec<u8> {
        fs::read(self.path.join("log")).unwrap_or_default()
    }

    fn note_write(&mut self, before: &[u8]) {
        let after = self.log();
        let differs = |n: &usize| before.get(*n) != after.get(*n);
        let first = (0..after.len()).find(differs).unwrap_or(0);
        let last = (first..after.len()).rev().find(differs).map_or(first, |n| n + 1);
        self.last_write = first..last;
    }

    /// Short and long keys, short and long values, freed slots, overwrites, and in the end a put.
    fn fill(&mut self, round: usize) {
        let key = |n: usize| format!("{round}-{n:03}-{}", "k".repeat([4, 60, 200, 900][n % 4])).into_bytes();
        for n in 0..60usize {
            self.put(&key(n), &vec![n as u8 + 1; [0, 8, 90, 1500][n / 4 % 4]]);
        }
        for n in (0..60).step_by(5) {
            self.delete(&key(n));
        }
        for n in (1..60).step_by(7) {
            self.put(&key(n), &[round as u8 + 100; 40]);
        }
        let before = self.log();
        self.put(format!("{round}-last").as_bytes(), b"the last write");
        self.note_write(&before);
    }
}
