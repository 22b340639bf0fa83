//! Opening pools that were not closed and whose files were damaged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(finding) = mangrove_crashlab::fuzz::damaged_pool(data) {
        panic!("{finding}");
    }
});
