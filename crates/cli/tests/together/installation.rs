//! `make install`, `uninstall` and `clean`: what they put where, what they remove, and what they leave.

use crate::support::{Yard, finish};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A quiet make with these arguments, not one of the make that runs the tests.
fn make(args: &[&str]) -> Command {
    let mut make = Command::new("make");
    make.arg("-s").args(args);
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR", "PREFIX"] {
        make.env_remove(name);
    }
    make
}

/// Runs it, demands success, and returns what it printed.
fn printed(command: Command, what: &str) -> String {
    let said = finish(command);
    said.is(0, "", what);
    String::from_utf8(said.out).unwrap()
}

/// The files below `folder`, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    find.args([".", "-type", "f"]).current_dir(folder);
    let mut files: Vec<_> = printed(find, "find").lines().map(|name| name[2..].to_owned()).collect();
    files.sort_unstable();
    files
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn what_was_installed_is_removed_and_nothing_else() {
    let yard = Yard::new();
    let ours = [
        "bin/mangrove",
        "bin/mangrove-redis",
        "lib/mangrove-redis/builds/.2.new/valkey-server",
        "lib/mangrove_leveldb/libleveldb.so.1d",
        "lib/libmangrove.so.0.1.0",
        "lib/libmangrove.a",
        "lib/libmangrove_app.so",
        "lib/pkgconfig/mangrove_leveldb.pc",
        "include/mangrove.h",
        "include/mangrove_heap.hpp",
        "include/mangrove_leveldb/leveldb/db.h",
        "share/bash-completion/completions/mangrove",
        "share/zsh/site-functions/_mangrove",
        "share/fish/vendor_completions.d/mangrove.fish",
    ];
    let build = "lib/mangrove-redis/builds/1/valkey-server";
    let others = [
        "bin/mangroves",
        "include/leveldb/db.h",
        "lib/libmangroves.so",
        "lib/pkgconfig/leveldb.pc",
        "share/man/man1/mangroves.1",
        "var/words.pool/pool",
    ];
    let at = |name: &str| yard.path("stage/usr").join(name);
    for name in ours.iter().chain(&others).chain([&build]) {
        write(at(name), "");
    }
    yard.ok(&["man", at("share/man/man1").to_str().unwrap()]);
    let uninstall = || {
        let stage = format!("DESTDIR={}", yard.path("stage").display());
        printed(make(&["-C", ROOT, "uninstall", "PREFIX=/usr", &stage]), "uninstall")
    };
    let said = uninstall();
    assert!(said.contains("stay, since each state opens only with the build that made it"), "{said}");
    let mut left = files(&at(""));
    left.retain(|name| name != build);
    assert_eq!(left, others);
    assert!(at(build).exists(), "a state may need it");
    assert!(!at("lib/mangrove_leveldb").exists() && at("lib/pkgconfig").exists());

    fs::remove_dir_all(at("lib/mangrove-redis/builds/1")).unwrap();
    let said = uninstall();
    assert!(!said.contains("stay"), "{said}");
    assert!(!at("lib/mangrove-redis").exists());
}

#[test]
fn a_directory_with_a_space_or_a_tilde_is_one_place() {
    let yard = Yard::new();
    write(yard.path("home dir/mine"), "");
    fs::create_dir(yard.path("built here")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_mangrove"), yard.path("built here/mangrove")).unwrap();
    let built = format!("BUILT={}", yard.path("built here").display());
    let stage = format!("DESTDIR={}", yard.path("a stage").display());
    let staged_home = format!("a stage{}/in here", yard.path("home dir").display());
    for (prefix, destdir, place) in [
        ("PREFIX=~/in here", stage.as_str(), staged_home.as_str()),
        ("PREFIX=/a  prefix", &stage, "a stage/a  prefix"),
        ("PREFIX=/usr", "DESTDIR=~/stage", "home dir/stage/usr"),
    ] {
        let run = |goals: &[&str]| {
            let mut make = make(&[&["-C", ROOT][..], goals, &[&built, prefix, destdir]].concat());
            make.env("HOME", yard.path("home dir"));
            printed(make, place);
        };
        let before = files(&yard.path(""));
        // The programs are built.
        run(&["--old-file=build", "install"]);
        let installed = files(&yard.path(place));
        for name in ["bin/mangrove", "share/man/man1/mangrove.1", "share/zsh/site-functions/_mangrove"] {
            assert!(installed.iter().any(|file| file == name), "{place}: no {name} in {installed:?}");
        }
        assert_eq!(files(&yard.path("")).len(), before.len() + installed.len(), "{place}: a second place");
        run(&["uninstall"]);
        assert_eq!(files(&yard.path("")), before, "{place}");
    }
}

#[test]
fn all_users_can_read_what_an_administrator_with_a_strict_umask_installs() {
    let yard = Yard::new();
    fs::create_dir(yard.path("built")).unwrap();
    symlink(env!("CARGO_BIN_EXE_mangrove"), yard.path("built/mangrove")).unwrap();
    let mut install = Command::new("sh");
    install.args(["-c", "umask 077 && exec \"$0\" \"$@\""]).arg(format!("{ROOT}/scripts/install-command.sh"));
    install.arg(yard.path("prefix")).arg(yard.path("built")).env_remove("DESTDIR");
    printed(install, "install-command.sh");
    let mut hidden = Command::new("find");
    hidden.args([".", "!", "-perm", "-444", "-o", "-type", "d", "!", "-perm", "-755"]);
    hidden.current_dir(yard.path("prefix"));
    assert_eq!(printed(hidden, "find"), "");
}

#[test]
fn builds_are_installed_whole_and_those_that_are_there_are_not_written_to() {
    let yard = Yard::new();
    for (build, text) in [("a", "first"), ("b", "second")] {
        for file in ["valkey-server", "libmangrove_app.so.0"] {
            write(yard.path(&format!("from/builds/{build}/{file}")), text);
            let mode = fs::Permissions::from_mode(0o700);
            fs::set_permissions(yard.path(&format!("from/builds/{build}/{file}")), mode).unwrap();
        }
    }
    symlink("builds/b", yard.path("from/current")).unwrap();
    // What killed installs have left: an earlier version's half of a build under its name, ours under another.
    write(yard.path("to/builds/b/valkey-server"), "sec");
    write(yard.path("to/builds/.c.new/valkey-server"), "th");
    let mapped = || File::open(yard.path("to/builds/b/valkey-server")).unwrap();
    let mut half = mapped();
    let install = || {
        let mut install = Command::new(format!("{ROOT}/scripts/install-builds.sh"));
        install.arg(yard.path("from")).arg(yard.path("to"));
        printed(install, "install-builds.sh");
        assert_eq!(files(&yard.path("to")), files(&yard.path("from")));
        for (build, text) in [("a", "first"), ("b", "second")] {
            let path = yard.path(&format!("to/builds/{build}/valkey-server"));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o755, "others use it, too");
        }
        assert_eq!(fs::read_link(yard.path("to/current")).unwrap(), Path::new("builds/b"));
    };
    install();
    let mut text = String::new();
    half.read_to_string(&mut text).unwrap();
    assert_eq!(text, "sec", "a process may have it mapped");
    let before = mapped().metadata().unwrap();
    install();
    let after = mapped().metadata().unwrap();
    assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
}

#[test]
fn clean_leaves_states_and_builds_and_names_them() {
    let yard = Yard::new();
    fs::copy(format!("{ROOT}/Makefile"), yard.path("Makefile")).unwrap();
    let clean = || {
        let mut make = make(&["clean", "CARGO=true"]);
        make.current_dir(yard.path(""));
        printed(make, "clean")
    };
    let left = ["data/demo.heap/pool", "data/redis/state.1/pool", "data/valkey/builds/1/valkey-server"];
    for name in left {
        write(yard.path(name), "");
    }
    for name in
        ["data/demo.pool/pool", "data/demo.pool/made-by-mangrove-demo", "bench-out/a", "bench-pools/b"]
    {
        write(yard.path(name), "");
    }
    let said = clean();
    assert_eq!(files(&yard.path("data")), left.map(|name| &name["data/".len()..]));
    assert!(said.contains("in data stay: demo.heap redis valkey\n"), "{said}");
    assert!(said.contains(&format!("rm -rf '{}'", yard.path("data").display())), "{said}");
    assert_eq!(yard.names(), ["Makefile", "data"]);
    fs::remove_dir_all(yard.path("data")).unwrap();
    write(yard.path("data/demo.sqlite/made-by-mangrove-demo"), "");
    assert_eq!(clean(), "");
    assert_eq!(yard.names(), ["Makefile"]);
}
