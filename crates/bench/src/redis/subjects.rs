//! The servers that are compared: how each keeps its data, and how it is started.

use super::args::RedisArgs;
use super::processor::Pinning;
use super::server::RunningServer;
use super::server_dir::ServerDir;
use crate::report::report::OURS;
use anyhow::Context as _;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a server keeps its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerSubject {
    /// Its name in the report.
    pub(super) name: &'static str,
    is_durable: bool,
    /// Where its data lies. Emulated persistent memory is DRAM.
    pub(super) medium: &'static str,
    /// Whether what several commands of a batch wrote goes to the log once.
    pub(super) deduplicates: bool,
    /// Of a durable server, by the environment; of a stock one, directives.
    settings: &'static [(&'static str, &'static str)],
}

pub(super) const STOCK: &str = "Valkey";
pub(super) const EVERYSEC: &str = "AOF everysec";
/// The rival that the goals name.
pub(super) const ALWAYS: &str = "AOF always";
pub(super) const INTERVAL: &str = "Mangrove (interval 1 s)";
pub(super) const EMULATED: &str = "Mangrove (emulated 0/0)";

const DISK: &str = "disk";

const FILE: ServerSubject = ServerSubject {
    name: OURS,
    is_durable: true,
    medium: DISK,
    deduplicates: true,
    settings: &[("MANGROVE_REDIS_MEDIUM", "file")],
};
const SLOW_MEMORY: ServerSubject = ServerSubject {
    name: "Mangrove (emulated 300/100)",
    is_durable: true,
    medium: "300/100",
    deduplicates: true,
    // What is added to the 100 ns that DRAM is taken to have.
    settings: &[("MANGROVE_REDIS_MEDIUM", "emulated=200/0")],
};
const RIVAL: ServerSubject = ServerSubject { is_durable: false, ..FILE };
/// Valkey's own compaction of the append-only file is off: it would run beside some measurements and not beside others.
const NO_REWRITE: (&str, &str) = ("--auto-aof-rewrite-percentage", "0");

/// All of them; the first is what the others are compared with.
pub(super) const SUBJECTS: [ServerSubject; 7] = [
    FILE,
    ServerSubject {
        name: INTERVAL,
        settings: &[("MANGROVE_REDIS_MEDIUM", "file"), ("MANGROVE_REDIS_INTERVAL_MS", "1000")],
        ..FILE
    },
    ServerSubject {
        name: EMULATED,
        medium: "0/0",
        settings: &[("MANGROVE_REDIS_MEDIUM", "emulated=0/0")],
        ..SLOW_MEMORY
    },
    SLOW_MEMORY,
    ServerSubject { name: STOCK, settings: &[("--appendonly", "no")], ..RIVAL },
    ServerSubject {
        name: EVERYSEC,
        settings: &[("--appendonly", "yes"), ("--appendfsync", "everysec"), NO_REWRITE],
        ..RIVAL
    },
    ServerSubject {
        name: ALWAYS,
        settings: &[("--appendonly", "yes"), ("--appendfsync", "always"), NO_REWRITE],
        ..RIVAL
    },
];

/// Of `subjects`, those whose deduplication is measured, each with and without.
pub(super) fn dedup_pairs(subjects: &[ServerSubject]) -> Vec<ServerSubject> {
    let of = [
        (FILE, ServerSubject { name: "Mangrove, not deduplicated", deduplicates: false, ..FILE }),
        (
            SLOW_MEMORY,
            ServerSubject { name: "300/100, not deduplicated", deduplicates: false, ..SLOW_MEMORY },
        ),
    ];
    let wanted = of.into_iter().filter(|(with, _)| subjects.iter().any(|subject| subject.name == with.name));
    wanted.flat_map(|(with, without)| [with, without]).collect()
}

impl ServerSubject {
    /// Whether it is one of the section with many records.
    pub(super) fn is_for_large(&self) -> bool {
        [OURS, STOCK, ALWAYS].contains(&self.name)
    }

    /// The program.
    pub(super) fn program<'a>(&self, args: &'a RedisArgs) -> &'a Path {
        if self.is_durable { &args.server } else { &args.stock }
    }

    /// An empty directory for it.
    pub(super) fn dir(&self, args: &RedisArgs) -> anyhow::Result<ServerDir> {
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .collect();
        ServerDir::new(&name, self.medium != DISK, &args.dir)
    }

    /// Starts it over what its directory holds, and waits until it serves.
    pub(super) fn start(
        &self,
        args: &RedisArgs,
        pinning: &Pinning,
        dir: &Path,
    ) -> anyhow::Result<RunningServer> {
        let log = OpenOptions::new().append(true).create(true).open(dir.join("log"))?;
        let socket = RunningServer::new_socket();
        let mut command = Command::new(self.program(args));
        command.args(["--port", "0", "--unixsocket"]).arg(&socket).arg("--dir").arg(dir);
        command.args(["--save", "", "--io-threads", &args.io_threads.to_string()]);
        if self.is_durable {
            command.env("MANGROVE_REDIS_STATE", dir.join("mangrove")).envs(self.settings.iter().copied());
            if !self.deduplicates {
                command.env("MANGROVE_REDIS_CALLS_APART", "1");
            }
        } else {
            command.args(self.settings.iter().flat_map(|(name, value)| [name, value]));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = pinning.on_servers(|| {
            command.spawn().with_context(|| format!("cannot start {}", self.program(args).display()))
        })?;
        RunningServer::wait_for(child, socket, dir.to_owned())
    }
}
