//! The committed header matches the code, and compilers accept it.

mod common;

use common::{FLAGS, LIBRARY};
use mangrove_testkit::c_header::Header;

static HEADER: Header<'_> =
    Header { library: &LIBRARY, file: "mangrove_app.h", guard: "MANGROVE_APP_H", flags: &FLAGS };

#[test]
fn the_committed_header_is_what_the_code_generates() {
    HEADER.is_generated();
}

#[test]
fn the_header_alone_compiles_as_c11_and_as_cxx17() {
    HEADER.compiles_alone();
}

#[test]
fn the_version_in_the_header_is_the_crates() {
    HEADER.has_line(&format!("#define MANGROVE_APP_VERSION \"{}\"", env!("CARGO_PKG_VERSION")));
}

/// The malloc family of the process, which the library stands in front of, and related functions.
const INTERPOSED: [&str; 19] = [
    "dlclose",
    "fork",
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "free_sized",
    "free_aligned_sized",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "pthread_key_create",
    "pthread_key_delete",
    "malloc_usable_size",
    "cfree",
];

/// The shared library exports exactly what the header declares, and the malloc family: nothing of Rust's own,
/// nothing forgotten.
#[test]
fn the_shared_library_exports_what_the_header_declares() {
    let mut exported = HEADER.exported();
    exported.retain(|name| !INTERPOSED.contains(&name.as_str()));
    // Native leaves are made of these, and programs that clang instrumented call them.
    exported.retain(|name| !name.starts_with("mangrove_arena_") && !name.starts_with("mangrove_tracker_"));
    assert_eq!(exported, HEADER.declared());
    assert!(exported.len() > 40 && exported.iter().all(|n| n.starts_with("mangrove_app_")), "{exported:?}");
    HEADER.has_soname("libmangrove_app.so.0");
}

#[test]
fn every_entry_point_is_guarded() {
    HEADER.is_guarded(
        &["guard(", "set_option!(guard, "],
        &["Nothing here can panic", "give(", "take_back(", "concat!(", "LAST.try_with"],
        // The C library's own names, which run where nothing may allocate.
        &["interpose.rs", "fork.rs", "unload.rs"],
    );
}
