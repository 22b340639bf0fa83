//! Settles the program's addresses before main, so that its durable state finds them again.

use crate::process::interpose;
use mangrove_durable::settle_addresses;

/// The dynamic linker runs it before the program's own constructors and main.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // A library that dlopen loads late is not the program's malloc, and the program is half-way through: it must not
    // be started again.
    if interpose::check().is_ok() {
        let _ = settle_addresses();
    }
}

/// Makes the linker of a static library include this file. `mangrove_app_open` calls it: a program has
/// no state without that.
#[inline]
pub(crate) fn keep() {
    std::hint::black_box(&AT_START);
}
