//! The filter and the block table of the low region, in Rust. The assembly of `trampolines.rs` does the same.

use super::context::{
    EXACT, EXACT_PAGE_SLOTS, EXACT_PAGES, FILTER, FILTER_SLOTS, LARGE, LIST, LIST_END, LowContext, RECENT,
    RECENT_EXACT, RECENT_SLOTS, STACK_BLOCKS, STACK_BLOCKS_END, TABLE, VICTIMS, VICTIMS_END, WATCHED,
};
use super::exact_bytes;
use crate::write_set::block_table::{SLOT_COUNT, home_slot};
use crate::write_set::exact::ExactRanges;

fn table(slot: usize) -> *mut u64 {
    std::ptr::with_exposed_provenance_mut::<u64>(TABLE).wrapping_add(slot)
}

fn filter(context: &LowContext, block: u64) -> *mut u64 {
    let offset = (block >> context.filter_shift) as usize & ((FILTER_SLOTS - 1) * 8);
    std::ptr::with_exposed_provenance_mut::<u64>(FILTER + offset)
}

/// Adds a block to the list, and to the table unless its page may hold exact bytes.
pub(in crate::recompiler) fn insert(context: &mut LowContext, block: u64) {
    let page = std::ptr::with_exposed_provenance::<u8>(EXACT_PAGES)
        .wrapping_add((block >> 12) as usize & (EXACT_PAGE_SLOTS - 1));
    // SAFETY: the page bytes, slots of filter and table, and lists with space left (callers check the end of the
    // first list; the other one is never longer).
    unsafe {
        if page.read() == 0 {
            if filter(context, block).read() == block {
                return;
            }
            let mut slot = home_slot(block);
            while table(slot).read() != 0 {
                if table(slot).read() == block {
                    return;
                }
                slot = (slot + 1) & (SLOT_COUNT - 1);
            }
            table(slot).write(block);
            push(&mut context.victims_ptr, VICTIMS_END, block);
        }
        push(&mut context.list_ptr, LIST_END, block);
    }
}

/// # Safety
/// `ptr` lies in a list of the low region that ends at `end`.
unsafe fn push(ptr: &mut u64, end: usize, block: u64) {
    assert!((*ptr as usize) < end, "the list was emptied before");
    // SAFETY: the caller's promise.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(*ptr as usize).write(block) };
    *ptr += 8;
}

/// The blocks of a list.
///
/// # Safety
/// A list of the low region, which is not written meanwhile.
unsafe fn list<'a>(from: usize, to: u64) -> &'a [u64] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(from), (to as usize - from) / 8) }
}

/// Empties table and lists, and removes all blocks from the filter except those of the stack.
pub(in crate::recompiler) fn forget(context: &mut LowContext) {
    exact_bytes::forget(context);
    // SAFETY: all of it lies in the low region.
    unsafe {
        let victims = list(VICTIMS, context.victims_ptr);
        if victims.len() > SLOT_COUNT / 16 {
            std::ptr::write_bytes(table(0), 0, SLOT_COUNT);
        } else {
            // Youngest first: a probe for a block passes only over older ones.
            for &block in victims.iter().rev() {
                let mut slot = home_slot(block);
                while table(slot).read() != block {
                    slot = (slot + 1) & (SLOT_COUNT - 1);
                }
                table(slot).write(0);
            }
        }
        let blocks = list(LIST, context.list_ptr);
        if blocks.len() > FILTER_SLOTS / 4 {
            forget_filter(context);
        } else {
            blocks.iter().for_each(|&block| filter(context, block).write(0));
        }
        let recent = std::ptr::with_exposed_provenance_mut::<[u64; 2]>(RECENT);
        if context.large_ptr as usize != LARGE || context.recent_used != 0 {
            std::ptr::write_bytes(recent, 0, RECENT_SLOTS);
        }
        let recent = std::ptr::with_exposed_provenance_mut::<[u64; 2]>(RECENT_EXACT);
        if context.exact_ptr as usize != EXACT || context.recent_used != 0 {
            std::ptr::write_bytes(recent, 0, RECENT_SLOTS);
        }
    }
    context.recent_used = 0;
    context.list_ptr = LIST as u64;
    context.victims_ptr = VICTIMS as u64;
    context.large_ptr = LARGE as u64;
    context.exact_ptr = EXACT as u64;
}

/// Empties the filter.
pub(in crate::recompiler) fn forget_filter(context: &mut LowContext) {
    // SAFETY: the filter's own memory.
    unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u64>(FILTER), 0, FILTER_SLOTS) };
    context.stack_blocks_ptr = STACK_BLOCKS as u64;
}

/// Removes the blocks of the thread's stack, whose bounds the context still has, from the filter: for the next
/// thread they are ordinary memory.
pub(in crate::recompiler) fn forget_stack_blocks(context: &mut LowContext) {
    // SAFETY: the list of the low region, and the filter, which nothing else refers to now.
    let (blocks, all) = unsafe {
        let all = std::ptr::with_exposed_provenance_mut::<u64>(FILTER);
        (list(STACK_BLOCKS, context.stack_blocks_ptr), std::slice::from_raw_parts_mut(all, FILTER_SLOTS))
    };
    if context.stack_blocks_ptr as usize == STACK_BLOCKS_END {
        let (lo, len) = (context.stack_lo, context.stack_all);
        all.iter_mut().filter(|block| block.wrapping_sub(lo) < len).for_each(|block| *block = 0);
    } else {
        for &block in blocks {
            let slot = &mut all[(block >> context.filter_shift) as usize / 8 % FILTER_SLOTS];
            // Another block may have taken the slot by now.
            *slot = if *slot == block { 0 } else { *slot };
        }
    }
    context.stack_blocks_ptr = STACK_BLOCKS as u64;
}

/// Marks the pages that may hold exact bytes, and the page of `also`, which is watched for another reason.
pub(in crate::recompiler) fn mark_exact_pages(exact: &ExactRanges, also: usize) {
    let base = std::ptr::with_exposed_provenance_mut::<u8>(EXACT_PAGES);
    let mark = |page: usize, mark: u8| {
        // SAFETY: inside the page bytes.
        unsafe { base.add(page & (EXACT_PAGE_SLOTS - 1)).write(mark) };
    };
    // SAFETY: the page bytes are ours.
    unsafe { std::ptr::write_bytes(base, 0, EXACT_PAGE_SLOTS) };
    for &(lo, hi) in exact.spans() {
        // A misaligned store may begin on the page before.
        (lo >> 12..=(hi - 1) >> 12).take(EXACT_PAGE_SLOTS).for_each(|page| mark(page, 1));
    }
    if also != 0 {
        mark(also >> 12, WATCHED);
    }
}

/// Has the page of `addr` watched, and leaves the other marks.
pub(in crate::recompiler) fn mark_page(addr: usize) {
    let base = std::ptr::with_exposed_provenance_mut::<u8>(EXACT_PAGES);
    // SAFETY: inside the page bytes, which are ours.
    unsafe { base.add((addr >> 12) & (EXACT_PAGE_SLOTS - 1)).write(WATCHED) };
    exact_bytes::watch(addr);
}
