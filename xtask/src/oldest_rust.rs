//! `cargo xtask oldest-rust`: whether the Rust that the manifests name as the oldest compiles every library and
//! program, and with `--tests` whether the tests pass with it.

use crate::tree;
use anyhow::{Context, Result};
use std::process::Command;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run all tests too, for half an hour
    #[arg(long)]
    tests: bool,
}

/// Runs the chore.
pub(crate) fn run(args: &Args) -> Result<()> {
    let manifest = std::fs::read_to_string(tree::root().join("Cargo.toml")).context("no Cargo.toml")?;
    let oldest = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .context("Cargo.toml has no rust-version")?;
    // The first release of it: a patch release may mend what that has not got.
    let toolchain = format!("{oldest}.0");
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", &toolchain, "--profile", "minimal", "--no-self-update"]);
    tree::run(&mut install)?;
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", &toolchain, "cargo"]).args(arguments).current_dir(tree::root());
        // Of its own: another compiler's output is of no use to this one.
        command.env("CARGO_TARGET_DIR", tree::target().join("oldest-rust"));
        for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
            command.env_remove(name);
        }
        command
    };
    tree::run(&mut cargo(&["check", "--quiet", "--locked"]))?;
    if args.tests {
        tree::run(&mut cargo(&["test", "--locked", "--no-fail-fast"]))?;
    }
    println!(
        "Rust {toolchain} compiles every library and program{}",
        if args.tests { ", and the tests pass" } else { "" }
    );
    Ok(())
}
