//! The rounds on one medium: boot, check what the last cut left, write, cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::Rng;

use super::instants::{FIRST_PATIENCE, Instants, OFF_POLL, WRITE_PATIENCE, least};
use super::media::GuestStorage;
use super::program::{Program, Script};
use super::rig::{Powered, Rig, Totals, copy};
use super::tape::Tape;
use mangrove_crashlab::history::HistoryVerdict;

/// Rounds that share one file system and one pool before the next starts afresh.
const ROUNDS_PER_DISK: u64 = 10;
/// If a check is cut, the cut comes within this time.
const CHECK_MAX: Duration = Duration::from_millis(400);
/// How the guest's line begins that says how a check ended.
const CHECKED: &str = "# checked ";
/// What the guest prints when a writer or a server ends, which it must not.
pub(super) const ENDED: &str = "# ended";
/// A checker's messages about a pool that holds nothing, because the power went before or while it was created. If
/// any write was acknowledged it is lost then, and the history reports that.
const NO_POOL: [&str; 2] = ["there is no pool", "its creation was interrupted and nothing was stored in it"];
const MESSAGES_SHOWN_MAX: usize = 20;

/// The result of all rounds.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) rounds: u64,
    pub(super) acknowledged: u64,
    pub(super) verified: u64,
    pub(super) checks_cut: u64,
    pub(super) verdict: HistoryVerdict,
}

/// The rounds of one medium.
pub(super) struct Rounds {
    pub(super) rig: Rig,
    pub(super) script: Script,
    pub(super) keep: PathBuf,
    pub(super) seed: u64,
    tape: Tape,
    outcome: Outcome,
}

impl Rounds {
    pub(super) fn new(rig: Rig, script: Script, keep: PathBuf, seed: u64) -> Self {
        Self { rig, script, keep, seed, tape: Tape::default(), outcome: Outcome::default() }
    }

    /// What the machine did so far.
    pub(super) fn totals(&self) -> Totals {
        self.rig.totals
    }

    /// Runs `count` rounds, or until something is found wrong. A run in which no write was acknowledged is an error.
    pub(super) fn run(&mut self, count: u64) -> Result<Outcome> {
        let start = Instant::now();
        for round in 0..count {
            let powered = if round % ROUNDS_PER_DISK == 0 { self.fresh()? } else { self.boot_and_check()? };
            let Some(powered) = powered else { return Ok(std::mem::take(&mut self.outcome)) };
            let least = least(round + 1 == count, self.outcome.acknowledged);
            self.write_and_cut(powered, round, least).with_context(|| format!("round {round}"))?;
            self.outcome.rounds += 1;
            let last_of_disk = (round + 1) % ROUNDS_PER_DISK == 0 || round + 1 == count;
            if last_of_disk {
                let Some(powered) = self.boot_and_check()? else {
                    return Ok(std::mem::take(&mut self.outcome));
                };
                self.rig.cut(powered)?;
                println!(
                    "powercut: {}: {} of {count} rounds, {} writes acknowledged, {:.0} s",
                    self.rig.storage.name(),
                    round + 1,
                    self.outcome.acknowledged,
                    start.elapsed().as_secs_f64()
                );
            }
        }
        ensure!(count == 0 || self.outcome.acknowledged > 0, "no write was acknowledged: nothing is proved");
        Ok(std::mem::take(&mut self.outcome))
    }

    /// Removes the machine's files. Files kept after a failure lie elsewhere.
    pub(super) fn clear(self) -> Result<()> {
        Ok(fs::remove_dir_all(&self.rig.folder)?)
    }

    /// Judges a kept image once more.
    pub(super) fn examine(&mut self, folder: &Path) -> Result<Outcome> {
        self.tape = Tape::play(folder)?;
        fs::create_dir_all(&self.rig.folder)?;
        copy(&folder.join("disk.img"), &self.rig.image())?;
        let mut powered = self.rig.boot()?;
        let verdict = self.check(&mut powered, true)?;
        self.rig.cut(powered)?;
        self.take(verdict);
        for sentence in self.outcome.verdict.messages().take(MESSAGES_SHOWN_MAX) {
            println!("  {sentence}");
        }
        Ok(std::mem::take(&mut self.outcome))
    }

    /// A new file system, mostly with a log so small that checkpoints happen all the time.
    fn fresh(&mut self) -> Result<Option<Powered>> {
        self.tape = Tape::default();
        self.script.log = if self.rig.rng.random_ratio(2, 3) { "1M" } else { "16M" };
        self.rig.format()?;
        Ok(Some(self.rig.boot()?))
    }

    /// Boots and judges what the last cut left; `None` after a bad verdict. Some checks are cut themselves:
    /// recovery must survive a power cut as well.
    fn boot_and_check(&mut self) -> Result<Option<Powered>> {
        let before = self.rig.folder.join("before.img");
        loop {
            copy(&self.rig.image(), &before)?;
            let mut powered = self.rig.boot()?;
            if self.rig.rng.random_ratio(1, 5) {
                let close = self.rig.rng.random_ratio(1, 2);
                powered.guest.type_in(&self.script.check(close))?;
                let delay = CHECK_MAX.mul_f64(self.rig.rng.random());
                let lines = powered.guest.lines_before(Instant::now() + delay, CHECKED)?;
                self.rig.cut(powered)?;
                self.outcome.checks_cut += 1;
                // It may have ended before the cut, but it must not have failed.
                if lines.last().is_some_and(|line| line.starts_with(CHECKED))
                    && let Err(error) = listed(self.script.program, lines)
                {
                    let kept = self.keep_failure(&before)?;
                    return Err(error.context(kept));
                }
                continue;
            }
            let close = self.rig.rng.random_ratio(1, 3);
            let kept = match self.check(&mut powered, close) {
                Ok(verdict) if verdict.is_clean() => {
                    self.take(verdict);
                    return Ok(Some(powered));
                }
                Ok(verdict) => {
                    self.take(verdict);
                    self.keep_failure(&before)
                }
                Err(error) => {
                    let kept = self.keep_failure(&before)?;
                    return Err(error.context(kept));
                }
            };
            self.rig.cut(powered)?;
            let kept = kept?;
            if !self.script.early && !self.rig.lies {
                println!("{kept}");
            }
            return Ok(None);
        }
    }

    fn check(&mut self, powered: &mut Powered, close: bool) -> Result<HistoryVerdict> {
        powered.guest.type_in(&self.script.check(close))?;
        let lines = powered.guest.lines_until(CHECKED)?;
        self.tape.check(&listed(self.script.program, lines)?)
    }

    /// Lets the writer write until a random instant, after `least` acknowledged writes, and cuts.
    fn write_and_cut(&mut self, mut powered: Powered, round: u64, least: u64) -> Result<()> {
        let Instants { count, at_flush, delay } = Instants::draw(&mut self.rig.rng, self.rig.storage, least);
        if let (0, Some(flushes)) = (count, at_flush) {
            powered.cut_at_flush(flushes);
        }
        powered.guest.type_in(&self.script.write(round, self.rig.rng.random()))?;
        let mut lines = Vec::new();
        let mut patience = Instant::now() + FIRST_PATIENCE;
        for nth in 0..count {
            lines.extend(powered.guest.lines_before(patience, "<")?);
            let now = Instant::now();
            if now >= patience {
                break;
            }
            if nth == 0 {
                patience = now + WRITE_PATIENCE;
            }
        }
        ensure!(
            count == 0 || lines.iter().any(|line| line.starts_with('<')),
            "nothing was acknowledged within {FIRST_PATIENCE:?}; the guest said: {:?}",
            lines.last()
        );
        if let Some(flushes) = at_flush {
            if count > 0 {
                powered.cut_at_flush(flushes);
            }
            let patience = Instant::now() + WRITE_PATIENCE;
            while !powered.is_off()
                && Instant::now() < patience
                && !lines.last().is_some_and(|line| is_end(line))
            {
                lines.extend(powered.guest.lines_before(Instant::now() + OFF_POLL, ENDED)?);
            }
        } else {
            lines.extend(powered.guest.lines_before(Instant::now() + delay, ENDED)?);
        }
        if let Some(end) = lines.iter().find(|line| is_end(line)) {
            bail!("the writer ended by itself ({end})\n{}", powered.guest.console_tail());
        }
        lines.extend(self.rig.cut(powered)?);
        let before = self.tape.history.acknowledged_total();
        for line in &lines {
            self.tape.writer(line)?;
        }
        self.outcome.acknowledged += self.tape.history.acknowledged_total() - before;
        Ok(())
    }

    fn take(&mut self, verdict: HistoryVerdict) {
        self.outcome.verified += verdict.found;
        self.outcome.verdict.lost.extend(verdict.lost);
        self.outcome.verdict.phantom.extend(verdict.phantom);
        self.outcome.verdict.torn.extend(verdict.torn);
        self.outcome.verdict.unexplained.extend(verdict.unexplained);
    }

    /// Keeps the image as the cut left it, and the tape; returns the text for the user.
    fn keep_failure(&self, before: &Path) -> Result<String> {
        fs::create_dir_all(&self.keep)?;
        copy(before, &self.keep.join("disk.img"))?;
        self.tape.keep(&self.keep)?;
        let mut text = String::new();
        for sentence in self.outcome.verdict.messages().take(MESSAGES_SHOWN_MAX) {
            text.push_str(&format!("  {sentence}\n"));
        }
        let program = match self.script.program {
            Program::Map => "",
            Program::Sqlite => " --program sqlite",
            Program::Txn => " --program txn",
            Program::Raw => " --program raw",
            Program::Redis => " --program redis",
        };
        Ok(format!(
            "{text}seed {}; the disk as the cut left it is kept; judge it again with\n  \
             cargo xtask powercut --medium {}{program} --examine {}",
            self.seed,
            self.rig.storage.name(),
            self.keep.display(),
        ))
    }
}

/// What a check that has ended lists; an error when it failed.
fn listed(program: Program, mut lines: Vec<String>) -> Result<Vec<String>> {
    let status = lines.pop().unwrap_or_default();
    let (why, lines): (Vec<String>, Vec<String>) =
        lines.into_iter().partition(|line| line.starts_with("# why: "));
    let no_pool = why.iter().any(|line| NO_POOL.iter().any(|sentence| line.contains(sentence)));
    if status == "# checked 3" && no_pool && program != Program::Raw {
        return Ok(vec![". 0".to_owned()]);
    }
    ensure!(status == "# checked 0", "the checker failed ({status}): {}", why.join("\n"));
    Ok(lines)
}

/// The medium that the program must choose on a storage: with another one the test would not test what it claims.
pub(super) fn medium(storage: GuestStorage) -> &'static str {
    match storage {
        GuestStorage::Ext4 => "file",
        GuestStorage::Dax => "dax",
        GuestStorage::Devdax => "dax --devdax /dev/dax0.0",
    }
}

fn is_end(line: &str) -> bool {
    line.starts_with(ENDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_failed_is_an_error_unless_there_is_no_pool() -> Result<()> {
        let of = |text: &str| listed(Program::Map, text.lines().map(str::to_owned).collect());
        assert_eq!(of("= k a 1\n. 1\n# checked 0")?, ["= k a 1", ". 1"]);
        assert_eq!(of("# why: there is no pool at /mnt/pool\n# checked 3")?, [". 0"]);
        for failed in ["# why: the log is damaged\n# checked 3", ". 0\n# checked 1", "# checked 139", ""] {
            assert!(of(failed).is_err(), "{failed}");
        }
        Ok(())
    }
}
