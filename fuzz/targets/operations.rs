//! Operations with crashes, against a reference map.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(finding) = mangrove_crashlab::fuzz::operations(data) {
        panic!("{finding}");
    }
});
