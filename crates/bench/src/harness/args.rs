//! The options of `mangrove bench map`.

use crate::harness::run_args::RunArgs;
use std::path::PathBuf;

/// Arguments of `mangrove bench map`.
#[derive(Clone, Debug, clap::Args)]
pub struct MapArgs {
    /// What every bench can be told.
    #[command(flatten)]
    pub run: RunArgs,
    /// Run every section (otherwise name some with --only)
    #[arg(long)]
    pub all: bool,
    /// Records of the Sequential and Random workloads, up to 100 million (k and m are understood)
    #[arg(long, default_value = "1m", value_parser = parse_count)]
    pub records: u64,
    /// Thread counts of the multi-threaded sections, comma separated; default: 1, 2, ... up to the CPUs (unsynced
    /// puts: 1 and 2)
    #[arg(long, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Workloads, comma separated: dictionary, sequential, random
    #[arg(long, value_delimiter = ',', default_value = "dictionary,sequential,random")]
    pub workloads: Vec<String>,
    /// Media, comma separated: zero, 300/100, 300/300, 600/300 (write/read latency in ns), file
    #[arg(long, value_delimiter = ',', default_value = "zero,300/100,300/300,600/300,file")]
    pub media: Vec<String>,
    /// Subjects to compare, comma separated (default: all that are built in)
    #[arg(long, value_delimiter = ',')]
    pub subjects: Vec<String>,
    /// Directory on the disk to be measured; pools are made in it and removed again
    #[arg(long, default_value = "bench-pools")]
    pub dir: PathBuf,
    /// Flips of the one-bit-flip study, for each store
    #[arg(long, default_value_t = 24)]
    pub flips: usize,
    /// Seed of all workloads
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Time the one-thread sections on emulated memory by the thread's processor time: for a machine
    /// on which other programs run
    #[arg(long)]
    pub cpu_time: bool,
    /// The work of a child process of this bench (it is killed, or may crash)
    #[arg(long, hide = true)]
    pub child: Option<String>,
}

/// Reads `250000`, `250k`, `1m`.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase().replace('_', "");
    let (digits, unit) = match lower.strip_suffix('m') {
        Some(d) => (d, 1_000_000.0),
        None => lower.strip_suffix('k').map_or((lower.as_str(), 1.0), |d| (d, 1_000.0)),
    };
    let n: f64 = digits
        .parse()
        .map_err(|_| format!("'{text}' is not a number of records (try 250000, 250k or 1m)"))?;
    let n = (n * unit) as u64;
    if (1..=100_000_000).contains(&n) {
        Ok(n)
    } else {
        Err(format!("'{text}' is out of range: 1 to 100 million records"))
    }
}

#[cfg(test)]
mod tests {
    use super::parse_count;

    #[test]
    fn counts_are_read_with_units() {
        assert_eq!(parse_count("1m"), Ok(1_000_000));
        assert_eq!(parse_count("250k"), Ok(250_000));
        assert_eq!(parse_count("7"), Ok(7));
        assert!(parse_count("0").is_err());
        assert!(parse_count("101m").is_err());
        assert!(parse_count("many").is_err());
    }
}
