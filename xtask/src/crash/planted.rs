//! Planted bugs: each call site that orders durable bytes is silenced in turn; each must be caught.
//!
//! A site is judged in a process of its own, since silenced code may abort, hang or eat memory: that
//! counts as caught too, and is said.

use super::itself;
use anyhow::{Context, bail};
use mangrove_crashlab::{Engine, SiteKey, discover, domains_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A campaign on one site and one domain that takes longer hangs.
const SITE_SECONDS_MAX: u64 = 300;

/// Distinct images in the durable application's campaign for a place of the floors below.
const IMAGES_BELOW: u64 = 6000;

enum Verdict {
    Caught(String),
    Survived,
}

/// Silences every site that the workloads reach, prints the table and caught/total.
pub(super) fn run(engine: Engine, seed: u64, images: u64, jobs: usize, own: bool) -> anyhow::Result<()> {
    eprintln!("looking for flushes, fences, waits and syncs that the workloads reach");
    let sites = discover(engine, seed, own).map_err(|v| {
        anyhow::anyhow!("no bug is planted yet, and there is a violation: {} ({})", v.message, v.token)
    })?;
    let list: Vec<&SiteKey> = sites.keys().collect();
    let next = AtomicUsize::new(0);
    let verdicts: Mutex<BTreeMap<usize, Verdict>> = Mutex::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1))
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    loop {
                        // Relaxed: only uniqueness matters.
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        let Some(site) = list.get(n) else { return Ok(()) };
                        let verdict = judge_on_floors(engine, site, seed, images)?;
                        let (word, how) = match &verdict {
                            Verdict::Caught(how) => ("caught  ", how.as_str()),
                            Verdict::Survived => ("SURVIVED", ""),
                        };
                        println!("{word} {site}  ({} calls)  {how}", sites[*site]);
                        verdicts.lock().unwrap_or_else(|e| e.into_inner()).insert(n, verdict);
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| bail!("a worker panicked")))
    })?;
    let verdicts = verdicts.into_inner().unwrap_or_else(|e| e.into_inner());
    let survivors: Vec<_> =
        verdicts.iter().filter(|(_, v)| matches!(v, Verdict::Survived)).map(|(n, _)| list[*n]).collect();
    for place in unreached(engine, &sites)? {
        println!("not reached by any workload: {place}");
    }
    println!("planted bugs: {}/{} caught", list.len() - survivors.len(), list.len());
    if list.is_empty() {
        bail!("no site was found: the workloads reach nothing");
    }
    if !survivors.is_empty() {
        bail!("{} silenced sites went unnoticed", survivors.len());
    }
    Ok(())
}

/// What the runtime's workloads leave unnoticed on the floors below, the shadow's own must notice: it commits from
/// several threads, and grows on another one than it commits on, as the runtime never does.
fn judge_on_floors(engine: Engine, site: &SiteKey, seed: u64, images: u64) -> anyhow::Result<Verdict> {
    if engine != Engine::Durable || site.file.contains("durable/src/") {
        return judge(engine, site, seed, images);
    }
    match judge(engine, site, seed, images.min(IMAGES_BELOW))? {
        Verdict::Caught(how) => Ok(Verdict::Caught(how)),
        Verdict::Survived => judge(Engine::Shadow, site, seed, images),
    }
}

/// Runs the campaign without this site, in every domain where its absence can show, until one catches it.
fn judge(engine: Engine, site: &SiteKey, seed: u64, images: u64) -> anyhow::Result<Verdict> {
    for domain in domains_of(site.kind) {
        let mut child = Command::new(itself()?)
            .args([
                "crash",
                "--engine",
                engine.name(),
                "--domain",
                domain.name(),
                "--seed",
                &seed.to_string(),
            ])
            .args(["--images", &images.to_string(), "--without", &site.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start this program again")?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() > Duration::from_secs(SITE_SECONDS_MAX) {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let mut said = String::new();
        if let Some(mut out) = child.stdout.take() {
            out.read_to_string(&mut said)?;
        }
        let Some(status) = status else {
            // Too slow is not caught: say so rather than count it.
            println!("         {site}: {} not finished in {SITE_SECONDS_MAX} s", domain.name());
            continue;
        };
        if let Some(at) = said.find("VIOLATION in ") {
            let how: Vec<&str> = said[at + 13..].lines().take(2).map(str::trim).collect();
            let mut how = how.join(": ");
            how.truncate(how.char_indices().nth(140).map_or(how.len(), |(i, _)| i));
            return Ok(Verdict::Caught(how));
        }
        if !status.success() {
            return Ok(Verdict::Caught(format!("{}: the process died, {status}", domain.name())));
        }
    }
    Ok(Verdict::Survived)
}

/// Calls in the sources that look like sites and were not reached.
fn unreached(engine: Engine, sites: &BTreeMap<SiteKey, u64>) -> anyhow::Result<Vec<String>> {
    let reached: BTreeSet<(String, u32)> = sites.keys().map(|s| (s.file.clone(), s.line)).collect();
    let mut out = Vec::new();
    // The shadow has a campaign of its own, which says what that leaves out.
    let roots = engine.sources();
    let roots = if engine == Engine::Durable { &roots[..1] } else { roots };
    for root in roots {
        let mut folders = vec![std::path::Path::new("crates").join(root.trim_end_matches('/'))];
        while let Some(folder) = folders.pop() {
            for entry in
                std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
            {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") && !is_test(&path) {
                    let calls = if engine == Engine::Durable { &REPORTS[..] } else { &ORDERS[..] };
                    scan(&path, calls, &reached, &mut out)?;
                }
            }
        }
    }
    out.sort();
    Ok(out)
}

/// Calls that order durable bytes.
const ORDERS: [&str; 9] = [
    ".flush(",
    ".fence(",
    ".drain(",
    ".wait(",
    ".sync(",
    ".sync_dir(",
    ".write_durable(",
    ".write_at(",
    ".persist(",
];
/// Calls that say what was written.
const REPORTS: [&str; 2] = [".wrote(", "::report("];

fn is_test(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("tests"))
}

fn scan(
    path: &std::path::Path,
    calls: &[&str],
    reached: &BTreeSet<(String, u32)>,
    out: &mut Vec<String>,
) -> anyhow::Result<()> {
    const PASSED_ON: [&str; 5] = ["..)", "site)", "ticket)", "Location::caller()", "self)"];
    let text = std::fs::read_to_string(path)?;
    let file = path.to_string_lossy().into_owned();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("mod tests") {
            break;
        }
        // Helpers hand their caller's place on, so the callers are the sites.
        let helper = PASSED_ON.iter().any(|p| line.contains(p));
        let call = !line.starts_with("//") && !helper && calls.iter().any(|c| line.contains(c));
        if call && !reached.contains(&(file.clone(), n as u32 + 1)) {
            out.push(format!("{file}:{}: {line}", n + 1));
        }
    }
    Ok(())
}
