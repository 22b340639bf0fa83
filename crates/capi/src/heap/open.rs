//! Opening and closing a heap.

use super::options::mangrove_heap_options;
use super::running::{enter, enter_outside, is_in_transaction};
use crate::status::mangrove_status::*;
use crate::status::{Failure, guard, mangrove_status};
use mangrove::heap::{Heap, HeapError, HeapOptions};
use mangrove_cabi::{give, handle, on_own_thread, out, path, put_out};
use mangrove_sys::ProcessMark;
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most bytes of the name of a root.
pub const MANGROVE_ROOT_NAME_BYTES_MAX: usize = 39;
/// The most roots of a heap.
pub const MANGROVE_ROOT_COUNT_MAX: usize = 63;

// The header needs the numbers as literals; they are the facade's.
const _: () = assert!(MANGROVE_ROOT_NAME_BYTES_MAX == mangrove::heap::ROOT_NAME_BYTES_MAX);
const _: () = assert!(MANGROVE_ROOT_COUNT_MAX == mangrove::heap::ROOT_COUNT_MAX);

/// An open heap: memory that comes back at its address, changed by transactions.
pub struct mangrove_heap {
    pub(super) heap: Arc<Heap>,
    pub(super) process: ProcessMark,
}

const _: fn() = || {
    fn any_thread<T: Send + Sync>() {}
    any_thread::<mangrove_heap>();
};

/// Opens the heap in the directory `path`, and recovers what was committed. It lies at the address that
/// it had in every process before, so pointers stored in it are right again. `options` may be NULL: then
/// the heap is created when missing, with all defaults.
///
/// Time: reads the heap's data file once, and its log.
/// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_EXISTS, _POOL_BUSY, _FOREIGN, _NEWER, _WRONG_KIND,
/// _CORRUPT, _READ_ONLY, _NO_SPACE, _FULL, _NO_MEMORY, _UNSUPPORTED (also: something else lies at its
/// address), _IO; the heap is as it was.
/// Crash: during a creation it leaves no heap, or a whole one, or one that opens as new.
/// Give back with mangrove_heap_close. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_open(
    path: *const c_char,
    options: *const mangrove_heap_options,
    heap: *mut *mut mangrove_heap,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters, paths and handles.
        let (heap, path, options) = unsafe {
            (out(heap, std::ptr::null_mut(), "heap")?, self::path(path, "path")?, options.as_ref())
        };
        // First, since the defaults of the options allocate.
        let _inside = enter()?;
        let options = options.map_or_else(HeapOptions::new, mangrove_heap_options::for_open);
        let path = path.to_owned();
        let opened = on_own_thread(move || options.open(path))?;
        *heap = give(mangrove_heap { heap: Arc::new(opened), process: ProcessMark::here() });
        Ok(MANGROVE_OK)
    })
}

/// Brings the data file up to date, marks the heap clean, unlocks it and frees the handle.
///
/// Errors: MANGROVE_ERR_IN_USE: a thread is inside a transaction on it, or left one by longjmp and has not
/// come back to the library since; MANGROVE_ERR_TX_MISPLACED: the calling thread is a signal handler that
/// interrupted the library; MANGROVE_ERR_UNSUPPORTED: the process was forked since it was opened. The heap
/// stays open then and the handle valid. After any other result the handle is gone. MANGROVE_ERR_POISONED,
/// _IO: the heap is not clean; what was acknowledged is in its log all the same.
/// A process that ends without closing loses nothing acknowledged; the next opening replays the log.
/// Closing twice is undefined, as is a call on the heap that runs at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_close(heap: *mut mangrove_heap) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        let opened = unsafe { handle(heap, "heap") }?;
        if !opened.process.is_here() {
            return Err(HeapError::Forked.into());
        }
        let _inside = enter()?;
        if is_in_transaction(Arc::as_ptr(&opened.heap)) {
            return Err(Failure::new(
                MANGROVE_ERR_IN_USE,
                "the heap cannot be closed inside a transaction on it; return from its body, or commit or abort it, \
                 first",
            ));
        }
        // SAFETY: not null, from mangrove_heap_open and, by contract, not closed before; no other call runs.
        let opened = unsafe { &mut *heap };
        let is_used = Arc::get_mut(&mut opened.heap).is_none_or(Heap::has_open_transaction);
        if is_used {
            return Err(Failure::new(
                MANGROVE_ERR_IN_USE,
                "the heap cannot be closed while another thread has a transaction on it; let that thread commit, abort \
                 or end first",
            ));
        }
        // SAFETY: as above.
        let heap = unsafe { Box::from_raw(heap) }.heap;
        Arc::into_inner(heap).expect("it had one owner above").close()?;
        Ok(MANGROVE_OK)
    })
}

/// The heap's first byte, in *base: the same address in every process. Blocks lie behind it.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_base(
    heap: *const mangrove_heap,
    base: *mut *mut c_void,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters and handles.
        let (base, heap) = unsafe { (out(base, std::ptr::null_mut(), "base")?, handle(heap, "heap")?) };
        let _inside = enter()?;
        *base = std::ptr::with_exposed_provenance_mut(heap.heap.base());
        Ok(MANGROVE_OK)
    })
}

/// Copies the heap as it is at this instant into a new heap at `path`, while transactions continue; they
/// wait only while memory is compared with the copy. *bytes, which may be NULL, is how many were copied.
/// The new heap belongs at the same address, so one process opens one of the two at a time. The copy of an
/// emulated heap lies on the medium file, where a copy is in memory until it is durable.
///
/// Errors: MANGROVE_ERR_POOL_EXISTS, _NO_SPACE, _READ_ONLY, _IO, _POISONED; _NO_MEMORY: the process would have
/// more than nine tenths of the memory of the machine or its control groups; _FOREIGN: something else lies at
/// `path`; _UNSUPPORTED: `path` lies in another pool's directory; _POOL_BUSY: another backup to `path` is at
/// work; _TX_MISPLACED inside a transaction on it. Nothing is left at `path`.
/// Crash: the new heap appears whole and durable, or not at all. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_backup(
    heap: *const mangrove_heap,
    path: *const c_char,
    bytes: *mut u64,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe { put_out(bytes, 0) };
        // SAFETY: the header's contract for handles and paths.
        let (heap, path) = unsafe { (handle(heap, "heap")?, self::path(path, "path")?) };
        // On another thread it would wait for this one's transaction.
        let _inside = enter_outside(Arc::as_ptr(&heap.heap))?;
        let (heap, path) = (Arc::clone(&heap.heap), path.to_owned());
        let report = on_own_thread(move || heap.backup(path, |_| ControlFlow::Continue(())))?;
        // SAFETY: as above.
        unsafe { put_out(bytes, report.bytes) };
        Ok(MANGROVE_OK)
    })
}

/// Gives back the memory and the disk space of pages of 4 KiB in which no block lies, and brings the data file
/// up to date. Blocks stay where they are. Transactions wait for the first part, which takes microseconds for
/// each run of free pages. On dax and emulated media space stays with the heap.
/// Errors: MANGROVE_ERR_READ_ONLY, _POISONED, _IO; _TX_MISPLACED inside a transaction on it.
/// Crash: keeps every transaction. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_compact(heap: *const mangrove_heap) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        let heap = unsafe { handle(heap, "heap") }?;
        // On another thread it would wait for this one's transaction.
        let _inside = enter_outside(Arc::as_ptr(&heap.heap))?;
        heap.heap.compact()?;
        Ok(MANGROVE_OK)
    })
}

/// Waits until every transaction that has returned is durable, whatever the durability.
/// Errors: MANGROVE_ERR_POISONED, _IO. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_sync(heap: *const mangrove_heap) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles.
        let heap = unsafe { handle(heap, "heap") }?;
        let _inside = enter()?;
        heap.heap.sync()?;
        Ok(MANGROVE_OK)
    })
}
