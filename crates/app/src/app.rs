//! Opening and closing an application.

use crate::callbacks::mangrove_app_callbacks;
use crate::options::mangrove_app_options;
use crate::process::{constructor, heap, interpose};
use crate::status::mangrove_app_status::*;
use crate::status::{Answer, Failure, guard, mangrove_app_status};
use mangrove_cabi::{give, handle, out, path, put_out};
use mangrove_durable::{Error, Options, Runtime, settle_addresses};
use mangrove_serve::{Server, ServerOptions, Stopper};
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A durable application, open.
pub struct mangrove_app {
    /// Missing while init_state runs.
    runtime: OnceLock<Arc<Runtime>>,
    roots: AtomicPtr<usize>,
    /// mangrove_app_open has returned it.
    is_open: AtomicBool,
    pub(crate) callbacks: mangrove_app_callbacks,
    pub(crate) server_options: ServerOptions,
    pub(crate) serving: Mutex<Serving>,
    pub(crate) stopper: OnceLock<Stopper>,
}

/// The server of an application.
#[derive(Default)]
pub(crate) struct Serving {
    /// Listens already, and does not serve yet.
    pub(crate) server: Option<Server>,
    /// Its addresses, for mangrove_app_address.
    pub(crate) addresses: Vec<CString>,
    pub(crate) served: bool,
}

// SAFETY: the callbacks' pointer `user` is only handed back to the application.
unsafe impl Sync for mangrove_app {}
// SAFETY: as above.
unsafe impl Send for mangrove_app {}

/// Opens the state in the directory `path`, or makes it, with `options` (NULL: the defaults) and the
/// application's `callbacks`, which are copied. On success memory is as the last durable batch left it, and
/// init_state (new) or on_recover (found) has run. *out is set before they run, so init_state may call
/// mangrove_app_root.
///
/// Call it early in main, before the program makes threads or uses what is persistent. Close with
/// mangrove_app_close. Errors: MANGROVE_APP_ERR_POOL, _FOREIGN, _MOVED, _DAMAGED, _TRACKER, _REFUSED, _IO,
/// _NO_MEMORY, and with copy on write _POISONED, when a damaged page is found meanwhile.
/// A crash during the call: the next one finds the state whole, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_open(
    path: *const c_char,
    options: *const mangrove_app_options,
    callbacks: *const mangrove_app_callbacks,
    out: *mut *mut mangrove_app,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: NULL, or the caller's variable. No reference to it stays: the callbacks may read it.
        unsafe { self::out(out, std::ptr::null_mut(), "out") }?;
        // SAFETY: the caller's contract.
        let (path, callbacks) =
            unsafe { (self::path(path, "path")?, mangrove_app_callbacks::read(callbacks)?) };
        // SAFETY: NULL or a living object of this library.
        let options = unsafe { options.as_ref() }.cloned().unwrap_or_default();
        constructor::keep();
        interpose::check().map_err(Failure::invalid)?;
        let leaves = interpose::leaves().map(|(address, _)| address);
        let all = options.all.clone().addresses(settle_addresses());
        let all = all.leaves(&leaves).leaves(&heap::leaves()).refused(&interpose::refused());
        let app = give(mangrove_app {
            runtime: OnceLock::new(),
            roots: AtomicPtr::default(),
            is_open: AtomicBool::new(false),
            callbacks,
            server_options: options.server,
            serving: Mutex::default(),
            stopper: OnceLock::new(),
        });
        // SAFETY: made above; no other thread has it.
        let opened = unsafe { (*app).fill(path, &all, || put_out(out, app)) };
        if opened.is_err() {
            // SAFETY: the caller's variable.
            unsafe { put_out(out, std::ptr::null_mut()) };
            // SAFETY: made above, and by contract not used any more.
            let app = unsafe { Box::from_raw(app) };
            let mangrove_app { runtime, serving, .. } = *app;
            // A server for which on_recover has listened holds the runtime.
            drop(serving);
            // The caller gets the first error.
            let _ = runtime.into_inner().map(Runtime::close);
        }
        opened
    })
}

/// Makes everything durable, brings the data file up to date, and closes the state. NULL is fine. After
/// MANGROVE_APP_ERR_IN_USE (clients are alive), _BATCH (a batch is open, or this process is a forked child) and
/// _NESTED the application is still open. After every other result it is gone, and after an error the next opening
/// recovers. Not to be called while another thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_close(app: *mut mangrove_app) -> mangrove_app_status {
    guard(|| {
        if app.is_null() {
            return Ok(());
        }
        // SAFETY: a living object of this library, which no other thread uses now.
        let handle = unsafe { &*app };
        if let Ok(runtime) = handle.runtime() {
            // Before anything waits for a lock, or ends what is the parent's, such as the name of a socket.
            runtime.refuse_child()?;
        }
        let (clients, inside) = handle.in_use();
        if inside || !handle.is_open.load(Ordering::Relaxed) {
            return Err(Error::Nested.into());
        }
        if handle.runtime()?.has_open_batch() {
            let what = "a batch is open; commit it before closing";
            return Err(Failure::new(MANGROVE_APP_ERR_BATCH, what));
        }
        if clients > 0 {
            return Err(Failure::new(
                MANGROVE_APP_ERR_IN_USE,
                format!("{clients} clients are still alive; free them, or let serving end, before closing"),
            ));
        }
        // SAFETY: from mangrove_app_open and, by contract, not closed before.
        let app = unsafe { Box::from_raw(app) };
        let mangrove_app { runtime, serving, .. } = *app;
        drop(serving);
        Ok(runtime.into_inner().map_or(Ok(()), Runtime::close)?)
    })
}

impl mangrove_app {
    /// Opens the state, and runs the callback that goes with it. `ready` runs once the roots are known.
    ///
    /// # Safety
    /// The callbacks are sound to call as the header says.
    unsafe fn fill(&self, path: &Path, options: &Options, ready: impl FnOnce()) -> Answer {
        let init = self.callbacks.init_state.map(|init| (init, self.callbacks.user));
        // SAFETY: the application's callback with its own pointer.
        let runtime = unsafe {
            Runtime::open_prepared(path, options, init, |roots| {
                // Relaxed, as all of this: the thread that opens runs the callbacks.
                self.roots.store(roots, Ordering::Relaxed);
                ready();
            })
        }?;
        let is_new = runtime.is_new();
        let _ = self.runtime.set(runtime);
        if !is_new && let Some(recover) = self.callbacks.on_recover {
            // SAFETY: as above.
            let answer = unsafe { recover(self.callbacks.user) };
            if answer != 0 {
                let what = format!("on_recover returned {answer}; nothing was changed");
                return Err(Failure::new(MANGROVE_APP_ERR_REFUSED, what));
            }
        }
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The runtime.
    ///
    /// # Errors
    /// `Nested`, while init_state runs.
    #[inline]
    pub(crate) fn runtime(&self) -> Result<&Arc<Runtime>, Error> {
        self.runtime.get().ok_or(Error::Nested)
    }

    /// How many other objects hold the runtime, and whether this thread is in a command.
    fn in_use(&self) -> (usize, bool) {
        let listening = usize::from(self.stopper.get().is_some() && self.is_listening());
        let handles = self.runtime.get().map_or(1, Arc::strong_count);
        (handles - 1 - listening, mangrove_durable::route::is_inside())
    }

    /// True while a server exists that does not serve: it holds the runtime.
    fn is_listening(&self) -> bool {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner).server.is_some()
    }
}

/// True when mangrove_app_open made the state rather than found one. False for NULL. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_is_new(app: *const mangrove_app) -> bool {
    // Nothing here can panic. SAFETY: NULL or a living object of this library.
    unsafe { app.as_ref() }.is_some_and(|app| app.runtime.get().is_none_or(|runtime| runtime.is_new()))
}

/// One of sixteen pointers of the state (`index` 0 to 15), NULL at first: from them a program
/// without variables of its own finds its data again. Write it inside write commands only. NULL for
/// a NULL application or another index. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_root(app: *const mangrove_app, index: u32) -> *mut *mut c_void {
    // Nothing here can panic. SAFETY: NULL or a living object of this library.
    match unsafe { app.as_ref() } {
        Some(app) if index < 16 => {
            let roots = app.roots.load(Ordering::Relaxed);
            // SAFETY: one of the sixteen words.
            if roots.is_null() { roots.cast() } else { unsafe { roots.add(index as usize) }.cast() }
        }
        _ => std::ptr::null_mut(),
    }
}

fn with_runtime(
    app: *const mangrove_app,
    call: impl FnOnce(&Runtime) -> mangrove_durable::Result<()>,
) -> mangrove_app_status {
    guard(|| -> Answer {
        // SAFETY: passed on from the caller.
        Ok(call(unsafe { handle(app, "app") }?.runtime()?)?)
    })
}

/// Waits until every write that has returned so far is durable, whatever the durability.
/// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_sync(app: *const mangrove_app) -> mangrove_app_status {
    // The guard( is in with_runtime.
    with_runtime(app, Runtime::sync)
}

/// Brings the data file up to date and frees the log, so that the next opening has less to do. Runs
/// beside commands.
/// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_checkpoint(app: *const mangrove_app) -> mangrove_app_status {
    // The guard( is in with_runtime.
    with_runtime(app, Runtime::checkpoint)
}

/// Gives back the memory and the disk space of pages of 4 KiB in which nothing is allocated, and brings
/// the data file up to date. What is allocated stays where it is. Commands and reads wait for the first
/// part, which takes milliseconds for each gigabyte. Closing does the same if an eighth of the state is
/// free.
/// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_compact(app: *const mangrove_app) -> mangrove_app_status {
    // The guard( is in with_runtime.
    with_runtime(app, |runtime| runtime.compact().map(drop))
}
