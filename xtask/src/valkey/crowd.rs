//! Some clients of one server and what they know: runs them, and compares what the server has with it.

use super::client::{self, ClientLedger, Shared};
use super::operation;
use super::resp::{Address, RespConnection};
use super::survey::{self, Survey};
use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};

/// The clients of a server, which has no others.
pub(crate) struct ClientCrowd {
    ledgers: Vec<ClientLedger>,
    /// Different keys of each kind, for each client.
    keys: u64,
    /// One batch in so many begins with a flood of answers.
    pub(super) floods: u32,
    /// Whether the clients have so much data that a server under a limit evicts keys.
    pub(super) evicts: bool,
    /// Whether one more connection for each client only reads, one command at a time.
    pub(super) listens: bool,
    /// Operations that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Answers about other clients' keys.
    pub(super) read: u64,
    /// Keys that were compared.
    pub(crate) compared: u64,
    /// What is lost, torn, or answered as no server should.
    pub(crate) findings: Vec<String>,
}

impl ClientCrowd {
    /// `clients` that know of nothing.
    pub(crate) fn new(clients: usize, keys: u64, floods: u32) -> Self {
        let ledgers = vec![ClientLedger::default(); clients];
        Self {
            ledgers,
            keys,
            floods,
            evicts: false,
            listens: false,
            acknowledged: 0,
            read: 0,
            compared: 0,
            findings: Vec::new(),
        }
    }

    /// The same clients with a server that has nothing.
    pub(crate) fn forget(&mut self) {
        self.ledgers.fill(ClientLedger::default());
    }

    /// Stores what the operations rest on: the accounts and the library.
    pub(crate) fn prepare(connection: &mut RespConnection) -> Result<()> {
        connection.ask(&["FUNCTION", "LOAD", "REPLACE", &operation::library()])?;
        survey::open_accounts(connection)
    }

    /// Runs the clients. `end` gets the numbers of acknowledged operations and of clients that have ended as they grow,
    /// and ends the clients' connections.
    pub(crate) fn work<T>(
        &mut self,
        address: &Address,
        rng: &mut StdRng,
        end: impl FnOnce(&AtomicU64, &AtomicU64) -> Result<T>,
    ) -> Result<T> {
        let shared = Shared {
            address: address.clone(),
            keys: self.keys,
            evicts: self.evicts,
            floods: self.floods,
            told: self.ledgers.iter().map(|_| AtomicU64::new(0)).collect(),
            acknowledged: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            read: AtomicU64::new(0),
        };
        let seeds: Vec<u64> = self.ledgers.iter().map(|_| rng.random()).collect();
        let listeners: Vec<u64> =
            if self.listens { seeds.iter().map(|_| rng.random()).collect() } else { Vec::new() };
        let ledgers = std::mem::take(&mut self.ledgers);
        let (ledgers, ended) = std::thread::scope(|scope| {
            let shared = &shared;
            let works: Vec<_> = ledgers
                .into_iter()
                .zip(seeds)
                .enumerate()
                .map(|(client, (ledger, seed))| {
                    scope.spawn(move || client::work(shared, client, ledger, StdRng::seed_from_u64(seed)))
                })
                .collect();
            for (of, seed) in listeners.into_iter().enumerate() {
                scope.spawn(move || client::listen(shared, of, StdRng::seed_from_u64(seed)));
            }
            let ended = end(&shared.acknowledged, &shared.ended);
            let ledgers: Vec<ClientLedger> = works
                .into_iter()
                .map(|work| work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            (ledgers, ended)
        });
        self.ledgers = ledgers;
        for (ledger, told) in self.ledgers.iter_mut().zip(&shared.told) {
            self.findings.append(&mut ledger.findings);
            ledger.told = told.load(Ordering::Relaxed).max(ledger.told);
        }
        self.acknowledged += shared.acknowledged.into_inner();
        self.read += shared.read.into_inner();
        ended
    }

    /// Compares every client's database with its ledger; on a primary this deletes the keys that have expired.
    pub(crate) fn settle(&mut self, connection: &mut RespConnection) -> Result<()> {
        for (client, ledger) in self.ledgers.iter_mut().enumerate() {
            let survey = Survey::take(connection, client::database(client), &mut self.findings)?;
            self.compared += survey.len();
            if let Some(finding) = survey.settle(ledger, ledger.told, self.evicts) {
                self.findings.push(format!("client {client}: {finding}"));
            }
        }
        survey::audit_accounts(connection, &mut self.findings)
    }
}
