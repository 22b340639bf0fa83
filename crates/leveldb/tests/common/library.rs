//! The built library, also under LevelDB's name, and LevelDB itself.

use mangrove_testkit::c_library;
use mangrove_testkit::c_library::CLibrary;
use std::path::{Path, PathBuf};

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
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libleveldb.so.1", "libleveldb.so.1d"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(LIBRARY.shared(), link).expect("a link");
        }
    }
    folder
}

/// An empty directory below `parent`.
pub(crate) fn scratch(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir(&path).expect("a scratch folder");
    path
}
