//! What the cases of `redis-replication` have in common: how their servers are made, and what is asked of them.

use super::resp::{Address, RespConnection};
use super::server::{self, Programs, ServerKind, Setup};
use anyhow::Result;
use rand::rngs::StdRng;
use std::path::PathBuf;

/// What the cases have in common.
pub(super) struct FleetBench {
    pub(super) rounds: u16,
    pub(super) rng: StdRng,
    pub(super) findings: Vec<String>,
    pub(super) kind: ServerKind,
    pub(super) medium: String,
    pub(super) programs: Programs,
    pub(super) dir: PathBuf,
}

impl FleetBench {
    /// A durable server, or what is in its place.
    pub(super) fn durable(&self, name: &str, beyond: u16) -> Result<Setup> {
        let address = Address::Port(server::free_port(beyond)?);
        let mut setup = Setup::new(self.kind, &self.programs, self.dir.join(name), address)?;
        setup.medium.clone_from(&self.medium);
        Ok(setup.with("repl-diskless-sync-delay", "0").with("databases", "32"))
    }

    /// A stock server.
    pub(super) fn stock(&self, name: &str, beyond: u16) -> Result<Setup> {
        let address = Address::Port(server::free_port(beyond)?);
        let setup = Setup::new(ServerKind::Nothing, &self.programs, self.dir.join(name), address)?;
        Ok(setup.with("repl-diskless-sync-delay", "0").with("databases", "32"))
    }
}

/// The port of a setup.
pub(super) fn port(setup: &Setup) -> u16 {
    match setup.address {
        Address::Port(port) => port,
        Address::Unix(_) => 0,
    }
}

/// How often replicas were synchronised.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Synchronisations {
    /// By all data.
    pub(super) full: u64,
    /// By the rest of the stream.
    pub(super) partial: u64,
}

impl Synchronisations {
    /// Those that a server has made since its start.
    pub(super) fn of(connection: &mut RespConnection) -> Result<Self> {
        let mut count = |name| -> Result<u64> { Ok(connection.info("stats", name)?.parse()?) };
        Ok(Self { full: count("sync_full")?, partial: count("sync_partial_ok")? })
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self { full: self.full - before.full, partial: self.partial - before.partial }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.full += more.full;
        self.partial += more.partial;
    }
}

impl std::fmt::Display for Synchronisations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} full and {} partial synchronisations", self.full, self.partial)
    }
}
