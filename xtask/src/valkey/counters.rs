//! Writers of counters, for servers with replicas: each key holds the number of its last write.

use super::resp::{Address, Reply, RespConnection, words};
use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of a writer.
pub(super) const KEY_COUNT: usize = 200;

/// What a writer knows of its keys.
#[derive(Clone, Debug)]
pub(super) struct KeyCounters {
    /// In the names of the keys; in a cluster it chooses the slot.
    pub(super) tag: String,
    sent: Vec<u64>,
    acknowledged: Vec<u64>,
    /// Acknowledged by a replica as well, by WAIT.
    waited: Vec<u64>,
    /// Writes that were acknowledged, in all.
    pub(super) total: u64,
}

/// How much of what was written must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Acknowledged,
    /// What WAIT 1 has confirmed.
    Waited,
}

impl KeyCounters {
    pub(super) fn new(tag: &str) -> Self {
        let none = || vec![0; KEY_COUNT];
        Self { tag: tag.into(), sent: none(), acknowledged: none(), waited: none(), total: 0 }
    }

    fn key(&self, number: usize) -> String {
        format!("{{{}}}:{number}", self.tag)
    }

    /// Writes until the connection ends or `stop` is set; `waits`: asks WAIT 1 after each pipeline. `due` counts the
    /// writes that are due after it: those that were acknowledged, or that WAIT has confirmed.
    pub(super) fn write(
        &mut self,
        address: &Address,
        seed: u64,
        waits: bool,
        stop: &AtomicBool,
        due: &AtomicU64,
    ) {
        let mut rng = StdRng::seed_from_u64(seed);
        let Ok(mut connection) = RespConnection::open(address) else { return };
        while !stop.load(Ordering::Relaxed) {
            match self.pipeline(&mut connection, &mut rng, waits) {
                // Relaxed: only a count.
                Ok(more) => due.fetch_add(more, Ordering::Relaxed),
                Err(_) => return,
            };
        }
    }

    fn pipeline(
        &mut self,
        connection: &mut RespConnection,
        rng: &mut StdRng,
        waits: bool,
    ) -> std::io::Result<u64> {
        let mut batch = Vec::new();
        for _ in 0..[1, 4, 16][rng.random_range(0..3)] {
            let number = rng.random_range(0..KEY_COUNT);
            self.sent[number] += 1;
            let value = self.sent[number];
            connection.add(&words(&["SET", &self.key(number), &value.to_string()]));
            batch.push((number, value));
        }
        if waits {
            connection.add(&words(&["WAIT", "1", "500"]));
        }
        connection.send()?;
        let mut acknowledged = 0;
        for (number, value) in &batch {
            if connection.read()? == Reply::Text(b"OK".to_vec()) {
                self.acknowledged[*number] = *value;
                self.total += 1;
                acknowledged += 1;
            }
        }
        if !waits {
            return Ok(acknowledged);
        }
        let is_confirmed = matches!(connection.read()?, Reply::Integer(replicas) if replicas > 0);
        if is_confirmed {
            batch.iter().for_each(|(number, value)| self.waited[*number] = *value);
        }
        Ok(if is_confirmed { acknowledged } else { 0 })
    }

    /// Compares what is there with what is due, and takes it as the new state.
    pub(super) fn check(
        &mut self,
        connection: &mut RespConnection,
        due: Due,
        findings: &mut Vec<String>,
    ) -> Result<()> {
        for number in 0..KEY_COUNT {
            let found = match connection.ask(&["GET", &self.key(number)])? {
                Reply::Nil => 0,
                value => value.string()?.parse::<u64>().context("a counter is a number")?,
            };
            let least = match due {
                Due::Acknowledged => self.acknowledged[number],
                Due::Waited => self.waited[number],
            };
            if found < least || found > self.sent[number] {
                let (key, sent) = (self.key(number), self.sent[number]);
                findings
                    .push(format!("{key} holds {found}; {least} is due at least ({due:?}), {sent} was sent"));
            }
            (self.acknowledged[number], self.waited[number]) = (found, found);
        }
        Ok(())
    }
}

/// Waits until each writer has written something that is due: otherwise a kill could lose nothing.
pub(super) fn wait_until_due(due: &[AtomicU64], limit: Duration) -> Result<()> {
    // Relaxed: only counts.
    let has_written = || due.iter().all(|due| due.load(Ordering::Relaxed) > 0);
    wait_until("each writer has been answered", limit, || Ok(has_written()))?;
    Ok(())
}

/// Waits until `f` holds.
pub(super) fn wait_until(
    what: &str,
    limit: Duration,
    mut f: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let since = Instant::now();
    while !f().with_context(|| format!("while waiting for this: {what}"))? {
        ensure!(since.elapsed() < limit, "this did not come in {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(since.elapsed())
}

/// A number of INFO replication: how far a server's or a replica's stream goes.
pub(super) fn offset(connection: &mut RespConnection) -> Result<u64> {
    let name = if role(connection)? == "master" { "master_repl_offset" } else { "slave_repl_offset" };
    connection.info("replication", name)?.parse().context("an offset is a number")
}

pub(super) fn role(connection: &mut RespConnection) -> Result<String> {
    connection.info("replication", "role")
}

/// Waits until a replica has all of its primary's stream, while nothing is written.
pub(super) fn catch_up(primary: &mut RespConnection, replica: &mut RespConnection) -> Result<()> {
    wait_until("the replica has the whole stream", Duration::from_secs(300), || {
        Ok(role(replica)? == "slave"
            && replica.info("replication", "master_link_status")? == "up"
            && offset(primary)? == offset(replica)?)
    })?;
    Ok(())
}

/// DEBUG DIGEST of both; a finding where they differ.
pub(super) fn compare(
    what: &str,
    one: &mut RespConnection,
    other: &mut RespConnection,
    findings: &mut Vec<String>,
) -> Result<()> {
    let (first, second) =
        (one.ask(&["DEBUG", "DIGEST"])?.string()?, other.ask(&["DEBUG", "DIGEST"])?.string()?);
    if first != second {
        findings.push(format!("{what}: DEBUG DIGEST is {first} and {second}"));
    }
    Ok(())
}
