//! Starting the server: this process becomes it.

use crate::builds::{Build, Builds};
use crate::request::{Durability, Request, Usage};
use crate::{address, detached, metrics, state};
use anyhow::{Context, Result, bail};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where a daemon without a log file says why it does not start.
const SAID: &str = "state.stderr";

/// A build and the state that it opens.
pub(crate) struct Choice {
    pub(crate) build: Build,
    pub(crate) state: PathBuf,
    pub(crate) exists: bool,
}

/// The build that the directory's state needs; the newest one where there is no state yet.
pub(crate) fn choose(builds: &Builds, dir: &Path) -> Result<Choice> {
    let current = builds.current()?;
    let Some(found) = state::find(dir, &current.id)? else {
        let state = state::place(dir, &current.id);
        return Ok(Choice { build: current, state, exists: false });
    };
    if found.build == current.id {
        return Ok(Choice { build: current, state: found.path, exists: true });
    }
    match builds.get(&found.build) {
        Some(build) => {
            eprintln!(
                "mangrove-redis: the state in {} is of the build {}, which starts; `make redis-update` brings it to \
                 the newest one, {}",
                dir.display(),
                build.id,
                current.id
            );
            Ok(Choice { build, state: found.path, exists: true })
        }
        None => bail!(
            "the state in {} needs the build {} of the server, which is not in {}; the newest there is {}",
            dir.display(),
            found.build,
            builds.folder().display(),
            current.id
        ),
    }
}

/// The server as a command, its environment set.
pub(crate) fn command(request: &Request, choice: &Choice) -> Command {
    let mut command = Command::new(choice.build.server());
    command.args(&request.arguments).env("MANGROVE_REDIS_STATE", &choice.state);
    if let Some(medium) = &request.medium {
        command.env("MANGROVE_REDIS_MEDIUM", medium);
    }
    if let Some(bytes) = request.log_bytes {
        command.env("MANGROVE_REDIS_LOG_BYTES", bytes.to_string());
    }
    if let Some(ms) = request.slow_batch_ms {
        command.env("MANGROVE_REDIS_SLOW_MS", ms.to_string());
    }
    if let Durability::Interval(ms) = request.durability {
        command.env("MANGROVE_REDIS_INTERVAL_MS", ms.to_string());
    }
    command
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let request = Request::parse(arguments)?;
    let builds = Builds::find(request.builds.as_deref())?;
    let dir = request.dir()?;
    let choice = choose(&builds, &dir)?;
    if choice.exists && request.is_on("appendonly") {
        let sentence = format!(
            "appendonly yes is refused on a state that exists: the one in {} has every acknowledged write, so the \
             append-only file is not needed; remove `appendonly yes` from the {}",
            dir.display(),
            request.place_of("appendonly")
        );
        return Err(Usage(sentence).into());
    }
    if request.is_on("appendonly") {
        eprintln!(
            "mangrove-redis: the state will have every acknowledged write, so the append-only file serves the import \
             of this first start only; the next start refuses `appendonly yes`: remove it from the {}",
            request.place_of("appendonly")
        );
    }
    if request.is_on("daemonize") {
        return in_background(arguments, &request, &dir);
    }
    metrics::start(&request, &dir)?;
    let mut server = command(&request, &choice);
    address::ask_for(&mut server, &request, &dir);
    let error = server.exec();
    Err(error).with_context(|| format!("cannot start {}", choice.build.server().display()))
}

/// The server must not fork once its state is open, so the daemon is this program again. Returns when the state is
/// open; fails with what the daemon said if it ended before.
fn in_background(arguments: &[String], request: &Request, dir: &Path) -> Result<()> {
    let note = dir.join(address::FILE);
    let number = || std::fs::metadata(&note).map(|found| found.ino()).ok();
    let before = number();
    let said = match request.last("logfile").filter(|file| !file.is_empty()) {
        Some(file) => dir.join(file),
        None => dir.join(SAID),
    };
    let mut options = std::fs::OpenOptions::new();
    let log = options.create(true).append(true).open(&said);
    let log = log.with_context(|| format!("cannot write {}", said.display()))?;
    let begin = log.metadata()?.len();
    let mut daemon = detached::child(|process| {
        process.args(arguments).args(["--daemonize", "no"]).stderr(log);
    })?;
    loop {
        if number() != before {
            return Ok(());
        }
        if let Some(status) = daemon.try_wait()? {
            let mut text = String::new();
            if let Ok(mut file) = std::fs::File::open(&said) {
                file.seek(SeekFrom::Start(begin))?;
                file.read_to_string(&mut text)?;
            }
            bail!("the server ended with {status}: {} (also in {})", text.trim_end(), said.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
