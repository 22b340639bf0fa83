//! The chores of this repository: `cargo xtask NAME`.

mod apps;
mod ci;
mod crash;
mod debian;
mod fuzz;
mod instructions;
mod kill9;
mod oldest_rust;
mod packages;
mod powercut;
mod redis;
mod space;
mod tidy;
mod tla;
mod tracker_suite;
mod tree;
mod valkey;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of this repository", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that `make test` runs: format, lints, tests, and a slice of each proof below.
    Ci(ci::Args),
    /// Crash simulator: every crash image the fault model allows, and planted bugs.
    Crash(crash::Args),
    /// Debian packages: build them, install them in an empty Debian, use and remove them. Needs root.
    Debian(debian::Args),
    /// Fuzz pool opening, log parsing, and operations with crashes against a reference map.
    Fuzz(fuzz::Args),
    /// Instructions per transaction, counted by single steps, against the golden table; `BLESS=1` renews it.
    Instructions,
    /// SIGKILL the real binary at random instants while it writes; reopen and verify.
    Kill9(kill9::Args),
    /// Compile every library and program with the oldest Rust that the manifests name; its tests too if asked.
    OldestRust(oldest_rust::Args),
    /// Pack every crate that is to be published, and compile the command from the packed crates alone.
    Packages(packages::Args),
    /// Cut the power of a virtual machine while it loads; boot again and verify.
    Powercut(powercut::Args),
    /// Client libraries, redis-py and ioredis, with the durable server over SIGKILL.
    RedisClients(valkey::clients::Args),
    /// The durable server at its maxmemory.
    RedisMemory(valkey::memory::Args),
    /// Durable and stock servers as primaries and replicas, in a Cluster and under Sentinel, with kills.
    RedisReplication(valkey::replication::Args),
    /// Mixed load of the durable server for minutes: memory, log and lazy frees stay bounded, and crashes leak nothing.
    RedisSoak(valkey::soak::Args),
    /// Valkey's own tests with the durable server in the place of its own.
    RedisSuite(valkey::suite::Args),
    /// Disk and memory after nine of ten records were deleted: map, LevelDB's API, a durable application, a heap.
    Space(space::Args),
    /// Rules of the sources' structure: circles of files, long lines and files, floors, names in documents.
    Tidy(tidy::Args),
    /// Check every TLA+ model in specs/ to completion, and each with a safety step removed.
    Tla(tla::Args),
    /// Instruction classes, libraries and programs under the tracker: missed bytes and slowdowns.
    TrackerSuite(tracker_suite::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().chore {
        Chore::Ci(args) => ci::run(args),
        Chore::Crash(args) => crash::run(args),
        Chore::Debian(args) => debian::run(&args),
        Chore::Fuzz(args) => fuzz::run(args),
        Chore::Instructions => instructions::run(),
        Chore::Kill9(args) => kill9::run(args),
        Chore::OldestRust(args) => oldest_rust::run(&args),
        Chore::Packages(args) => packages::run(&args),
        Chore::Powercut(args) => powercut::run(args),
        Chore::RedisClients(args) => valkey::clients::run(args),
        Chore::RedisMemory(args) => valkey::memory::run(args),
        Chore::RedisReplication(args) => valkey::replication::run(args),
        Chore::RedisSoak(args) => valkey::soak::run(args),
        Chore::RedisSuite(args) => valkey::suite::run(args),
        Chore::Space(args) => space::run(&args),
        Chore::Tidy(args) => tidy::run(args),
        Chore::Tla(args) => tla::run(args),
        Chore::TrackerSuite(args) => tracker_suite::run(args),
    }
}
