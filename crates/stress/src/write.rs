//! `mangrove-stress write`: several threads put, update, delete and batch on shared keys until killed.

use crate::value::{WriterOperation, encode, mix};
use anyhow::Context;
use mangrove::{Batch, Durability, Map, Medium};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Write until killed. Says on standard output what it begins and what was acknowledged.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pool; created when it is not there
    pub(crate) pool: PathBuf,
    /// Writer threads
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) threads: u8,
    /// Number of this run; never used twice on one pool
    #[arg(long, default_value_t = 0)]
    pub(crate) round: u16,
    /// Different keys
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    /// Chooses keys, operations and value lengths
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Stop after so many seconds
    #[arg(long, default_value_t = 3600)]
    pub(crate) seconds: u64,
    /// Close the pool in order at the end, instead of leaving it as after a crash
    #[arg(long)]
    pub(crate) close: bool,
    /// When a write is acknowledged: sync, or interval=MS (a crash keeps a prefix, about MS old)
    #[arg(long, default_value = "sync", value_name = "sync|interval=MS")]
    pub(crate) durability: Durability,
    /// What a new pool lies on: auto, file, dax, emulated, emulated=W/R (added nanoseconds), or
    /// emulated=W/R/L (flushes queue, L nanoseconds a line, and fences wait)
    #[arg(long, default_value = "auto")]
    pub(crate) medium: Medium,
    /// The devdax device that holds the data of a new pool on dax
    #[arg(long)]
    pub(crate) devdax: Option<PathBuf>,
    /// Size of a new pool's redo log in MiB, like 64M
    #[arg(long, value_name = "SIZE", value_parser = mebibytes)]
    pub(crate) log: Option<u64>,
}

/// Reads `64M` as a number of bytes.
fn mebibytes(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('M').and_then(|digits| digits.parse::<u32>().ok());
    number.map(|n| u64::from(n) << 20).ok_or_else(|| format!("'{text}' is not a size; write it like 64M"))
}

/// A map of so few records compacts itself, too, so that kills meet that.
const COMPACTION_FROM_BYTES: u64 = 256 << 10;

/// Keys of a group that is only ever written and deleted as a whole, by batches.
pub(crate) const GROUP_KEYS: usize = 4;

/// Writes until the time is over; a process that is killed never returns from here.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut options = Map::options().durability(args.durability).medium(args.medium);
    options = options.background_compaction_from(COMPACTION_FROM_BYTES).background_recovery_from(0);
    if let Some(device) = &args.devdax {
        options = options.devdax(device);
    }
    if let Some(bytes) = args.log {
        options = options.log_bytes(bytes);
    }
    let map = options.open(&args.pool)?;
    let say = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    std::thread::scope(|scope| {
        for thread in 0..args.threads {
            let writer = Writer { map: &map, say: &say, args, thread, number: 0 };
            scope.spawn(move || or_end(writer.write_until(end)));
        }
    });
    if args.close {
        map.close()?;
        return Ok(());
    }
    std::process::exit(0);
}

/// Ends the process when a thread has failed: its other threads would hide the failure, for they work until they are
/// killed. No destructor or exit function runs, since one could wait for these threads.
pub(crate) fn or_end(result: anyhow::Result<()>) {
    if let Err(error) = result {
        eprintln!("mangrove: {error:#}");
        std::process::abort();
    }
}

/// The name of key number `i`: neighbours share long prefixes, so that threads meet in one tree and
/// in one chunk; lengths go up to the limit.
fn name(i: u64) -> String {
    match i % 8 {
        0..4 => format!("k{i:06}"),
        4 => format!("k{:06}/{}", i / 16 * 16, "x".repeat(i as usize % 300)),
        5 => format!("{}", i / 8),
        6 => format!("{:x}-{i}", mix(i)),
        _ => format!("long/{}{i}", "y".repeat(900)),
    }
}

struct Writer<'a> {
    map: &'a Map,
    say: &'a File,
    args: &'a Args,
    thread: u8,
    number: u32,
}

impl Writer<'_> {
    fn write_until(mut self, end: Instant) -> anyhow::Result<()> {
        let stream = u64::from(self.args.round) << 8 | u64::from(self.thread);
        let mut state = mix(self.args.seed ^ mix(stream));
        // 3 bytes of the short value form count operations.
        while Instant::now() < end && self.number < (1 << 24) - 1 {
            state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
            self.number += 1;
            self.step(state)?;
        }
        Ok(())
    }

    fn step(&self, noise: u64) -> anyhow::Result<()> {
        let key_number = (noise >> 8) % self.args.keys;
        let operation = WriterOperation { round: self.args.round, thread: self.thread, number: self.number };
        let noise_of_value = mix(noise);
        match noise % 16 {
            0 => {
                let group = format!("group{:04}", key_number / 16);
                self.begin('p', &group)?;
                let mut batch = Batch::new();
                for member in members(&group) {
                    // A long form: the length differs by member, the operation does not.
                    let value = encode(operation, member.as_bytes(), noise_of_value | 24);
                    batch.put(&member, value);
                }
                self.map.write(batch)?;
            }
            1 => {
                let group = format!("group{:04}", key_number / 16);
                self.begin('d', &group)?;
                if noise_of_value.is_multiple_of(2) {
                    let mut batch = Batch::new();
                    for member in members(&group) {
                        batch.delete(&member);
                    }
                    self.map.write(batch)?;
                } else {
                    self.map.delete_range(format!("{group}.")..format!("{group}/"))?;
                }
            }
            2..5 => {
                let key = name(key_number);
                self.begin('d', &key)?;
                self.map.delete(&key)?;
            }
            _ => {
                let key = name(key_number);
                self.begin('p', &key)?;
                self.map.put(&key, encode(operation, key.as_bytes(), noise_of_value))?;
            }
        }
        say(self.say, format_args!("< r{}t{} {}\n", self.args.round, self.thread, self.number))
    }

    fn begin(&self, kind: char, key: &str) -> anyhow::Result<()> {
        say(self.say, format_args!("> r{}t{} {} {kind} {key}\n", self.args.round, self.thread, self.number))
    }
}

/// Prints a line by one write(2) of at most PIPE_BUF bytes: lines of different threads do not mix.
pub(crate) fn say(mut out: &File, line: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    out.write_all(line.to_string().as_bytes()).context("cannot say what was done")
}

/// The keys of a group.
pub(crate) fn members(group: &str) -> impl Iterator<Item = String> {
    (0..GROUP_KEYS).map(move |i| format!("{group}.{i}"))
}
