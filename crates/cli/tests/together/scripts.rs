//! `scripts/setup` and what it shares with other scripts: where they look for Rust, and for what Cargo has built.

use crate::support::{Said, Yard, finish};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Makes shell scripts in `folder`. Another process writes them: the kernel does not execute a file that a process has
/// open for writing, and a child of another test could still have this one's.
fn programs(folder: &Path, programs: &[(&str, &str)]) {
    fs::create_dir_all(folder).unwrap();
    for (name, script) in programs {
        let mut write = Command::new("sh");
        write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\""]);
        write.arg(folder.join(name)).arg(script);
        finish(write).is(0, "", name);
    }
}

fn out(said: &Said) -> &str {
    std::str::from_utf8(&said.out).unwrap()
}

#[test]
fn setup_finds_rust_in_cargo_home_where_there_is_no_home() {
    let yard = Yard::new();
    let rustup = "sed -n 's/^channel = \"\\(.*\\)\"/\\1-here/p' rust-toolchain.toml";
    let cargo = ("cargo", "echo cargo of the yard");
    let others = [("cc", "echo a compiler"), ("apt-get", "exit 1"), ("curl", "exit 1")];
    programs(&yard.path("a cargo/bin"), &[&[("rustup", rustup), cargo][..], &others].concat());
    let mut setup = Command::new(format!("{ROOT}/scripts/setup"));
    setup.arg("build").env_remove("HOME").env("PATH", "/usr/bin:/bin");
    setup.env("CARGO_HOME", yard.path("a cargo"));
    let said = finish(setup);
    said.is(0, "", "setup");
    assert_eq!(out(&said), "setup: ready: cargo of the yard, a compiler\n");
}

#[test]
fn setup_tells_a_user_without_sudo_all_that_root_is_to_run() {
    let yard = Yard::new();
    let bin = yard.path("bin");
    programs(&bin, &[("id", "echo 1000"), ("apt-get", "exit 1")]);
    for name in ["dirname", "grep", "head", "sed"] {
        symlink(Path::new("/usr/bin").join(name), bin.join(name)).unwrap();
    }
    let mut setup = Command::new(format!("{ROOT}/scripts/setup"));
    setup.arg("build").env_remove("CARGO_HOME").env("HOME", yard.path("")).env("PATH", &bin);
    let said = finish(setup);
    said.is(3, "", "setup");
    let line = "please run as root: apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev";
    assert!(out(&said).contains(line), "{}", out(&said));
}
