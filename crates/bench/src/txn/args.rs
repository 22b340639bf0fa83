//! The options of `mangrove bench txn`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// The executors that are measured unless others are asked for.
const EXECUTORS: &str = concat!(
    "default,records,one-writer,lock,rtm,lock:spht,lock:spht-eadr,lock:spht-eadr-flush,lock:htm-sgl,",
    "rtm:spht,rtm:spht-eadr,rtm:spht-eadr-flush,rtm:htm-sgl"
);

/// Arguments of `mangrove bench txn`.
#[derive(Clone, Debug, clap::Args)]
pub struct TxnArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
    /// Swaps a transaction, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    pub swaps: Vec<u32>,
    /// Percent of a map's transactions that update, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,10,50")]
    pub updates: Vec<u32>,
    /// Executors of the mixes and of the updates beside long transactions, comma separated: default, records,
    /// one-writer, lock, rtm; and with time stamps lock, rtm or model with :spht, :spht-eadr or :spht-eadr-flush, the
    /// last two in the mixes on eADR only; in place, in the mixes on eADR only, the same with :htm-sgl
    #[arg(long, value_delimiter = ',', default_value = EXECUTORS)]
    pub executors: Vec<String>,
    /// Latencies of the mixes on ADR, comma separated: zero, or write/read in ns as 300/100
    #[arg(long, value_delimiter = ',', default_value = "zero,300/100,300/300")]
    pub latencies: Vec<String>,
    /// Nanoseconds that a medium with latencies takes for a line, one after the other
    #[arg(long, default_value_t = 20)]
    pub line_ns: u32,
    /// Flush instructions of the mixes on ADR, comma separated; those that the CPU lacks are left out
    #[arg(long, value_delimiter = ',', default_value = "clwb,clflushopt")]
    pub flush: Vec<String>,
    /// The mixes with replay in the background, or with logs that nothing replays: on, off
    #[arg(long, value_delimiter = ',', default_value = "on,off")]
    pub replay: Vec<String>,
    /// MiB of the heap of the mixes, and of the heap that is opened
    #[arg(long, default_value_t = 1024)]
    pub heap_mib: usize,
    /// MiB of each log that nothing replays: a measurement ends when one is full
    #[arg(long, default_value_t = 256)]
    pub log_mib: u64,
    /// Numbers of threads, comma separated; default: 1, 2, ... up to the CPUs
    #[arg(long, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Words of 8 bytes in the heap, a power of two
    #[arg(long, default_value_t = 1 << 20)]
    pub words: usize,
    /// Directory for the pools, in memory; they are removed again
    #[arg(long, default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// The work of a child process of this bench
    #[arg(long, hide = true)]
    pub child: Option<String>,
}
