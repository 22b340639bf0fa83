//! Local mode: commands of the program itself.

use crate::app::mangrove_app;
use crate::status::{Failure, guard, mangrove_app_status};
use mangrove_cabi::{give, handle, out, put_out, take_back};
use mangrove_durable::{Client, Error};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Issues commands, one at a time; usually each thread has one. Cheap; any number.
pub struct mangrove_app_client {
    client: UnsafeCell<Client>,
    process: unsafe extern "C" fn(*mut c_void),
    is_read_only: Option<unsafe extern "C" fn(*mut c_void) -> bool>,
    busy: AtomicBool,
}

/// A new client of the application. Free it with mangrove_app_client_free.
/// Errors: MANGROVE_APP_ERR_TOO_MANY_CLIENTS. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_client_new(
    app: *const mangrove_app,
    out: *mut *mut mangrove_app_client,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: NULL, or the caller's variable.
        unsafe { self::out(out, std::ptr::null_mut(), "out") }?;
        // SAFETY: passed on from the caller.
        let app = unsafe { handle(app, "app") }?;
        let client = mangrove_app_client {
            client: UnsafeCell::new(app.runtime()?.client()?),
            process: app.callbacks.process.ok_or_else(|| Failure::null("process"))?,
            is_read_only: app.callbacks.is_read_only,
            busy: AtomicBool::new(false),
        };
        // SAFETY: as above.
        unsafe { put_out(out, give(client)) };
        Ok(())
    })
}

/// Ends a client. NULL is fine. Not while it is in a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_client_free(client: *mut mangrove_app_client) {
    // SAFETY: NULL, or from mangrove_app_client_new and, by contract, not freed before.
    unsafe { take_back(client) };
}

/// Marks a client as being in a call.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Runs `body` on the caller's client, alone.
///
/// # Safety
/// `client` is NULL or a living object of this library, used by this thread alone.
unsafe fn alone(
    client: *const mangrove_app_client,
    body: impl FnOnce(&mangrove_app_client, &mut Client) -> Result<(), Error>,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: by contract.
        let client = unsafe { handle(client, "client") }?;
        // A swap would cost a locked instruction a command. This need not find two threads on one client, which the
        // contract forbids; it finds a command that calls its own client.
        if client.busy.load(Ordering::Acquire) {
            return Err(Error::Nested.into());
        }
        client.busy.store(true, Ordering::Release);
        let _busy = Busy(&client.busy);
        // SAFETY: one thread, and no call of the client is under way.
        Ok(body(client, unsafe { &mut *client.client.get() })?)
    })
}

/// Processes one command, `ctx` being what the callbacks get: a read natively, beside other reads, a
/// write in a batch. Returns when the write, or what the read saw, is durable (with interval durability:
/// at once). The results are where process() put them.
///
/// Errors: MANGROVE_APP_ERR_POISONED, _BROKEN (a write: not durable; with _POISONED it may or may not have run),
/// _MOVED and _FOREIGN (the commit was refused: the write is not durable, and no later one will be), _NESTED, _BATCH
/// (this thread has a batch open; nothing was done). A crash during the call: the write is there whole or not at all.
/// Complexity: that of process(), plus two uncontended atomic operations for a read, plus the tracking and the log
/// for a write. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_cmd(
    client: *mut mangrove_app_client,
    ctx: *mut c_void,
) -> mangrove_app_status {
    // The guard( is in alone. SAFETY: passed on from the caller.
    unsafe {
        alone(client, |handle, client| {
            // The application's callbacks with its own context.
            if handle.is_read_only.is_some_and(|ask| ask(ctx)) {
                client.read_durable(|| (handle.process)(ctx))
            } else {
                client.write_durable(handle.process, &[ctx])
            }
        })
    }
}

/// As mangrove_app_cmd, for a read that is another function than the process callback: f(ctx) runs
/// natively, beside other reads, never beside a write. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_read(
    client: *mut mangrove_app_client,
    f: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    ctx: *mut c_void,
) -> mangrove_app_status {
    let Some(f) = f else { return guard(|| Err(Failure::null("f"))) };
    // SAFETY: passed on from the caller.
    unsafe { alone(client, |_, client| client.read_durable(|| f(ctx))) }
}

/// As mangrove_app_cmd, for a write that is another function than the process callback: f(ctx) runs
/// tracked and alone. Threads: one at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_write(
    client: *mut mangrove_app_client,
    f: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    ctx: *mut c_void,
) -> mangrove_app_status {
    let Some(f) = f else { return guard(|| Err(Failure::null("f"))) };
    // SAFETY: passed on from the caller.
    unsafe { alone(client, |_, client| client.write_durable(f, &[ctx])) }
}

/// With MANGROVE_APP_TRACKER_EXPLICIT: announces, inside a write command, that `len` bytes at `ptr` are
/// about to be written. Elsewhere it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn mangrove_app_will_write(ptr: *const c_void, len: usize) {
    // Nothing here can panic.
    mangrove_durable::will_write(ptr.cast(), len);
}
