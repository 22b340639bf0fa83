//! `cargo xtask redis-replication`: the durable server as a primary and as a replica of stock servers, in a Cluster,
//! and under Sentinel, with SIGKILL in all of them.

use super::counters::{catch_up, compare, offset, wait_until};
use super::crowd::ClientCrowd;
use super::fleet::{FleetBench, Synchronisations, port};
use super::operation::DEADLINES;
use super::resp::{Address, RespConnection};
use super::server::{self, Programs, ServerKind, Setup, ValkeyServer};
use super::{cluster, sentinel};
use crate::tree;
use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Clients of the first two cases, and different keys of each kind.
const CLIENT_COUNT: usize = 4;
const KEY_COUNT: u64 = 60;
/// Operations between two kills.
const OPERATION_COUNT: u64 = 3_000;
/// Batches of a client, one in so many, that begin with a flood of answers.
const FLOODS: u32 = 50;

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
    #[arg(long, value_enum, default_value_t = ServerKind::Durable)]
    kind: ServerKind,
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
    let folder = tree::RunFolder::of(None, "redis-replication")?;
    let dir = folder.path.clone();
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir)?;
    let all = [Case::Primary, Case::Replica, Case::Cluster, Case::Sentinel];
    let cases = if args.only.is_empty() { all.to_vec() } else { args.only };
    for case in cases {
        let mut bench = FleetBench {
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

/// Runs the clients on `address` until so many operations were acknowledged; `end` then ends their connections.
fn work(
    bench: &mut FleetBench,
    crowd: &mut ClientCrowd,
    address: &Address,
    end: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let after = bench.rng.random_range(OPERATION_COUNT / 3..OPERATION_COUNT);
    crowd.work(address, &mut bench.rng, |acknowledged, _| {
        let waited = wait_until("the clients have enough answers", Duration::from_secs(300), || {
            Ok(acknowledged.load(Ordering::Relaxed) >= after)
        });
        end()?;
        waited.map(|_| ())
    })
}

fn end_clients(connection: &mut RespConnection) -> Result<()> {
    connection.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])?;
    Ok(())
}

/// A durable primary and its stock replica.
struct Pair {
    durable: Setup,
    server: ValkeyServer,
    primary: RespConnection,
    replica: RespConnection,
}

impl Pair {
    /// Starts the primary, which was killed, again. Its replica has nothing that it lost, and goes on by the stream if
    /// it had all of it.
    fn resume(&mut self, bench: &mut FleetBench, what: &str) -> Result<Synchronisations> {
        let Self { durable, server, primary, replica } = self;
        wait_until("the replica notices", Duration::from_secs(300), || {
            Ok(replica.info("replication", "master_link_status")? == "down")
        })?;
        let received = offset(replica)?;
        (*server, *primary) = durable.start()?;
        let kept = offset(primary)?;
        if received > kept {
            bench
                .findings
                .push(format!("{what}: the replica has {received} bytes of the stream, its primary {kept}"));
        }
        catch_up(primary, replica)?;
        let made = Synchronisations::of(primary)?;
        if received == kept && made.full > 0 {
            let finding = format!(
                "{what}: a full synchronisation, though the replica had all {kept} bytes of the stream"
            );
            bench.findings.push(finding);
        }
        Ok(made)
    }
}

/// A stock replica never has what its primary lost, and goes on after each of its kills: by the stream where it had all
/// of the durable one, which is always so in a pause.
fn primary(bench: &mut FleetBench) -> Result<String> {
    let durable = bench.durable("primary", 0)?;
    let stock = follow(bench.stock("replica", 0)?, &durable);
    let (server, primary) = durable.start()?;
    let (_replica, replica) = stock.start()?;
    let mut pair = Pair { durable, server, primary, replica };
    ClientCrowd::prepare(&mut pair.primary)?;
    catch_up(&mut pair.primary, &mut pair.replica)?;
    pair.server.kill()?;
    let (mut busy, mut idle) = (Synchronisations::default(), pair.resume(bench, "without load")?);
    let mut crowd = ClientCrowd::new(CLIENT_COUNT, KEY_COUNT, FLOODS);
    for round in 0..bench.rounds {
        let is_idle = !round.is_multiple_of(2);
        let address = pair.durable.address.clone();
        if is_idle {
            work(bench, &mut crowd, &address, || end_clients(&mut pair.primary))?;
            pair.primary = RespConnection::open(&address)?;
            // The stream ends with the deletion of the keys that expire.
            std::thread::sleep(DEADLINES);
            crowd.settle(&mut pair.primary)?;
            catch_up(&mut pair.primary, &mut pair.replica)?;
            pair.server.kill()?;
        } else {
            work(bench, &mut crowd, &address, || pair.server.kill())?;
        }
        let what = format!("round {round}");
        let made = pair.resume(bench, &what)?;
        if is_idle { &mut idle } else { &mut busy }.add(made);
        std::thread::sleep(DEADLINES);
        crowd.settle(&mut pair.primary)?;
        bench.findings.append(&mut crowd.findings);
        catch_up(&mut pair.primary, &mut pair.replica)?;
        compare(&what, &mut pair.primary, &mut pair.replica, &mut bench.findings)?;
    }
    ensure!(idle.partial > 0, "no replica went on by the stream");
    Ok(format!(
        "{} operations, {} kills of the primary: 0 lost, the replica equal; under load {busy}, in a pause {idle}",
        crowd.acknowledged,
        bench.rounds + 1
    ))
}

/// A durable replica has what it had before a kill, and continues by the stream. One that was a primary meanwhile
/// synchronises in full.
fn replica(bench: &mut FleetBench) -> Result<String> {
    let stock = bench.stock("primary", 0)?;
    let alone = bench.durable("replica", 0)?;
    let durable = follow(alone.clone(), &stock);
    let (_primary, mut primary) = stock.start()?;
    let (mut server, mut replica) = durable.start()?;
    ClientCrowd::prepare(&mut primary)?;
    catch_up(&mut primary, &mut replica)?;
    let mut killed = Synchronisations::default();
    let mut crowd = ClientCrowd::new(CLIENT_COUNT, KEY_COUNT, FLOODS);
    for round in 0..bench.rounds {
        let before = Synchronisations::of(&mut primary)?;
        let mut ending = RespConnection::open(&stock.address)?;
        work(bench, &mut crowd, &stock.address, || {
            let killed = server.kill();
            // In any case: the clients' server, the primary, keeps running.
            end_clients(&mut ending)?;
            killed
        })?;
        // `end_clients` has ended this chore's connection, too.
        primary = RespConnection::open(&stock.address)?;
        (server, replica) = durable.start()?;
        std::thread::sleep(DEADLINES);
        crowd.settle(&mut primary)?;
        bench.findings.append(&mut crowd.findings);
        catch_up(&mut primary, &mut replica)?;
        compare(&format!("round {round}, following"), &mut primary, &mut replica, &mut bench.findings)?;
        let made = Synchronisations::of(&mut primary)?.since(before);
        if made.full > 0 {
            bench
                .findings
                .push(format!("round {round}: a full synchronisation of a replica that was killed"));
        }
        killed.add(made);
        server.kill()?;
        let (mut lonely, mut kept) = alone.start()?;
        compare(&format!("round {round}, alone after a kill"), &mut primary, &mut kept, &mut bench.findings)?;
        lonely.kill()?;
        (server, replica) = durable.start()?;
        catch_up(&mut primary, &mut replica)?;
    }
    Ok(format!(
        "{} operations, {} kills of the replica: equal to its primary; after those under load {killed}",
        crowd.acknowledged,
        2 * bench.rounds
    ))
}
