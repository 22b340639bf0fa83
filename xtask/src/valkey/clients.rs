//! `cargo xtask redis-clients`: the libraries that programs use, with the durable server: redis-py and ioredis.
//!
//! Each library stores something of all kinds by its own ways (pipelines, transactions, scripts, blocking commands,
//! messages), the server gets SIGKILL, and the library must find it all. The libraries come from
//! their registries into the target directory.

use super::server::{self, Programs, ServerKind, Setup};
use crate::tree;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The library for Python, and the SHA-256 of its archive.
const REDIS_PY: &str = "redis==8.1.0";
const REDIS_PY_SHA256: &str = "a4fe1aac3d3b3cc791d4b3d5931c5a956045dc951ee74d1c913ee3ac4d2ee9fb";
/// The library for Node.
const IOREDIS: &str = "ioredis@5.11.1";
const PYTHON: &str = include_str!("clients-redis-py.py");
const JAVASCRIPT: &str = include_str!("clients-ioredis.js");

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the state lies on: file, emulated, emulated=WRITE/READ
    #[arg(long, default_value = "file")]
    medium: String,
    /// The server under test; with `nothing`, a stock one that keeps nothing, this chore must fail
    #[arg(long, value_enum, default_value_t = ServerKind::Durable)]
    kind: ServerKind,
    #[command(flatten)]
    programs: Programs,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> Result<()> {
    let work = tree::target().join("redis-clients");
    std::fs::create_dir_all(&work)?;
    let work = work.canonicalize()?;
    fetch(&work)?;
    let address = super::resp::Address::Port(server::free_port(0)?);
    let mut setup = Setup::new(args.kind, &args.programs, work.join("server"), address)?;
    setup.medium = server::medium(&args.medium)?;
    setup.forget()?;
    let port = super::fleet::port(&setup).to_string();
    let program = |what: &str| {
        let mut python = Command::new("python3");
        python.arg(work.join("redis_py.py")).args([what, &port]).env("PYTHONPATH", work.join("python"));
        let mut node = Command::new("node");
        node.arg(work.join("ioredis.js")).args([what, &port]);
        [python, node]
    };
    let (mut server, _) = setup.start()?;
    program("write").iter_mut().try_for_each(tree::run)?;
    server.kill()?;
    let (_server, _) = setup.start()?;
    program("check").iter_mut().try_for_each(tree::run)?;
    println!("redis-clients: {REDIS_PY} and {IOREDIS} find after SIGKILL what they have stored");
    setup.forget()
}

/// Installs what is missing, and writes the programs.
fn fetch(work: &Path) -> Result<()> {
    std::fs::write(work.join("redis_py.py"), PYTHON)?;
    std::fs::write(work.join("ioredis.js"), JAVASCRIPT)?;
    if !work.join("python/redis").is_dir() {
        let wanted = work.join("requirements.txt");
        std::fs::write(&wanted, format!("{REDIS_PY} --hash=sha256:{REDIS_PY_SHA256}\n"))?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]);
        tree::run(pip.arg("--target").arg(work.join("python")).arg("--requirement").arg(&wanted))
            .context("redis-py is fetched by pip (package python3-pip)")?;
    }
    if !work.join("node_modules/ioredis").is_dir() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
            .arg(work);
        tree::run(npm.arg(IOREDIS)).context("ioredis is fetched by npm (packages nodejs, npm)")?;
    }
    Ok(())
}
