//! `mangrove redis update`: brings a state to the newest build. The old build writes a dump file, the new one imports
//! it into a state of its own, and only when that is whole does it get its name and the old one goes.

use crate::beneath::beneath;
use crate::builds::Builds;
use crate::lock;
use crate::request::{Request, Usage};
use crate::said::{Said, last_lines};
use crate::start::{StartChoice, choose, command};
use crate::state::{self, DirectoryState};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DUMP: &str = "update.rdb";
const SOCKET: &str = "update.sock";
/// No append-only file has this name.
const NO_FILE: &str = "update.aof";
/// What a node of a cluster knows of the others: in an update nothing.
const NODES: &str = "update.nodes";
/// The environment tells a server that what its state has is to be copied: the glue refuses one that does not count.
const COPIED: &str = "MANGROVE_REDIS_COPIED";
/// No machine has this address, and a server may do without one that has a hyphen before it: it listens at no port. A
/// node of a cluster must name one.
const NO_ADDRESS: &str = "-192.0.2.1";
/// A server that answers nothing for so long, not even that it loads, is taken for one that hangs.
const SILENCE_MAX: Duration = Duration::from_secs(600);

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let request = Request::parse(arguments)?;
    if request.last("dir").is_none() {
        return Err(Usage("update needs --dir: the directory of the state".to_owned()).into());
    }
    let builds = Builds::find(request.builds.as_deref())?;
    let dir = request.existing_dir()?;
    let _lock = lock::for_update(&dir)?;
    let newest = builds.current()?;
    let old = choose(&builds, &dir)?;
    state::remove_leftovers(&dir)?;
    if !old.exists || old.build.id == newest.id {
        println!("{}: nothing to update; the newest build is {}", dir.display(), newest.id);
        return Ok(());
    }
    println!("{}: from the build {} to {}", dir.display(), old.build.id, newest.id);
    let dump = dir.join(DUMP);
    let _ = std::fs::remove_file(&dump);

    let replaced = DirectoryState { build: old.build.id.clone(), path: old.state.clone() };
    let unfinished = state::unfinished(&dir, &newest.id);
    let new = StartChoice { build: newest, state: unfinished.clone(), exists: false };
    let copied = copy(&request, &dir, &old, &new);
    let _ = std::fs::remove_file(&dump);
    remove_files_of_servers(&dir);
    if let Err(cause) = copied {
        let _ = std::fs::remove_dir_all(&unfinished);
        return Err(cause);
    }
    state::replace(&dir, &replaced, &new.build.id)?;
    println!(
        "{} is of the build {} now; the build {} stays in {} for states that still need it",
        dir.display(),
        new.build.id,
        replaced.build,
        builds.folder().display()
    );
    Ok(())
}

/// Brings the keys of the old state into the new one by a dump file.
fn copy(request: &Request, dir: &Path, old: &StartChoice, new: &StartChoice) -> Result<()> {
    let dump = dir.join(DUMP);
    println!("the old build writes {}", dump.display());
    let server = Server::start(request, old, dir)?;
    // No other server has the state now, so nobody writes into what an update that was killed has left.
    remove_unfinished_dumps(dir)?;
    server.ask(&["save"]).map_err(|error| {
        let hint = if error.is::<Refusal>() { "" } else { ". Is there space for it?" };
        error.context(format!("the old build cannot write {}; the state is as it was{hint}", dump.display()))
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

/// Files that a server writes a dump to until it is whole; their names have its process id.
fn remove_unfinished_dumps(dir: &Path) -> Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix("temp-")?.strip_suffix(".rdb"));
        let Some(pid) = of.filter(|of| !of.is_empty() && of.bytes().all(|b| b.is_ascii_digit())) else {
            continue;
        };
        // One of another server, on another state, may still be written.
        if !Path::new("/proc").join(pid).exists() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// An error that the server answered, as it does however often it is asked.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let needs = match self.0.split(' ').next() {
            Some("NOAUTH" | "NOPERM" | "WRONGPASS" | "AUTH") => {
                "the update asks as the default user, which the configuration forbids: give the update one without \
                 `user default`"
            }
            _ => "the update needs PING, SAVE and INFO: give it a configuration that renames none of them",
        };
        write!(f, "the server replies \"{}\"; {needs}", self.0)
    }
}

impl std::error::Error for Refusal {}

/// Whether an answer is an error of the server's own, and not for the moment: its first word is a code.
fn is_refusal(answer: &str) -> bool {
    let code = answer.split(' ').next().unwrap_or_default();
    let is_code = code.len() > 2 && code.bytes().all(|b| b.is_ascii_uppercase());
    // A SAVE that fails says no more than ERR.
    is_code && !matches!(code, "LOADING" | "BUSY") && (code != "ERR" || answer.starts_with("ERR unknown"))
}

/// A server that only this program talks to.
struct Server {
    child: Child,
    cli: PathBuf,
    dir: PathBuf,
    said: Said,
}

/// Removes what an update's servers make beside their state.
fn remove_files_of_servers(dir: &Path) {
    for file in [SOCKET, NODES] {
        let _ = std::fs::remove_file(dir.join(file));
    }
}

impl Server {
    fn start(request: &Request, choice: &StartChoice, dir: &Path) -> Result<Self> {
        remove_files_of_servers(dir);
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
        // The state is newer than a file that its first start imported.
        server.args(["--appenddirname", NO_FILE, "--appendfilename", NO_FILE]);
        server.args(["--appendonly", "no", "--requirepass", "", "--replicaof", "no", "one"]);
        // With what the node knows of its cluster the server would join that: with another address, as a replica of the
        // node that took its place, and without the keys of slots that others have now.
        server.args(["--cluster-config-file", NODES, "--cluster-port", "0", "--bind", NO_ADDRESS]);
        // Both states keep every key, whatever the configuration evicts when the server runs under it.
        server.args(["--maxmemory", "0", "--maxmemory-policy", "noeviction"]);
        if choice.exists {
            // Without the file that it was to import a state that does not count yet would count, and be empty.
            server.env(COPIED, "1");
        }
        // Users of an ACL file would shut this program out. SHUTDOWN may have another name.
        server.args(["--aclfile", "", "--shutdown-on-sigterm", "nosave"]);
        // What it logs is for the message when it ends too early.
        server.args(["--logfile", ""]);
        let mut child =
            beneath(&server)?.stdout(Stdio::piped()).spawn().context("cannot start the server")?;
        let said = Said::of(child.stdout.take());
        let mut server = Self { child, cli: choice.build.cli(), dir: dir.to_owned(), said };
        let mut heard = Instant::now();
        while heard.elapsed() < SILENCE_MAX {
            match server.ask(&["ping"]) {
                Ok(answer) if answer.trim() == "PONG" => return Ok(server),
                Err(error) if error.is::<Refusal>() => return Err(error),
                Err(error) if error.to_string().contains("LOADING") => heard = Instant::now(),
                _ => {}
            }
            if let Some(status) = server.child.try_wait()? {
                let said = last_lines(&server.said.end());
                bail!("the server of the build {} ended with {status}: {said}", choice.build.id);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the server of the build {} has sent no reply for {} s", choice.build.id, SILENCE_MAX.as_secs())
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        // From the directory, as the server: a path of a socket has 107 bytes at most.
        let mut cli = Command::new(&self.cli);
        let answer = cli.current_dir(&self.dir).args(["-s", SOCKET, "-e"]).args(words).output()?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        if !answer.status.success() {
            let all = text + &String::from_utf8_lossy(&answer.stderr);
            if let Some(refusal) = all.lines().find(|line| is_refusal(line)) {
                return Err(Refusal(refusal.to_owned()).into());
            }
            bail!("{}: {}", words.join(" "), all.trim());
        }
        Ok(text)
    }

    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("cannot end the server")?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the server ended with {status}: {}", last_lines(&self.said.end()));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In place of the client cat, which takes its options, and shows the socket that it is to use and the command.
    #[test]
    fn the_server_is_asked_by_a_short_path_however_long_that_of_its_directory_is() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("d".repeat(120));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(SOCKET), "of the server\n").unwrap();
        std::fs::write(dir.join("ping"), "asked\n").unwrap();
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let server = Server { child, cli: PathBuf::from("cat"), dir, said: Said::of(None) };
        assert_eq!(server.ask(&["ping"]).unwrap(), "of the server$\nasked$\n");
    }
}
