//! An asymmetric store-load barrier: it costs nothing on the frequent side, and a system call on the rare one.
//!
//! Two threads that each store their own flag and then read the other's must not both miss the other's store.
//! Usually each pays a full barrier, which on x86 also waits for the write-backs of the flushes before it.
//! membarrier(2) lets the rare side pay for both: it returns after every running thread of the process has passed a
//! full barrier.

use std::sync::atomic::{Ordering, compiler_fence, fence};

/// How the two sides of a flag protocol are ordered in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsymmetricBarrier {
    by_system: bool,
}

impl AsymmetricBarrier {
    /// Asks the operating system for membarrier(2); without it both sides pay a full barrier.
    #[must_use]
    pub fn detect() -> Self {
        Self { by_system: register() }
    }

    /// Both sides pay a full barrier: for the time until [`detect`](Self::detect) has returned, which takes
    /// milliseconds in a process with threads.
    #[must_use]
    pub const fn full() -> Self {
        Self { by_system: false }
    }

    /// The frequent side, between its store and its load.
    #[inline]
    pub fn light(self) {
        if self.by_system {
            // The compiler keeps the order; `heavy` makes the CPU keep it where it matters.
            compiler_fence(Ordering::SeqCst);
        } else {
            // Pairs with the fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// The rare side, between its store and its loads.
    ///
    /// # Panics
    /// When the operating system withdraws the registration: without it, mutual exclusion would be lost.
    pub fn heavy(self) {
        // Pairs with the fence in `light`, and orders our own store.
        fence(Ordering::SeqCst);
        if self.by_system {
            // A fork or a checkpointed process may have lost the registration.
            assert!(everywhere() || (register() && everywhere()), "membarrier(2) no longer works");
        }
    }
}

/// Makes a read-modify-write a full barrier: loads after it are not executed before it.
///
/// On x86-64 the locked instruction is one already, so this only restrains the compiler.
#[inline]
pub fn barrier_after_rmw() {
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// Commands of membarrier(2), as linux/membarrier.h numbers them.
#[cfg(target_os = "linux")]
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
#[cfg(target_os = "linux")]
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

#[cfg(target_os = "linux")]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(target_os = "linux")]
fn register() -> bool {
    membarrier(REGISTER_PRIVATE_EXPEDITED)
}

#[cfg(target_os = "linux")]
fn everywhere() -> bool {
    membarrier(PRIVATE_EXPEDITED)
}

#[cfg(not(target_os = "linux"))]
fn register() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn everywhere() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::AsymmetricBarrier;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// As many loads as take longer than a store needs to become visible.
    const LOOKS: u32 = 200;

    /// Runs both sides in a tight loop. If either side's barrier had no effect, both threads would be inside at
    /// once.
    fn exclusion_holds(barrier: AsymmetricBarrier) {
        let (inside, closed, busy, overlaps) =
            (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    busy.store(true, Ordering::Relaxed);
                    barrier.light();
                    // Stays for some loads: the other thread is inside only a little later.
                    let overlaps_now = || (0..LOOKS).any(|_| inside.load(Ordering::Acquire) != 0);
                    if !closed.load(Ordering::Acquire) && overlaps_now() {
                        overlaps.fetch_add(1, Ordering::Relaxed);
                    }
                    busy.store(false, Ordering::Release);
                }
            });
            scope.spawn(|| {
                for _ in 0..2_000 {
                    closed.store(true, Ordering::Relaxed);
                    barrier.heavy();
                    while busy.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    inside.store(1, Ordering::Release);
                    std::hint::spin_loop();
                    inside.store(0, Ordering::Release);
                    closed.store(false, Ordering::Release);
                }
            });
        });
        assert_eq!(overlaps.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nobody_is_inside_with_the_rare_side() {
        exclusion_holds(AsymmetricBarrier::detect());
        exclusion_holds(AsymmetricBarrier::full());
    }
}
