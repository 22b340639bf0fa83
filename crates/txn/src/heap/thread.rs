//! What each thread has of a heap: an executor's handle, and a handle of the arena in a shard of its own.

use super::error::{HeapError, HeapResult};
use super::executors::{HeapExecutor, HeapThread};
use super::space::{GrowthRefusal, ShadowSpace};
use mangrove_arena::ArenaHeap;
use std::cell::Cell;

/// One thread's part of a heap.
pub(super) struct Thread {
    pub(super) handle: HeapThread,
    pub(super) arena: ArenaHeap,
    /// That of the arena's space.
    pub(super) refusal: GrowthRefusal,
}

impl Thread {
    /// The part of the `number`-th thread.
    ///
    /// # Errors
    /// `Damaged` when the arena cannot be read; `Invalid` when the model of hardware has no core left.
    ///
    /// # Safety
    /// The executor outlives the handle.
    pub(super) unsafe fn new(
        executor: &HeapExecutor,
        space: &ShadowSpace,
        offset: u64,
        number: u64,
    ) -> HeapResult<Self> {
        // SAFETY: the caller keeps the executor where it is for as long as the handle lives.
        let executor: &'static HeapExecutor = unsafe { &*std::ptr::from_ref(executor) };
        let (space, refusal) = space.of_thread();
        // The heap has checked it. Other threads may be growing it, and may yet undo that.
        let mut arena =
            ArenaHeap::open_checked(Box::new(space), offset).map_err(|what| HeapError::Damaged { what })?;
        let shards = arena.shard_count();
        if shards > 0 {
            arena.enter_shard(1 + number % shards);
        }
        let handle = executor.thread().ok_or_else(|| HeapError::Invalid {
            what: "the model of hardware has 64 cores, for as many threads at once; use another executor"
                .into(),
        })?;
        Ok(Self { handle, arena, refusal })
    }
}

thread_local! {
    /// Touched when what `ThreadLocal` keeps of the thread is there, so that it is destroyed before that.
    static ENDING: Ending = const { Ending };
    /// Not destroyed.
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        IS_ENDING.set(true);
    }
}

/// Whether the calling thread can get a part of a heap: not when a destructor of it calls, and its parts have gone.
pub(super) fn may_begin() -> HeapResult<()> {
    if IS_ENDING.get() { Err(HeapError::Ending) } else { Ok(()) }
}

/// The calling thread has a part of a heap.
pub(super) fn has_begun() {
    let _ = ENDING.try_with(|_| ());
}
