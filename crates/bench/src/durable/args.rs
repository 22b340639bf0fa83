//! The options of `mangrove bench durable`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Arguments of `mangrove bench durable`.
#[derive(Clone, Debug, clap::Args)]
pub struct DurableArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
    /// Media, comma separated: zero, 300/100 (write/read latency in ns), file
    #[arg(long, value_delimiter = ',', default_value = "zero,300/100,file")]
    pub media: Vec<String>,
    /// Percent of requests that write, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,10,50,90,100")]
    pub ratios: Vec<u32>,
    /// Sizes of the states to recover, in MiB, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1024,8192")]
    pub states: Vec<u64>,
    /// Directory on the disk to be measured; states are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// The repository, for the programs that are built for this bench (default: where this one was built)
    #[arg(long, value_name = "DIR")]
    pub sources: Option<PathBuf>,
    /// Directory of libmangrove_app.so (default: that of this program)
    #[arg(long, value_name = "DIR")]
    pub libraries: Option<PathBuf>,
    /// The work of a child process of this bench, which is killed
    #[arg(long, hide = true)]
    pub child: Option<String>,
}
