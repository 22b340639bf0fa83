//! Opening damaged and hostile pools.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(finding) = mangrove_crashlab::fuzz::pool_opening(data) {
        panic!("{finding}");
    }
});
