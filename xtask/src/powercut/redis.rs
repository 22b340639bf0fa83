//! The rounds of the Redis-compatible server on one medium. It runs in the guest; its clients are threads of this
//! chore, so what is acknowledged is what has left the machine.
//!
//! Each boot starts the server, compares what it has with what the clients know, and lets them go on until the power
//! is cut: see `valkey/crowd.rs`. Some boots are cut while the server still opens its state. After some checks the
//! power is cut with nothing under way, and DEBUG DIGEST must be the same after it.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::initramfs::PROGRAM;
use super::instants::{FIRST_PATIENCE, Instants, OFF_POLL, WRITE_PATIENCE, least};
use super::media::GuestStorage;
use super::rig::{GUEST_ADDRESS, Powered, Rig, Totals, copy};
use super::rounds::{ENDED, medium};
use crate::valkey::{self, Address, ClientCrowd, DEADLINES, RespConnection};

/// Where the server listens in the guest.
pub(super) const PORT: u16 = 6379;
/// Rounds that share one file system and one state before the next starts afresh.
const ROUNDS_PER_DISK: u64 = 10;
/// If the opening of the state is cut, the cut comes within this time.
const OPENING_MAX: Duration = Duration::from_millis(2_000);
/// Batches of a client, one in so many, that begin with a flood of answers.
pub(super) const FLOODS: u32 = 20;
/// Between the end of the disk and that of the machine: an answer that does not wait for the disk has time to arrive.
const ARRIVAL: Duration = Duration::from_millis(200);
/// How long the last words of a server that has ended may take.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);
/// What the guest prints when the server serves.
const SERVES: &str = "# serves";
const SHOWN_MAX: usize = 20;

/// What all rounds together did.
#[derive(Default)]
pub(super) struct RedisOutcome {
    pub(super) rounds: u64,
    pub(super) opening_cut: u64,
    pub(super) digests: u64,
}

/// The rounds of one medium.
pub(super) struct ServerRounds {
    rig: Rig,
    crowd: ClientCrowd,
    keep: PathBuf,
    /// Directories of the server's libraries.
    library_path: String,
    /// The hook that is left out.
    plant: Option<&'static str>,
    log_bytes: u64,
    directives: Vec<String>,
    is_prepared: bool,
    outcome: RedisOutcome,
}

impl ServerRounds {
    pub(super) fn new(
        rig: Rig,
        crowd: ClientCrowd,
        keep: PathBuf,
        library_path: String,
        plant: Option<&'static str>,
    ) -> Self {
        let (log_bytes, directives, outcome) = (0, Vec::new(), RedisOutcome::default());
        Self { rig, crowd, keep, library_path, plant, log_bytes, directives, is_prepared: false, outcome }
    }

    /// Runs `count` rounds; a loss is an error that tells it.
    pub(super) fn run(&mut self, count: u64) -> Result<()> {
        let begun = Instant::now();
        for round in 0..count {
            let least = least(round + 1 == count, self.crowd.acknowledged);
            self.round(round, least).with_context(|| format!("round {round}"))?;
            self.outcome.rounds += 1;
            if (round + 1) % ROUNDS_PER_DISK == 0 || round + 1 == count {
                let (powered, _) = self.boot_and_check().context("the last check")?;
                self.rig.cut(powered)?;
                println!(
                    "powercut: {}: {} of {count} rounds, {} operations acknowledged, {:.0} s",
                    self.rig.storage.name(),
                    round + 1,
                    self.crowd.acknowledged,
                    begun.elapsed().as_secs_f64()
                );
            }
        }
        Ok(())
    }

    /// The result in some words.
    pub(super) fn report(&self) -> String {
        let RedisOutcome { rounds, opening_cut, digests } = self.outcome;
        let Totals { boots, traffic, repairs, boot_seconds } = self.rig.totals;
        let mut text = format!(
            "powercut: redis on {}: {rounds} rounds, {} operations acknowledged, {} keys verified, {opening_cut} \
             starts cut, {digests} digests equal over a cut, {boots} boots of {:.1} s; 0 lost, 0 torn",
            self.rig.storage.name(),
            self.crowd.acknowledged,
            self.crowd.compared,
            boot_seconds / boots.max(1) as f64,
        );
        if self.rig.storage == GuestStorage::Ext4 {
            text.push_str(&format!(
                "\n  disk: {} writes, {} flushes; the cuts took {} unflushed writes, {} of them in part; {repairs} \
                 mounts needed e2fsck",
                traffic.writes, traffic.flushes, traffic.lost, traffic.torn
            ));
        }
        text
    }

    /// Removes the machine's files.
    pub(super) fn clear(self) -> Result<()> {
        Ok(fs::remove_dir_all(&self.rig.folder)?)
    }

    fn round(&mut self, round: u64, least: u64) -> Result<()> {
        if round.is_multiple_of(ROUNDS_PER_DISK) {
            self.fresh()?;
        }
        let (powered, mut connection) = self.boot_and_check()?;
        if !self.is_prepared {
            ClientCrowd::prepare(&mut connection)?;
            self.is_prepared = true;
        }
        self.work_and_cut(powered, least)
    }

    /// A new file system, and a state under other directives; some have a log so small that checkpoints happen all the
    /// time.
    fn fresh(&mut self) -> Result<()> {
        let rng = &mut self.rig.rng;
        self.log_bytes = if rng.random_ratio(2, 3) { 4 << 20 } else { 16 << 20 };
        self.directives = valkey::small_limits(rng.random_ratio(1, 2), rng.random_ratio(1, 3));
        self.is_prepared = false;
        self.crowd.forget();
        self.rig.format()
    }

    /// Boots until a start of the server is not cut, and compares what is there with what the clients know.
    fn boot_and_check(&mut self) -> Result<(Powered, RespConnection)> {
        let before = self.rig.folder.join("before.img");
        loop {
            copy(&self.rig.image(), &before)?;
            let mut powered = self.rig.boot()?;
            powered.guest.type_in(&self.start())?;
            if self.rig.rng.random_ratio(1, 5) {
                let delay = OPENING_MAX.mul_f64(self.rig.rng.random());
                powered.guest.lines_before(Instant::now() + delay, SERVES)?;
                self.rig.cut(powered)?;
                self.outcome.opening_cut += 1;
                continue;
            }
            let checked = wait_until_it_serves(&mut powered).and_then(|mut connection| {
                if self.is_prepared {
                    self.crowd.settle(&mut connection)?;
                    self.judge()?;
                }
                Ok(connection)
            });
            let mut connection = match checked {
                Ok(connection) => connection,
                Err(error) => {
                    self.rig.cut(powered)?;
                    return Err(self.keep_failure(error, &before));
                }
            };
            if self.is_prepared && self.rig.rng.random_ratio(1, 4) {
                (powered, connection) = self.compare_digests(powered, connection)?;
            }
            return Ok((powered, connection));
        }
    }

    /// A cut with nothing under way.
    fn compare_digests(
        &mut self,
        mut powered: Powered,
        mut connection: RespConnection,
    ) -> Result<(Powered, RespConnection)> {
        std::thread::sleep(DEADLINES);
        // Keys that have expired are still in the digest until a walk deletes them.
        self.crowd.settle(&mut connection)?;
        let before = connection.ask(&["DEBUG", "DIGEST"])?.string()?;
        self.rig.cut(powered)?;
        powered = self.rig.boot()?;
        powered.guest.type_in(&self.start())?;
        connection = wait_until_it_serves(&mut powered)?;
        let after = connection.ask(&["DEBUG", "DIGEST"])?.string()?;
        self.outcome.digests += 1;
        if before != after {
            let finding = format!("DEBUG DIGEST is {before} before a cut and {after} after it");
            self.crowd.findings.push(finding);
        }
        self.judge()?;
        Ok((powered, connection))
    }

    /// Lets the clients work until a random instant, after `least` acknowledged operations, and cuts.
    fn work_and_cut(&mut self, mut powered: Powered, least: u64) -> Result<()> {
        let Self { rig, crowd, .. } = self;
        let instants = Instants::draw(&mut rig.rng, rig.storage, least);
        let mut rng = StdRng::seed_from_u64(rig.rng.random());
        let address = Address::Port(powered.port);
        crowd.work(&address, &mut rng, |acknowledged, _| {
            let waited = wait_for(&mut powered, &instants, acknowledged);
            // In any case: the clients end with the machine.
            let cut = rig.cut(powered);
            waited.and(cut.map(drop))
        })?;
        self.judge()
    }

    /// The shell commands that start the server.
    fn start(&self) -> String {
        let Self { log_bytes, library_path, .. } = self;
        let plant = self.plant.map_or_else(String::new, |plant| format!("MANGROVE_REDIS_WITHOUT={plant} "));
        format!(
            "ifconfig lo 127.0.0.1 up; ifconfig eth0 {GUEST_ADDRESS} netmask 255.255.255.0 up; cd /mnt\n\
             (LD_LIBRARY_PATH={library_path} MANGROVE_REDIS_STATE=/mnt/state MANGROVE_REDIS_MEDIUM={} \
             MANGROVE_REDIS_LOG_BYTES={log_bytes} {plant}{PROGRAM} --bind {GUEST_ADDRESS} --port {PORT} \
             --protected-mode no --save '' --enable-debug-command yes {} < /dev/null > /tmp/log 2>&1; \
             echo \"{ENDED} $?\"; sed 's/^/# why: /' /tmp/log) &\n\
             until grep -q 'Ready to accept' /tmp/log; do sleep 0.05; done; echo '{SERVES}'\n",
            medium(self.rig.storage),
            self.directives.join(" ")
        )
    }

    fn judge(&self) -> Result<()> {
        let findings = &self.crowd.findings;
        let shown: Vec<&str> = findings.iter().take(SHOWN_MAX).map(String::as_str).collect();
        ensure!(findings.is_empty(), "{} findings: {}", findings.len(), shown.join("\n  "));
        Ok(())
    }

    /// Keeps the disk as the cut left it.
    fn keep_failure(&self, error: anyhow::Error, before: &std::path::Path) -> anyhow::Error {
        if self.plant.is_some() || self.rig.lies {
            return error;
        }
        let image = self.keep.join("disk.img");
        let kept = fs::create_dir_all(&self.keep).map_err(Into::into).and_then(|()| copy(before, &image));
        match kept {
            Ok(()) => error.context(format!("the disk as the cut left it is kept in {}", image.display())),
            Err(why) => error.context(format!("the disk cannot be kept: {why:#}")),
        }
    }
}

/// Waits until the server serves, and connects.
fn wait_until_it_serves(powered: &mut Powered) -> Result<RespConnection> {
    let lines = powered.guest.lines_before(Instant::now() + FIRST_PATIENCE, "# ")?;
    match lines.last() {
        Some(line) if line == SERVES => {}
        Some(line) if line.starts_with(ENDED) => return Err(last_words(powered, line)),
        _ => bail!("the server does not serve\n{}", powered.guest.console_tail()),
    }
    let mut connection = RespConnection::open(&Address::Port(powered.port)).context("cannot connect")?;
    connection.ask(&["PING"])?;
    Ok(connection)
}

/// Waits for the instant of the cut.
fn wait_for(powered: &mut Powered, instants: &Instants, acknowledged: &AtomicU64) -> Result<()> {
    let Instants { count, at_flush, delay } = *instants;
    let mut patience = Instant::now() + FIRST_PATIENCE;
    let mut is_first = true;
    while acknowledged.load(Ordering::Relaxed) < count && Instant::now() < patience {
        pause(powered, OFF_POLL)?;
        if is_first && acknowledged.load(Ordering::Relaxed) > 0 {
            (is_first, patience) = (false, Instant::now() + WRITE_PATIENCE);
        }
    }
    ensure!(
        count == 0 || acknowledged.load(Ordering::Relaxed) > 0,
        "nothing was acknowledged within {FIRST_PATIENCE:?}"
    );
    let Some(flushes) = at_flush else { return pause(powered, delay) };
    powered.cut_at_flush(flushes);
    let patience = Instant::now() + WRITE_PATIENCE;
    while !powered.is_off() && Instant::now() < patience {
        pause(powered, OFF_POLL)?;
    }
    pause(powered, ARRIVAL)
}

/// Waits so long; a server that ends meanwhile is an error.
fn pause(powered: &mut Powered, how_long: Duration) -> Result<()> {
    let lines = powered.guest.lines_before(Instant::now() + how_long, ENDED)?;
    match lines.last() {
        Some(line) if line.starts_with(ENDED) => Err(last_words(powered, line)),
        _ => Ok(()),
    }
}

/// The end of a server that should not have ended.
fn last_words(powered: &mut Powered, ended: &str) -> anyhow::Error {
    let said = powered.guest.lines_before(Instant::now() + LAST_WORDS_MAX, ENDED).unwrap_or_default();
    let from = said.len().saturating_sub(SHOWN_MAX);
    anyhow::anyhow!(
        "the server ended by itself ({ended}):\n{}\n{}",
        said[from..].join("\n"),
        powered.guest.console_tail()
    )
}
