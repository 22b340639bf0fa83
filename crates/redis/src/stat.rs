//! `mangrove redis stat DIR`: the running server's own section of INFO. No other process can look into the state
//! while the server has it open.

use crate::address;
use crate::builds::Builds;
use crate::request::Usage;
use crate::start::choose;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (dir, builds) = match arguments {
        [dir] => (dir, None),
        [option, builds, dir] | [dir, option, builds] if option == "--builds" => {
            (dir, Some(Path::new(builds)))
        }
        _ => {
            let what = "stat takes the directory of the state, and --builds DIR as the server does";
            return Err(Usage(what.to_owned()).into());
        }
    };
    let dir = Path::new(dir);
    let file = dir.join(address::FILE);
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!("no server was started on {}: cannot read {}", dir.display(), file.display())
    })?;
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')))
    };
    let cli = choose(&Builds::find(builds)?, dir)?.build.cli();
    let mut ask = Command::new(&cli);
    match (value("unixsocket"), value("port")) {
        (Some(socket), _) => ask.args(["-s", socket]).current_dir(dir),
        (None, Some(port)) if port != "0" => ask.args(["-p", port]),
        _ => bail!("the server on {} has neither a port nor a socket to ask it by", dir.display()),
    };
    if let Some(host) = value("bind").and_then(address::host)
        && value("unixsocket").is_none()
    {
        ask.args(["-h", host]);
    }
    // A password comes from REDISCLI_AUTH, as for every use of valkey-cli.
    let answer =
        ask.args(["info", "mangrove"]).output().with_context(|| format!("cannot start {}", cli.display()))?;
    let text = String::from_utf8_lossy(&answer.stdout);
    if !answer.status.success() || !text.starts_with("# Mangrove") {
        let reason = String::from_utf8_lossy(&answer.stderr);
        bail!("the server on {} does not answer: {}{}", dir.display(), reason.trim(), text.trim());
    }
    print!("{}", text.replace('\r', ""));
    Ok(())
}
