//! Work that a child process does, because it is killed or because a store may crash on damaged bytes. The parent
//! starts this program again with `--child VERB:STORE:COUNT:DIR`.

use super::batches::load;
use crate::harness::context::MapBench;
use crate::harness::records;
use crate::harness::store::SyncMode;
use crate::report::say;
use anyhow::{Context as _, bail, ensure};
use mangrove::Map;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Records that a look reads.
const READS: u64 = 1000;

/// What a child prints when it has done its work and waits to be killed.
const READY: &str = "ready";

/// Starts a child on `verb`; `None` where this program cannot be started as a bench (unit tests).
pub(super) fn start(
    c: &MapBench<'_>,
    verb: &str,
    store: &str,
    count: usize,
    dir: &Path,
) -> anyhow::Result<Option<Child>> {
    let Some(prefix) = &c.child else { return Ok(None) };
    let exe = std::env::current_exe().context("cannot find this program's file to start it as a child")?;
    let dir = dir.to_str().context("the path of --dir is not UTF-8")?;
    let child = Command::new(exe)
        .args(prefix)
        .arg("--child")
        .arg(format!("{verb}:{store}:{count}:{dir}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a child process")?;
    Ok(Some(child))
}

/// Waits until the child reports that it is ready, then kills it with SIGKILL.
pub(super) fn kill_when_ready(mut child: Child) -> anyhow::Result<()> {
    let out = child.stdout.take().context("the child has no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    if line.trim() != READY {
        let status = child.wait()?;
        bail!("the child ended early ({status}) after saying '{}'", line.trim());
    }
    child.kill().context("cannot kill the child")?;
    child.wait()?;
    Ok(())
}

/// What a child found when it read a store through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadVerdict {
    pub(super) wrong: u64,
    pub(super) missing: u64,
    pub(super) extra: u64,
}

/// Waits for the child's end and reads its verdict. `Err` of the inner result tells how it failed (an error of the
/// store, a crash, or no end within `limit`).
pub(super) fn verdict(mut child: Child, limit: Duration) -> anyhow::Result<Result<ReadVerdict, String>> {
    let start = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if start.elapsed() > limit => {
                child.kill()?;
                child.wait()?;
                return Ok(Err(format!("did not end within {} s", limit.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        std::io::Read::read_to_string(&mut out, &mut text)?;
    }
    if !status.success() {
        return Ok(Err(format!("{status}")));
    }
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match numbers[..] {
        [wrong, missing, extra] => Ok(Ok(ReadVerdict { wrong, missing, extra })),
        _ => Ok(Err(format!("said '{}'", text.trim()))),
    }
}

/// The child's side.
pub(crate) fn run_child(c: &MapBench<'_>, task: &str) -> anyhow::Result<()> {
    let mut parts = task.splitn(4, ':');
    let mut next = || parts.next().context("--child is for this program's own use");
    let (verb, name, count, dir) = (next()?, next()?, next()?.parse::<usize>()?, next()?);
    if verb == "look" {
        return look(Path::new(dir), name.parse()?, count);
    }
    let Some(kind) = c.stores.iter().find(|s| s.name() == name) else { bail!("there is no store '{name}'") };
    let dir = Path::new(dir);
    match verb {
        // Puts without sync, makes them durable at the end, then waits for SIGKILL.
        "fill" => {
            let store = kind.open(dir, SyncMode::Async)?;
            for n in 0..count as u64 {
                let key = records::key(n);
                store.put(&key, &records::value(&key))?;
            }
            store.sync()?;
            say::answer(&format!("{READY}\n"))?;
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        "close" => {
            let store = kind.open(dir, SyncMode::Async)?;
            load(&*store, count)?;
            store.close()
        }
        "read" => {
            let v = read_through(&**kind, dir, count)?;
            say::answer(&format!("{} {} {}\n", v.wrong, v.missing, v.extra))
        }
        _ => bail!("there is no child task '{verb}'"),
    }
}

/// Reads every key by itself and everything in order. An error of the store ends it, because a store that reports
/// damage is not silently wrong.
fn read_through(
    kind: &dyn crate::harness::store::StoreKind,
    dir: &Path,
    count: usize,
) -> anyhow::Result<ReadVerdict> {
    let store = kind.open(dir, SyncMode::Async)?;
    let mut v = ReadVerdict::default();
    let mut value = Vec::new();
    for n in 0..count as u64 {
        let key = records::key(n);
        if !store.get(&key, &mut value)? {
            v.missing += 1;
        } else if value != records::value(&key) {
            v.wrong += 1;
        }
    }
    let mut wrong = 0;
    let seen = store.scan(&mut |k, v| wrong += u64::from(v != records::value(k)))?;
    v.wrong += wrong;
    v.missing += (count as u64).saturating_sub(seen);
    v.extra = seen.saturating_sub(count as u64);
    Ok(v)
}

/// The reader's process: so many looks, one a second; says how many milliseconds each took.
fn look(pool: &Path, looks: usize, count: usize) -> anyhow::Result<()> {
    for n in 0..looks as u64 {
        let start = Instant::now();
        let map = Map::options().read_only(true).open(pool)?;
        for read in 0..READS.min(count as u64) {
            let key = records::key((n * READS + read).wrapping_mul(0x9E37_79B1) % count as u64);
            let value = map.get(key)?;
            ensure!(value.as_deref() == Some(&records::value(&key)[..]), "a look lacks a record");
        }
        map.close()?;
        let took = start.elapsed();
        say::answer(&format!("{}\n", took.as_secs_f64() * 1e3))?;
        std::thread::sleep(Duration::from_secs(1).saturating_sub(took));
    }
    Ok(())
}
