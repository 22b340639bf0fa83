//! Gives the shared library its own name for the dynamic linker. Who wants it under LevelDB's name
//! puts a link with that name beside it (docs/leveldb.md).

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmangrove_leveldb.so.{major}");
    println!("cargo:rerun-if-changed=build.rs");
}
