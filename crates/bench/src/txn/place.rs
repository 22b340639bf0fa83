//! Where Mangrove's own words lie: a working copy over emulated memory, in a folder that is removed in the end.

use super::peer::TxnDomain;
use mangrove_shadow::{Create, Domain, FlushCost, FlushInstruction, Latency, Medium, Options, Order, Shadow};
use mangrove_txn::{HeapLog, Protocol, TxMemory};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one log while it is replayed: what the goals are for.
pub(super) const LOG_BYTES: u64 = 32 << 20;

/// Logs of a pool: as many as a heap has.
const LOG_COUNT_MIN: usize = 4;

/// Bytes of one commit at most while a pool is filled.
const COMMIT_BYTES_MAX: usize = 1 << 20;

/// A folder that is removed in the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// A path in `dir` at which nothing is.
    pub(super) fn new(dir: &Path) -> anyhow::Result<Self> {
        // Several benches may run in one process: the tests of this crate.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        std::fs::create_dir_all(dir)?;
        // Relaxed: the number carries no data with it.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Self(dir.join(format!("mangrove-bench-txn-{}-{number}", std::process::id())));
        if folder.0.exists() {
            std::fs::remove_dir_all(&folder.0)?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for measurements.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A kind of pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceOptions {
    pub(super) domain: TxnDomain,
    /// Of ADR; none: the best that there is.
    pub(super) flush: Option<FlushInstruction>,
    pub(super) latency: Latency,
    /// A background thread brings the durable copy up to date.
    pub(super) replay: bool,
    pub(super) log_bytes: u64,
    /// One with time stamps, or automatic: dense numbers, none of which may be missing on ADR.
    pub(super) protocol: Protocol,
}

impl PlaceOptions {
    /// Without latencies, replayed.
    pub(super) fn new(domain: TxnDomain) -> Self {
        Self {
            domain,
            flush: None,
            latency: Latency::new(0, 0),
            replay: true,
            log_bytes: LOG_BYTES,
            protocol: Protocol::Automatic,
        }
    }

    /// The options of a shadow for so many bytes.
    pub(super) fn shadow(&self, bytes: u64) -> Options {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (domain, order) = match self.domain {
            TxnDomain::Adr => (Domain::Adr, Order::Dense),
            TxnDomain::Eadr => (Domain::Eadr, Order::Gaps),
        };
        let options = Options::new()
            .create(Create::IfMissing)
            .medium(Medium::Emulated(self.latency))
            .capacity(bytes)
            .log_bytes(self.log_bytes)
            .log_count(cpus.max(LOG_COUNT_MIN))
            .domain(domain)
            .order(self.protocol.order().unwrap_or(order))
            .stamped(self.protocol.is_stamped())
            .background(self.replay);
        // Without latencies eADR has no instruction; this protocol flushes all the same.
        let flushes = self.protocol == Protocol::SphtEadrFlush;
        match self.flush.or_else(|| flushes.then(FlushInstruction::detect)) {
            Some(instruction) => options.flush_instruction(instruction),
            None => options,
        }
    }
}

/// Latencies by their names on the command line: `zero`, or the medium's whole write and read latency in ns, as
/// `300/100`. Flushes queue, `line_ns` a line, and a fence waits for them.
pub(super) fn latency(name: &str, line_ns: u32) -> anyhow::Result<Latency> {
    use crate::harness::media::BenchMedium;
    match BenchMedium::parse(name)? {
        BenchMedium::Emulated(zero) if zero == Latency::default() => Ok(zero),
        BenchMedium::Emulated(latency) => Ok(Latency { flushes: FlushCost::Queued { line_ns }, ..latency }),
        BenchMedium::File => {
            anyhow::bail!("--latencies takes zero, or write/read in nanoseconds, not '{name}'")
        }
    }
}

/// An open pool of words.
pub(super) struct WordPool {
    shadow: Arc<Shadow>,
    bytes: usize,
    options: PlaceOptions,
    /// Removed with the pool.
    folder: Folder,
}

impl WordPool {
    /// A pool in `dir` of so many bytes, all zero.
    pub(super) fn new(dir: &Path, options: &PlaceOptions, bytes: usize) -> anyhow::Result<Self> {
        let folder = Folder::new(dir)?;
        let shadow = Arc::new(options.shadow(bytes as u64).open(folder.path())?);
        shadow.grow(bytes as u64)?;
        Ok(Self { shadow, bytes, options: *options, folder })
    }

    /// The same words, after a crash or a closing.
    pub(super) fn reopened(folder: Folder, options: &PlaceOptions, bytes: usize) -> anyhow::Result<Self> {
        let shadow = Arc::new(options.shadow(bytes as u64).open(folder.path())?);
        Ok(Self { shadow, bytes, options: *options, folder })
    }

    /// The same words, opened for commits by `protocol`. A pool with time stamps is opened anew for each measurement:
    /// it takes one redo log.
    pub(super) fn opened_for(self, protocol: Protocol) -> anyhow::Result<Self> {
        if self.options.protocol == protocol && !protocol.is_stamped() {
            return Ok(self);
        }
        let (options, bytes) = (PlaceOptions { protocol, ..self.options }, self.bytes);
        Self::reopened(self.close()?, &options, bytes)
    }

    /// The redo log of the pool's protocol.
    pub(super) fn log(&self) -> anyhow::Result<HeapLog> {
        Ok(self.options.protocol.log(Arc::clone(&self.shadow))?)
    }

    /// Fills the pool with these words, durably.
    pub(super) fn fill(&self, words: &[u64]) -> anyhow::Result<()> {
        let bytes = size_of_val(words).min(self.bytes);
        // SAFETY: as long as the words, and no other thread uses it yet.
        unsafe { self.shadow.base().copy_from_nonoverlapping(words.as_ptr().cast(), bytes) };
        self.commit_all(bytes, bytes)
    }

    /// Writes zeros to every page of words, durable copy and logs, so that no measurement takes their page faults.
    pub(super) fn touch(&self) -> anyhow::Result<()> {
        // SAFETY: the usable part, which no other thread uses yet.
        unsafe { self.shadow.base().write_bytes(0, self.bytes) };
        self.commit_all(self.bytes, self.shadow.stat().log_bytes as usize)
    }

    /// Commits the first `bytes` bytes, again and again until `log_bytes` are written to the logs, in turn.
    fn commit_all(&self, bytes: usize, log_bytes: usize) -> anyhow::Result<()> {
        let (base, stat) = (self.shadow.base() as usize, self.shadow.stat());
        // A commit of more than half a log would go past it.
        let each = COMMIT_BYTES_MAX.min(stat.log_bytes as usize / stat.logs / 4);
        for number in 0..bytes.max(log_bytes).div_ceil(each) {
            let from = number * each % bytes;
            self.shadow.commit(number % stat.logs, &[(base + from, each.min(bytes - from))])?;
        }
        Ok(self.shadow.checkpoint()?)
    }

    pub(super) fn shadow(&self) -> &Arc<Shadow> {
        &self.shadow
    }

    /// The words, for an executor.
    pub(super) fn memory(&self) -> TxMemory {
        // SAFETY: the executors of this bench end before the place that they run on, and between their measurements
        // no other code writes the words.
        unsafe { TxMemory::new(self.shadow.base(), self.bytes) }
    }

    /// The word with this index, while no transaction runs.
    pub(super) fn word(&self, at: usize) -> u64 {
        assert!(at < self.bytes / 8, "the word lies in the pool");
        // SAFETY: inside the pool; no thread writes it.
        unsafe { self.shadow.base().cast::<u64>().add(at).read() }
    }

    /// Words of the pool.
    pub(super) fn words(&self) -> usize {
        self.bytes / 8
    }

    /// Ends without closing, as a crash does.
    pub(super) fn crash(self) -> Folder {
        self.folder
    }

    /// Closes the pool: the next opening recovers nothing.
    pub(super) fn close(self) -> anyhow::Result<Folder> {
        let shadow = Arc::into_inner(self.shadow).expect("the executors have ended");
        shadow.close()?;
        Ok(self.folder)
    }
}
