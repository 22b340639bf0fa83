//! `cargo xtask packages`: packs every crate that is to be published, and compiles the command from the packed crates
//! alone, as a machine would that has nothing else of ours. With `--install` it installs the command from them.

use crate::tree;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install the command from the packed crates, and use it
    #[arg(long)]
    install: bool,
}

/// Runs the chore.
pub(crate) fn run(args: &Args) -> Result<()> {
    let published = published()?;
    pack(&published)?;
    let packed = tree::target().join("packed");
    let sources = unpack(&published, &packed)?;
    if !args.install {
        let mut check = tree::cargo();
        check.current_dir(&sources).args(["check", "--quiet", "--package", COMMAND]);
        // What clippy compiled of the registry's crates serves here too.
        tree::run(check.env("CARGO_TARGET_DIR", tree::target()))?;
        println!("{} crates packed; the command compiles from them alone", published.len());
        return Ok(());
    }
    let root = packed.join("root");
    let version = &published.iter().find(|crate_| crate_.name == COMMAND).context("no command")?.version;
    let mut install = tree::cargo();
    install.current_dir(&packed).args(["install", "--quiet", "--debug", "--no-track", "--force"]);
    install.arg("--root").arg(&root);
    install.arg("--path").arg(sources.join(format!("{COMMAND}-{version}")));
    install
        .env("CARGO_TARGET_DIR", tree::target().join("packed-build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    tree::run(&mut install)?;
    works(&root.join("bin/mangrove"), &packed)?;
    println!("{} crates packed; the command installs from them alone, and works", published.len());
    Ok(())
}

/// The package of the command.
const COMMAND: &str = "mangrove-db-cli";

/// A crate that is to be published.
struct Published {
    name: String,
    version: String,
}

fn pack(published: &[Published]) -> Result<()> {
    // What is compiled afterwards is what is packed: cargo need not compile each crate once more.
    let mut pack = tree::cargo();
    pack.args(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    for Published { name, .. } in published {
        pack.args(["--package", name]);
    }
    tree::run(&mut pack)
}

/// Unpacks the crates into `packed`, which is made new, as a workspace of their own, in which they stand in place of
/// the registry, which has not got them yet. Returns the workspace's directory.
fn unpack(published: &[Published], packed: &Path) -> Result<PathBuf> {
    if packed.exists() {
        std::fs::remove_dir_all(packed).with_context(|| format!("cannot remove {}", packed.display()))?;
    }
    let sources = packed.join("sources");
    std::fs::create_dir_all(&sources).with_context(|| format!("cannot make {}", sources.display()))?;
    let mut manifest =
        String::from("[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\n\n[patch.crates-io]\n");
    for Published { name, version } in published {
        let archive = tree::target().join(format!("package/{name}-{version}.crate"));
        // Touched: packed files have one fixed date, and cargo would take changed ones for those that it knows.
        tree::run(Command::new("tar").arg("-xmzf").arg(&archive).arg("-C").arg(&sources))?;
        let folder = sources.join(format!("{name}-{version}"));
        ensure!(folder.join("README.md").is_file(), "{} has no README.md", archive.display());
        manifest.push_str(&format!("{name} = {{ path = \"{name}-{version}\" }}\n"));
    }
    std::fs::write(sources.join("Cargo.toml"), manifest).context("cannot write the workspace")?;
    // The versions that are tested, where a packed crate asks for more than the newest that it was tested with.
    std::fs::copy(tree::root().join("Cargo.lock"), sources.join("Cargo.lock")).context("no Cargo.lock")?;
    Ok(sources)
}

/// The packages that are to be published.
fn published() -> Result<Vec<Published>> {
    let output = tree::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cannot start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let of =
        |package: &serde_json::Value, field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let published = packages.iter().filter(|package| package["publish"].is_null());
    published
        .map(|package| {
            for field in ["description", "documentation", "license", "readme", "keywords", "categories"] {
                let empty = package[field].is_null() || package[field].as_array().is_some_and(Vec::is_empty);
                ensure!(!empty, "{} is published and has no {field}", of(package, "name"));
            }
            Ok(Published { name: of(package, "name"), version: of(package, "version") })
        })
        .collect()
}

/// A record that the installed command puts is there when it looks.
fn works(command: &Path, scratch: &Path) -> Result<()> {
    let pool = scratch.join("words.pool");
    tree::run(Command::new(command).args(["map", "put"]).arg(&pool).args(["mangrove", "a tree"]))?;
    let output = Command::new(command).args(["map", "get"]).arg(&pool).arg("mangrove").output()?;
    ensure!(output.stdout.starts_with(b"a tree"), "the installed command returns {output:?}");
    Ok(())
}
