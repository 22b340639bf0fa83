//! Names the package to install when a C library is missing, because the linker's message does not.

use std::path::Path;

/// A header of the package, and the package's name.
const NEEDED: [(&str, &str); 4] = [
    ("lmdb.h", "liblmdb-dev"),
    ("leveldb/c.h", "libleveldb-dev"),
    ("rocksdb/c.h", "librocksdb-dev"),
    ("libpmemobj.h", "libpmemobj-dev"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let there = |header: &str| {
        ["/usr/include", "/usr/local/include"].iter().any(|d| Path::new(d).join(header).exists())
    };
    let missing: Vec<&str> = NEEDED.iter().filter(|(h, _)| !there(h)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        println!(
            "cargo::error=the peers of the bench need C libraries that are not installed; run: apt-get install {}",
            missing.join(" ")
        );
    }
}
