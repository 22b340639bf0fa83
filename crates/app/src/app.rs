//! Opening and closing an application.

use crate::callbacks::mangrove_app_callbacks;
use crate::options::mangrove_app_options;
use crate::serve::Serving;
use crate::status::mangrove_app_status::*;
use crate::status::{Answer, Failure, guard, mangrove_app_status};
use crate::{interpose, startup};
use mangrove_durable::{Error, Runtime, ServerOptions, Stopper};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

/// A durable application, open.
pub struct mangrove_app {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) callbacks: mangrove_app_callbacks,
    pub(crate) server_options: ServerOptions,
    pub(crate) serving: Mutex<Serving>,
    pub(crate) stopper: OnceLock<Stopper>,
}

// SAFETY: of the callbacks the pointer `user` is only handed back to the application.
unsafe impl Sync for mangrove_app {}
// SAFETY: as above.
unsafe impl Send for mangrove_app {}

/// The caller's application.
///
/// # Safety
/// NULL or a living object of ours.
pub(crate) unsafe fn app<'a>(app: *const mangrove_app) -> Result<&'a mangrove_app, Failure> {
    // SAFETY: by contract.
    unsafe { app.as_ref() }.ok_or_else(|| Failure::null("app"))
}

/// The caller's text.
///
/// # Safety
/// NULL, or ends with NUL and stays for the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: by contract.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Opens the state in the directory `path`, or makes it, with `options` (NULL: the defaults) and the
/// application's `callbacks`, which are copied. On success memory is as the last durable batch left it,
/// and init_state (new) or on_recover (found) has run.
///
/// Call it early in main, before the program makes threads or uses what is persistent. Close with
/// mangrove_app_close. Errors: MANGROVE_APP_ERR_POOL, _FOREIGN, _MOVED, _DAMAGED, _TRACKER, _REFUSED, _IO.
/// A crash during the call: the next one finds the state whole, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_open(
    path: *const c_char,
    options: *const mangrove_app_options,
    callbacks: *const mangrove_app_callbacks,
    out: *mut *mut mangrove_app,
) -> mangrove_app_status {
    guard(|| {
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        // SAFETY: not NULL; the caller's variable.
        unsafe { *out = std::ptr::null_mut() };
        // SAFETY: the caller's contract.
        let (path, callbacks) = unsafe { (text(path, "path")?, mangrove_app_callbacks::read(callbacks)?) };
        // SAFETY: NULL or a living object of ours.
        let options = unsafe { options.as_ref() }.cloned().unwrap_or_default();
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let init = callbacks.init_state.map(|init| (init, callbacks.user));
        startup::keep();
        interpose::check().map_err(Failure::invalid)?;
        let leaves = interpose::leaves().map(|(address, _)| address);
        let all = options.all.clone().leaves(&leaves).refused(&interpose::refused());
        // SAFETY: the application's callback with its own pointer, as the header tells.
        let runtime = unsafe { Runtime::open(path, &all, init) }?;
        if !runtime.is_new()
            && let Some(recover) = callbacks.on_recover
        {
            // SAFETY: as above.
            let answer = unsafe { recover(callbacks.user) };
            if answer != 0 {
                let _ = runtime.close();
                let what = format!("on_recover answered {answer}; nothing was changed");
                return Err(Failure::new(MANGROVE_APP_ERR_REFUSED, what));
            }
        }
        let app = mangrove_app {
            runtime,
            callbacks,
            server_options: options.server,
            serving: Mutex::default(),
            stopper: OnceLock::new(),
        };
        // SAFETY: not NULL; the caller's variable.
        unsafe { *out = Box::into_raw(Box::new(app)) };
        Ok(())
    })
}

/// Makes everything durable, brings the image up to date, and closes the state. NULL is fine. After
/// MANGROVE_APP_ERR_IN_USE (clients are alive) the application is still open; after every other answer it
/// is gone, and with an error the next opening recovers. Not to be called while another thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_close(app: *mut mangrove_app) -> mangrove_app_status {
    guard(|| {
        if app.is_null() {
            return Ok(());
        }
        // SAFETY: a living object of ours, which nobody else uses now.
        let (clients, inside) = unsafe { (&*app).in_use() };
        if inside {
            return Err(Error::Nested.into());
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
        Ok(runtime.close()?)
    })
}

impl mangrove_app {
    /// Others who hold the runtime, and whether this thread is in a command.
    fn in_use(&self) -> (usize, bool) {
        let listening = usize::from(self.stopper.get().is_some() && self.is_listening());
        (Arc::strong_count(&self.runtime) - 1 - listening, mangrove_durable::route::is_inside())
    }
}

/// True when mangrove_app_open made the state and did not find one. False for NULL. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_is_new(app: *const mangrove_app) -> bool {
    // Nothing here can panic. SAFETY: NULL or a living object of ours.
    unsafe { app.as_ref() }.is_some_and(|app| app.runtime.is_new())
}

/// One of sixteen pointers of the state (`index` 0 to 15), NULL at first: where a program without
/// variables of its own finds its data again. Write it inside write commands only. NULL for a NULL
/// application or another index. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_root(app: *const mangrove_app, index: u32) -> *mut *mut c_void {
    // Nothing here can panic. SAFETY: NULL or a living object of ours.
    match unsafe { app.as_ref() } {
        // SAFETY: one of the sixteen words.
        Some(app) if index < 16 => unsafe { app.runtime.roots().add(index as usize) }.cast(),
        _ => std::ptr::null_mut(),
    }
}

fn with_runtime(
    handle: *const mangrove_app,
    call: impl FnOnce(&Runtime) -> mangrove_durable::Result<()>,
) -> mangrove_app_status {
    guard(|| -> Answer {
        // SAFETY: passed on from the caller.
        Ok(call(&unsafe { app(handle) }?.runtime)?)
    })
}

/// Waits until everything that was answered so far is durable, whatever the durability mode.
/// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_sync(app: *const mangrove_app) -> mangrove_app_status {
    // The guard( is in with_runtime.
    with_runtime(app, Runtime::sync)
}

/// Brings the image up to date and frees the log: the next opening has less to do. Runs beside commands.
/// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_checkpoint(app: *const mangrove_app) -> mangrove_app_status {
    // The guard( is in with_runtime.
    with_runtime(app, Runtime::checkpoint)
}
