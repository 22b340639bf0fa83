//! The options of `mangrove bench txn`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Arguments of `mangrove bench txn`.
#[derive(Clone, Debug, clap::Args)]
pub struct TxnArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
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
    /// Folder for the pools, in memory; they are removed again
    #[arg(long, default_value = "/dev/shm")]
    pub dir: PathBuf,
    /// The work of a child process of this bench
    #[arg(long, hide = true)]
    pub child: Option<String>,
}
