//! The options of `mangrove bench python`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Arguments of `mangrove bench python`.
#[derive(Clone, Debug, clap::Args)]
pub struct PythonArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
    /// Records that are read, of 16-byte keys; puts go over as many keys again and again
    #[arg(long, default_value = "500k", value_parser = crate::harness::args::parse_count)]
    pub records: u64,
    /// Thread counts of the synced puts, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    pub threads: Vec<usize>,
    /// Subjects, comma separated: Mangrove, plyvel, lmdb (default: all that the interpreter can import)
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// Directory on the disk to be measured; databases are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// The interpreter, with the packages (`python/run bench` makes the default)
    #[arg(long, value_name = "FILE", default_value = "target/python/bench/bin/python")]
    pub python: PathBuf,
}
