//! Three durable primaries with a stock replica each, as a Cluster. A primary is killed while clients write.
//!
//! Restarted at once, it stays the primary, has all that it acknowledged, and its replica has nothing that it lost.
//! Kept down until its replica is promoted, it follows the replica, which has all that WAIT 1 has confirmed.

use super::counters::{Due, KeyCounters, catch_up, offset, role, wait_until, wait_until_due};
use super::fleet::{FleetBench, Synchronisations, port};
use super::resp::RespConnection;
use super::server::{Setup, ValkeyServer};
use anyhow::{Context, Result};
use rand::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PRIMARY_COUNT: usize = 3;
const SLOT_COUNT: usize = 16_384;
/// The bus is at the port and so many.
const BUS: u16 = 10_000;
/// A primary that is silent for so many milliseconds is replaced.
const NODE_TIMEOUT_MS: &str = "5000";
const LIMIT: Duration = Duration::from_secs(300);
/// A failover that was asked for and is not done by now has failed: the servers give it 5 s.
const ATTEMPT: Duration = Duration::from_secs(7);

/// A node.
struct Node {
    setup: Setup,
    server: ValkeyServer,
    connection: RespConnection,
}

impl Node {
    fn start(setup: Setup) -> Result<Self> {
        let setup = setup
            .with("cluster-enabled", "yes")
            .with("cluster-config-file", "nodes.conf")
            .with("cluster-node-timeout", NODE_TIMEOUT_MS);
        // A Cluster has one database.
        let mut setup = setup;
        setup.directives.extend(["--databases".into(), "1".into()]);
        let (server, connection) = setup.start()?;
        Ok(Self { setup, server, connection })
    }

    fn restart(&mut self) -> Result<()> {
        (self.server, self.connection) = self.setup.start()?;
        Ok(())
    }

    fn is_ready(&mut self) -> Result<bool> {
        let info = self.connection.ask(&["CLUSTER", "INFO"])?.string()?;
        Ok(info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6"))
    }
}

/// Makes the Cluster: primaries first, the replica of the i-th is the i-th after them.
fn make(bench: &FleetBench) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for number in 0..PRIMARY_COUNT {
        nodes.push(Node::start(bench.durable(&format!("primary-{number}"), BUS)?)?);
    }
    for number in 0..PRIMARY_COUNT {
        nodes.push(Node::start(bench.stock(&format!("replica-{number}"), BUS)?)?);
    }
    for (number, node) in nodes.iter_mut().enumerate() {
        node.connection.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        if number < PRIMARY_COUNT {
            let slot = |of: usize| (SLOT_COUNT * of).div_ceil(PRIMARY_COUNT);
            let (first, last) = (slot(number).to_string(), (slot(number + 1) - 1).to_string());
            node.connection.ask(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
    }
    let ports: Vec<u16> = nodes.iter().map(|node| port(&node.setup)).collect();
    for port in &ports[1..] {
        let bus = (port + BUS).to_string();
        nodes[0].connection.ask(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus])?;
    }
    wait_until("all nodes know each other", LIMIT, || {
        nodes.iter_mut().try_fold(true, |all, node| Ok(node.is_ready()? && all))
    })?;
    for number in 0..PRIMARY_COUNT {
        let id = nodes[number].connection.ask(&["CLUSTER", "MYID"])?.string()?;
        nodes[PRIMARY_COUNT + number].connection.ask(&["CLUSTER", "REPLICATE", &id])?;
    }
    for number in 0..PRIMARY_COUNT {
        let (primaries, replicas) = nodes.split_at_mut(PRIMARY_COUNT);
        catch_up(&mut primaries[number].connection, &mut replicas[number].connection)?;
    }
    Ok(nodes)
}

/// For each primary a tag whose slot it serves.
fn tags(nodes: &mut [Node]) -> Result<Vec<KeyCounters>> {
    let mut tags: Vec<Option<String>> = vec![None; PRIMARY_COUNT];
    for number in 0..100 {
        let tag = format!("t{number}");
        let slot = nodes[0].connection.ask(&["CLUSTER", "KEYSLOT", &tag])?.integer()? as usize;
        tags[slot * PRIMARY_COUNT / SLOT_COUNT].get_or_insert(tag);
    }
    let tags: Option<Vec<String>> = tags.into_iter().collect();
    Ok(tags.context("a hundred tags meet all primaries")?.iter().map(|tag| KeyCounters::new(tag)).collect())
}

/// Writes to all primaries, kills one, and ends the writers.
fn write_and_kill(
    bench: &mut FleetBench,
    nodes: &mut [Node],
    counters: &mut [KeyCounters],
    victim: usize,
    waits: bool,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let addresses: Vec<_> = nodes[..PRIMARY_COUNT].iter().map(|node| node.setup.address.clone()).collect();
    let seeds: Vec<u64> = addresses.iter().map(|_| bench.rng.random()).collect();
    let pause = Duration::from_millis(bench.rng.random_range(100..1_000));
    let due = [const { AtomicU64::new(0) }; PRIMARY_COUNT];
    std::thread::scope(|scope| {
        for (((counters, address), seed), due) in counters.iter_mut().zip(&addresses).zip(seeds).zip(&due) {
            let stop = &stop;
            scope.spawn(move || counters.write(address, seed, waits, stop, due));
        }
        std::thread::sleep(pause);
        let written = wait_until_due(&due, LIMIT);
        let killed = nodes[victim].server.kill();
        stop.store(true, Ordering::Relaxed);
        written.and(killed)
    })
}

/// The case.
pub(super) fn run(bench: &mut FleetBench) -> Result<String> {
    let mut nodes = make(bench)?;
    let mut counters = tags(&mut nodes)?;
    let mut made = Synchronisations::default();
    for round in 0..bench.rounds {
        let victim = bench.rng.random_range(0..PRIMARY_COUNT);
        write_and_kill(bench, &mut nodes, &mut counters, victim, false)?;
        let replica = &mut nodes[PRIMARY_COUNT + victim].connection;
        wait_until("the replica notices", LIMIT, || {
            Ok(replica.info("replication", "master_link_status")? == "down")
        })?;
        let received = offset(replica)?;
        nodes[victim].restart()?;
        let kept = offset(&mut nodes[victim].connection)?;
        if received > kept {
            bench
                .findings
                .push(format!("round {round}: the replica has {received} bytes, its primary {kept}"));
        }
        let node = &mut nodes[victim];
        wait_until("the Cluster is whole again", LIMIT, || node.is_ready())?;
        if role(&mut node.connection)? != "master" {
            bench
                .findings
                .push(format!("round {round}: the primary was replaced, though it came back at once"));
        }
        for (number, counters) in counters.iter_mut().enumerate() {
            counters.check(&mut nodes[number].connection, Due::Acknowledged, &mut bench.findings)?;
        }
        let (primaries, replicas) = nodes.split_at_mut(PRIMARY_COUNT);
        catch_up(&mut primaries[victim].connection, &mut replicas[victim].connection)?;
        made.add(Synchronisations::of(&mut primaries[victim].connection)?);
    }
    let failovers = bench.rounds.div_ceil(2);
    for round in 0..failovers {
        fail_over(bench, &mut nodes, &mut counters).with_context(|| format!("failover {round}"))?;
    }
    Ok(format!(
        "{} writes acknowledged, {} kills with a restart at once: 0 lost, {made}; {failovers} kills until a \
         replica was promoted: what WAIT confirmed is there",
        counters.iter().map(|counters| counters.total).sum::<u64>(),
        bench.rounds
    ))
}

/// Keeps a primary down until its replica is promoted, starts it, and gives it its slots back.
fn fail_over(bench: &mut FleetBench, nodes: &mut [Node], counters: &mut [KeyCounters]) -> Result<()> {
    let victim = bench.rng.random_range(0..PRIMARY_COUNT);
    write_and_kill(bench, nodes, counters, victim, true)?;
    let (primaries, replicas) = nodes.split_at_mut(PRIMARY_COUNT);
    let (old, new) = (&mut primaries[victim], &mut replicas[victim]);
    wait_until("the replica is promoted", LIMIT, || {
        Ok(role(&mut new.connection)? == "master" && new.is_ready()?)
    })?;
    counters[victim].check(&mut new.connection, Due::Waited, &mut bench.findings)?;
    old.restart()?;
    wait_until("the old primary follows", LIMIT, || Ok(role(&mut old.connection)? == "slave"))?;
    catch_up(&mut new.connection, &mut old.connection)?;
    super::counters::compare(
        "after a failover",
        &mut new.connection,
        &mut old.connection,
        &mut bench.findings,
    )?;
    let mut asked: Option<Instant> = None;
    wait_until("the old primary is the primary again", LIMIT, || {
        // Nodes whose connection to a restarted one is not back yet cannot give it their votes; the attempt ends then.
        if role(&mut old.connection)? == "slave" && asked.is_none_or(|asked| asked.elapsed() > ATTEMPT) {
            old.connection.ask(&["CLUSTER", "FAILOVER"])?;
            asked = Some(Instant::now());
        }
        Ok(role(&mut old.connection)? == "master" && old.is_ready()? && new.is_ready()?)
    })?;
    catch_up(&mut old.connection, &mut new.connection)?;
    for (number, counters) in counters.iter_mut().enumerate() {
        counters.check(&mut nodes[number].connection, Due::Acknowledged, &mut bench.findings)?;
    }
    Ok(())
}
