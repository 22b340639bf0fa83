//! `cargo xtask redis-replication`: the durable server as a primary and as a replica of stock servers, in a Cluster,
//! and under Sentinel, with SIGKILL in all of them.

use super::client::{self, Ledger, Shared};
use super::counters::{catch_up, compare, offset, wait_until};
use super::fleet::{Bench, port, synchronisations};
use super::operation;
use super::resp::{Address, Connection};
use super::server::{self, Kind, Programs, Setup};
use super::survey::{self, Survey};
use super::{cluster, sentinel};
use crate::tree;
use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clients of the first two cases, and different keys of each kind.
const CLIENT_COUNT: usize = 4;
const KEY_COUNT: u64 = 60;
/// Operations between two kills.
const OPERATION_COUNT: u64 = 3_000;
/// After this long all keys with near deadlines have expired.
const DEADLINES: Duration = Duration::from_millis(750);

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kills in each case
    #[arg(long, default_value_t = 5)]
    rounds: u16,
    /// Chooses instants, keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the states lie on: file, emulated, emulated=WRITE/READ
    #[arg(long, default_value = "file")]
    medium: String,
    /// Cases, comma separated; all when left out
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Case>,
    /// In the place of the durable server
    #[arg(long, value_enum, default_value_t = Kind::Durable)]
    kind: Kind,
    #[command(flatten)]
    programs: Programs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// A stock replica follows a durable primary
    Primary,
    /// A durable replica follows a stock primary
    Replica,
    /// Three durable primaries with a stock replica each
    Cluster,
    /// A durable primary with a stock replica under three Sentinels
    Sentinel,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let dir = tree::target().join("redis-replication");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir)?;
    let all = [Case::Primary, Case::Replica, Case::Cluster, Case::Sentinel];
    let cases = if args.only.is_empty() { all.to_vec() } else { args.only };
    for case in cases {
        let mut bench = Bench {
            rounds: args.rounds,
            rng: StdRng::seed_from_u64(args.seed),
            findings: Vec::new(),
            kind: args.kind,
            medium: server::medium(&args.medium)?,
            programs: args.programs.clone(),
            dir: dir.canonicalize()?.join(format!("{case:?}")),
        };
        let summary = match case {
            Case::Primary => primary(&mut bench),
            Case::Replica => replica(&mut bench),
            Case::Cluster => cluster::run(&mut bench),
            Case::Sentinel => sentinel::run(&mut bench),
        };
        let summary = summary.with_context(|| format!("{case:?}; directories in {}", bench.dir.display()))?;
        println!("{case:?}: {summary}");
        bench.findings.iter().take(10).for_each(|finding| println!("  {finding}"));
        ensure!(
            bench.findings.is_empty(),
            "{} findings; directories in {}; repeat with: cargo xtask redis-replication --only {} --rounds {} --seed {}",
            bench.findings.len(),
            dir.display(),
            format!("{case:?}").to_lowercase(),
            args.rounds,
            args.seed
        );
    }
    std::fs::remove_dir_all(&dir).context("cannot remove the directories")
}

fn follow(setup: Setup, primary: &Setup) -> Setup {
    let of = port(primary).to_string();
    let mut setup = setup;
    setup.directives.extend(["--replicaof".into(), "127.0.0.1".into(), of]);
    setup
}

/// Runs clients on `address` until so many operations were acknowledged; `end` then ends their connections.
fn work(
    bench: &mut Bench,
    address: &Address,
    ledgers: &mut Vec<Ledger>,
    end: impl FnOnce() -> Result<()>,
) -> Result<u64> {
    let shared = Shared {
        address: address.clone(),
        keys: KEY_COUNT,
        evicts: false,
        floods: 50,
        told: (0..CLIENT_COUNT).map(|_| AtomicU64::new(0)).collect(),
        acknowledged: AtomicU64::new(0),
        read: AtomicU64::new(0),
    };
    ledgers.resize_with(CLIENT_COUNT, Ledger::default);
    let after = bench.rng.random_range(OPERATION_COUNT / 3..OPERATION_COUNT);
    let seeds: Vec<u64> = (0..CLIENT_COUNT).map(|_| bench.rng.random()).collect();
    let taken = std::mem::take(ledgers);
    let (worked, ended) = std::thread::scope(|scope| {
        let shared = &shared;
        let works: Vec<_> = taken
            .into_iter()
            .zip(seeds)
            .enumerate()
            .map(|(client, (ledger, seed))| {
                scope.spawn(move || client::work(shared, client, ledger, StdRng::seed_from_u64(seed)))
            })
            .collect();
        let waited = wait_until("the clients have enough answers", Duration::from_secs(120), || {
            Ok(shared.acknowledged.load(Ordering::Relaxed) >= after)
        });
        let ended = end();
        let worked: Vec<Ledger> = works
            .into_iter()
            .map(|work| work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (worked, waited.and(ended))
    });
    *ledgers = worked;
    for (ledger, told) in ledgers.iter_mut().zip(&shared.told) {
        bench.findings.append(&mut ledger.findings);
        ledger.told = told.load(Ordering::Relaxed).max(ledger.told);
    }
    ended?;
    Ok(shared.acknowledged.into_inner())
}

fn end_clients(connection: &mut Connection) -> Result<()> {
    connection.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
    Ok(())
}

/// Compares every client's database with its ledger; on a primary this deletes the keys that have expired.
fn settle(bench: &mut Bench, connection: &mut Connection, ledgers: &mut [Ledger]) -> Result<()> {
    for (client, ledger) in ledgers.iter_mut().enumerate() {
        let survey = Survey::take(connection, client::database(client), &mut bench.findings)?;
        if let Some(finding) = survey.settle(ledger, ledger.told, false) {
            bench.findings.push(format!("client {client}: {finding}"));
        }
    }
    survey::audit_accounts(connection, &mut bench.findings)
}

fn prepare(connection: &mut Connection) -> Result<()> {
    connection.ask(&["FUNCTION", "LOAD", "REPLACE", &operation::library()])?;
    survey::open_accounts(connection)
}

/// A stock replica never has what its primary lost, and continues after each of its kills.
fn primary(bench: &mut Bench) -> Result<String> {
    let durable = bench.durable("primary", 0)?;
    let stock = follow(bench.stock("replica", 0)?, &durable);
    let (mut server, mut primary) = durable.start()?;
    let (_replica, mut replica) = stock.start()?;
    prepare(&mut primary)?;
    catch_up(&mut primary, &mut replica)?;
    let (mut acknowledged, mut full, mut partial) = (0, 0, 0);
    let mut ledgers = Vec::new();
    for round in 0..bench.rounds {
        acknowledged += work(bench, &durable.address, &mut ledgers, || server.kill())?;
        wait_until("the replica notices", Duration::from_secs(20), || {
            Ok(replica.info("replication", "master_link_status")? == "down")
        })?;
        let received = offset(&mut replica)?;
        (server, primary) = durable.start()?;
        let kept = offset(&mut primary)?;
        if received > kept {
            let finding =
                format!("round {round}: the replica has {received} bytes of the stream, its primary {kept}");
            bench.findings.push(finding);
        }
        std::thread::sleep(DEADLINES);
        settle(bench, &mut primary, &mut ledgers)?;
        catch_up(&mut primary, &mut replica)?;
        compare(&format!("round {round}"), &mut primary, &mut replica, &mut bench.findings)?;
        let (f, p) = synchronisations(&mut primary)?;
        (full, partial) = (full + f, partial + p);
    }
    Ok(format!(
        "{acknowledged} operations, {} kills of the primary: 0 lost, the replica equal; {full} full and {partial} \
         partial synchronisations",
        bench.rounds
    ))
}

/// A durable replica has what it had before a kill, and continues.
fn replica(bench: &mut Bench) -> Result<String> {
    let stock = bench.stock("primary", 0)?;
    let alone = bench.durable("replica", 0)?;
    let durable = follow(alone.clone(), &stock);
    let (_primary, mut primary) = stock.start()?;
    let (mut server, _) = durable.start()?;
    prepare(&mut primary)?;
    let mut acknowledged = 0;
    let mut ledgers = Vec::new();
    for round in 0..bench.rounds {
        let mut ending = Connection::open(&stock.address)?;
        acknowledged += work(bench, &stock.address, &mut ledgers, || {
            server.kill()?;
            end_clients(&mut ending)
        })?;
        // `end_clients` has ended this chore's connection, too.
        primary = Connection::open(&stock.address)?;
        let mut replica;
        (server, replica) = durable.start()?;
        std::thread::sleep(DEADLINES);
        settle(bench, &mut primary, &mut ledgers)?;
        catch_up(&mut primary, &mut replica)?;
        compare(&format!("round {round}, following"), &mut primary, &mut replica, &mut bench.findings)?;
        server.kill()?;
        let (mut lonely, mut kept) = alone.start()?;
        compare(&format!("round {round}, alone after a kill"), &mut primary, &mut kept, &mut bench.findings)?;
        lonely.kill()?;
        (server, replica) = durable.start()?;
        catch_up(&mut primary, &mut replica)?;
    }
    Ok(format!("{acknowledged} operations, {} kills of the replica: equal to its primary", 2 * bench.rounds))
}
