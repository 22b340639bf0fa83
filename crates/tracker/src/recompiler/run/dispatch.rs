//! The dispatcher: translated code enters it when it does not know where to continue.
//!
//! It runs on a stack of its own, with the program's registers in the context. It must not touch the process heap:
//! the program may be in the middle of `malloc`.

use super::context::{
    EXACT, EXACT_END, GRANULES, GRANULES_FULL, LARGE, LARGE_END, LIST, RECENT_EXACT, RECENT_SLOTS, RSP,
    context,
};
use crate::recompiler::code_cache::blocks::Mode;
use crate::recompiler::run::stubs::{EXIT_BRANCH, EXIT_RECORD};
use crate::recompiler::run::{exact_bytes, store_filter};
use crate::recompiler::state::{CallFailure, ExitReason, RecompilerState};
use crate::write_set::write_set::SMALL_BYTES_MAX;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The one state, made with the first recompiler and never freed.
static STATE: AtomicPtr<RecompilerState> = AtomicPtr::new(null_mut());

pub(crate) fn publish(state: *mut RecompilerState) {
    // Release: pairs with the acquire in `state`.
    STATE.store(state, Ordering::Release);
}

/// The state, null before the first recompiler. Only the thread that has the turn may use what it points to.
pub(crate) fn state() -> *mut RecompilerState {
    STATE.load(Ordering::Acquire)
}

/// Removes the state and returns it: for a forked child, which has no code cache.
pub(crate) fn withdraw() -> *mut RecompilerState {
    STATE.swap(null_mut(), Ordering::AcqRel)
}

/// Decides where the program continues, and returns a cache address (or a native one, to leave the cache).
pub(in crate::recompiler) unsafe extern "C" fn dispatch() -> usize {
    // SAFETY: translated code runs only in the turn, so one thread at a time enters here.
    let (state, context) = unsafe { (&mut *state(), &mut *context()) };
    state.counts.dispatches += 1;
    match context.exit as u32 {
        EXIT_BRANCH => {
            let target = context.branch_target as usize;
            let mode = state.mode;
            state
                .block_with_entry(target, mode)
                .map_or_else(|failure| state.fail(failure), |block| block.main)
        }
        EXIT_RECORD => {
            let (addr, len) = (context.write_addr as usize, context.write_len as usize);
            if state.begins_restartable(addr, len) {
                const WHY: &str = "it uses restartable sequences (rseq), which would not be restarted";
                return state.abandon(CallFailure::Refused(WHY));
            }
            state.record(addr, len);
            context.resume as usize
        }
        number => {
            let exit = state.exits[number as usize];
            state.handle(exit)
        }
    }
}

impl RecompilerState {
    fn handle(&mut self, exit: ExitReason) -> usize {
        let result = match exit {
            ExitReason::Direct { target, site, stub, mode } => self.link_exit(target, site, stub, mode),
            ExitReason::Syscall { next } => self.system_call(next).and_then(|()| self.continue_at(next)),
            ExitReason::Rare { pc, resume } => {
                self.record_rare(pc);
                Ok(resume)
            }
            ExitReason::Masked { pc } => {
                // SAFETY: the context is mapped; the record's code stored the address and where to return to. Its
                // scratch register may be part of the address.
                let (addr, resume) = unsafe { ((*context()).write_addr, (*context()).resume) };
                self.record_masked_at(pc, addr as usize);
                Ok(resume as usize)
            }
            ExitReason::Stack { next } => self.switch_stack().and_then(|()| self.continue_at(next)),
            ExitReason::Refused { why } => Err(CallFailure::Refused(why)),
        };
        result.unwrap_or_else(|failure| self.fail(failure))
    }

    fn fail(&mut self, failure: CallFailure) -> usize {
        match failure {
            CallFailure::NoCode(pc) => pc,
            failure => self.abandon(failure),
        }
    }

    fn continue_at(&mut self, pc: usize) -> Result<usize, CallFailure> {
        let mode = self.mode;
        Ok(self.block(pc, mode)?.main)
    }

    /// Does this write announce a restartable sequence to the kernel (rseq(2), field rseq_cs)?
    fn begins_restartable(&self, addr: usize, len: usize) -> bool {
        let field = self.restartable.wrapping_add(8);
        self.restartable != 0 && addr < field + 8 && field < addr.wrapping_add(len)
    }

    /// rsp points to another stack: chooses the translation to continue in.
    fn switch_stack(&mut self) -> Result<(), CallFailure> {
        // SAFETY: the context is mapped.
        let (lo, len, all) =
            unsafe { ((*context()).stack_lo, (*context()).stack_len, (*context()).stack_all) };
        let offset = self.register(RSP).wrapping_sub(lo);
        self.mode = if offset < len {
            Mode::OwnStack
        } else if offset < all {
            return Err(CallFailure::LongJump);
        } else {
            Mode::ForeignStack
        };
        Ok(())
    }

    /// Records [addr, addr + len) in full: exact bytes, large ranges, full lists.
    pub(crate) fn record(&mut self, addr: usize, len: usize) {
        if len == 0 {
            return;
        }
        self.counts.records_by_hand += 1;
        // SAFETY: the context is mapped.
        let full = unsafe {
            let context = &*context();
            context.list_ptr as usize + 8 * 8 > super::context::LIST_END
                || context.large_ptr as usize + 4 * 16 > LARGE_END
                || context.exact_ptr as usize + 4 * 16 > EXACT_END
                || context.granules_ptr as usize > GRANULES_FULL
        };
        if full {
            self.hand_over();
            // SAFETY: the context is mapped, and this thread has the turn.
            store_filter::forget(unsafe { &mut *context() });
            self.handed = 0;
        }
        let writes: *mut _ = self.writes();
        // SAFETY: the set is lent to the call until it ends.
        let is_exact = unsafe { (*writes).exact_ranges().touch(addr, addr + len) };
        if is_exact {
            self.record_exact(addr, len)
        } else {
            self.record_plain(addr, len)
        }
        if len <= SMALL_BYTES_MAX {
            let slot = ((addr >> 2) ^ len) & (RECENT_SLOTS - 1);
            // SAFETY: the context, and a slot of the low region.
            unsafe {
                (*context()).recent_used = 1;
                let pair = std::ptr::with_exposed_provenance_mut::<(usize, usize)>(RECENT_EXACT).add(slot);
                pair.cast::<usize>().write(addr);
                pair.cast::<usize>().add(1).write(len);
            }
        }
    }

    fn record_plain(&mut self, addr: usize, len: usize) {
        // SAFETY: the context is mapped, and this thread has the turn.
        let context = unsafe { &mut *context() };
        if len > SMALL_BYTES_MAX {
            push_pair(&mut context.large_ptr, LARGE_END, addr, len);
            return;
        }
        let mask = context.block_mask as usize;
        let (mut block, last) = (addr & mask, (addr + len - 1) & mask);
        while block <= last {
            store_filter::insert(context, block as u64);
            block += context.block_bytes as usize;
        }
    }

    /// A write of which some bytes are exact.
    fn record_exact(&mut self, addr: usize, len: usize) {
        // SAFETY: as above.
        let context = unsafe { &mut *context() };
        push_pair(&mut context.exact_ptr, EXACT_END, addr, len);
    }

    /// Gives the write set what entered the lists since the last time.
    pub(crate) fn hand_over(&mut self) {
        // SAFETY: the lists of the low region, between their start and their ends.
        unsafe {
            let context = &mut *context();
            let mut span = (usize::MAX, 0);
            if context.granules_ptr as usize != GRANULES {
                let writes = self.writes();
                exact_bytes::take(context, |lo, hi| writes.add_bytes(lo, hi, &mut span));
            }
            let blocks = (context.list_ptr as usize - LIST) / 8;
            let list = std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u64>(LIST), blocks);
            let handed = self.handed;
            self.writes().add_blocks(&list[handed..]);
            self.handed = blocks;
            let pairs = |from: usize, to: u64| {
                let ptr = std::ptr::with_exposed_provenance::<(usize, usize)>(from);
                std::slice::from_raw_parts(ptr, (to as usize - from) / 16)
            };
            if context.large_ptr as usize != LARGE || context.exact_ptr as usize != EXACT {
                context.recent_used = 1;
            }
            if context.large_ptr as usize != LARGE {
                self.writes().add_ranges(pairs(LARGE, context.large_ptr));
                context.large_ptr = LARGE as u64;
            }
            if context.exact_ptr as usize != EXACT {
                let writes = self.writes();
                for &(addr, len) in pairs(EXACT, context.exact_ptr) {
                    writes.add_bytes(addr, addr + len, &mut span);
                }
                context.exact_ptr = EXACT as u64;
            }
        }
    }
}

fn push_pair(ptr: &mut u64, end: usize, addr: usize, len: usize) {
    assert!(*ptr as usize + 16 <= end, "the list was emptied before");
    // SAFETY: between start and end of a list of the low region.
    unsafe {
        let to = std::ptr::with_exposed_provenance_mut::<usize>(*ptr as usize);
        to.write(addr);
        to.add(1).write(len);
    }
    *ptr += 16;
}
