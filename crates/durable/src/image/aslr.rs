//! The same addresses in every run: a program that was started with random ones starts itself again without them.
//!
//! The state holds addresses of functions, vtables, constants and variables of the program. The kernel gives a
//! program other addresses at each start unless its personality forbids that (ADDR_NO_RANDOMIZE), which only takes
//! effect at exec. So the program executes itself once more, with the same arguments and environment, before it has
//! done anything. That needs no privilege. Where a sandbox forbids it (container runtimes filter personality(2)) the
//! program continues as it is, and its states may depend on no address that another start has elsewhere
//! (`MovingModules`).
//!
//! The limit of the stack, too, moves modules between starts, since the kernel computes from it where libraries go:
//! it is set to 8 MiB for the second start, and then put back. Another kernel may place modules differently all the
//! same.

use crate::Error;
use crate::image::modules::{Gone, Modules};
use mangrove_sys::{
    addresses_are_random, forget_variable, run_again, set_random_addresses, stack_limit, thread_count,
};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Names the process that started itself again, and its stack limit before: the guard against a second time.
const VARIABLE: &str = "MANGROVE_SAME_ADDRESSES";
/// Set by the user: the program never starts itself again.
const NEVER: &str = "MANGROVE_RANDOM_ADDRESSES";
/// GLib before 2.76 keeps a cache of small blocks beside malloc, which passes memory of the process to commands. It
/// reads this when it first allocates.
const SLICES: &str = "G_SLICE=always-malloc";
const STACK_BYTES: u64 = 8 << 20;
/// A process that executes other programs in its place may start again for each, but not for ever.
const STARTS_MAX: u64 = 16;

/// Threads kept the program from starting again.
static THREADS_CAME_FIRST: AtomicBool = AtomicBool::new(false);

/// What helps where a sandbox forbids personality(2), by what the program can do alone.
const LINK: &str = "link the program at a fixed address (-no-pie, in Rust -C relocation-model=static) and its \
                    libraries statically, or allow personality(2) (docker run --security-opt seccomp=PROFILE)";

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
            // Relaxed: read by this thread, or after `SETTLED` was set.
            THREADS_CAME_FIRST.store(true, Ordering::Relaxed);
            return random("threads were started before; settle the addresses first thing in main".into());
        }
        Err(e) => return random(format!("/proc cannot be read: {e}")),
    }
    if let Err(e) = set_random_addresses(false) {
        return random(format!("a sandbox forbids personality(2): {e}"));
    }
    let stack = stack_limit(Some(STACK_BYTES)).unwrap_or(STACK_BYTES);
    let marker = format!("{VARIABLE}={}:{stack}:{}", std::process::id(), starts + 1);
    let variables = [marker.as_str(), SLICES];
    let count = if std::env::var_os("G_SLICE").is_some() { 1 } else { 2 };
    let error = run_again(&variables[..count]);
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

/// Whether threads that the program had started, and no sandbox, kept it from starting again.
pub(crate) fn threads_came_first() -> bool {
    THREADS_CAME_FIRST.load(Ordering::Relaxed)
}

/// What holds for a state where modules lie elsewhere at each start. Whatever it points to must not move, or the next
/// start would refuse it. Addresses that it depends on without pointing there (hash tables whose hash has an address
/// as input, as Abseil's) cannot be found: the program's own modules must not move, or the caller must know that
/// there are none.
#[derive(Clone, Debug)]
pub(crate) struct MovingModules {
    why: String,
    is_known: bool,
}

impl MovingModules {
    /// `None` where modules lie the same at each start. `is_known`: the caller knows that the state depends on no
    /// address that moves.
    pub(crate) fn found(addresses: Addresses, is_known: bool) -> Option<Self> {
        match addresses {
            Addresses::Same => None,
            Addresses::Random { why } => {
                Some(Self { why, is_known: is_known || std::env::var_os(NEVER).is_some() })
            }
        }
    }

    /// Why a module at `span` is no place to point to.
    pub(crate) fn gone(&self, path: &str, span: std::ops::Range<usize>) -> Gone {
        let why = format!("{path} lies elsewhere at each start, since {}; {LINK}", self.why);
        Gone { span, why }
    }

    /// Refuses what `what` tells, if a module of the program's own moves.
    ///
    /// # Errors
    /// There is such a module, and the caller does not know better.
    pub(crate) fn check(&self, modules: &Modules, what: &str) -> crate::Result<()> {
        let Some(path) = modules.movable_program().filter(|_| !self.is_known) else { return Ok(()) };
        Err(Error::Moved {
            what: format!(
                "{what}, because {path} lies elsewhere at each start, since {}: what the state makes of addresses \
                 (pointers, hashes) would be wrong at another start; {LINK}, or, if it makes nothing of them, say so \
                 (mangrove_app_options_set_random_addresses, Options::random_addresses, or \
                 MANGROVE_RANDOM_ADDRESSES=1 in the environment)",
                self.why
            ),
        })
    }

    /// What to do, after a message of what the state points to.
    pub(crate) fn advice(&self) -> String {
        format!("; here {}: {LINK}", self.why)
    }
}
