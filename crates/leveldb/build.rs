//! Gives the shared library its own name for the dynamic linker. To use it under LevelDB's name, add a link with that
//! name to its directory (docs/leveldb.md).

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmangrove_leveldb.so.{major}");
    println!("cargo:rerun-if-changed=build.rs");
}
