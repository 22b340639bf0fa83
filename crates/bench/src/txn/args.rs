//! The options of `mangrove bench txn`.

use std::path::PathBuf;

/// Arguments of `mangrove bench txn`.
#[derive(Clone, Debug, clap::Args)]
pub struct TxnArgs {
    /// Sections to run, comma separated (default: all): floors, swaps, map
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Swaps a transaction, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    pub swaps: Vec<u32>,
    /// Percent of a hash map's transactions that update, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,10,50")]
    pub updates: Vec<u32>,
    /// Numbers of threads, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub threads: Vec<usize>,
    /// Words of 8 bytes in the heap, a power of two
    #[arg(long, default_value_t = 1 << 20)]
    pub words: usize,
    /// Interleaved rounds: every subject once a round, the median over the rounds is printed
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that each measurement lasts
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Folder for txn.txt and txn.json
    #[arg(long, default_value = "bench-out")]
    pub out: PathBuf,
    /// Folder for the pools, in memory; they are removed again
    #[arg(long, default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// Write the report as a Markdown page too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Smoke test: tiny inputs, one round, a few seconds; its figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// The work of a child process of this bench
    #[arg(long, hide = true)]
    pub child: Option<String>,
}
