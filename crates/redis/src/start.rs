//! Starting the server: this process becomes it.

use crate::builds::{Build, Builds};
use crate::request::{ReplyDurability, Request};
use crate::{address, daemon, lock, metrics, state};
use anyhow::{Context, Result, bail};
use rustix::fs::{Access, access};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A build and the state that it opens.
pub(crate) struct StartChoice {
    pub(crate) build: Build,
    pub(crate) state: PathBuf,
    pub(crate) exists: bool,
}

/// The build that the directory's state needs; the newest one where there is no state yet.
pub(crate) fn choose(builds: &Builds, dir: &Path) -> Result<StartChoice> {
    let current = builds.current()?;
    let Some(found) = state::find(dir, &current.id)? else {
        let state = state::place(dir, &current.id);
        return Ok(StartChoice { build: current, state, exists: false });
    };
    if found.build == current.id {
        return Ok(StartChoice { build: current, state: found.path, exists: true });
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
            Ok(StartChoice { build, state: found.path, exists: true })
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
pub(crate) fn command(request: &Request, choice: &StartChoice) -> Command {
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
    match request.durability {
        ReplyDurability::Interval(ms) => command.env("MANGROVE_REDIS_INTERVAL_MS", ms.to_string()),
        // Whatever the environment has: replies must wait.
        ReplyDurability::Sync => command.env_remove("MANGROVE_REDIS_INTERVAL_MS"),
    };
    command
}

/// The library would advise a reader of a state that cannot be written, which the server has no way to be.
fn check_rights(dir: &Path, state: Option<&PathBuf>) -> Result<()> {
    let mut places = vec![dir.to_owned()];
    if let Some(state) = state {
        places.push(state.clone());
        places.extend(std::fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    for place in places {
        access(&place, Access::READ_OK | Access::WRITE_OK).with_context(|| {
            format!("the user of the server must be allowed to read and write {}", place.display())
        })?;
    }
    Ok(())
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let request = Request::parse(arguments)?;
    let builds = Builds::find(request.builds.as_deref())?;
    let dir = request.dir()?;
    let lock = lock::for_server(&dir)?;
    let choice = choose(&builds, &dir)?;
    check_rights(&dir, choice.exists.then_some(&choice.state))?;
    if choice.exists {
        // Durable-order: the state's name before a write in it is acknowledged. An update that was killed may have
        // given it and not synced it, and a power cut would make the older state count.
        state::sync(&dir)?;
    } else {
        // Durable-order: the names that lead to the state before it is made. Otherwise a power cut could take away the
        // whole of it, with all that was acknowledged.
        state::sync_above(&dir)?;
    }
    // Where a state exists, the server knows whether it counts, and refuses.
    if request.is_on("appendonly") && !choice.exists {
        eprintln!(
            "mangrove-redis: the state will have every acknowledged write, so the append-only file serves the import \
             of this first start only; the next start refuses `appendonly yes`: remove it from the {}",
            request.place_of("appendonly")
        );
    }
    if request.is_on("daemonize") {
        return daemon::start(arguments, &request, &dir);
    }
    metrics::start(&request, &dir)?;
    let mut server = command(&request, &choice);
    server.env("MANGROVE_REDIS_APPENDONLY_IN", request.place_of("appendonly"));
    address::ask_for(&mut server, &request, &dir);
    lock::keep(&lock)?;
    let error = server.exec();
    Err(error).with_context(|| format!("cannot start {}", choice.build.server().display()))
}
