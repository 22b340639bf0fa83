//! The built library, also under LevelDB's name, and LevelDB itself.

use super::program::cxx;
use mangrove_sys::file::try_lock;
use mangrove_testkit::c_library;
use mangrove_testkit::c_library::CLibrary;
use mangrove_testkit::command::told;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

/// Where Debian's libleveldb-dev puts LevelDB's header.
pub(crate) const HEADER: &str = "/usr/include/leveldb/c.h";

/// The engines that must pass.
pub(crate) const ENGINES: [&str; 2] = ["durable", "map"];

static LIBRARY: CLibrary = c_library!("libmangrove_leveldb.so", None);

pub(crate) fn here() -> &'static Path {
    LIBRARY.here()
}

pub(crate) fn libraries() -> &'static Path {
    LIBRARY.folder()
}

/// True when LevelDB's header and library are installed; prints how to install them otherwise.
pub(crate) fn has_leveldb() -> bool {
    let there = Path::new(HEADER).exists();
    if !there {
        eprintln!("LevelDB is not installed here (Debian: libleveldb-dev): this test does nothing");
    }
    there
}

/// A directory in which this library has LevelDB's names, for LD_LIBRARY_PATH.
pub(crate) fn under_leveldbs_names(parent: &Path) -> PathBuf {
    let folder = parent.join("lib");
    std::fs::create_dir_all(&folder).expect("a directory");
    for name in ["libleveldb.so.1", "libleveldb.so.1d"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(LIBRARY.shared(), link).expect("a link");
        }
    }
    folder
}

/// True when there is a C++ compiler; prints that there is none otherwise.
pub(crate) fn has_cxx() -> bool {
    let there = cxx().arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("there is no C++ compiler here: this test does nothing");
    }
    there
}

/// Builds the library with the C++ classes from the sources in `cpp` into `out`.
pub(crate) fn make_classes(cpp: &Path, out: &Path, flags: &str) -> Output {
    let mut make = Command::new("make");
    make.args(["--silent", "-j2", "-C"]).arg(cpp);
    make.arg(format!("LIBRARY={}", libraries().join("libmangrove_leveldb.a").display()));
    make.arg(format!("OUT={}", out.display())).arg(format!("CXXFLAGS={flags}"));
    // The make that may run this test passes its own on.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
    make.output().expect("make")
}

/// The directory of the built library with the C++ classes, under LevelDB's names.
pub(crate) fn classes() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = libraries().join("leveldb-cpp");
        std::fs::create_dir_all(&out).expect("a directory");
        let _lock = lock(&out);
        let output = make_classes(&here().join("cpp"), &out, "-O2 -g");
        assert!(output.status.success(), "{}", told(&output));
        out
    })
}

/// The lock of a directory in which several test programs may build or fetch at a time.
pub(crate) fn lock(folder: &Path) -> File {
    let file = File::create(folder.join("lock")).expect("a lock file");
    while !try_lock(&file, true).expect("the lock") {
        std::thread::sleep(Duration::from_millis(100));
    }
    file
}

/// An empty directory below `parent`.
pub(crate) fn scratch(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir(&path).expect("a scratch directory");
    path
}
