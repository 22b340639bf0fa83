//! Gives the shared library its name for the dynamic linker: the major version, which changes
//! exactly when the ABI breaks.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmangrove_app.so.{major}");
    println!("cargo:rerun-if-changed=build.rs");
}
