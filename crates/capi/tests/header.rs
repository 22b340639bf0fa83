//! The committed header matches the code, and compilers accept it.

mod common;

use common::{FLAGS, LIBRARY, cxx, run};
use mangrove_testkit::c_header::Header;

static HEADER: Header<'_> =
    Header { library: &LIBRARY, file: "mangrove.h", guard: "MANGROVE_H", flags: &FLAGS };

#[test]
fn the_committed_header_is_what_the_code_generates() {
    HEADER.is_generated();
}

#[test]
fn the_header_alone_compiles_as_c99_and_as_cxx17() {
    HEADER.compiles_alone();
}

#[test]
fn the_cxx_header_alone_compiles_as_cxx17() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = scratch.path().join("alone.cpp");
    std::fs::write(&source, "#include <mangrove_heap.hpp>\n#include <mangrove_heap.hpp>\n").expect("write");
    run(cxx().arg("-fsyntax-only").arg(&source));
}

#[test]
fn the_version_in_the_header_is_the_crates() {
    HEADER.has_line(&format!("#define MANGROVE_VERSION \"{}\"", env!("CARGO_PKG_VERSION")));
}

/// The shared library exports exactly what the header declares: nothing of Rust's own, nothing
/// forgotten.
#[test]
fn the_shared_library_exports_what_the_header_declares() {
    let exported = HEADER.exported();
    assert_eq!(exported, HEADER.declared());
    assert!(exported.len() > 50 && exported.iter().all(|n| n.starts_with("mangrove_")), "{exported:?}");
    HEADER.has_soname("libmangrove.so.0");
}

#[test]
fn every_entry_point_is_guarded() {
    HEADER.is_guarded(
        &[
            "guard(",
            "guard_look_up(",
            "with_key(map, ",
            "with_record(map, ",
            "set_option!(guard_unit, ",
            "unsafe { moving(",
            "with_tx(tx, ",
            "with_tx_uncancelled(tx, ",
            "unsafe { allocate(tx, ",
            "run(heap, ",
        ],
        &[
            "Nothing here can panic",
            "give(",
            "take_back(",
            "libc::free",
            "concat!(",
            "mangrove_status::from_number",
            "LAST.try_with",
        ],
        &[],
    );
}
