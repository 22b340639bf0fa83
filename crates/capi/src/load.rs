//! Bulk load.

use crate::map::mangrove_map;
use crate::options::mangrove_options;
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status};
use mangrove::Map;
use mangrove_cabi::{on_own_thread_asking, path};
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Fills the new map of mangrove_map_load, on the thread that asked for it. Returns 0 when all is in it,
/// another number to leave nothing. `map` is valid during the call, for any number of threads; it must not
/// be closed, and its snapshots, iterators and batches must be freed before this returns.
pub type mangrove_fill_callback =
    Option<unsafe extern "C" fn(map: *mut mangrove_map, context: *mut c_void) -> i32>;

/// Makes a new map at `path` with what `fill` puts into the map that it gets, with `context`. On the medium
/// file it is written without a redo log, most of it in the background: with a quarter of the bytes that the
/// same writes to an open map cost. Its writes do not wait for the disk. Open it with mangrove_map_open
/// afterwards. `options` may be NULL for all defaults; whether they allow or demand an existing pool does
/// not count: `path` must be free.
///
/// `fill` may read, put, delete and write batches; keys in order are not needed. mangrove_map_checkpoint ends
/// the load: what `fill` writes after it fails.
/// Time: that of `fill`, then O(bytes) for those that have not been written yet, and one sync.
/// Errors: MANGROVE_ERR_STOPPED: `fill` returned another number than 0; _IN_USE: it left a snapshot or an
/// iterator alive; _POOL_EXISTS; _FOREIGN: something else lies at `path`; _POOL_BUSY: another load or backup to
/// `path` is at work; _UNSUPPORTED: `path` lies in a pool's directory, or the options open read-only;
/// _NO_SPACE, _FULL, _NO_MEMORY, _IO. Nothing is left at `path`.
/// Crash: the new map appears whole and durable, or not at all. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_map_load(
    path: *const c_char,
    options: *const mangrove_options,
    fill: mangrove_fill_callback,
    context: *mut c_void,
) -> mangrove_status {
    guard(|| {
        let Some(fill) = fill else { return Err(Failure::invalid("fill is NULL")) };
        // SAFETY: the header's contract for paths and handles.
        let (path, options) = unsafe { (self::path(path, "path")?, options.as_ref()) };
        let options = options.map_or_else(Map::options, mangrove_options::for_open);
        let path = path.to_owned();
        let load = move |ask: &mut dyn FnMut(Arc<Map>) -> ControlFlow<()>| {
            options.load_shared(path, |map| {
                if ask(Arc::clone(map)).is_break() {
                    return Err(mangrove::Error::Stopped.into());
                }
                // The callback's own share is gone.
                if Arc::strong_count(map) > 1 {
                    return Err(Failure::new(
                        MANGROVE_ERR_IN_USE,
                        "the callback left snapshots or iterators of the new map alive; nothing was left behind",
                    ));
                }
                Ok(())
            })
        };
        on_own_thread_asking(load, |map| {
            let mut map = mangrove_map { map };
            // SAFETY: the caller's function, called as the header says.
            match unsafe { fill(&raw mut map, context) } {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        Ok(MANGROVE_OK)
    })
}
