//! What each thread has of a heap: an executor's handle, and a handle of the arena in a shard of its own.

use super::space::ShadowSpace;
use crate::commit::HeapLog;
use crate::executor::{Stm, StmThread};
use crate::run::Isolation;
use mangrove_arena::Heap as Arena;

/// One thread's part of a heap.
pub(super) struct Thread {
    pub(super) stm: StmThread<'static, HeapLog>,
    pub(super) arena: Arena,
}

impl Thread {
    /// The part of the `number`-th thread.
    ///
    /// # Errors
    /// When the arena cannot be read.
    ///
    /// # Safety
    /// The executor outlives the handle.
    pub(super) unsafe fn new(
        executor: &Stm<HeapLog>,
        space: ShadowSpace,
        offset: u64,
        number: u64,
    ) -> Result<Self, String> {
        // SAFETY: the caller keeps the executor where it is for as long as the handle lives.
        let executor: &'static Stm<HeapLog> = unsafe { &*std::ptr::from_ref(executor) };
        let mut arena = Arena::open(Box::new(space), offset)?;
        let shards = arena.shard_count();
        if shards > 0 {
            arena.enter_shard(1 + number % shards);
        }
        Ok(Self { stm: executor.thread(), arena })
    }
}
