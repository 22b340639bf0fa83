//! The durable applications of `examples/` as programs under test, built by the system's compiler against the
//! library of this checkout.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum App {
    /// A durable map, by `mangrove-stress`
    Map,
    /// examples/sqlite: SQLite's `:memory:` behind local mode
    Sqlite,
    /// examples/lua: an interpreter of Lua behind local mode
    Lua,
    /// examples/kv: a key-value store in RPC mode, with clients of ours
    Rpc,
    /// Durable transactions: transfers between accounts in a heap, by `mangrove-stress txn`
    Txn,
    /// The collections of a heap, by `mangrove-stress txn collections`
    Collections,
    /// The Redis-compatible server, with clients of ours
    Redis,
}

impl App {
    /// Builds the program and returns its path.
    pub(crate) fn build(self) -> Result<PathBuf> {
        match self {
            Self::Map | Self::Txn | Self::Collections => tree::mangrove_stress(),
            Self::Sqlite => {
                example("sqlite", &["durable_sqlite.c", "main.c", "stress.c", "bench.c"], &["-lsqlite3"])
            }
            Self::Lua => example(
                "lua",
                &["durable_lua.c", "output.c", "main.c", "stress.c"],
                &["-I/usr/include/lua5.4", "-llua5.4"],
            ),
            Self::Rpc => example("kv", &["kv.c", "server.c"], &[]),
            Self::Redis => bail!("this chore does not know the Redis-compatible server"),
        }
    }

    /// The words in front of `write` and `check` on the program's command line.
    pub(crate) fn words(self) -> &'static [&'static str] {
        match self {
            Self::Map | Self::Rpc | Self::Redis => &[],
            Self::Sqlite | Self::Lua => &["stress"],
            Self::Txn => &["txn"],
            Self::Collections => &["txn", "collections"],
        }
    }
}

/// Builds an example against the library of durable applications.
fn example(name: &str, sources: &[&str], libraries: &[&str]) -> Result<PathBuf> {
    let from = tree::root().join("examples").join(name);
    let sources: Vec<PathBuf> = sources.iter().map(|source| from.join(source)).collect();
    compile("mangrove-app", &format!("example-{name}"), &sources, libraries)
}

/// Compiles C sources as the program `name` against the library of a package.
pub(crate) fn compile(package: &str, name: &str, sources: &[PathBuf], more: &[&str]) -> Result<PathBuf> {
    let built = tree::build(package)?;
    let built = built.canonicalize().with_context(|| format!("cannot find {}", built.display()))?;
    let library = format!("lib{}.so", package.replace('-', "_"));
    name_for_the_linker(&built, &library)?;
    let program = built.join(name);
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-I"])
        .arg(tree::root().join("crates/app/include"))
        .args(sources)
        .arg("-o")
        .arg(&program)
        .arg(built.join(library))
        .args(more)
        .arg(format!("-Wl,-rpath,{}", built.display()));
    tree::run(&mut cc)?;
    Ok(program)
}

/// Gives the library the name in its SONAME, under which programs look for it.
fn name_for_the_linker(folder: &Path, library: &str) -> Result<()> {
    let name = folder.join(format!("{library}.0"));
    match std::os::unix::fs::symlink(library, &name) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(e).with_context(|| format!("cannot make {}", name.display()))
        }
        _ => Ok(()),
    }
}
