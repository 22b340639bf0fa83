//! The options of `mangrove bench durable`.

use std::path::PathBuf;

/// Arguments of `mangrove bench durable`.
#[derive(Clone, Debug, clap::Args)]
pub struct DurableArgs {
    /// Sections to run, comma separated (default: all): calls, puts, programs, local, rpc, log, sqlite, recovery
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Media, comma separated: zero, 300/100 (write/read latency in ns), file
    #[arg(long, value_delimiter = ',', default_value = "zero,300/100,file")]
    pub media: Vec<String>,
    /// Percent of requests that write, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,10,50,90,100")]
    pub ratios: Vec<u32>,
    /// Sizes of the states to recover, in MiB, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1024,8192")]
    pub states: Vec<u64>,
    /// Interleaved rounds: every subject once a round, the median over the rounds is printed
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that each throughput measurement lasts
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Folder for durable.txt and durable.json
    #[arg(long, default_value = "bench-out")]
    pub out: PathBuf,
    /// Folder on the disk to be measured; states are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// Write the report as a Markdown page too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// The repository, for the programs that are built for this bench (default: where this one was built)
    #[arg(long, value_name = "DIR")]
    pub sources: Option<PathBuf>,
    /// Folder of libmangrove_app.so (default: that of this program)
    #[arg(long, value_name = "DIR")]
    pub libraries: Option<PathBuf>,
    /// Judge the goals of this bench and print them before the tables
    #[arg(long)]
    pub goals: bool,
    /// Smoke test: tiny inputs, one round, a few seconds; its figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// The work of a child process of this bench, which is killed
    #[arg(long, hide = true)]
    pub child: Option<String>,
}
