//! `scripts/setup` and what it shares with other scripts: where they look for Rust, and for what Cargo has built.

use crate::support::{Said, Yard, finish};
use std::fs::{self, File};
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
    // The toolchain that is wanted, and more than a pipe holds after it.
    let rustup = "sed -n 's/^channel = \"\\(.*\\)\"/\\1-here/p' rust-toolchain.toml; seq 100000";
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
    // dpkg-buildpackage demands build-essential, whatever compilers there are.
    for (what, last) in [("build", "\n"), ("deb", " build-essential\n")] {
        let mut setup = Command::new(format!("{ROOT}/scripts/setup"));
        setup.arg(what).env_remove("CARGO_HOME").env("HOME", yard.path("")).env("PATH", &bin);
        let said = finish(setup);
        said.is(3, "", "setup");
        let told = "please run as root: apt-get update && apt-get install -y --no-install-recommends gcc ";
        assert!(out(&said).contains(told), "{}", out(&said));
        assert!(out(&said).ends_with(last), "{}", out(&said));
    }
}

/// `ready` in a tree of its own, whose `build` prints the library that it is to link.
fn ready(yard: &Yard) -> Command {
    let scripts = yard.path("a tree/crates/redis/scripts");
    programs(&scripts, &[("fetch", ""), ("build", "echo \"$2\"")]);
    fs::copy(format!("{ROOT}/crates/redis/scripts/ready"), scripts.join("ready")).unwrap();
    let mut ready = Command::new("bash");
    ready.arg(scripts.join("ready")).arg("data/valkey").current_dir(yard.path("a tree"));
    ready.env("CARGO", "true").env_remove("CARGO_TARGET_DIR");
    ready.env_remove("PROFILE").env_remove("SELECTION");
    ready
}

#[test]
fn the_server_is_linked_to_the_library_where_cargo_has_built_it() {
    let yard = Yard::new();
    let elsewhere = yard.path("else where");
    let given = [None, Some(Path::new("../else where")), Some(elsewhere.as_path())];
    for (given, expected) in given.into_iter().zip(["a tree/target", "else where", "else where"]) {
        let mut ready = ready(&yard);
        ready.envs(given.map(|given| ("CARGO_TARGET_DIR", given)));
        let said = finish(ready);
        said.is(0, "", "ready");
        let place = fs::canonicalize(yard.path("")).unwrap().join(expected);
        let library = place.join("release/libmangrove_app.so");
        assert_eq!(out(&said).lines().next_back(), library.to_str());
    }
}

#[test]
fn a_server_that_a_power_cut_has_emptied_is_built_again() {
    let yard = Yard::new();
    let current = yard.path("a tree/data/valkey/current");
    programs(&current, &[("valkey-server", "")]);
    let has_built = |yard: &Yard| {
        let said = finish(ready(yard));
        said.is(0, "", "ready");
        out(&said).ends_with("release/libmangrove_app.so\n")
    };
    assert!(!has_built(&yard));
    File::create(current.join("valkey-server")).unwrap();
    assert!(has_built(&yard));
}

#[test]
fn the_build_of_the_wheel_refuses_a_word_that_it_does_not_know() {
    let mut run = Command::new(format!("{ROOT}/python/run"));
    run.arg("tset");
    finish(run).is(2, "'tset' is none of wheel, test, versions, bench", "python/run");
}

/// The Makefile in a tree of its own, with scripts that do nothing.
fn make(yard: &Yard, goal: &str) -> Command {
    fs::copy(format!("{ROOT}/Makefile"), yard.path("Makefile")).unwrap();
    let scripts = ["setup", "install-command.sh", "install.sh"].map(|name| (name, ""));
    programs(&yard.path("scripts"), &scripts);
    let mut make = Command::new("make");
    make.args(["-s", goal]).current_dir(yard.path(""));
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CARGO_TARGET_DIR"] {
        make.env_remove(name);
    }
    make
}

/// Where make lets cargo build it looks for what was built.
#[test]
fn make_tells_cargo_where_to_build() {
    let yard = Yard::new();
    programs(&yard.path("bin"), &[("cargo", "printf '<%s>' \"$CARGO_TARGET_DIR\"")]);
    for goal in ["build", "install", "clean"] {
        for (given, place) in [(None, "target"), (Some("a target"), "a target")] {
            let mut make = make(&yard, goal);
            make.arg("CARGO=bin/cargo").envs(given.map(|given| ("CARGO_TARGET_DIR", given)));
            let said = finish(make);
            said.is(0, "", goal);
            assert_eq!(out(&said), format!("<{place}>"), "{goal}");
        }
    }
}

#[test]
fn make_serves_a_directory_with_a_space_or_a_tilde() {
    let yard = Yard::new();
    programs(&yard.path("crates/redis/scripts"), &[("ready", "")]);
    programs(&yard.path("a target/release"), &[("mangrove", "printf '<%s>' \"$@\"")]);
    for (goal, begin, end) in
        [("redis", "<redis>", "<--port><7000>"), ("redis-update", "<redis><update>", "")]
    {
        for (given, place) in [("~/a  state", "/home dir/a  state"), ("/a state", "/a state"), ("a", "a")] {
            let mut make = make(&yard, goal);
            make.args(["CARGO=true", "REDIS_PORT=7000", &format!("REDIS_DIR={given}")]);
            make.env("HOME", "/home dir").env("CARGO_TARGET_DIR", "a target");
            let said = finish(make);
            said.is(0, "", goal);
            assert_eq!(out(&said), format!("{begin}<--dir><{place}>{end}"));
        }
    }
}
