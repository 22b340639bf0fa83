//! `mangrove-bench`, which `mangrove bench` runs: the bench of each door.
//!
//! Exit codes are those of `mangrove`: 0 ok; 2 usage; 3 pool or I/O error.

#![forbid(unsafe_code)]
// They panic where standard error cannot be written.
#![deny(clippy::print_stderr, clippy::print_stdout)]

use anyhow::Context;
use clap::Parser;
use mangrove::Error;
use mangrove_bench::OutputUnread;
use signal_hook::consts::SIGXFSZ;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[derive(Parser)]
#[command(name = "mangrove bench", bin_name = "mangrove bench", max_term_width = 100, about = "Measure")]
enum Bench {
    /// The durable map against the structures of the literature, or against the floor of the disk
    Map(mangrove_bench::MapArgs),
    /// What durability costs an in-memory program: calls, throughput, the log, SQLite, recovery
    Durable(mangrove_bench::DurableArgs),
    /// LevelDB's API over Mangrove against LevelDB and RocksDB, with LevelDB's own workloads
    Leveldb(mangrove_bench::LeveldbArgs),
    /// The Python package against plyvel (LevelDB) and lmdb
    Python(mangrove_bench::PythonArgs),
    /// The durable Redis-compatible server against stock ones, with and without an append-only file
    Redis(mangrove_bench::RedisArgs),
    /// Transactions on shared words: floors, swaps, a hash map
    Txn(mangrove_bench::TxnArgs),
}

fn main() -> ExitCode {
    let Err(error) = run(Bench::parse()) else { return ExitCode::SUCCESS };
    let code = code(&error);
    if code != 0 {
        // Where standard error cannot be written, the exit code remains.
        let _ = io::stderr().write_all(format!("mangrove: {error:#}\n").as_bytes());
    }
    ExitCode::from(code)
}

/// The exit code of a bench that ended with `error`.
fn code(error: &anyhow::Error) -> u8 {
    // The reader of the output has seen enough: no error. Another pipe that is broken, as to a server, is one.
    if error.is::<OutputUnread>() {
        return 0;
    }
    if error.chain().any(is_usage) { 2 } else { 3 }
}

fn run(bench: Bench) -> anyhow::Result<()> {
    // From now on a write past the file size limit (`ulimit -f`) is an error, not the end of the process.
    signal_hook::flag::register(SIGXFSZ, Arc::<AtomicBool>::default()).context("cannot catch SIGXFSZ")?;
    match bench {
        Bench::Map(args) => {
            give_huge_pages_to_all()?;
            map(args)
        }
        Bench::Durable(args) => mangrove_bench::run_durable(args),
        Bench::Leveldb(args) => mangrove_bench::run_leveldb(args),
        Bench::Python(args) => mangrove_bench::run_python(args),
        Bench::Redis(args) => mangrove_bench::run_redis(args),
        Bench::Txn(args) => txn(args),
    }
}

/// Starts this program again with a C library whose `malloc` asks for huge pages, unless it is the one that was started
/// so: Mangrove's index has them, so the structures that it is compared with get them too.
fn give_huge_pages_to_all() -> anyhow::Result<()> {
    const TUNABLES: &str = "GLIBC_TUNABLES";
    const HUGE: &str = "glibc.malloc.hugetlb=1";
    let present = std::env::var(TUNABLES).unwrap_or_default();
    if present.contains("glibc.malloc.hugetlb") {
        return Ok(());
    }
    let tunables = if present.is_empty() { HUGE.to_owned() } else { format!("{present}:{HUGE}") };
    let exe = std::env::current_exe().context("cannot find this program's file")?;
    let error = Command::new(exe).args(std::env::args_os().skip(1)).env(TUNABLES, tunables).exec();
    Err(error).context("cannot start this program again")
}

#[cfg(feature = "peers")]
fn map(args: mangrove_bench::MapArgs) -> anyhow::Result<()> {
    mangrove_bench::run_with(args, &mangrove_peers::all())
}

#[cfg(not(feature = "peers"))]
fn map(args: mangrove_bench::MapArgs) -> anyhow::Result<()> {
    mangrove_bench::run(args)
}

#[cfg(feature = "peers")]
fn txn(args: mangrove_bench::TxnArgs) -> anyhow::Result<()> {
    mangrove_bench::run_txn(args, &mangrove_peers::transactions())
}

#[cfg(not(feature = "peers"))]
fn txn(args: mangrove_bench::TxnArgs) -> anyhow::Result<()> {
    mangrove_bench::run_txn(args, &[])
}

fn is_usage(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(
        cause.downcast_ref::<Error>(),
        Some(Error::KeyTooLong { .. } | Error::ValueTooLong { .. } | Error::Unsupported { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_an_error_and_a_reader_that_is_gone_is_none() {
        let server: io::Result<()> = Err(io::ErrorKind::BrokenPipe.into());
        assert_eq!(code(&server.context("cannot send").unwrap_err()), 3);
        let reader: anyhow::Result<()> = Err(OutputUnread.into());
        assert_eq!(code(&reader.context("the section floors").unwrap_err()), 0);
    }
}
