//! `cargo xtask kill9`: SIGKILL the real binary at random instants while several threads write, reopen, and compare
//! what is there with what was acknowledged.
//!
//! The writer is `mangrove-stress write`. It reports through a pipe what it begins and what was acknowledged, so the
//! last lines of a killed process are not lost. The checker is a fresh process, `mangrove-stress check`. The judge is
//! `history.rs`. Some rounds kill the writer while it still creates or recovers the pool, some kill the checker while
//! it recovers or closes it, and small logs cause checkpoints during the kills.
//!
//! `--app` chooses another program: examples/sqlite, examples/lua and `mangrove-stress txn` have the same two roles;
//! examples/kv is a server, whose clients (`kill9/rpc.rs`) are threads of this chore. `--app redis` has rounds of its
//! own, in `valkey/kill9.rs`.

mod rpc;

use crate::apps::App;
use crate::tree;
use crate::valkey;
use anyhow::{Context, Result, bail, ensure};
use mangrove_crashlab::history::{History, HistoryVerdict};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kills
    #[arg(long, default_value_t = 200)]
    rounds: u16,
    /// Writer threads
    #[arg(long, default_value_t = 6)]
    threads: u8,
    /// Chooses instants, keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Different keys; few keys make more updates and deletes
    #[arg(long, default_value_t = 2000)]
    keys: u64,
    /// The program under test
    #[arg(long, value_enum, default_value_t = App::Map)]
    app: App,
    /// Its binary; built when left out
    #[arg(long)]
    binary: Option<PathBuf>,
    /// What the pools lie on, as `mangrove-stress --medium` takes it: file, emulated, dax
    #[arg(long, default_value = "file")]
    medium: String,
    /// Directory for the pools, on the disk to be tested
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Plant a bug, such as a writer that acknowledges before it is durable, and demand that it is found out
    #[arg(long)]
    planted: bool,
    /// The bug that is planted; all of them in turn when left out
    #[arg(long, value_enum, requires = "planted")]
    bug: Option<Bug>,
    /// With --app redis: the one hook that is left out
    #[arg(long, requires = "planted", conflicts_with = "bug")]
    plant: Option<String>,
    /// With --app redis: the server under test; a stock one shows what this chore finds
    #[arg(long, value_enum, default_value_t = valkey::ServerKind::Durable)]
    kind: valkey::ServerKind,
    #[command(flatten)]
    programs: valkey::Programs,
}

/// A fault that `--planted` injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Bug {
    /// The writer acknowledges before anything is durable.
    Early,
    /// After the kill the log is as it was some writes before: what came since is gone.
    OldLog,
}

/// Rounds that share one pool before the next starts afresh.
const ROUNDS_PER_POOL: u16 = 10;
/// An injected fault loses at least this many acknowledged writes. One write of each thread may have been in flight at
/// the kill, or when an old log was copied, and explain what is found; the fault stays hidden only if every other lost
/// write has a key of one of those.
const PLANTED_LOST_MIN: u64 = 200;
/// A writer that acknowledges nothing for this long hangs; a busy machine is not so slow.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// The result of all rounds together.
#[derive(Default)]
struct Totals {
    acknowledged: u64,
    read: u64,
    found: u64,
    while_opening: u64,
    checkers_killed: u64,
    verdict: HistoryVerdict,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    if args.app == App::Redis {
        return redis(args);
    }
    let on_file = args.medium == "file";
    ensure!(on_file || args.app != App::Rpc, "the server of --app rpc chooses its medium itself");
    ensure!(on_file || !args.planted, "the bugs of --planted lie in the file medium's log");
    let binary = args.binary.clone().map_or_else(|| args.app.build(), Ok)?;
    let bugs = match (args.planted, args.bug) {
        (false, _) => vec![None],
        (true, Some(bug)) => vec![Some(bug)],
        (true, None) => vec![Some(Bug::Early), Some(Bug::OldLog)],
    };
    bugs.into_iter().try_for_each(|bug| campaign(&args, &binary, bug))
}

fn redis(args: Args) -> Result<()> {
    let campaign = valkey::KillCampaign {
        rounds: args.rounds,
        threads: args.threads,
        seed: args.seed,
        keys: (args.keys / valkey::KEYS_DIVISOR).max(6),
        medium: args.medium,
        dir: args.dir,
        planted: args.planted,
        plant: args.plant,
        kind: args.kind,
        programs: args.programs,
    };
    campaign.run()
}

fn campaign(args: &Args, binary: &Path, bug: Option<Bug>) -> Result<()> {
    let name = format!("kill9-{:?}-{}", args.app, args.medium.replace(['=', '/'], "-"));
    let folder = tree::RunFolder::of(args.dir.as_deref(), &name)?;
    let dir = folder.path.clone();
    let mut rounds = Rounds {
        args,
        binary: binary.to_owned(),
        bug,
        pool: dir.join("pool"),
        rng: StdRng::seed_from_u64(args.seed),
        history: History::default(),
        log: "64M",
        keys: args.keys,
        totals: Totals::default(),
    };
    let start = Instant::now();
    for round in 0..args.rounds {
        if let Err(error) = rounds.round(round) {
            // A log that was copied between two writes may have a hole, and then the pool is refused by name.
            if bug == Some(Bug::OldLog) && format!("{error:#}").contains("/log is damaged at byte") {
                println!("planted, OldLog: caught: {error:#}");
                return std::fs::remove_dir_all(&dir).context("cannot remove the pool");
            }
            return Err(error).with_context(|| format!("round {round} (--seed {})", args.seed));
        }
        if round % 20 == 19 {
            println!("{} of {} rounds, {:.0} s", round + 1, args.rounds, start.elapsed().as_secs_f64());
        }
        if !rounds.totals.verdict.is_clean() {
            break;
        }
    }
    let totals = rounds.finish_history();
    let verdict = &totals.verdict;
    for sentence in verdict.messages().take(20) {
        println!("  {sentence}");
    }
    println!(
        "kill9: {:?} on {}: {} rounds, {} threads, seed {}: {} writes acknowledged, {} reads answered, {} records verified, {} kills while opening, {} checkers killed",
        args.app,
        args.medium,
        args.rounds,
        args.threads,
        args.seed,
        totals.acknowledged,
        totals.read,
        totals.found,
        totals.while_opening,
        totals.checkers_killed,
    );
    println!("{}", verdict.counts());
    match (bug, verdict.is_clean()) {
        (None, true) if args.rounds > 0 && totals.acknowledged == 0 => {
            bail!("no write was acknowledged: nothing is proved")
        }
        (None, true) => std::fs::remove_dir_all(&dir).context("cannot remove the pool"),
        (Some(bug), false) => {
            println!("planted, {bug:?}: caught");
            std::fs::remove_dir_all(&dir).context("cannot remove the pool")
        }
        (None, false) => bail!("the pool is kept in {}", dir.display()),
        (Some(bug), true) => bail!("planted, {bug:?}: not found out"),
    }
}

/// The log as it was after half of the writes; it is put back after the kill: [`Bug::OldLog`].
struct OldLog {
    is_injected: bool,
    bytes: Option<Vec<u8>>,
}

impl OldLog {
    fn new(bug: Option<Bug>) -> Self {
        Self { is_injected: bug == Some(Bug::OldLog), bytes: None }
    }

    /// Waits for `after` writes and copies the log on the way; then waits for enough writes that the copy lacks.
    fn grow(&mut self, pool: &Path, after: u64, acknowledged: &AtomicU64, child: &mut Child) -> Result<()> {
        if !self.is_injected {
            return wait_for(acknowledged, after, child);
        }
        wait_for(acknowledged, after / 2, child)?;
        self.bytes = Some(std::fs::read(pool.join("log")).context("cannot read the log")?);
        // The copy took a while, and the writers continued.
        let enough = acknowledged.load(Ordering::Relaxed) + PLANTED_LOST_MIN;
        wait_for(acknowledged, after.max(enough), child)
    }

    fn bear(self, pool: &Path) -> Result<()> {
        let Some(bytes) = self.bytes else { return Ok(()) };
        std::fs::write(pool.join("log"), bytes).context("cannot put the old log back")
    }
}

/// When a writer is killed.
enum When {
    /// This long after its start.
    Opening(Duration),
    /// When this many writes were acknowledged.
    Acknowledged(u64),
}

struct Rounds<'a> {
    args: &'a Args,
    binary: PathBuf,
    bug: Option<Bug>,
    pool: PathBuf,
    rng: StdRng,
    history: History,
    log: &'static str,
    /// Different keys of this pool.
    keys: u64,
    totals: Totals,
}

impl Rounds<'_> {
    fn round(&mut self, round: u16) -> Result<()> {
        if round.is_multiple_of(ROUNDS_PER_POOL) {
            self.start_afresh()?;
        }
        self.write_and_kill(round)?;
        while self.rng.random_ratio(1, 4) {
            self.kill_checker()?;
        }
        self.check()
    }

    /// A new pool, mostly with a log so small that checkpoints happen all the time.
    fn start_afresh(&mut self) -> Result<()> {
        if self.pool.exists() {
            std::fs::remove_dir_all(&self.pool).context("cannot remove the last pool")?;
        }
        self.totals.acknowledged += self.history.acknowledged_total();
        self.totals.read += self.history.read_total();
        self.history = History::default();
        // An old log belongs to the data file only while no checkpoint came between, and a checkpoint makes durable
        // what was acknowledged too early.
        let small = self.rng.random_ratio(2, 3) && self.bug.is_none();
        self.log = if small { "1M" } else { "64M" };
        // Few keys, so that many operations on one key run at a time.
        self.keys = if self.rng.random_ratio(1, 2) { self.args.keys } else { (self.args.keys / 40).max(1) };
        Ok(())
    }

    fn write_and_kill(&mut self, round: u16) -> Result<()> {
        let lines =
            if self.args.app == App::Rpc { self.serve_and_kill(round) } else { self.run_and_kill(round) }?;
        self.totals.while_opening += u64::from(lines.is_empty());
        for line in &lines {
            self.history.line(line).map_err(anyhow::Error::msg)?;
        }
        Ok(())
    }

    /// One kill in five falls into the opening of the pool, the others at some write. With a bug they all come when it
    /// has taken something: whether it is found out is then no matter of chance. The last kill waits for a write if no
    /// other has: a run without any proves nothing.
    fn instant(&mut self, round: u16) -> When {
        let acknowledged = self.totals.acknowledged + self.history.acknowledged_total();
        let must_write = round + 1 == self.args.rounds && acknowledged == 0;
        let opening = self.rng.random_ratio(1, 5);
        let after = self.rng.random_range(1..2_500);
        let delay = Duration::from_micros(self.rng.random_range(0..40_000));
        match self.bug {
            Some(_) => When::Acknowledged(after.max(PLANTED_LOST_MIN)),
            None if opening && !must_write => When::Opening(delay),
            None => When::Acknowledged(after),
        }
    }

    fn serve_and_kill(&mut self, round: u16) -> Result<Vec<String>> {
        let instant = self.instant(round);
        let mut server = rpc::start(&self.binary, &self.pool, self.bug == Some(Bug::Early))?;
        let mut plant = OldLog::new(self.bug);
        let after = match instant {
            When::Acknowledged(after) => after,
            When::Opening(delay) => {
                std::thread::sleep(delay);
                kill_writer(&mut server)?;
                return Ok(Vec::new());
            }
        };
        let door = rpc::Door::of(&mut server)?;
        let (threads, keys) = (self.args.threads, self.keys);
        let is_killed = AtomicBool::new(false);
        let clients = rpc::Clients { round, threads, keys, seed: self.rng.random(), is_killed };
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| clients.write(&door, &acknowledged));
            let waited = plant.grow(&self.pool, after, &acknowledged, &mut server);
            // Relaxed: the connections end after the kill, which comes after this.
            clients.is_killed.store(true, Ordering::Relaxed);
            let killed = kill_writer(&mut server);
            plant.bear(&self.pool)?;
            let lines = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            waited.and(killed)?;
            lines
        })
    }

    fn run_and_kill(&mut self, round: u16) -> Result<Vec<String>> {
        let mut child = Command::new(&self.binary)
            .args(self.args.app.words())
            .arg("write")
            .arg(&self.pool)
            .args(["--round", &round.to_string(), "--seed", &self.rng.random::<u32>().to_string()])
            .args(["--threads", &self.args.threads.to_string(), "--keys", &self.keys.to_string()])
            .args(["--medium", &self.args.medium, "--log", self.log])
            .args(["--durability", if self.bug == Some(Bug::Early) { "interval=60000" } else { "sync" }])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let stdout = child.stdout.take().context("no pipe")?;
        let acknowledged = AtomicU64::new(0);
        let instant = self.instant(round);
        let mut plant = OldLog::new(self.bug);
        std::thread::scope(|scope| -> Result<Vec<String>> {
            let reader = scope.spawn(|| read_lines(stdout, &acknowledged));
            let waited = match instant {
                When::Opening(delay) => {
                    std::thread::sleep(delay);
                    Ok(())
                }
                When::Acknowledged(after) => plant.grow(&self.pool, after, &acknowledged, &mut child),
            };
            let killed = kill_writer(&mut child);
            plant.bear(&self.pool)?;
            waited.and(killed)?;
            reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .context("cannot read the pipe")
        })
    }

    /// Kills a process that recovers, reads and closes the pool. It may have done so before, but it must not have
    /// failed.
    fn kill_checker(&mut self) -> Result<()> {
        let mut child = if self.args.app == App::Rpc {
            rpc::start(&self.binary, &self.pool, false)?
        } else {
            self.checker(true).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?
        };
        std::thread::sleep(Duration::from_micros(self.rng.random_range(0..60_000)));
        child.kill().context("cannot kill")?;
        refuse_failure(child)?;
        self.totals.checkers_killed += 1;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let lines = if self.args.app == App::Rpc { self.ask_server() } else { self.run_checker() }?;
        let verdict = self.history.check(lines.iter().map(String::as_str)).map_err(anyhow::Error::msg)?;
        self.totals.found += verdict.found;
        self.totals.verdict.lost.extend(verdict.lost);
        self.totals.verdict.phantom.extend(verdict.phantom);
        self.totals.verdict.torn.extend(verdict.torn);
        self.totals.verdict.unexplained.extend(verdict.unexplained);
        Ok(())
    }

    /// Asks a fresh server what is there. Half of the servers end in order, the others by a kill.
    fn ask_server(&mut self) -> Result<Vec<String>> {
        let close = self.rng.random_ratio(1, 2);
        let mut server = rpc::start(&self.binary, &self.pool, false)?;
        let door = rpc::Door::of(&mut server)?;
        let lines = door.list(self.keys)?;
        if close {
            tree::run(Command::new("kill").args(["-TERM", &server.id().to_string()]))?;
            let status = server.wait()?;
            ensure!(status.success(), "the server ended with {status}");
        } else {
            end(&mut server)?;
        }
        Ok(lines)
    }

    fn run_checker(&mut self) -> Result<Vec<String>> {
        // Half of the pools stay as the kill left them, so that the next writer recovers them.
        let close = self.rng.random_ratio(1, 2);
        let output = self.checker(close).output().context("cannot start the checker")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let missing = has_no_pool(output.status, &complaint);
        if !output.status.success() && !missing {
            bail!("the checker ended with {}: {complaint}", output.status);
        }
        Ok(if missing { vec![". 0".to_owned()] } else { said.lines().map(str::to_owned).collect() })
    }

    fn checker(&self, close: bool) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(self.args.app.words()).arg("check").arg(&self.pool);
        if close {
            command.arg("--close");
        }
        command
    }

    fn finish_history(mut self) -> Totals {
        self.totals.acknowledged += self.history.acknowledged_total();
        self.totals.read += self.history.read_total();
        self.totals
    }
}

/// Whether a checker ended so because the writer was killed before the pool existed or was complete: then nothing was
/// acknowledged either.
fn has_no_pool(status: ExitStatus, complaint: &str) -> bool {
    let no_pool = ["there is no pool", "its creation was interrupted"];
    status.code() == Some(3) && no_pool.iter().any(|sentence| complaint.contains(sentence))
}

/// Waits for a checker that was killed. That it had failed before is an error.
fn refuse_failure(checker: Child) -> Result<()> {
    let output = checker.wait_with_output().context("cannot wait")?;
    let (status, complaint) = (output.status, String::from_utf8_lossy(&output.stderr));
    let is_killed = status.signal() == Some(libc::SIGKILL);
    ensure!(
        is_killed || status.success() || has_no_pool(status, &complaint),
        "a checker ended with {status} before it was killed: {complaint}"
    );
    Ok(())
}

/// Reads whole lines until the pipe closes. Half a line at the end does not count.
fn read_lines(pipe: impl Read, acknowledged: &AtomicU64) -> std::io::Result<Vec<String>> {
    let mut reader = BufReader::with_capacity(1 << 16, pipe);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Ok(lines);
        }
        line.pop();
        if line.starts_with('<') {
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        lines.push(line);
    }
}

fn wait_for(acknowledged: &AtomicU64, count: u64, child: &mut Child) -> Result<()> {
    let (mut heard, mut since) = (0, Instant::now());
    loop {
        let now = acknowledged.load(Ordering::Relaxed);
        if now >= count {
            return Ok(());
        }
        if now > heard {
            (heard, since) = (now, Instant::now());
        }
        if let Some(status) = child.try_wait()? {
            return refuse_end(child, status);
        }
        if since.elapsed() > SILENCE_MAX {
            bail!("the writer hangs: {now} of {count} writes acknowledged, and none in {SILENCE_MAX:?}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// As `end`, for a program that works until it is killed: that it ended by itself before is an error, which tells why.
fn kill_writer(child: &mut Child) -> Result<()> {
    child.kill().context("cannot kill")?;
    let status = child.wait().context("cannot wait")?;
    if status.signal() == Some(libc::SIGKILL) {
        return Ok(());
    }
    refuse_end(child, status)
}

/// The error of a writer that was not killed and ended with this status: what it said.
fn refuse_end(child: &mut Child, status: ExitStatus) -> Result<()> {
    let mut complaint = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut complaint)?;
    }
    bail!("the writer ended by itself with {status}: {complaint}")
}

/// Sends SIGKILL, and waits until the process is gone.
fn end(child: &mut Child) -> Result<()> {
    child.kill().context("cannot kill")?;
    child.wait().context("cannot wait")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Child> {
        Ok(Command::new("sh").args(["-c", script]).stderr(Stdio::piped()).spawn()?)
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_run_ends_with_an_acknowledged_write() {
        use clap::Parser;
        let early = |rounds: &str| {
            let args = Line::parse_from(["kill9", "--rounds", rounds]).args;
            let is_early = |seed: &u64| {
                let mut rounds = Rounds {
                    args: &args,
                    binary: PathBuf::new(),
                    bug: None,
                    pool: PathBuf::new(),
                    rng: StdRng::seed_from_u64(*seed),
                    history: History::default(),
                    log: "64M",
                    keys: 1,
                    totals: Totals::default(),
                };
                matches!(rounds.instant(0), When::Opening(_))
            };
            (0..100).filter(is_early).count()
        };
        assert_eq!(early("1"), 0);
        assert!(early("2") > 0, "some kills come before any write");
    }

    #[test]
    fn a_checker_that_had_failed_is_an_error() -> Result<()> {
        for (script, is_right) in [
            ("kill -9 $$", true),
            ("exit 0", true),
            ("echo there is no pool >&2; exit 3", true),
            ("echo the log is damaged >&2; exit 3", false),
            ("kill -SEGV $$", false),
        ] {
            assert_eq!(refuse_failure(shell(script)?).is_ok(), is_right, "{script}");
        }
        Ok(())
    }

    #[test]
    fn a_writer_that_had_ended_was_not_killed() -> Result<()> {
        kill_writer(&mut shell("exec sleep 600")?)?;
        let mut failed = shell("echo the reason >&2; exit 3")?;
        failed.wait()?;
        let error = kill_writer(&mut failed).expect_err("it ended by itself");
        assert!(error.to_string().contains("exit status: 3: the reason"), "{error}");
        Ok(())
    }
}
