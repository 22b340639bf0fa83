//! The options of `mangrove bench leveldb`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Arguments of `mangrove bench leveldb`.
#[derive(Clone, Debug, clap::Args)]
pub struct LeveldbArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
    /// Records that the reading workloads find, of 100-byte values; a quarter as many of 1 KB
    #[arg(long, default_value = "1m", value_parser = crate::harness::args::parse_count)]
    pub records: u64,
    /// Thread counts of the writing workloads, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    pub threads: Vec<usize>,
    /// Subjects, comma separated (default: all that are installed)
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// Directory on the disk to be measured; databases are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// libmangrove_leveldb.so, or libmangrove_leveldb.a with --api c++ (default: beside this program)
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The API that all subjects are called through; c++ needs a C++ compiler, LevelDB's headers and these sources
    #[arg(long, default_value = "c")]
    pub api: Api,
}

/// One of LevelDB's APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// The functions of `leveldb/c.h`.
    C,
    /// The classes of `leveldb/db.h`.
    #[value(name = "c++")]
    Cpp,
}
