//! `cargo xtask kill9 --app redis`: SIGKILL of a server at random instants under pipelines of clients.
//!
//! Each client has a database of its own and a model of it; all of them move amounts between shared accounts and read
//! each other's newest values. After the kill the server is started again, and for each client some number of its
//! operations must explain all that is there: not less than were acknowledged, or read by another client. The sum of
//! the accounts stands, walks and lookups and counts agree, and DEBUG DIGEST is the same after a second kill.
//!
//! `--planted` leaves out one hook of the durable server after the other. `--kind` puts a stock server in the place of
//! the durable one: with `aof-always` the chore must pass, with `nothing` it must not.

use super::crowd::ClientCrowd;
use super::operation::DEADLINES;
use super::resp::RespConnection;
use super::server::{self, Programs, ServerKind, Setup, ValkeyServer};
use crate::tree::RunFolder;
use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The hooks that `--planted` leaves out, by the names that MANGROVE_REDIS_WITHOUT takes.
const PLANTS: [&str; 10] = [
    "seed",
    "policy",
    "setkey",
    "expiry",
    "eviction",
    "gate",
    "writeToClient",
    "io-threads",
    "commands",
    "unit",
];
/// Rounds that share one state before the next starts afresh.
const ROUNDS_PER_STATE: u16 = 10;
/// What the server may take beyond what it has at the start of a round, before it evicts. Replies that wait count, too:
/// where they leave no room for values a server answers OOM, as the stock one does with the same load.
const MEMORY_BYTES: u64 = 24 << 20;
/// A small log.
const LOG_BYTES: u64 = 4 << 20;
/// A server that acknowledges nothing for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// Findings that are shown.
const SHOWN_MAX: usize = 20;

/// What `cargo xtask kill9` was told.
pub(crate) struct KillCampaign {
    pub(crate) rounds: u16,
    pub(crate) threads: u8,
    pub(crate) seed: u64,
    /// Different keys of each kind, for each client.
    pub(crate) keys: u64,
    pub(crate) medium: String,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) planted: bool,
    pub(crate) plant: Option<String>,
    pub(crate) kind: ServerKind,
    pub(crate) programs: Programs,
}

/// The result of all rounds together.
#[derive(Default)]
struct Totals {
    killed_opening: u64,
    on_threads: u64,
    digests: u64,
    evicted: u64,
}

impl KillCampaign {
    /// Runs the rounds, or those of each plant.
    pub(crate) fn run(&self) -> Result<()> {
        if !self.planted {
            return self.rounds(None, self.rounds);
        }
        let plants = match &self.plant {
            Some(name) => vec![name.as_str()],
            None => PLANTS.to_vec(),
        };
        // What fails with every hook, as a server that is not built does, catches nothing.
        self.rounds(None, 1).context("with no hook left out")?;
        let mut missed = Vec::new();
        for plant in plants {
            match self.rounds(Some(plant), self.rounds) {
                Ok(()) => missed.push(plant),
                Err(error) => println!("planted, {plant}: caught: {}", first_line(&error)),
            }
        }
        if !missed.is_empty() {
            bail!("left out, and nothing noticed: {}", missed.join(", "));
        }
        Ok(())
    }

    fn rounds(&self, plant: Option<&str>, count: u16) -> Result<()> {
        let begun = Instant::now();
        let mut rounds = Rounds::new(self, plant)?;
        for round in 0..count {
            rounds.round(round).with_context(|| format!("round {round}"))?;
            if round % 20 == 19 {
                println!("{} of {count} rounds, {:.0} s", round + 1, begun.elapsed().as_secs_f64());
            }
            if !rounds.crowd.findings.is_empty() {
                return rounds.fail(round);
            }
        }
        let Rounds { crowd, totals, .. } = &rounds;
        println!(
            "kill9: redis ({}) on {}: {} rounds, {} clients, seed {}: {} operations acknowledged, {} reads answered, \
             {} keys verified, {} kills while opening, {} reads seen on I/O threads, {} digests equal over a kill, \
             {} keys evicted; 0 lost, 0 torn",
            plant.map_or_else(|| format!("{:?}", self.kind), |plant| format!("without {plant}")),
            self.medium,
            count,
            self.threads,
            self.seed,
            crowd.acknowledged,
            crowd.read,
            crowd.compared,
            totals.killed_opening,
            totals.on_threads,
            totals.digests,
            totals.evicted,
        );
        rounds.setup.forget()
    }

    /// The command that does the same again.
    fn command(&self, plant: Option<&str>, round: u16) -> String {
        let plant = plant.map_or_else(String::new, |plant| format!(" --planted --plant {plant}"));
        let kind =
            clap::ValueEnum::to_possible_value(&self.kind).map_or_else(String::new, |k| k.get_name().into());
        format!(
            "cargo xtask kill9 --app redis --kind {kind} --medium {} --threads {} --keys {} --seed {} --rounds {}{plant}",
            self.medium,
            self.threads,
            self.keys * KEYS_DIVISOR,
            self.seed,
            round + 1,
        )
    }
}

/// `kill9 --keys` counts what other programs have in all; a client here has so many of each kind.
pub(crate) const KEYS_DIVISOR: u64 = 20;

fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().chars().take(300).collect()
}

struct Rounds<'a> {
    campaign: &'a KillCampaign,
    plant: Option<&'a str>,
    setup: Setup,
    _folder: RunFolder,
    rng: StdRng,
    crowd: ClientCrowd,
    /// Whether accounts and library are there.
    is_prepared: bool,
    totals: Totals,
}

impl<'a> Rounds<'a> {
    fn new(campaign: &'a KillCampaign, plant: Option<&'a str>) -> Result<Self> {
        let name = plant.map_or_else(|| format!("{:?}", campaign.kind), str::to_owned);
        let folder = format!("kill9-redis-{name}-{}", campaign.medium.replace(['=', '/'], "-"));
        let folder = RunFolder::of(campaign.dir.as_deref(), &folder)?;
        let dir = folder.path.canonicalize()?.join("server");
        let socket = server::socket(&format!("kill9-{name}"));
        let mut setup = Setup::new(campaign.kind, &campaign.programs, dir, socket)?;
        setup.plant = plant.map(str::to_owned);
        setup.medium = server::medium(&campaign.medium)?;
        let rng = StdRng::seed_from_u64(campaign.seed);
        let floods = if plant == Some("writeToClient") { 1 } else { 8 };
        let crowd = ClientCrowd::new(usize::from(campaign.threads), campaign.keys, floods);
        let totals = Totals::default();
        Ok(Self { campaign, plant, setup, _folder: folder, rng, crowd, is_prepared: false, totals })
    }

    /// A new state, under other directives.
    fn start_afresh(&mut self) -> Result<()> {
        self.setup.forget()?;
        self.crowd.forget();
        self.is_prepared = false;
        self.crowd.evicts = self.rng.random_ratio(1, 3) || self.plant == Some("eviction");
        let threads = self.rng.random_ratio(1, 3) || self.plant == Some("io-threads");
        self.crowd.listens = threads;
        let packed = self.rng.random_ratio(1, 2);
        // A log so small that checkpoints happen all the time.
        self.setup.log_bytes = self.rng.random_ratio(1, 2).then_some(LOG_BYTES);
        self.setup.directives = server::small_limits(packed, threads);
        Ok(())
    }

    fn round(&mut self, round: u16) -> Result<()> {
        if round.is_multiple_of(ROUNDS_PER_STATE) {
            self.start_afresh()?;
        }
        while self.rng.random_ratio(1, 6) {
            self.kill_opening()?;
        }
        self.work_and_kill()?;
        while self.rng.random_ratio(1, 4) {
            self.kill_opening()?;
        }
        let (mut server, mut connection) = self.setup.start()?;
        self.crowd.settle(&mut connection)?;
        if self.crowd.findings.is_empty() && self.rng.random_ratio(1, 3) {
            (server, connection) = self.compare_digests(server, connection)?;
        }
        if self.rng.random_ratio(1, 2) {
            return server.shut_down(&mut connection);
        }
        server.kill()
    }

    /// A kill while the server makes, recovers or has just recovered its state.
    fn kill_opening(&mut self) -> Result<()> {
        let mut server = self.setup.spawn()?;
        std::thread::sleep(Duration::from_micros(self.rng.random_range(0..80_000)));
        self.totals.killed_opening += 1;
        server.kill()
    }

    fn prepare(&mut self, connection: &mut RespConnection) -> Result<()> {
        if !self.is_prepared {
            ClientCrowd::prepare(connection)?;
            self.is_prepared = true;
        }
        if self.crowd.evicts {
            let used: u64 = connection.info("memory", "used_memory")?.parse().context("used_memory")?;
            let policies = ["volatile-random", "volatile-lru", "volatile-lfu", "volatile-ttl"];
            let policy = policies[self.rng.random_range(0..policies.len())];
            connection.ask(&["CONFIG", "SET", "maxmemory-policy", policy])?;
            let tenacity = self.rng.random_range(0..20).to_string();
            connection.ask(&["CONFIG", "SET", "maxmemory-eviction-tenacity", &tenacity])?;
            connection.ask(&["CONFIG", "SET", "maxmemory", &(used + MEMORY_BYTES).to_string()])?;
        }
        Ok(())
    }

    fn work_and_kill(&mut self) -> Result<()> {
        let (mut server, mut connection) = self.setup.start()?;
        self.prepare(&mut connection)?;
        let evicts = self.crowd.evicts;
        let after = self.rng.random_range(1..if evicts { 12_000 } else { 5_000 });
        // INFO waits until everything is durable: not before each kill.
        let counts = self.crowd.listens && self.rng.random_ratio(1, 4);
        let mut on_threads = 0;
        let (evicted, early) =
            self.crowd.work(&self.setup.address, &mut self.rng, |acknowledged, ended| {
                let waited = wait_for(&mut server, acknowledged, after);
                if counts && let Ok(count) = connection.info("mangrove", "mangrove_reads_on_io_threads") {
                    on_threads = count.parse().unwrap_or(0);
                }
                let evicted = if evicts { connection.info("stats", "evicted_keys").ok() } else { None };
                // Relaxed: what ends by the kill ends after it.
                let early = ended.load(Ordering::Relaxed);
                let killed = server.kill();
                waited.and(killed).map(|()| (evicted.and_then(|n| n.parse().ok()).unwrap_or(0u64), early))
            })?;
        if early > 0 {
            self.crowd.findings.push(format!("the connections of {early} clients ended before the kill"));
        }
        self.totals.evicted += evicted;
        self.totals.on_threads += on_threads;
        Ok(())
    }

    /// A digest of everything, a kill with nothing under way, and the digest again.
    fn compare_digests(
        &mut self,
        mut server: ValkeyServer,
        mut connection: RespConnection,
    ) -> Result<(ValkeyServer, RespConnection)> {
        std::thread::sleep(DEADLINES);
        // Keys that have expired are still in the digest until a walk deletes them.
        self.crowd.settle(&mut connection)?;
        let before = connection.ask(&["DEBUG", "DIGEST"])?.string()?;
        server.kill()?;
        (server, connection) = self.setup.start()?;
        let after = connection.ask(&["DEBUG", "DIGEST"])?.string()?;
        self.totals.digests += 1;
        if before != after {
            self.crowd.findings.push(format!("DEBUG DIGEST is {before} before a kill and {after} after it"));
        }
        Ok((server, connection))
    }

    fn fail(&self, round: u16) -> Result<()> {
        let findings = &self.crowd.findings;
        let shown: Vec<&str> = findings.iter().take(SHOWN_MAX).map(String::as_str).collect();
        let stopped = findings.len();
        if self.plant.is_some() {
            self.setup.forget()?;
            bail!("round {round}, {stopped} findings: {}", shown[0]);
        }
        bail!(
            "round {round}, {stopped} findings:\n  {}\nThe server ran with {}. The state is kept in {}. Repeat with: {}",
            shown.join("\n  "),
            self.setup.directives.join(" "),
            self.setup.dir.display(),
            self.campaign.command(self.plant, round)
        )
    }
}

/// Waits until the clients have so many answers.
fn wait_for(server: &mut ValkeyServer, acknowledged: &AtomicU64, count: u64) -> Result<()> {
    let (mut heard, mut since) = (0, Instant::now());
    loop {
        let now = acknowledged.load(Ordering::Relaxed);
        if now >= count {
            return Ok(());
        }
        if now > heard {
            (heard, since) = (now, Instant::now());
        }
        if let Some(status) = server.ended()? {
            bail!("the server ended by itself with {status}; its log ends:\n{}", server.last_words());
        }
        if since.elapsed() > SILENCE_MAX {
            bail!("the server hangs: {now} of {count} operations acknowledged, and none in {SILENCE_MAX:?}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}
