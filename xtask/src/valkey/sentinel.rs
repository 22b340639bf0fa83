//! A durable primary with a stock replica under three Sentinels: the two cases of `cluster.rs`.

use super::counters::{Due, KeyCounters, catch_up, compare, offset, role, wait_until, wait_until_due};
use super::fleet::{FleetBench, Synchronisations, port};
use super::resp::RespConnection;
use super::server::ValkeyServer;
use anyhow::{Context, Result};
use rand::Rng;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SENTINEL_COUNT: usize = 3;
/// A primary that is silent for so many milliseconds is down.
const DOWN_MS: u32 = 5_000;
const LIMIT: Duration = Duration::from_secs(300);

/// Sentinels; killed when dropped.
struct Sentinels(Vec<Child>);

impl Drop for Sentinels {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start_sentinels(bench: &FleetBench, primary: u16) -> Result<Sentinels> {
    let mut sentinels = Sentinels(Vec::new());
    for number in 0..SENTINEL_COUNT {
        let setup = bench.stock(&format!("sentinel-{number}"), 0)?;
        std::fs::create_dir_all(&setup.dir)?;
        let file = setup.dir.join("sentinel.conf");
        let text = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor one 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds one {DOWN_MS}\nsentinel failover-timeout one 10000\n",
            port(&setup),
            setup.dir.display()
        );
        std::fs::write(&file, text)?;
        let log = std::fs::File::create(setup.log())?;
        let mut command = Command::new(&setup.program);
        command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        sentinels.0.push(command.spawn().context("cannot start a Sentinel")?);
        let mut connection = None;
        wait_until("the Sentinel answers", LIMIT, || {
            connection = RespConnection::open(&setup.address).ok();
            Ok(connection.is_some())
        })?;
    }
    Ok(sentinels)
}

/// Writes, kills, and ends the writer.
fn write_and_kill(
    bench: &mut FleetBench,
    address: &super::resp::Address,
    counters: &mut KeyCounters,
    server: &mut ValkeyServer,
    waits: bool,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let (seed, pause) = (bench.rng.random(), Duration::from_millis(bench.rng.random_range(100..1_000)));
    let due = [AtomicU64::new(0)];
    std::thread::scope(|scope| {
        scope.spawn(|| counters.write(address, seed, waits, &stop, &due[0]));
        std::thread::sleep(pause);
        let written = wait_until_due(&due, LIMIT);
        let killed = server.kill();
        stop.store(true, Ordering::Relaxed);
        written.and(killed)
    })
}

/// The case.
pub(super) fn run(bench: &mut FleetBench) -> Result<String> {
    let durable = bench.durable("primary", 0)?;
    let mut stock = bench.stock("replica", 0)?;
    stock.directives.extend(["--replicaof".into(), "127.0.0.1".into(), port(&durable).to_string()]);
    let (mut server, mut primary) = durable.start()?;
    let (_replica, mut replica) = stock.start()?;
    catch_up(&mut primary, &mut replica)?;
    let _sentinels = start_sentinels(bench, port(&durable))?;
    // Sentinels learn of replicas and of each other by messages that come every ten and two seconds.
    std::thread::sleep(Duration::from_secs(12));
    let mut counters = KeyCounters::new("one");
    let mut made = Synchronisations::default();
    for round in 0..bench.rounds {
        write_and_kill(bench, &durable.address, &mut counters, &mut server, false)?;
        wait_until("the replica notices", LIMIT, || {
            Ok(replica.info("replication", "master_link_status")? == "down")
        })?;
        let received = offset(&mut replica)?;
        (server, primary) = durable.start()?;
        let kept = offset(&mut primary)?;
        if received > kept {
            bench
                .findings
                .push(format!("round {round}: the replica has {received} bytes, its primary {kept}"));
        }
        catch_up(&mut primary, &mut replica)?;
        if role(&mut primary)? != "master" {
            bench
                .findings
                .push(format!("round {round}: the primary was replaced, though it came back at once"));
        }
        counters.check(&mut primary, Due::Acknowledged, &mut bench.findings)?;
        made.add(Synchronisations::of(&mut primary)?);
    }
    write_and_kill(bench, &durable.address, &mut counters, &mut server, true)?;
    // A Sentinel ends all connections of the server that it promotes.
    wait_until("the replica is promoted", LIMIT, || {
        let Ok(mut connection) = RespConnection::open(&stock.address) else { return Ok(false) };
        Ok(role(&mut connection).is_ok_and(|role| role == "master"))
    })?;
    replica = RespConnection::open(&stock.address).context("cannot connect to the promoted replica")?;
    counters.check(&mut replica, Due::Waited, &mut bench.findings)?;
    let _server = durable.start()?;
    wait_until("the old primary follows", LIMIT, || {
        let Ok(mut connection) = RespConnection::open(&durable.address) else { return Ok(false) };
        Ok(role(&mut connection).is_ok_and(|role| role == "slave"))
    })?;
    let mut old = RespConnection::open(&durable.address).context("cannot connect to the old primary")?;
    catch_up(&mut replica, &mut old)?;
    compare("after a failover", &mut replica, &mut old, &mut bench.findings)?;
    Ok(format!(
        "{} writes acknowledged, {} kills with a restart at once: 0 lost, no failover, {made}; 1 kill until the \
         replica was promoted: what WAIT confirmed is there",
        counters.total, bench.rounds
    ))
}
