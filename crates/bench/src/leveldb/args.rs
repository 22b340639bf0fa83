//! The options of `mangrove bench leveldb`.

use std::path::PathBuf;

/// Arguments of `mangrove bench leveldb`.
#[derive(Clone, Debug, clap::Args)]
pub struct LeveldbArgs {
    /// Records that the reading workloads find, of 100-byte values; a quarter as many of 1 KB
    #[arg(long, default_value = "1m", value_parser = crate::harness::args::parse_count)]
    pub records: u64,
    /// Thread counts of the writing workloads, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    pub threads: Vec<usize>,
    /// Workloads, comma separated (default: all): fillseq, fillrandom, overwrite, fill100K, readseq,
    /// readreverse, readrandom, readseq1KB, readreverse1KB
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Subjects, comma separated (default: all that are installed)
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// Interleaved rounds: every subject once a round, the median over the rounds is printed
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that each writing measurement lasts
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Folder for leveldb.txt and leveldb.json
    #[arg(long, default_value = "bench-out")]
    pub out: PathBuf,
    /// Folder on the disk to be measured; databases are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// Write the report as a Markdown page too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// libmangrove_leveldb.so (default: beside this program)
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Judge the goals of this bench and print them before the tables
    #[arg(long)]
    pub goals: bool,
    /// Smoke test: tiny inputs, one round, a few seconds; its figures mean nothing
    #[arg(long)]
    pub quick: bool,
}
