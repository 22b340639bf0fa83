//! Which thread is in a tracked call, and where its writes go.
//!
//! One tracked call runs at a time in the process, whatever tracker makes it.

use crate::error::{Error, Result};
use crate::write_set::write_set::WriteSet;
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Identity of the thread in a tracked call, 0 if there is none.
static OWNER: AtomicUsize = AtomicUsize::new(0);
/// Where the owner's writes go; only the owner looks at it.
static WRITES: AtomicPtr<WriteSet> = AtomicPtr::new(null_mut());

#[cfg(not(target_arch = "x86_64"))]
thread_local! {
    static SELF: Cell<u8> = const { Cell::new(0) };
}

/// An address that no other living thread has.
#[inline]
pub(crate) fn thread_identity() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let identity: usize;
        // SAFETY: the thread control block's first word is its own address (System V ABI, TLS variant II).
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) identity, options(nostack, readonly, preserves_flags))
        };
        identity
    }
    #[cfg(not(target_arch = "x86_64"))]
    SELF.with(|cell| std::ptr::from_ref(cell).addr())
}

/// A number for the calling thread that no other thread of the process ever has. The address of the control block
/// does not do: a later thread, whose stack may be smaller, can get the same one.
#[inline]
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The right to make the process's one tracked call; dropping it ends the right.
pub(crate) struct Turn(());

impl Turn {
    /// Takes the turn for `writes`, which must stay where it is until the turn is over.
    #[inline]
    pub(crate) fn take(writes: *mut WriteSet) -> Result<Self> {
        // Acquire: pairs with the release in `drop`, so the last owner's work is visible.
        if OWNER.compare_exchange(0, thread_identity(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(Error::Busy);
        }
        WRITES.store(writes, Ordering::Relaxed);
        Ok(Self(()))
    }
}

impl Drop for Turn {
    #[inline]
    fn drop(&mut self) {
        WRITES.store(null_mut(), Ordering::Relaxed);
        // Release: pairs with the acquire in `take`.
        OWNER.store(0, Ordering::Release);
    }
}

/// In a forked child: the thread that had the turn does not exist there. Touches atomics only.
pub fn forget_turn() {
    WRITES.store(null_mut(), Ordering::Relaxed);
    OWNER.store(0, Ordering::Relaxed);
}

/// True if the calling thread is in a tracked call.
#[inline]
#[must_use]
pub fn in_tracked_call() -> bool {
    OWNER.load(Ordering::Relaxed) == thread_identity()
}

/// Announces that the calling thread is about to write `[addr, addr + len)`. Outside a tracked call it does
/// nothing.
///
/// This is the whole of the explicit tracker, and native leaves report by it. Write after the call, before calling
/// anything else that might end the batch.
// There is one copy, which the recompiler runs natively. A translated one would change the write set between the steps
// of the record of its own stores.
#[inline(never)]
pub fn will_write(addr: *const u8, len: usize) {
    if in_tracked_call() {
        let writes = WRITES.load(Ordering::Relaxed);
        // SAFETY: this thread has the turn, whose set lives until the turn ends and is not used otherwise
        // while the tracked function runs.
        unsafe { (*writes).record(addr.addr(), len) };
    }
}

/// Where this module's variables lie: a verifier skips them.
pub(crate) fn variables() -> [(usize, usize); 2] {
    [
        (std::ptr::from_ref(&OWNER).addr(), size_of_val(&OWNER)),
        (std::ptr::from_ref(&WRITES).addr(), size_of_val(&WRITES)),
    ]
}
