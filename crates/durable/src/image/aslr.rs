//! The same addresses in every run: a program that was started with random ones starts itself again without them.
//!
//! The state holds addresses of functions, vtables, constants and variables of the program. The kernel gives a
//! program other addresses at each start unless its personality forbids that (ADDR_NO_RANDOMIZE), which only takes
//! effect at exec. So the program executes itself once more, with the same arguments and environment, before it has
//! done anything. That needs no privilege. Where a sandbox forbids it (container runtimes filter personality(2)) the
//! program continues as it is, and opening finds out whether its state can live there.
//!
//! The limit of the stack, too, moves modules between starts, since the kernel computes from it where libraries go:
//! it is set to 8 MiB for the second start, and then put back. Another kernel may place modules differently all the
//! same.

use mangrove_sys::{
    addresses_are_random, forget_variable, run_again, set_random_addresses, stack_limit, thread_count,
};
use std::sync::OnceLock;

/// Names the process that started itself again, and its stack limit before: the guard against a second time.
const VARIABLE: &str = "MANGROVE_SAME_ADDRESSES";
/// Set by the user: the program never starts itself again.
const NEVER: &str = "MANGROVE_RANDOM_ADDRESSES";
const STACK_BYTES: u64 = 8 << 20;
/// A process that executes other programs in its place may start again for each, but not for ever.
const STARTS_MAX: u64 = 16;

/// Where this process's modules lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// At the addresses that every start with the same program, libraries and kernel gives them.
    Same,
    /// At addresses of this run only.
    Random {
        /// What kept the process from starting again.
        why: String,
    },
}

/// Starts the program again without address randomisation, if that is on and can be turned off. Returns in the
/// process that need not start again. Call it before anything else in `main`: what comes before it is done twice.
pub fn settle_addresses() -> Addresses {
    static SETTLED: OnceLock<Addresses> = OnceLock::new();
    SETTLED.get_or_init(settle).clone()
}

fn settle() -> Addresses {
    let random = |why: String| Addresses::Random { why };
    let (starts, stack) = earlier_starts();
    if starts > 0 && matches!(addresses_are_random(), Ok(false)) {
        return second_start(stack);
    }
    if starts >= STARTS_MAX {
        return random("the kernel ignores personality(2)".into());
    }
    if std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").is_ok_and(|s| s.trim() == "0") {
        return Addresses::Same;
    }
    match addresses_are_random() {
        Ok(false) => return Addresses::Same,
        Ok(true) => {}
        Err(e) => return random(format!("a sandbox forbids personality(2): {e}")),
    }
    if std::env::var_os(NEVER).is_some() {
        return random(format!("{NEVER} is set"));
    }
    match thread_count() {
        Ok(1) => {}
        Ok(_) => {
            return random("threads were started before; settle the addresses first thing in main".into());
        }
        Err(e) => return random(format!("/proc cannot be read: {e}")),
    }
    if let Err(e) = set_random_addresses(false) {
        return random(format!("a sandbox forbids personality(2): {e}"));
    }
    let stack = stack_limit(Some(STACK_BYTES)).unwrap_or(STACK_BYTES);
    let error = run_again(&format!("{VARIABLE}={}:{stack}:{}", std::process::id(), starts + 1));
    let _ = stack_limit(Some(stack));
    let _ = set_random_addresses(true);
    random(format!("the program cannot be started again: {error}"))
}

/// How often this process has started itself again (a program that it executes in its place continues the count),
/// and its stack limit before.
fn earlier_starts() -> (u64, u64) {
    let value = std::env::var(VARIABLE).unwrap_or_default();
    let mut parts = value.split(':').map(|part| part.parse::<u64>().ok());
    match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten()) {
        (Some(pid), Some(stack), Some(starts)) if pid == u64::from(std::process::id()) => (starts, stack),
        // Inherited from a parent process it means nothing here.
        _ => (0, STACK_BYTES),
    }
}

/// Puts back what the first start changed, so that programs that this one starts find what they expect.
fn second_start(stack: u64) -> Addresses {
    let _ = stack_limit(Some(stack));
    let _ = set_random_addresses(true);
    if thread_count().is_ok_and(|count| count == 1) {
        // SAFETY: no other thread reads the environment.
        unsafe { forget_variable(VARIABLE) };
    }
    Addresses::Same
}
