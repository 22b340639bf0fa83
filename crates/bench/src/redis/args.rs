//! The options of `mangrove bench redis`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Arguments of `mangrove bench redis`.
#[derive(Clone, Debug, clap::Args)]
pub struct RedisArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
    /// Strings of 100 bytes that exist; hashes of 10 fields of 100 bytes: a tenth as many
    #[arg(long, default_value = "100k", value_parser = crate::harness::args::parse_count)]
    pub records: u64,
    /// Client counts, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    pub clients: Vec<usize>,
    /// Percentages of updates, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,10,50,90,100")]
    pub updates: Vec<u8>,
    /// Servers, comma separated (default: all that are built)
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// Folder on the disk to be measured; the servers' directories are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// The durable server that `make redis` builds
    #[arg(
        long,
        value_name = "FILE",
        env = "MANGROVE_REDIS_SERVER",
        default_value = "data/valkey/current/valkey-server"
    )]
    pub server: PathBuf,
    /// A stock server to compare with
    #[arg(
        long,
        value_name = "FILE",
        env = "MANGROVE_VALKEY_SERVER",
        default_value = "data/valkey/source/src/valkey-server"
    )]
    pub stock: PathBuf,
    /// Let client and servers share all processors; else the client has one of its own, and the servers the others
    #[arg(long)]
    pub unpinned: bool,
    /// I/O threads of every server, as in its configuration
    #[arg(long, default_value_t = 1)]
    pub io_threads: usize,
    /// Seed of all workloads
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}
