//! Where the program's modules lie. `constructor.rs` settles that before main.

use mangrove_durable::{Addresses, settle_addresses};

/// Whether this process has its modules where every start has them. False where a sandbox forbids
/// personality(2), or with MANGROVE_RANDOM_ADDRESSES in the environment: opening then demands a program
/// at a fixed address (-no-pie) or a promise (mangrove_app_options_set_random_addresses), and no command
/// may make the state point to a module that moves.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_addresses_are_fixed() -> bool {
    let mut fixed = false;
    crate::status::guard(|| {
        fixed = settle_addresses() == Addresses::Same;
        Ok(())
    });
    fixed
}
