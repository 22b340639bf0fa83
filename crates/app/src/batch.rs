//! Batches that the program's own event loop fills, commits and waits for.

use crate::app::mangrove_app;
use crate::status::{Failure, guard, mangrove_app_status};
use mangrove_cabi::{handle, out, put_out};
use mangrove_durable::{Ticket, route};
use std::ffi::c_void;

/// Runs f(ctx) tracked and alone, into the open batch; opens one first if none is open. From then on until
/// mangrove_app_batch_commit clients of other threads neither read nor write: they wait. Between its calls
/// the thread reads the state as it likes; what it allocates there is not persistent, and what it frees
/// becomes free with the commit.
///
/// Errors: MANGROVE_APP_ERR_POISONED and _BROKEN are final: nothing of the batch is committed. _NESTED:
/// called from inside a command or a read. _BATCH: another thread has a batch open, or this process is a
/// forked child. A crash before the commit: nothing of the batch is there. Complexity: that of f, plus the
/// tracking; no system call.
/// Threads: any, but one has the batch open at a time, from its first call to the commit.
/// A thread that ends before the commit ends the batch: nothing of it is committed, and every later call
/// returns MANGROVE_APP_ERR_BROKEN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_batch_call(
    app: *const mangrove_app,
    f: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    ctx: *mut c_void,
) -> mangrove_app_status {
    guard(|| {
        let f = f.ok_or_else(|| Failure::null("f"))?;
        // SAFETY: passed on from the caller.
        Ok(unsafe { handle(app, "app")?.runtime()?.batch_call(f, ctx) }?)
    })
}

/// Commits the open batch as one atomic group, after the frees that were waiting, and does not wait until it is
/// durable. Replies to the batch, and to reads after it, may leave when mangrove_app_durable is at least
/// *ticket, which is 0 after an error. Tickets grow. If no batch is open and frees wait, the call commits
/// those.
///
/// On persistent memory the batch is durable when this returns: call mangrove_app_durable after each commit.
///
/// Errors: MANGROVE_APP_ERR_POISONED, _BROKEN, _MOVED: nothing of the batch is durable, nor will be.
/// _BATCH: no batch is open and no free waits; another thread has it open; a forked child. _NESTED. A crash
/// during the call: the batch is there whole or not at all.
/// Threads: the one that has the batch open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_batch_commit(
    app: *const mangrove_app,
    ticket: *mut u64,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: NULL, or the caller's variable.
        unsafe { out(ticket, 0, "ticket") }?;
        // SAFETY: passed on from the caller.
        let committed = unsafe { handle(app, "app") }?.runtime()?.batch_commit()?;
        // SAFETY: the caller's variable.
        unsafe { put_out(ticket, committed.0) };
        Ok(())
    })
}

/// The greatest ticket that is durable, in every durability mode: one load. It grows no more once the medium
/// has failed. 0 for NULL. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_durable(app: *const mangrove_app) -> u64 {
    // Nothing here can panic. SAFETY: NULL or a living object of this library.
    unsafe { app.as_ref() }.and_then(|app| app.runtime().ok()).map_or(0, |runtime| runtime.durable().0)
}

/// Waits until a reply that depends on `ticket` may leave: until the ticket is durable. With interval
/// durability it returns at once (mangrove_app_sync waits in every mode).
///
/// Errors: MANGROVE_APP_ERR_POISONED: the medium has failed, and the ticket is not durable. _BATCH: no batch
/// has this ticket; a forked child. _NESTED.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_wait(app: *const mangrove_app, ticket: u64) -> mangrove_app_status {
    guard(|| {
        // SAFETY: passed on from the caller.
        Ok(unsafe { handle(app, "app") }?.runtime()?.batch_wait(Ticket(ticket))?)
    })
}

/// A descriptor for the program's event loop (an eventfd, not blocking, close-on-exec). It becomes readable
/// when a batch becomes durable after its mangrove_app_batch_commit has returned, and once when the medium
/// has failed. The loop reads its eight bytes and then calls mangrove_app_durable.
///
/// The first call starts a thread that has all signals blocked and makes batches durable, one sync after
/// the other; without it mangrove_app_wait does that. The descriptor stays the application's, and
/// mangrove_app_close closes it. -1 on failure, and mangrove_app_last_error says why.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_notify_fd(app: *const mangrove_app) -> i32 {
    let mut descriptor = -1;
    guard(|| {
        // SAFETY: passed on from the caller.
        descriptor = unsafe { handle(app, "app") }?.runtime()?.notify_fd()?;
        Ok(())
    });
    descriptor
}

/// Whether `ptr` points into the memory of an open state. One comparison for most other pointers.
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_is_persistent(ptr: *const c_void) -> bool {
    // Nothing here can panic.
    route::is_persistent(ptr as usize)
}

/// Whether the calling thread runs a write command: what it allocates now is persistent. False inside a
/// function that mangrove_app_native named. Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_is_inside() -> bool {
    // Nothing here can panic.
    route::is_inside()
}
