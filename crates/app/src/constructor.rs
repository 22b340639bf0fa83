//! Before main: the program's addresses are settled, so that its durable state finds them again.

use crate::interpose;
use mangrove_durable::settle_addresses;

/// Run by the dynamic linker before the program's own constructors and main.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // Opened later by dlopen, this library is not the program's malloc, and the program is half-way through: it must
    // not be started again.
    if interpose::check().is_ok() {
        let _ = settle_addresses();
    }
}

/// Makes the linker of a static library take this file along.
#[inline]
pub(crate) fn keep() {
    std::hint::black_box(&AT_START);
}
