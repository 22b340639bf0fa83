//! `cargo xtask redis-soak`: nothing of the durable server grows without a bound, and crashes leak nothing.
//!
//! Two parts. Cycles of mixed load under a limit of memory, with eviction, expiry, scripts, UNLINK, checkpoints, and
//! FLUSHALL ASYNC halfway and at the end: `soak_bounds.rs` states what must hold. Then a number of kills under load:
//! what the arena holds after them, with all values made afresh (DEBUG RELOAD, which keeps whatever has leaked), is to
//! one percent what it holds where a new server has imported the same data.
//!
//! `--planted` lets lazy frees drop what they are to free, and demands that this is found.

use super::counters::wait_until;
use super::crowd::ClientCrowd;
use super::operation::DEADLINES;
use super::resp::RespConnection;
use super::server::{self, Programs, ServerKind, Setup, ValkeyServer};
use super::soak_bounds::{Cycle, Sample, judge};
use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Cycles of the first part.
const CYCLES: u32 = 20;
const CLIENT_COUNT: usize = 4;
/// Different keys of each kind, for each client.
const KEY_COUNT: u64 = 60;
/// Batches of a client, one in so many, that begin with a flood of answers.
const FLOODS: u32 = 50;
/// What the server may take beyond what it has when it is empty.
const MEMORY_BYTES: u64 = 16 << 20;
/// So small that the log is reused all the time.
const LOG_BYTES: u64 = 8 << 20;
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Lazy frees that take longer hang.
const FREES_MAX: Duration = Duration::from_secs(300);
/// Operations between two kills.
const OPERATIONS_MAX: u64 = 2_000;
/// How far two arenas with the same data may be apart.
const LEAK_PERCENT_MAX: f64 = 1.0;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Length of the load
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Kills of the second part; 0 leaves it out
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Chooses keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the state lies on: file, emulated, emulated=WRITE/READ
    #[arg(long, default_value = "file")]
    medium: String,
    /// Let lazy frees free nothing, and demand that it is found out
    #[arg(long)]
    planted: bool,
    #[command(flatten)]
    programs: Programs,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let folder = tree::RunFolder::of(None, "redis-soak")?;
    let dir = folder.path.clone();
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir)?;
    let dir = dir.canonicalize()?;
    let mut soak = Soak { rng: StdRng::seed_from_u64(args.seed), dir: dir.clone(), args };
    if soak.args.planted {
        return match soak.cycles() {
            Ok(()) => bail!("lazy frees freed nothing, and nothing noticed"),
            Err(error) => {
                println!("planted, grave: caught: {error:#}");
                Ok(())
            }
        };
    }
    soak.cycles()?;
    if soak.args.kills > 0 {
        soak.kills()?;
    }
    std::fs::remove_dir_all(&dir).context("cannot remove the directories")
}

struct Soak {
    args: Args,
    rng: StdRng,
    dir: PathBuf,
}

impl Soak {
    fn setup(&self, name: &str) -> Result<Setup> {
        let socket = server::socket(&format!("soak-{name}"));
        let mut setup = Setup::new(ServerKind::Durable, &self.args.programs, self.dir.join(name), socket)?;
        setup.medium = server::medium(&self.args.medium)?;
        setup.log_bytes = Some(LOG_BYTES);
        setup.directives = server::small_limits(false, false);
        Ok(setup)
    }

    fn cycles(&mut self) -> Result<()> {
        let mut setup = self.setup("load")?;
        setup.plant = self.args.planted.then(|| "grave".to_owned());
        let (mut server, mut connection) = setup.start()?;
        ClientCrowd::prepare(&mut connection)?;
        let limit = Sample::take(&mut connection)?.used + MEMORY_BYTES;
        connection.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
        connection.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()])?;
        let mut crowd = ClientCrowd::new(CLIENT_COUNT, KEY_COUNT, FLOODS);
        crowd.evicts = true;
        let length = Duration::from_secs_f64(self.args.minutes * 60.0) / CYCLES;
        println!(
            "redis-soak: {CYCLES} cycles of {:.0} s, maxmemory {}, log {}; the highest of each cycle, \
             then the empty server",
            length.as_secs_f64(),
            mega(limit),
            mega(LOG_BYTES)
        );
        println!(
            "cycle operations  evicted  expired    logged    log used  checkpoint     grave     arena  resident | \
             arena     resident"
        );
        let mut cycles: Vec<Cycle> = Vec::new();
        for number in 0..CYCLES {
            let cycle = self.cycle(&setup, &mut server, &mut crowd, &mut connection, length)?;
            let Cycle { operations, peak, empty } = cycle;
            println!(
                "{number:5} {operations:10} {:8} {:8} {:>9} {:>11} {:>8} ms {:9} {:>9} {:>9} | {:>9} {:>9}",
                empty.evicted,
                empty.expired,
                mega(empty.logged),
                mega(peak.log_used),
                peak.checkpoint_age_ms,
                peak.grave,
                mega(peak.arena),
                mega(peak.resident),
                format!("{:.1} KiB", empty.arena as f64 / 1024.0),
                mega(empty.resident),
            );
            cycles.push(cycle);
            if self.args.planted && !judge(&cycles, limit).is_empty() {
                break;
            }
        }
        let findings = judge(&cycles, limit);
        ensure!(findings.is_empty(), "{} findings:\n  {}", findings.len(), findings.join("\n  "));
        println!("redis-soak: bounded; {} operations acknowledged", crowd.acknowledged);
        server.shut_down(&mut connection)
    }

    fn cycle(
        &mut self,
        setup: &Setup,
        server: &mut ValkeyServer,
        crowd: &mut ClientCrowd,
        connection: &mut RespConnection,
        length: Duration,
    ) -> Result<Cycle> {
        let before = crowd.acknowledged;
        let mut peak = Sample::default();
        crowd.work(&setup.address, &mut self.rng, |_, _| {
            let (begun, mut is_flushed) = (Instant::now(), false);
            let sampled = loop {
                match Sample::take(connection) {
                    Ok(sample) => peak.raise(&sample),
                    Err(error) => break Err(error),
                }
                if begun.elapsed() >= length {
                    break Ok(());
                }
                if !is_flushed && begun.elapsed() >= length / 2 {
                    is_flushed = true;
                    if let Err(error) = connection.ask(&["FLUSHALL", "ASYNC"]) {
                        break Err(error);
                    }
                    // What was flushed is still to be freed.
                    continue;
                }
                std::thread::sleep(SAMPLE_EVERY.min(length / 4));
            };
            match connection.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]) {
                Ok(_) => sampled,
                // The clients end with the server.
                Err(error) => {
                    server.kill()?;
                    Err(error)
                }
            }
        })?;
        // FLUSHALL takes what the clients know of: their findings are about nothing else.
        ensure!(
            crowd.findings.is_empty(),
            "answers that no server should give: {}",
            crowd.findings.join("; ")
        );
        connection.ask(&["FLUSHALL", "ASYNC"])?;
        let empty = settled(connection)?;
        Ok(Cycle { operations: crowd.acknowledged - before, peak, empty })
    }

    fn kills(&mut self) -> Result<()> {
        let setup = self.setup("kills")?;
        let mut crowd = ClientCrowd::new(CLIENT_COUNT, KEY_COUNT, FLOODS);
        let begun = Instant::now();
        for kill in 0..self.args.kills {
            let (mut server, mut connection) = setup.start()?;
            if kill == 0 {
                ClientCrowd::prepare(&mut connection)?;
            }
            crowd.settle(&mut connection)?;
            let after = self.rng.random_range(1..OPERATIONS_MAX);
            crowd.work(&setup.address, &mut self.rng, |acknowledged, _| {
                let waited = wait_until("the clients have enough answers", FREES_MAX, || {
                    Ok(acknowledged.load(Ordering::Relaxed) >= after)
                });
                server.kill()?;
                waited.map(drop)
            })?;
            let findings = &crowd.findings;
            ensure!(findings.is_empty(), "kill {kill}: {}; in {}", findings.join("; "), setup.dir.display());
        }
        let (server, mut connection) = setup.start()?;
        std::thread::sleep(DEADLINES);
        // Deletes the keys that have expired.
        crowd.settle(&mut connection)?;
        let keys = crowd.compared;
        settled(&mut connection)?;
        connection.ask(&["SAVE"])?;
        connection.ask(&["DEBUG", "RELOAD"])?;
        let killed = settled(&mut connection)?;
        let digest = connection.ask(&["DEBUG", "DIGEST"])?.string()?;
        server.shut_down(&mut connection)?;

        let imported = self.setup("imported")?;
        std::fs::create_dir_all(&imported.dir)?;
        std::fs::copy(setup.dir.join("dump.rdb"), imported.dir.join("dump.rdb"))
            .context("cannot copy the dump")?;
        let (server, mut connection) = imported.start()?;
        let fresh = settled(&mut connection)?;
        let same = connection.ask(&["DEBUG", "DIGEST"])?.string()?;
        ensure!(digest == same, "DEBUG DIGEST is {digest} after the kills and {same} after an import");
        server.shut_down(&mut connection)?;
        let percent = (killed.arena as f64 - fresh.arena as f64) / fresh.arena as f64 * 100.0;
        println!(
            "redis-soak: {} kills, {} operations acknowledged, {keys} keys verified, {:.0} s: the arena holds {} \
             bytes, after an import of the same data {} bytes ({percent:+.2} %)",
            self.args.kills,
            crowd.acknowledged,
            begun.elapsed().as_secs_f64(),
            killed.arena,
            fresh.arena,
        );
        ensure!(percent.abs() <= LEAK_PERCENT_MAX, "kills leak");
        Ok(())
    }
}

/// Waits for the lazy frees, and for the unit that has them; then samples.
fn settled(connection: &mut RespConnection) -> Result<Sample> {
    wait_until("all that was unlinked is freed", FREES_MAX, || Ok(Sample::take(connection)?.grave == 0))?;
    connection.ask(&["SET", "settled", "1"])?;
    connection.ask(&["DEL", "settled"])?;
    Sample::take(connection)
}

/// Bytes as MiB.
fn mega(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
