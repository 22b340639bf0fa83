//! The options of `mangrove bench redis`.

use crate::harness::args::parse_count;
use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Seconds of a measurement: with all servers, cases and three rounds a run then takes about twenty minutes.
pub(super) const SECONDS: f64 = 0.5;

/// Arguments of `mangrove bench redis`.
#[derive(Clone, Debug, clap::Args)]
pub struct RedisArgs {
    /// What every bench can be told. A measurement lasts half a second here where nothing else is said.
    #[command(flatten)]
    pub run: RunArgs,
    /// Strings of 100 bytes that exist; hashes of 10 fields of 100 bytes: a tenth as many
    #[arg(long, default_value = "100k", value_parser = parse_count)]
    pub records: u64,
    /// The same for the sections `large` and `restart`
    #[arg(long, default_value = "1m", value_parser = parse_count)]
    pub large_records: u64,
    /// Client counts of the section `clients`, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,50,96")]
    pub clients: Vec<usize>,
    /// Client counts of the section `hashes`, comma separated
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,64,96")]
    pub hash_clients: Vec<usize>,
    /// Percentages of updates, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,10,50,90,100")]
    pub updates: Vec<u8>,
    /// Servers, comma separated (default: all that are built)
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// Directory on the disk to be measured; the servers' directories are made in it and removed again
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
    /// The stock server that `crates/redis/scripts/stock data/valkey` builds
    #[arg(
        long,
        value_name = "FILE",
        env = "MANGROVE_VALKEY_SERVER",
        default_value = "data/valkey/stock/src/valkey-server"
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
