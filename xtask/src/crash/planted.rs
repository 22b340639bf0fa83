//! Injected faults: suppresses, in turn, each call site that orders durable bytes; the campaign must catch each
//! fault.
//!
//! A process of its own judges each call site, because an engine with a fault may abort, hang or use up memory.
//! That counts as caught too; the output, and its sum, distinguish it from a violation. A process that ends by itself
//! counts only with a violation, and one that a user ends (SIGINT, SIGTERM, SIGHUP) not at all.

use anyhow::{Context, bail};
use mangrove_crashlab::{Calls, CrashDomain, EngineKind, FEW_IMAGES, SiteKey, discover, domains_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How the message on an image that takes too long to judge begins.
pub(super) const HANGS: &str = "hangs: not judged within";

/// A campaign on one call site and one domain that takes longer hangs outside of any image; images have a watch of
/// their own.
const SITE_SECONDS_MAX: u64 = 3600;

/// Distinct images in the campaign of durable applications or transactions for a call site of the floors below.
const IMAGES_BELOW: u64 = 6000;

/// Bytes that are shown of what a process said on standard error.
const TAIL_BYTES: usize = 4000;

/// Signals that a process gets for what it did itself; SIGKILL for the memory that it took.
const OWN_SIGNALS: [i32; 8] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGKILL,
];

/// What became of a fault.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The campaign found a violation.
    Caught(String),
    /// An image was not judged in time.
    Hung(String),
    /// A signal ended the campaign.
    Died(String),
    Survived,
}

impl Verdict {
    /// Of a campaign that has ended, and said this; `None` where it failed and found nothing.
    fn of(domain: CrashDomain, status: ExitStatus, said: &str) -> Option<Self> {
        if let Some((_, found)) = said.split_once("VIOLATION in ") {
            let lines: Vec<&str> = found.lines().take(2).map(str::trim).collect();
            let mut how = lines.join(": ");
            how.truncate(how.char_indices().nth(140).map_or(how.len(), |(i, _)| i));
            let hangs = lines.get(1).is_some_and(|message| message.starts_with(HANGS));
            return Some(if hangs { Self::Hung(how) } else { Self::Caught(how) });
        }
        match status.signal() {
            Some(signal) if OWN_SIGNALS.contains(&signal) => {
                Some(Self::Died(format!("{}: the process died, {status}", domain.name())))
            }
            _ => status.success().then_some(Self::Survived),
        }
    }

    /// A word of one width, and what the campaign found.
    fn told(&self) -> (&'static str, &str) {
        match self {
            Self::Caught(how) => ("caught  ", how),
            Self::Hung(how) => ("HUNG    ", how),
            Self::Died(how) => ("DIED    ", how),
            Self::Survived => ("SURVIVED", ""),
        }
    }
}

/// Injects a fault at every call site that the workloads reach, or at the first of `every` in a row; prints the table
/// and caught/total.
pub(super) fn run(
    engine: EngineKind,
    seed: u64,
    images: u64,
    jobs: usize,
    own: bool,
    every: usize,
) -> anyhow::Result<()> {
    eprintln!("looking for flushes, fences, waits and syncs that the workloads reach");
    // Of a part of the call sites a part of the search finds enough.
    let found_in = if every > 1 { FEW_IMAGES } else { u64::MAX };
    let sites = sites_of(engine, seed, own, found_in)?;
    let list: Vec<&SiteKey> = sites.keys().step_by(every).collect();
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
                        let calls = &sites[*site];
                        let verdict = judge_on_floors(engine, site, &calls.domains(), seed, images)?;
                        let (word, how) = verdict.told();
                        println!("{word} {site}  ({} calls)  {how}", calls.total());
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
    let unreached = unreached(engine, &sites, own)?;
    for place in &unreached {
        println!("not reached by any workload: {place}");
    }
    let of = if every > 1 { format!(" ({} call sites)", sites.len()) } else { String::new() };
    let hung = verdicts.values().filter(|verdict| matches!(verdict, Verdict::Hung(_))).count();
    let died = verdicts.values().filter(|verdict| matches!(verdict, Verdict::Died(_))).count();
    println!(
        "planted bugs: {}/{} caught{of}, {hung} of them by a hang, {died} by the death of the process; \
         {} calls not reached",
        list.len() - survivors.len(),
        list.len(),
        unreached.len()
    );
    if list.is_empty() {
        bail!("no site was found: the workloads reach nothing");
    }
    if !survivors.is_empty() {
        bail!("{} silenced sites went unnoticed", survivors.len());
    }
    Ok(())
}

/// The call sites to judge. With `own` those of the map are its own, and what its workloads reach on the floors below
/// and the shadow's do not: those have their own campaign.
fn sites_of(
    engine: EngineKind,
    seed: u64,
    own: bool,
    images: u64,
) -> anyhow::Result<BTreeMap<SiteKey, Calls>> {
    let find = |engine, own| {
        discover(engine, seed, own, images).map_err(|v| {
            anyhow::anyhow!("no bug is planted yet, and there is a violation: {} ({})", v.message, v.token)
        })
    };
    if !own || engine != EngineKind::Map {
        return find(engine, own);
    }
    let mut sites = find(engine, false)?;
    let below = find(EngineKind::Shadow, false)?;
    sites.retain(|site, _| !below.contains_key(site));
    Ok(sites)
}

/// A fault on the floors below that the workloads of durable applications, or of transactions, do not notice must be
/// caught by the shadow's own: they commit from several threads, and grow on another thread than they commit on, as
/// the runtime of applications never does, and spill in each run, as few transactions do; or by the map's, which often
/// asks again for what it has given back.
fn judge_on_floors(
    engine: EngineKind,
    site: &SiteKey,
    domains: &[CrashDomain],
    seed: u64,
    images: u64,
) -> anyhow::Result<Verdict> {
    let stands_above = matches!(engine, EngineKind::Durable | EngineKind::Txn);
    if !stands_above || engine.own_sources().iter().any(|part| site.file.contains(part)) {
        return judge(engine, site, domains, seed, images);
    }
    let verdict = judge(engine, site, domains, seed, images.min(IMAGES_BELOW))?;
    if verdict != Verdict::Survived {
        return Ok(verdict);
    }
    for below in [EngineKind::Shadow, EngineKind::Map] {
        let verdict = judge(below, site, domains_of(site.kind), seed, images)?;
        if verdict != Verdict::Survived {
            return Ok(verdict);
        }
    }
    // A wait that only these workloads reach, and seldom.
    judge(engine, site, domains, seed, images)
}

/// Runs the campaign with a fault at this call site in these domains until one catches it.
fn judge(
    engine: EngineKind,
    site: &SiteKey,
    domains: &[CrashDomain],
    seed: u64,
    images: u64,
) -> anyhow::Result<Verdict> {
    for domain in domains {
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
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start this program again")?;
        // Read meanwhile: a process that fills the pipe waits.
        let errors = child.stderr.take().map(|pipe| std::thread::spawn(move || tail(pipe)));
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
            // A campaign that is too slow has not caught the fault: report it rather than count it.
            println!("         {site}: {} not finished in {SITE_SECONDS_MAX} s", domain.name());
            continue;
        };
        match Verdict::of(*domain, status, &said) {
            Some(Verdict::Survived) => {}
            Some(verdict) => return Ok(verdict),
            None => {
                let errors = errors.and_then(|reader| reader.join().ok()).unwrap_or_default();
                let domain = domain.name();
                bail!(
                    "without {site} in {domain} the campaign failed, {status}, and found nothing:\n{said}{errors}"
                );
            }
        }
    }
    Ok(Verdict::Survived)
}

/// Reads all of a pipe, and returns its end.
fn tail(mut pipe: impl Read) -> String {
    let (mut kept, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = pipe.read(&mut part) {
        kept.extend_from_slice(&part[..count]);
        kept.drain(..kept.len().saturating_sub(TAIL_BYTES));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Calls in the sources that look like call sites and were not reached.
fn unreached(engine: EngineKind, sites: &BTreeMap<SiteKey, Calls>, own: bool) -> anyhow::Result<Vec<String>> {
    let reached: BTreeSet<(String, u32)> = sites.keys().map(|s| (s.file.clone(), s.line)).collect();
    let mut out = Vec::new();
    // The shadow has a campaign of its own, which reports its unreached call sites.
    let own = own || engine == EngineKind::Durable;
    let roots = if own { engine.own_sources() } else { engine.sources() };
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
                    let calls = if engine == EngineKind::Durable { &REPORTS[..] } else { &ORDERS[..] };
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
/// Calls that report writes, those of the arena's `Words` among them.
const REPORTS: [&str; 6] = [".wrote(", "::report(", "w.store(", "w.store_all(", "w.zero(", "w.copy("];

fn is_test(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains("tests"))
}

fn scan(
    path: &std::path::Path,
    calls: &[&str],
    reached: &BTreeSet<(String, u32)>,
    out: &mut Vec<String>,
) -> anyhow::Result<()> {
    const PASSED_ON: [&str; 6] = ["..)", "site)", "ticket)", "Location::caller()", "self)", "self.wrote("];
    let text = std::fs::read_to_string(path)?;
    let file = path.to_string_lossy().into_owned();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("mod tests") {
            break;
        }
        // Helpers pass their caller's location on, so their callers are the call sites.
        let helper = PASSED_ON.iter().any(|p| line.contains(p));
        let call = !line.starts_with("//") && !helper && calls.iter().any(|c| calls_it(line, c));
        if call && !reached.contains(&(file.clone(), n as u32 + 1)) {
            out.push(format!("{file}:{}: {line}", n + 1));
        }
    }
    Ok(())
}

/// Whether the line has this call; a call on a variable is not one on another whose name ends the same way.
fn calls_it(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        call.starts_with(['.', ':']) || !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
    })
}

/// The program itself, which runs a part in a process of its own.
fn itself() -> anyhow::Result<std::path::PathBuf> {
    std::env::current_exe().context("cannot find the path of this program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_and_a_death_are_told_from_a_violation() {
        let of = |status, said: &str| {
            let verdict = Verdict::of(CrashDomain::Adr, ExitStatus::from_raw(status), said);
            verdict.map(|verdict| verdict.told().0.trim_end())
        };
        let (done, failed) = (0, 1 << 8);
        let says = |message: &str| format!("VIOLATION in map:1 (batch)\n  {message}\n  replay: it\n");
        assert_eq!(of(failed, &says("a key is lost")), Some("caught"));
        assert_eq!(of(failed, &says(&format!("{HANGS} 60 seconds"))), Some("HUNG"));
        assert_eq!(of(libc::SIGABRT, ""), Some("DIED"));
        assert_eq!(of(libc::SIGTERM, ""), None, "a user ended it");
        assert_eq!(of(failed, "no engine"), None);
        assert_eq!(of(done, "0 violations"), Some("SURVIVED"));
    }
}
