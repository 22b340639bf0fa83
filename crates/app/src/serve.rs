//! RPC mode: the library owns the sockets.

use crate::app::mangrove_app;
use crate::callbacks::CallbackService;
use crate::status::mangrove_app_status::*;
use crate::status::{Failure, guard, mangrove_app_status};
use mangrove_cabi::{handle, text};
use mangrove_durable::{Error, route};
use mangrove_serve::Server;
use std::ffi::{CString, c_char};
use std::sync::{Arc, PoisonError};

/// Refuses a call from inside a command, before it makes or takes anything.
fn outside_commands() -> Result<(), Failure> {
    if route::is_inside() || route::in_tracked_call() { Err(Error::Nested.into()) } else { Ok(()) }
}

/// Listens at `address`: "HOST:PORT" (port 0: the system chooses, see mangrove_app_address) or
/// "unix:PATH" (a socket file that a crash left is replaced). May be called several times before
/// mangrove_app_serve. Clients may connect from now on and are served from then on.
/// Errors: MANGROVE_APP_ERR_IO, _SERVER (deserialize or get_response is missing; or it has served already).
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_listen(
    app: *const mangrove_app,
    address: *const c_char,
) -> mangrove_app_status {
    guard(|| {
        // SAFETY: passed on from the caller.
        let (app, address) = unsafe { (handle(app, "app")?, text(address, "address")?) };
        let address = address.to_str().map_err(|_| Failure::invalid("'address' is not UTF-8"))?;
        outside_commands()?;
        let mut serving = app.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if serving.served {
            let what = "the application has served already; close it and open it again";
            return Err(Failure::new(MANGROVE_APP_ERR_SERVER, what));
        }
        if app.callbacks.deserialize.is_none() || app.callbacks.get_response.is_none() {
            let what = "RPC mode needs the callbacks deserialize and get_response";
            return Err(Failure::new(MANGROVE_APP_ERR_SERVER, what));
        }
        if serving.server.is_none() {
            let service = Box::new(CallbackService(app.callbacks));
            let server = Server::new(Arc::clone(app.runtime()?), service, app.server_options.clone())?;
            let _ = app.stopper.set(server.stopper());
            serving.server = Some(server);
        }
        if let Some(server) = &mut serving.server {
            let bound = server.listen(address)?;
            serving.addresses.push(CString::new(bound).unwrap_or_default());
        }
        Ok(())
    })
}

/// The `index`-th address that mangrove_app_listen opened, in the form for clients; NULL when there is
/// none. Valid until the application is closed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_address(app: *const mangrove_app, index: u32) -> *const c_char {
    let mut found = std::ptr::null();
    guard(|| {
        // SAFETY: passed on from the caller.
        let app = unsafe { handle(app, "app") }?;
        let serving = app.serving.lock().unwrap_or_else(PoisonError::into_inner);
        // The block of the text stays in place when the list grows.
        found = serving.addresses.get(index as usize).map_or(std::ptr::null(), |a| a.as_ptr());
        Ok(())
    });
    found
}

/// Serves until mangrove_app_stop: accepts clients, has their requests processed, and sends replies once what
/// they depend on is durable. Once in the life of an application. On return every client is gone and everything
/// is durable. Errors: MANGROVE_APP_ERR_SERVER (listens nowhere), _IO, _POISONED (at the last sync).
/// Threads: any; other threads may keep using clients of their own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_serve(app: *const mangrove_app) -> mangrove_app_status {
    guard(|| {
        // SAFETY: passed on from the caller.
        let app = unsafe { handle(app, "app") }?;
        outside_commands()?;
        let server = {
            let mut serving = app.serving.lock().unwrap_or_else(PoisonError::into_inner);
            // One that listens nowhere, since no address could be opened, stays for the next address.
            let listens = !serving.addresses.is_empty();
            serving.served |= listens;
            if listens { serving.server.take() } else { None }
        };
        let Some(server) = server else {
            let what = "the application listens nowhere; call mangrove_app_listen first";
            return Err(Failure::new(MANGROVE_APP_ERR_SERVER, what));
        };
        server.serve()?;
        Ok(())
    })
}

/// Ends mangrove_app_serve: no new clients; requests that were received in full are processed, and their
/// replies sent, first. Async-signal-safe; let no handler call it once mangrove_app_close has begun. Does nothing when
/// nothing listens. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_app_stop(app: *const mangrove_app) {
    // Nothing here can panic. SAFETY: NULL or a living object of this library.
    if let Some(stopper) = unsafe { app.as_ref() }.and_then(|app| app.stopper.get()) {
        stopper.stop();
    }
}
