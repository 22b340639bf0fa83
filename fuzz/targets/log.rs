//! Reading hostile logs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(finding) = mangrove_crashlab::fuzz::log_parsing(data) {
        panic!("{finding}");
    }
});
