//! Check and figures of a heap.

use super::open::mangrove_heap;
use super::running::enter_outside;
use crate::bytes::put_sized;
use crate::check::answer;
use crate::stat::size_of_caller;
use crate::status::mangrove_status::*;
use crate::status::{guard, mangrove_status};
use mangrove_cabi::{handle, put_out};
use std::ffi::c_char;
use std::sync::Arc;

/// Figures of an open heap. Counters count since it was opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mangrove_heap_figures {
    /// Set to sizeof(mangrove_heap_figures) before the call. After it: the bytes that this library knows.
    pub size: usize,
    /// The most bytes that the heap can grow to.
    pub capacity: u64,
    /// Bytes under management so far.
    pub bytes: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Bytes of blocks in use, each counted with the size of its class.
    pub used_bytes: u64,
    /// Bytes of whole free pages that were in use before; not those behind them that were never used.
    pub free_bytes: u64,
    /// Bytes of the allocator's own state.
    pub meta_bytes: u64,
    /// Bytes of the logs.
    pub log_bytes: u64,
    /// Bytes of the logs in use.
    pub log_bytes_used: u64,
    /// Transactions that wrote, of all threads, in the logs.
    pub committed: u64,
    /// Transactions of the calling thread that committed.
    pub thread_commits: u64,
    /// Runs of bodies of the calling thread that were undone because of another thread.
    pub thread_conflicts: u64,
    /// True when this opening created the heap.
    pub created: bool,
    /// Of thread_commits, those in hardware (or its model), those that ran alone or under the one lock, and those
    /// in solo mode. The others ran beside those of other threads, under ownership records.
    pub thread_hardware: u64,
    /// See thread_hardware.
    pub thread_serial: u64,
    /// See thread_hardware.
    pub thread_solo: u64,
    /// Of thread_conflicts, runs in hardware that needed more lines than it holds.
    pub thread_capacity: u64,
    /// Of thread_conflicts, runs in hardware that met a transaction with the lock.
    pub thread_explicit: u64,
    /// Of thread_conflicts, runs in hardware that ended without a reason, such as a page fault.
    pub thread_without_reason: u64,
}

/// Figures of the heap into *stat, whose `size` the caller has set. No transaction runs meanwhile.
/// Time: in proportion to the heap's pages.
/// Errors: MANGROVE_ERR_TX_MISPLACED inside a transaction on it. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_stat(
    heap: *const mangrove_heap,
    stat: *mut mangrove_heap_figures,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for handles and sized structs.
        let (heap, size) = unsafe { (handle(heap, "heap")?, size_of_caller(stat, "stat")?) };
        let _inside = enter_outside(Arc::as_ptr(&heap.heap))?;
        let found = heap.heap.stat()?;
        let figures = mangrove_heap_figures {
            size: size_of::<mangrove_heap_figures>(),
            capacity: found.shadow.capacity,
            bytes: found.arena.bytes,
            blocks: found.arena.blocks,
            used_bytes: found.arena.used_bytes,
            free_bytes: found.arena.free_bytes,
            meta_bytes: found.arena.meta_bytes,
            log_bytes: found.shadow.log_bytes,
            log_bytes_used: found.shadow.log_used,
            committed: found.shadow.units,
            thread_commits: found.counts.commits,
            thread_conflicts: found.counts.conflicts,
            created: heap.heap.was_created(),
            thread_hardware: found.counts.hardware,
            thread_serial: found.counts.serial,
            thread_solo: found.counts.solo,
            thread_capacity: found.counts.capacity,
            thread_explicit: found.counts.explicit,
            thread_without_reason: found.counts.without_reason,
        };
        // SAFETY: as above.
        unsafe { put_sized(stat, size, figures, "stat")? };
        Ok(MANGROVE_OK)
    })
}

/// Compares every structure of the heap's allocator with its rules. No transaction runs meanwhile.
/// Returns MANGROVE_UNSOUND when something is wrong: *problems, which may be NULL, is then text, one
/// problem a line, to give back with mangrove_free; otherwise NULL.
/// Errors: MANGROVE_ERR_TX_MISPLACED inside a transaction on it. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mangrove_heap_check(
    heap: *const mangrove_heap,
    problems: *mut *mut c_char,
) -> mangrove_status {
    guard(|| {
        // SAFETY: the header's contract for out-parameters.
        unsafe { put_out(problems, std::ptr::null_mut()) };
        // SAFETY: the header's contract for handles.
        let heap = unsafe { handle(heap, "heap") }?;
        let _inside = enter_outside(Arc::as_ptr(&heap.heap))?;
        let found = heap.heap.check()?;
        // SAFETY: as above.
        unsafe { answer(&found, problems) }
    })
}
