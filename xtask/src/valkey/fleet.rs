//! What the cases of `redis-replication` have in common: how their servers are made, and what is asked of them.

use super::resp::{Address, Connection};
use super::server::{self, Kind, Programs, Setup};
use anyhow::Result;
use rand::rngs::StdRng;
use std::path::PathBuf;

/// What the cases have in common.
pub(super) struct Bench {
    pub(super) rounds: u16,
    pub(super) rng: StdRng,
    pub(super) findings: Vec<String>,
    pub(super) kind: Kind,
    pub(super) medium: String,
    pub(super) programs: Programs,
    pub(super) dir: PathBuf,
}

impl Bench {
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
        let setup = Setup::new(Kind::Nothing, &self.programs, self.dir.join(name), address)?;
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

/// How often a server has synchronised its replicas since its start: in full, in part.
pub(super) fn synchronisations(connection: &mut Connection) -> Result<(u64, u64)> {
    let mut count = |name| -> Result<u64> { Ok(connection.info("stats", name)?.parse()?) };
    Ok((count("sync_full")?, count("sync_partial_ok")?))
}
