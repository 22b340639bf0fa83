//! `mangrove redis update`: brings a state to the newest build. The old build writes a dump file, the new one imports
//! it into a state of its own, and only when that is whole does it get its name and the old one goes.

use crate::builds::Builds;
use crate::request::{Request, Usage};
use crate::start::{Choice, choose, command};
use crate::state;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DUMP: &str = "update.rdb";
const SOCKET: &str = "update.sock";
/// A server that takes longer to come up is taken for one that hangs.
const START_MS_MAX: u64 = 3_600_000;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let request = Request::parse(arguments)?;
    if request.last("dir").is_none() {
        return Err(Usage("update needs --dir: the directory of the state".to_owned()).into());
    }
    let builds = Builds::find(request.builds.as_deref())?;
    let dir = request.existing_dir()?;
    let newest = builds.current()?;
    let old = choose(&builds, &dir)?;
    if !old.exists || old.build.id == newest.id {
        println!("{}: nothing to update; the newest build is {}", dir.display(), newest.id);
        return Ok(());
    }
    println!("{}: from the build {} to {}", dir.display(), old.build.id, newest.id);
    let (dump, unfinished) = (dir.join(DUMP), dir.join(format!("state.{}.unfinished", newest.id)));
    let _ = std::fs::remove_file(&dump);
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)
            .with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }

    let state = state::place(&dir, &newest.id);
    let (old_build, old_state) = (old.build.id.clone(), old.state.clone());
    let new = Choice { build: newest, state: unfinished.clone(), exists: false };
    let copied = copy(&request, &dir, &old, &new);
    let _ = std::fs::remove_file(&dump);
    let _ = std::fs::remove_file(dir.join(SOCKET));
    if let Err(cause) = copied {
        let _ = std::fs::remove_dir_all(&unfinished);
        return Err(cause);
    }
    std::fs::rename(&unfinished, &state)
        .with_context(|| format!("cannot rename {}", unfinished.display()))?;
    sync_directory(&dir)?;
    std::fs::remove_dir_all(&old_state).with_context(|| format!("cannot remove {}", old_state.display()))?;
    println!(
        "{} is of the build {} now; the build {old_build} stays in {} for states that still need it",
        dir.display(),
        new.build.id,
        builds.folder().display()
    );
    Ok(())
}

/// Brings the keys of the old state into the new one by a dump file.
fn copy(request: &Request, dir: &Path, old: &Choice, new: &Choice) -> Result<()> {
    let dump = dir.join(DUMP);
    println!("the old build writes {}", dump.display());
    let server = Server::start(request, old, dir)?;
    server.ask(&["save"]).with_context(|| {
        format!(
            "the old build cannot write {}; the state is as it was. Is there space for it?",
            dump.display()
        )
    })?;
    let keys = server.ask(&["info", "keyspace"])?;
    server.stop()?;

    println!("the new build imports it");
    let server = Server::start(request, new, dir)?;
    let imported = server.ask(&["info", "keyspace"])?;
    server.stop()?;
    if counts(&keys) != counts(&imported) {
        bail!(
            "the import has other keys than the old state, which is as it was:\n{keys}\nand now\n{imported}"
        );
    }
    Ok(())
}

/// Databases and numbers of keys; keys that expire may have gone meanwhile, so those with a time to live do not count.
fn counts(keyspace: &str) -> Vec<(String, u64)> {
    let field = |line: &str, name: &str| {
        line.split([':', ','])
            .find_map(|part| part.strip_prefix(name))
            .and_then(|n| n.trim().parse::<u64>().ok())
    };
    let lines = keyspace.lines().filter(|line| line.starts_with("db"));
    lines
        .map(|line| {
            let name = line.split(':').next().unwrap_or_default().to_owned();
            (name, field(line, "keys=").unwrap_or(0).saturating_sub(field(line, "expires=").unwrap_or(0)))
        })
        .filter(|(_, keys)| *keys > 0)
        .collect()
}

fn sync_directory(dir: &Path) -> Result<()> {
    let file = std::fs::File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    file.sync_all().with_context(|| format!("cannot sync {}", dir.display()))
}

/// A server that only this program talks to.
struct Server {
    child: Child,
    cli: PathBuf,
    socket: PathBuf,
}

impl Server {
    fn start(request: &Request, choice: &Choice, dir: &Path) -> Result<Self> {
        let socket = dir.join(SOCKET);
        let _ = std::fs::remove_file(&socket);
        let mut server = command(request, choice);
        server.args([
            "--port",
            "0",
            "--tls-port",
            "0",
            "--unixsocket",
            SOCKET,
            "--dbfilename",
            DUMP,
            "--daemonize",
            "no",
        ]);
        server.args([
            "--appendonly",
            "no",
            "--requirepass",
            "",
            "--replicaof",
            "no",
            "one",
            "--cluster-port",
            "0",
        ]);
        // Both states keep every key, whatever the configuration evicts when the server runs under it.
        server.args(["--maxmemory", "0", "--maxmemory-policy", "noeviction"]);
        let child = server.stdout(Stdio::null()).spawn().context("cannot start the server")?;
        let mut server = Self { child, cli: choice.build.cli(), socket };
        for _ in 0..START_MS_MAX / 50 {
            if server.ask(&["ping"]).is_ok_and(|answer| answer.trim() == "PONG") {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("the server of the build {} ended with {status}", choice.build.id);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the server of the build {} does not come up", choice.build.id)
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        let answer = Command::new(&self.cli).arg("-s").arg(&self.socket).arg("-e").args(words).output()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        if !answer.status.success() {
            bail!("{}: {}{}", words.join(" "), text.trim(), String::from_utf8_lossy(&answer.stderr).trim());
        }
        Ok(text)
    }

    fn stop(mut self) -> Result<()> {
        let _ = self.ask(&["shutdown", "nosave"]);
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After an error; one that was stopped is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
