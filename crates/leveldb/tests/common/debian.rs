//! What tests fetch from Debian, and from the Python registry, when they run; it is never stored in the repository.
//! It is kept below cargo's target directory, so that the next run needs no network.

use super::library::lock;
use mangrove_testkit::command::run;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SOURCES: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                       http://deb.debian.org/debian bookworm main\n\
                       deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                       http://deb.debian.org/debian bookworm main\n";

/// Where everything is kept.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian")
}

fn apt(words: &[&str], folder: &Path) -> bool {
    let mut command = Command::new("timeout");
    command.args(["120", "apt-get", "-qq"]).current_dir(folder);
    for (option, value) in
        [("Dir::Etc::SourceList", "src.list"), ("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")]
    {
        command.arg("-o").arg(format!("{option}={}", folder.join(value).display()));
    }
    command.args(["-o", "Dir::Etc::SourceParts=/dev/null", "-o", "APT::Sandbox::User=root"]);
    command.args(words).output().is_ok_and(|o| o.status.success())
}

/// The lists of what there is to fetch; false where there is no apt or no network.
fn lists(folder: &Path) -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        if folder.join("lists.done").exists() {
            return true;
        }
        std::fs::create_dir_all(folder.join("lists/partial")).expect("a directory");
        std::fs::create_dir_all(folder.join("cache/archives/partial")).expect("a directory");
        std::fs::write(folder.join("src.list"), SOURCES).expect("write");
        apt(&["update"], folder) && std::fs::write(folder.join("lists.done"), "").is_ok()
    })
}

/// Fetches by `fetch`, once, into the directory `name`, and returns it; `None`, with a word about it, where it cannot.
fn fetched(name: &str, fetch: impl FnOnce(&Path) -> bool) -> Option<PathBuf> {
    let (all, place) = (folder(), folder().join(name));
    std::fs::create_dir_all(&all).expect("a directory");
    let _lock = lock(&all);
    if place.exists() {
        return Some(place);
    }
    let scratch = all.join(format!("{name}.new"));
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir(&scratch).expect("a directory");
    if !fetch(&scratch) {
        eprintln!("{name} cannot be fetched here: nothing is tested with it");
        return None;
    }
    std::fs::rename(&scratch, &place).expect("a directory that is whole");
    Some(place)
}

/// The files of Debian's binary packages, unpacked into one directory.
pub(crate) fn packages(name: &str, packages: &[&str]) -> Option<PathBuf> {
    fetched(name, |place| {
        // In one call, because each reads all the lists. `apt-get download` writes into the present directory.
        let got = lists(&folder()) && apt(&[&["download"], packages].concat(), &folder());
        for entry in std::fs::read_dir(folder()).expect("the directory") {
            let archive = entry.expect("an entry").path();
            if archive.extension().is_some_and(|e| e == "deb") {
                run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(place));
                std::fs::remove_file(archive).expect("remove");
            }
        }
        got
    })
}

/// The upstream sources of one of Debian's packages.
pub(crate) fn sources(package: &str) -> Option<PathBuf> {
    fetched(&format!("{package}-source"), |place| {
        let got = lists(&folder()) && apt(&["source", "--download-only", package], &folder());
        let mut unpacked = false;
        for entry in std::fs::read_dir(folder()).expect("the directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.contains(".orig.tar.") && !name.ends_with(".asc") {
                run(Command::new("tar").arg("xf").arg(&path).args(["--strip-components=1", "-C"]).arg(place));
                unpacked = true;
            }
            if name.starts_with(&format!("{package}_")) {
                std::fs::remove_file(path).expect("remove");
            }
        }
        got && unpacked
    })
}

/// The sources of a release in the Python registry.
pub(crate) fn python_sources(package: &str, version: &str) -> Option<PathBuf> {
    fetched(&format!("{package}-{version}"), |place| {
        let mut pip = Command::new("timeout");
        pip.args(["240", "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]);
        pip.arg(format!("{package}=={version}")).arg("--dest").arg(place);
        let archive = place.join(format!("{package}-{version}.tar.gz"));
        if !pip.output().is_ok_and(|o| o.status.success()) || !archive.exists() {
            return false;
        }
        run(Command::new("tar").arg("xzf").arg(archive).args(["--strip-components=1", "-C"]).arg(place));
        true
    })
}

/// The files of a release's wheel for the `python3` of the path.
pub(crate) fn python_wheel(package: &str, version: &str) -> Option<PathBuf> {
    fetched(&format!("{package}-{version}-wheel"), |place| {
        let mut pip = Command::new("timeout");
        pip.args(["240", "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]);
        pip.arg(format!("{package}=={version}")).arg("--dest").arg(place);
        if !pip.output().is_ok_and(|o| o.status.success()) {
            return false;
        }
        let entries =
            std::fs::read_dir(place).expect("the directory").map(|entry| entry.expect("an entry").path());
        for wheel in entries.collect::<Vec<_>>() {
            run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(place));
        }
        true
    })
}
