//! `cargo xtask fuzz --planted`: damages unclosed pools systematically, with every check and without each in turn.

use anyhow::{Context, bail};
use mangrove_crashlab::fuzz::{DamageCheck, damage_search, leave_out};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Searches without a check that run at the same time.
const SEARCHES_AT_ONCE: usize = 4;

/// What a process without a check says before what its search has found.
const FINDING: &str = "found: ";

/// Runs the search: with `without` in this process, without that check; else first with all checks, and then in a
/// process for each check, because a pool without it may end the process. `sparse`: without one check in eight, and not
/// with all of them; crashlab's tests search with all.
pub(super) fn run(without: Option<&str>, sparse: bool) -> anyhow::Result<()> {
    if let Some(name) = without {
        return search_without(name);
    }
    if !sparse {
        search(false)?;
    }
    let mut missed = Vec::new();
    let checks: Vec<DamageCheck> = DamageCheck::ALL.into_iter().step_by(if sparse { 8 } else { 1 }).collect();
    for (check, answer) in checks.iter().zip(side_by_side(&checks)?) {
        let name = format!("{check:?}");
        let Err(finding) = answer else {
            println!("  {name:<16} NOT NOTICED");
            missed.push(name);
            continue;
        };
        println!("  {name:<16} {finding}");
    }
    if !missed.is_empty() {
        bail!("left out, and nothing noticed: {}", missed.join(", "));
    }
    println!("{} of {} checks left out in turn: each is needed", checks.len(), DamageCheck::ALL.len());
    Ok(())
}

/// Searches in this process without the check of that name.
fn search_without(name: &str) -> anyhow::Result<()> {
    let found = DamageCheck::ALL.into_iter().find(|check| format!("{check:?}") == name);
    let Some(check) = found else { bail!("no check is called {name}; there are {:?}", DamageCheck::ALL) };
    leave_out(check);
    // The pools that need the check come first.
    let mapped_first = matches!(
        check,
        DamageCheck::ImageLength
            | DamageCheck::Made
            | DamageCheck::BlankRootWord
            | DamageCheck::BlankSegment
            | DamageCheck::BlankChunk
            | DamageCheck::BlankSlot
    );
    let found = search(mapped_first);
    if let Err(finding) = &found {
        println!("{FINDING}{finding}");
    }
    found
}

/// Searches for a loss, and prints what it has damaged.
fn search(mapped_first: bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    let tally = damage_search(true, mapped_first).map_err(anyhow::Error::msg)?;
    println!(
        "{} damaged pools: {} refused, the others whole or exempt, {:.1} s",
        tally.tried,
        tally.refused,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The search without each of the checks, in their order: what it found, or that it found nothing. The processes wait
/// for the disk most of the time, so some run at once.
fn side_by_side(checks: &[DamageCheck]) -> anyhow::Result<Vec<Result<(), String>>> {
    let itself = std::env::current_exe().context("where is this program?")?;
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![Ok(()); checks.len()]);
    std::thread::scope(|scope| {
        let work = || -> anyhow::Result<()> {
            loop {
                // Relaxed: only gives each check to one thread.
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(check) = checks.get(at) else { return Ok(()) };
                let out = Command::new(&itself)
                    .args(["fuzz", "--planted", "--without", &format!("{check:?}")])
                    .output()
                    .context("cannot start this program again")?;
                let answer = answer(*check, &out)?;
                answers.lock().unwrap_or_else(PoisonError::into_inner)[at] = answer;
            }
        };
        let workers: Vec<_> = (0..SEARCHES_AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })?;
    Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What the search without a check has found, as an error: what it said, or that it died of a signal. A process that
/// failed in another way has found nothing.
fn answer(check: DamageCheck, out: &Output) -> anyhow::Result<Result<(), String>> {
    if out.status.success() {
        return Ok(Ok(()));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&out.stdout), text(&out.stderr));
    if let Some(finding) = said.lines().find_map(|line| line.strip_prefix(FINDING)) {
        return Ok(Err(finding.to_owned()));
    }
    if out.status.signal().is_some() {
        return Ok(Err(format!("it died, {}", out.status)));
    }
    bail!("the search without {check:?} failed, {}, and found nothing:\n{said}{errors}", out.status)
}
