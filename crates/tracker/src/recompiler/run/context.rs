//! The context page and the tables that translated code addresses absolutely.
//!
//! They lie below 2 GiB, where an instruction reaches them with a 32-bit displacement and no base register:
//! translated code needs no register and no segment of its own. One thread at a time runs translated code, so there
//! is one of each.
//!
//! Invariants:
//! 1. Every block in the list that starts at [`LIST`] is in [`FILTER`] or [`TABLE`], or on a page of invariant 4;
//!    it is in the list once. A block that another one evicts from the filter goes to the table.
//! 2. Every block in [`FILTER`] is in that list, or lies on the calling thread's stack. Those of the second kind
//!    are in the list that starts at [`STACK_BLOCKS`], unless that list is full. A change of thread removes them
//!    from the filter.
//! 3. Every block in [`TABLE`] is in the first list, and, in the order of insertion, in the one at [`VICTIMS`].
//! 4. No block of a page that may hold exact bytes is in [`FILTER`] or [`TABLE`].

use crate::write_set::block_table::{LOAD_MAX, SLOT_COUNT};

/// Start of the low region: in practice free, because it lies above a program linked at 4 MiB and its heap.
pub(crate) const LOW: usize = 0x4d40_0000;
/// Bytes of the low region.
pub(crate) const LOW_BYTES: usize = 0x28_8000;
/// Slots of the direct-mapped filter of recent blocks. Neighbouring blocks share cache lines, so the filter touches
/// few.
pub(crate) const FILTER_SLOTS: usize = 8192;
pub(crate) const FILTER: usize = LOW + 0x9_0000;
/// Recent (address, length) pairs of large and exact writes.
pub(crate) const RECENT_SLOTS: usize = 64;
pub(crate) const RECENT: usize = LOW + 0x8000;
pub(crate) const RECENT_EXACT: usize = LOW + 0xa000;
/// Blocks of the thread's own stack that entered the filter. When the list is full, some are not in it.
pub(crate) const STACK_BLOCKS: usize = LOW + 0xc000;
pub(crate) const STACK_BLOCKS_END: usize = STACK_BLOCKS + 512 * 8;
/// One byte for each page number modulo 65,536: not 0 if the page may hold exact bytes, [`WATCHED`] if each store to it
/// has to be looked at.
pub(crate) const EXACT_PAGES: usize = LOW + 0x1_0000;
pub(crate) const EXACT_PAGE_SLOTS: usize = 1 << 16;
pub(crate) const WATCHED: u8 = 2;
/// The block table of Fig. 3, for blocks that were evicted from the filter.
pub(crate) const TABLE: usize = LOW + 0x2_0000;
/// New blocks in order.
pub(crate) const LIST: usize = LOW + 0x5_0000;
pub(crate) const LIST_END: usize = LIST + LOAD_MAX * 8;
/// The content of the table, oldest first.
pub(crate) const VICTIMS: usize = LOW + 0xa_0000;
pub(crate) const VICTIMS_END: usize = VICTIMS + LOAD_MAX * 8;
/// Large writes, (address, length).
pub(crate) const LARGE: usize = LOW + 0x7_0000;
pub(crate) const LARGE_END: usize = LARGE + 0x8000;
/// Writes of which some bytes may be exact, (address, length).
pub(crate) const EXACT: usize = LOW + 0x8_0000;
pub(crate) const EXACT_END: usize = EXACT + 0x8000;
/// Indirect branch targets by the low 16 bits of the original address. The second table is for foreign stacks.
pub(crate) const TARGETS: [usize; 2] = [LOW + 0x10_0000, LOW + 0x18_0000];
pub(crate) const TARGET_SLOTS: usize = 1 << 16;
/// For each page number modulo 65,536, how far the shadow of the page with exact bytes lies from it
/// (`run/exact_bytes.rs`). Not 0 where [`EXACT_PAGES`] is not: [`NO_SHADOW`] where there is none.
pub(crate) const EXACT_SHADOWS: usize = LOW + 0x20_0000;
/// Leads from no page to a shadow.
pub(crate) const NO_SHADOW: usize = 1;
/// Granules of shadows that have a flag set: their addresses.
pub(crate) const GRANULES: usize = LOW + 0x28_0000;
pub(crate) const GRANULES_END: usize = GRANULES + 0x8000;
/// Where translated code leaves the list to the stub, which may add two and then has it emptied.
pub(crate) const GRANULES_FULL: usize = GRANULES_END - 2 * 8;
pub(crate) const GRANULE_BYTES: usize = 64;

const _: () =
    assert!(EXACT_END <= FILTER && FILTER + FILTER_SLOTS * 8 <= VICTIMS && VICTIMS_END <= TARGETS[0]);
const _: () = assert!(RECENT_EXACT + RECENT_SLOTS * 16 <= STACK_BLOCKS && STACK_BLOCKS_END <= EXACT_PAGES);
const _: () = assert!(TABLE + SLOT_COUNT * 8 <= LIST && LIST_END <= LARGE && LARGE_END <= EXACT);
const _: () = assert!(TARGETS[1] + TARGET_SLOTS * 8 <= EXACT_SHADOWS && LOW + LOW_BYTES < 1 << 31);
const _: () = assert!(EXACT_SHADOWS + EXACT_PAGE_SLOTS * 8 <= GRANULES && GRANULES_END <= LOW + LOW_BYTES);

/// General registers in hardware order, as the dispatcher saves them.
pub(crate) const RAX: u8 = 0;
pub(crate) const RCX: u8 = 1;
pub(crate) const RDX: u8 = 2;
pub(crate) const RSP: u8 = 4;
pub(crate) const RSI: u8 = 6;
pub(crate) const RDI: u8 = 7;
pub(crate) const R8: u8 = 8;
pub(crate) const R10: u8 = 10;
pub(crate) const R11: u8 = 11;

/// What translated code, stubs and dispatcher pass to each other.
#[repr(C)]
pub(crate) struct LowContext {
    /// The program's registers while the dispatcher runs (rsp among them).
    pub(crate) regs: [u64; 16],
    pub(crate) flags: u64,
    /// Where the dispatcher sends the program next: a cache address.
    pub(crate) next: u64,
    /// Saved scratch registers of a record.
    pub(crate) scratch_a: u64,
    pub(crate) scratch_b: u64,
    /// The flags (lahf + seto) of a record among live flags.
    pub(crate) saved_flags: u64,
    /// The program's rcx and the original target of an indirect branch.
    pub(crate) branch_rcx: u64,
    pub(crate) branch_target: u64,
    /// Address and length of a store that is recorded out of line, and where translated code continues after it.
    pub(crate) write_addr: u64,
    pub(crate) write_len: u64,
    pub(crate) resume: u64,
    pub(crate) stub: [u64; 5],
    /// Return address of a native leaf entered through a pointer.
    pub(crate) leaf_return: u64,
    /// Why the dispatcher was entered.
    pub(crate) exit: u64,
    /// Entry points, for jumps through memory.
    pub(crate) dispatch: u64,
    pub(crate) slow: u64,
    pub(crate) slow_exact: u64,
    pub(crate) slow_masked: u64,
    pub(crate) slow_copy: u64,
    pub(crate) slow_range: u64,
    pub(crate) range_stub: [u64; 8],
    pub(crate) check_stack: [u64; 2],
    /// The dispatcher's own stack and area for vector state.
    pub(crate) host_rsp: u64,
    pub(crate) xsave_area: u64,
    pub(crate) xsave_mask: u64,
    /// The thread's stack: [lo, lo + len) up to the frame of the call.
    pub(crate) stack_lo: u64,
    pub(crate) stack_len: u64,
    pub(crate) stack_all: u64,
    /// The frame that the call returns to.
    pub(crate) frame: u64,
    pub(crate) fs_base: u64,
    /// Ends of the lists.
    pub(crate) list_ptr: u64,
    pub(crate) large_ptr: u64,
    pub(crate) exact_ptr: u64,
    pub(crate) stack_blocks_ptr: u64,
    pub(crate) victims_ptr: u64,
    /// Not 0 if the caches of recent pairs may hold some.
    pub(crate) recent_used: u64,
    /// Block size: mask, size, and the shift of a block address to a filter offset.
    pub(crate) block_mask: u64,
    pub(crate) block_bytes: u64,
    pub(crate) filter_shift: u64,
    /// Flags of the bytes of exact pages: [lo, lo + len), in memory of so many bytes, and the marks of granules that
    /// are in the list, whose end follows.
    pub(crate) shadow_lo: u64,
    pub(crate) shadow_len: u64,
    pub(crate) shadow_bytes: u64,
    pub(crate) granule_marks: u64,
    pub(crate) granules_ptr: u64,
}

/// Absolute address of a field of the context, for displacements.
macro_rules! at {
    ($field:ident) => {
        ($crate::recompiler::run::context::LOW
            + core::mem::offset_of!($crate::recompiler::run::context::LowContext, $field)) as u32
    };
}
pub(crate) use at;

const _: () = assert!(size_of::<LowContext>() <= 4096);

/// The context. Valid once the low region is mapped.
#[inline]
pub(crate) fn context() -> *mut LowContext {
    std::ptr::with_exposed_provenance_mut(LOW)
}
