//! The code that records a store before it happens.
//!
//! Preserves semantics: a record changes no register and no flag that is read afterwards, and computes its address
//! before it clobbers anything.

use super::decode::{InsnStore, REPEAT_REGISTERS, STATUS, Shape};
use super::emit::{AddressSegment, Base, Code, Mem};
use super::liveness::Dead;
use crate::recompiler::code_cache::cache::CodeArena;
use crate::recompiler::run::context::{
    EXACT_SHADOWS, FILTER, FILTER_SLOTS, GRANULE_BYTES, GRANULES_FULL, LIST_END, RAX, RCX, RDI, RSP,
};

/// A record to be emitted: one store, or several relative to the same registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRecord {
    /// Index of the instruction before which the record runs.
    pub(crate) at: usize,
    /// Index of the instruction whose store the dispatcher evaluates, for rare and masked stores.
    pub(crate) of: usize,
    pub(crate) store: InsnStore,
}

/// Widest record of several stores.
pub(crate) const SPAN_MAX: i64 = 64;
const PAGE_BYTES: i32 = 4096;
/// Jumps of the code that adds a block to the common stub, at most.
const OTHERS: usize = 6;
/// Registers tried for scratch, those with short encodings first.
const SCRATCH_ORDER: [u8; 13] = [0, 2, 6, 7, 1, 3, 5, 8, 9, 10, 11, 14, 15];

/// Emits records into one arena.
pub(crate) struct Recorder<'a> {
    pub(crate) arena: &'a mut CodeArena,
    pub(crate) block_bytes: u32,
    /// The CPU has rorx.
    pub(crate) bmi2: bool,
    /// General registers that the program uses near the store: they are saved only where there are no others. What is
    /// saved and restored comes back late, and in a loop it waits for the round before.
    pub(crate) busy: u16,
}

/// Scratch registers of one record, and what has to be restored.
struct Scratch {
    a: u8,
    a_saved: bool,
    b: u8,
    b_saved: bool,
    flags_saved: bool,
}

/// A jump of the inline part to its out-of-line part.
#[derive(Clone, Copy)]
struct Miss {
    site: usize,
    /// Where to continue when the block is recorded; `None`: the jump is not about one block.
    back: Option<usize>,
}

/// What the code out of line knows about a check whose block is not in the filter.
#[derive(Clone, Copy)]
enum Way {
    /// The store lies in this block and in one granule. Where to continue.
    Whole {
        back: usize,
    },
    /// The first of several. Where the next check is, and where to continue when all of the store is recorded.
    First {
        next: usize,
        end: usize,
    },
    Other {
        next: usize,
    },
}

impl Way {
    fn back(self) -> usize {
        match self {
            Self::Whole { back: next } | Self::First { next, .. } | Self::Other { next } => next,
        }
    }
}

impl Recorder<'_> {
    /// Emits the record of a plain, masked or repeated store. `exit` is the number by which the dispatcher finds a
    /// masked store.
    pub(crate) fn record(&mut self, store: &InsnStore, dead: Dead, exit: u32) {
        if store.shape == Shape::Repeat {
            return self.repeat(store, dead);
        }
        let uses = store.mem.registers();
        let scratch = self.begin(&store.mem, uses, dead);
        let bytes = store.bytes;
        let block = self.block_bytes;
        let mut misses = [Miss { site: 0, back: None }; 8];
        let mut count = 0;
        if bytes <= block && bytes.is_power_of_two() {
            // A misaligned address keeps a low bit, so it matches nothing and goes out of line.
            let hot = &mut self.arena.hot;
            hot.op_imm(true, 4, scratch.a, (-i64::from(block) | i64::from(bytes - 1)) as i32);
            misses[0] = self.check(&scratch);
            count = 1;
        } else if bytes <= 16.min(block) {
            let hot = &mut self.arena.hot;
            let end = Mem { disp: i64::from(bytes) - 1, ..Mem::low(0) };
            hot.op_mem(true, &[0x8d], scratch.b, &Mem { base: Base::Reg(scratch.a), ..end }, 0);
            hot.op_reg(true, &[0x31], scratch.a, scratch.b);
            hot.op_imm(true, 7, scratch.b, block as i32);
            misses[0] = Miss { site: hot.relative_later(&[0x0f, 0x83]), back: None };
            hot.op_imm(true, 4, scratch.a, -(block as i32));
            misses[1] = self.check(&scratch);
            count = 2;
        } else {
            let mut offset = 0;
            loop {
                if offset > 0 {
                    self.address(&store.mem, offset, &scratch);
                }
                self.arena.hot.op_imm(true, 4, scratch.a, -(block as i32));
                misses[count] = self.check(&scratch);
                count += 1;
                if offset == bytes - 1 {
                    break;
                }
                offset = (offset + block).min(bytes - 1);
            }
        }
        let back = self.arena.hot.pos;
        self.end(&scratch);
        self.out_of_line(store, &scratch, &misses[..count], back, exit);
    }

    /// Saves what must be saved and leaves the address in `a`.
    fn begin(&mut self, mem: &Mem, uses: u16, dead: Dead) -> Scratch {
        let flags_saved = dead.flags != STATUS;
        let mut taken = uses | 1 << RSP;
        if flags_saved {
            taken |= 1 << RAX;
        }
        let (a, a_free) = pick(dead.registers, taken, self.busy);
        taken |= 1 << a;
        let (b, b_free) = if flags_saved {
            (RAX, dead.registers & 1 << RAX != 0)
        } else {
            pick(dead.registers, taken, self.busy)
        };
        // rax may be part of the address: then it is live, and saved.
        let b_saved = !b_free || (flags_saved && uses & 1 << RAX != 0);
        let scratch = Scratch { a, a_saved: !a_free, b, b_saved, flags_saved };
        let hot = &mut self.arena.hot;
        if scratch.a_saved {
            hot.store_low(at!(scratch_a), a);
        }
        if scratch.b_saved {
            hot.store_low(at!(scratch_b), b);
        }
        lea(hot, a, mem, 0);
        if flags_saved {
            hot.bytes(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
            hot.store_low(at!(saved_flags), RAX);
        }
        if mem.segment == AddressSegment::Fs {
            hot.op_mem(true, &[0x03], a, &Mem::low(at!(fs_base)), 0);
        }
        if flags_saved {
            hot.store_low(at!(write_addr), a);
        }
        scratch
    }

    /// Address of the store plus `offset` into `a`, a second time.
    fn address(&mut self, mem: &Mem, offset: u32, scratch: &Scratch) {
        let hot = &mut self.arena.hot;
        if scratch.flags_saved {
            hot.load_low(scratch.a, at!(write_addr));
            hot.op_imm(true, 0, scratch.a, offset as i32);
            return;
        }
        lea(hot, scratch.a, mem, i64::from(offset));
        if mem.segment == AddressSegment::Fs {
            hot.op_mem(true, &[0x03], scratch.a, &Mem::low(at!(fs_base)), 0);
        }
    }

    /// Is the block in `a` in the filter? Clobbers `b`; returns the jump to patch.
    fn check(&mut self, scratch: &Scratch) -> Miss {
        let hot = &mut self.arena.hot;
        slot_of(hot, scratch, self.block_bytes, self.bmi2);
        hot.op_mem(true, &[0x39], scratch.a, &at_reg(scratch.b, FILTER), 0);
        let site = hot.relative_later(&[0x0f, 0x85]);
        Miss { site, back: Some(hot.pos) }
    }

    /// Adds the block in `a`, which is not in the filter, unless something forbids it; `b` is its slot's offset.
    /// Returns the jumps for the cases that forbid it, to be patched (0: none).
    fn add_block(
        &mut self,
        store: &InsnStore,
        scratch: &Scratch,
        aligned_to: u32,
        way: Way,
    ) -> [usize; OTHERS] {
        let (a, b) = (scratch.a, scratch.b);
        let (block_bytes, bmi2) = (self.block_bytes, self.bmi2);
        let slow = &mut self.arena.slow;
        let mut others = [0; OTHERS];
        // A misaligned address is not a block.
        if aligned_to > 1 {
            slow.op_reg(false, &[0xf7], 0, a);
            slow.u32(aligned_to - 1);
            others[0] = slow.relative_later(&[0x0f, 0x85]);
        }
        // Its page may hold exact bytes.
        page_slot(slow, scratch, bmi2);
        if let Way::Other { .. } = way {
            slow.op_mem(true, &[0x83], 7, &shadow_of(b), 1);
            slow.bytes(&[0]);
            others[2] = slow.relative_later(&[0x0f, 0x85]);
        } else {
            slow.op_mem(true, &[0x8b], b, &shadow_of(b), 0);
            slow.op_reg(true, &[0x85], b, b);
            let plain = slow.relative_later(&[0x0f, 0x84]);
            match way {
                Way::First { end, .. } => self.mark_in_page(store, scratch, end),
                _ => (others[2], others[5]) = self.mark_in_granule(store, scratch, way.back()),
            }
            self.arena.slow.patch_relative(plain, self.arena.slow.pos);
        }
        let slow = &mut self.arena.slow;
        // Another block is in the slot.
        slot_of(slow, scratch, block_bytes, bmi2);
        slow.op_mem(true, &[0x83], 7, &at_reg(b, FILTER), 1);
        slow.bytes(&[0]);
        others[1] = slow.relative_later(&[0x0f, 0x85]);
        // It lies on the stack.
        slow.op_reg(true, &[0x89], a, b);
        slow.op_mem(true, &[0x2b], b, &Mem::low(at!(stack_lo)), 0);
        slow.op_mem(true, &[0x3b], b, &Mem::low(at!(stack_all)), 0);
        others[3] = slow.relative_later(&[0x0f, 0x82]);
        // It would be the last in the list: the stub adds that one, and has the list emptied.
        slow.load_low(b, at!(list_ptr));
        slow.op_imm(true, 7, b, LIST_END as i32 - 8);
        others[4] = slow.relative_later(&[0x0f, 0x83]);
        slow.op_mem(true, &[0x89], a, &at_reg(b, 0), 0);
        slow.op_imm(true, 0, b, 8);
        slow.store_low(at!(list_ptr), b);
        slot_of(slow, scratch, block_bytes, bmi2);
        slow.op_mem(true, &[0x89], a, &at_reg(b, FILTER), 0);
        slow.relative(&[0xe9], way.back());
        others
    }

    /// Marks the bytes of a store that lies in one granule of a page with exact bytes in the page's shadow, and
    /// continues at `back`; `b` is how far that lies. Returns the jumps for pages without a shadow, and for a list of
    /// granules that is full.
    fn mark_in_granule(&mut self, store: &InsnStore, scratch: &Scratch, back: usize) -> (usize, usize) {
        let (a, b) = (scratch.a, scratch.b);
        self.store_address(store, scratch, 0);
        let slow = &mut self.arena.slow;
        slow.op_reg(true, &[0x01], a, b);
        slow.op_reg(true, &[0x89], b, a);
        slow.op_mem(true, &[0x2b], a, &Mem::low(at!(shadow_lo)), 0);
        slow.op_mem(true, &[0x3b], a, &Mem::low(at!(shadow_len)), 0);
        let foreign = slow.relative_later(&[0x0f, 0x83]);
        set_flags(slow, b, store.bytes);
        granule_is_listed(slow, a);
        slow.relative(&[0x0f, 0x85], back);
        // A granule that is not in the list. The stub adds the last ones, and has the list emptied.
        slow.load_low(b, at!(granules_ptr));
        slow.op_imm(true, 7, b, GRANULES_FULL as i32);
        let full = slow.relative_later(&[0x0f, 0x83]);
        slow.op_mem(false, &[0xc6], 0, &at_reg(a, 0), 1);
        slow.bytes(&[1]);
        self.store_address(store, scratch, 0);
        self.list_granule(scratch, back);
        (foreign, full)
    }

    /// The same for a store to several blocks, and to two granules at most, which begins on a page with exact bytes.
    /// It is for the stub if it goes beyond the page, or if its first granule is not in the list.
    fn mark_in_page(&mut self, store: &InsnStore, scratch: &Scratch, end: usize) {
        let (a, b) = (scratch.a, scratch.b);
        self.store_address(store, scratch, 0);
        let slow = &mut self.arena.slow;
        slow.op_reg(true, &[0x01], a, b);
        slow.op_imm(false, 4, a, PAGE_BYTES - 1);
        slow.op_imm(false, 7, a, PAGE_BYTES - store.bytes as i32);
        let beyond = slow.relative_later(&[0x0f, 0x87]);
        slow.op_reg(true, &[0x89], b, a);
        slow.op_mem(true, &[0x2b], a, &Mem::low(at!(shadow_lo)), 0);
        slow.op_mem(true, &[0x3b], a, &Mem::low(at!(shadow_len)), 0);
        let foreign = slow.relative_later(&[0x0f, 0x83]);
        granule_is_listed(slow, a);
        let first = slow.relative_later(&[0x0f, 0x84]);
        set_flags(slow, b, store.bytes);
        slow.op_mem(true, &[0x8d], a, &at_reg(b, store.bytes as usize - 1), 0);
        slow.op_mem(true, &[0x2b], a, &Mem::low(at!(shadow_lo)), 0);
        granule_is_listed(slow, a);
        slow.relative(&[0x0f, 0x85], end);
        // The last granule is new: the next of stores that follow each other.
        slow.load_low(b, at!(granules_ptr));
        slow.op_imm(true, 7, b, GRANULES_FULL as i32);
        let full = slow.relative_later(&[0x0f, 0x83]);
        slow.op_mem(false, &[0xc6], 0, &at_reg(a, 0), 1);
        slow.bytes(&[1]);
        self.store_address(store, scratch, store.bytes - 1);
        self.list_granule(scratch, end);
        let slow = &mut self.arena.slow;
        for site in [beyond, foreign, first, full] {
            slow.patch_relative(site, slow.pos);
        }
        self.call_stub(store, scratch, end, at!(slow_exact));
    }

    /// Adds the granule of the address in `a` to the list, whose end is in `b`, and continues at `back`.
    fn list_granule(&mut self, scratch: &Scratch, back: usize) {
        let (a, b) = (scratch.a, scratch.b);
        let slow = &mut self.arena.slow;
        slow.op_imm(true, 4, a, -(GRANULE_BYTES as i32));
        slow.op_mem(true, &[0x89], a, &at_reg(b, 0), 0);
        slow.op_imm(true, 0, b, 8);
        slow.store_low(at!(granules_ptr), b);
        slow.relative(&[0xe9], back);
    }

    /// Has a stub record the store, and continues at `end`.
    fn call_stub(&mut self, store: &InsnStore, scratch: &Scratch, end: usize, stub: u32) {
        if !scratch.flags_saved {
            self.store_address(store, scratch, 0);
            self.arena.slow.store_low(at!(write_addr), scratch.a);
        }
        let slow = &mut self.arena.slow;
        slow.store_low_imm_wide(at!(write_len), store.bytes);
        resume_at(slow, scratch.a, end);
        slow.jump_low(stub);
    }

    /// Address of the store plus `offset` into `a`, out of line.
    fn store_address(&mut self, store: &InsnStore, scratch: &Scratch, offset: u32) {
        let slow = &mut self.arena.slow;
        if scratch.flags_saved {
            slow.load_low(scratch.a, at!(write_addr));
            if offset > 0 {
                slow.op_imm(true, 0, scratch.a, offset as i32);
            }
            return;
        }
        lea(slow, scratch.a, &store.mem, i64::from(offset));
        if store.mem.segment == AddressSegment::Fs {
            slow.op_mem(true, &[0x03], scratch.a, &Mem::low(at!(fs_base)), 0);
        }
    }

    fn end(&mut self, scratch: &Scratch) {
        let hot = &mut self.arena.hot;
        if scratch.flags_saved {
            hot.load_low(RAX, at!(saved_flags));
            hot.bytes(&[0x04, 0x7f, 0x9e]); // add al, 0x7f; sahf
        }
        if scratch.b_saved {
            hot.load_low(scratch.b, at!(scratch_b));
        }
        if scratch.a_saved {
            hot.load_low(scratch.a, at!(scratch_a));
        }
    }

    fn out_of_line(&mut self, store: &InsnStore, scratch: &Scratch, misses: &[Miss], back: usize, exit: u32) {
        let mut others = [[0; OTHERS]; 8];
        // A masked store may write nothing: its page decides, in `slow_masked`, whether the mask is evaluated.
        let direct = store.shape == Shape::Plain;
        // Addresses keep the low bits by which a single check detects misalignment.
        let aligned_to = if misses.len() == 1 { store.bytes } else { 1 };
        let checks = misses.iter().filter(|miss| miss.back.is_some()).count();
        for (idx, (miss, others)) in misses.iter().zip(&mut others).enumerate() {
            if let (Some(next), true) = (miss.back, direct) {
                let is_granular = self.block_bytes <= GRANULE_BYTES as u32 || aligned_to == store.bytes;
                let way = match checks {
                    1 if is_granular => Way::Whole { back: next },
                    2.. if idx == 0 => Way::First { next, end: back },
                    _ => Way::Other { next },
                };
                self.arena.hot.patch_relative(miss.site, self.arena.slow.pos);
                *others = self.add_block(store, scratch, aligned_to, way);
            }
        }
        let target = self.arena.slow.pos;
        for (miss, others) in misses.iter().zip(&others) {
            if miss.back.is_none() || !direct {
                self.arena.hot.patch_relative(miss.site, target);
                continue;
            }
            for &site in others.iter().filter(|&&site| site != 0) {
                self.arena.slow.patch_relative(site, target);
            }
        }
        if store.shape == Shape::Masked {
            self.arena.slow.store_low_imm(at!(exit), exit);
            return self.call_stub(store, scratch, back, at!(slow_masked));
        }
        self.call_stub(store, scratch, back, at!(slow));
    }

    /// rep movs, rep stos upwards: one range of rcx elements from rdi.
    fn repeat(&mut self, store: &InsnStore, dead: Dead) {
        let scratch = self.begin(&store.mem, REPEAT_REGISTERS, dead);
        let hot = &mut self.arena.hot;
        hot.store_low(at!(write_addr), RDI);
        let count = Mem { index: Some(RCX), scale: store.bytes as u8, ..Mem::low(0) };
        hot.op_mem(true, &[0x8d], scratch.a, &count, 0);
        hot.store_low(at!(write_len), scratch.a);
        let site = hot.relative_later(&[0x48 | (scratch.a >> 3) << 2, 0x8d, 5 | (scratch.a & 7) << 3]);
        hot.store_low(at!(resume), scratch.a);
        hot.jump_low(at!(slow_range));
        let back = hot.pos;
        hot.patch_relative(site, back);
        self.end(&scratch);
    }
}

/// b = the slot of the page of the address in a. Changes flags.
fn page_slot(code: &mut Code, scratch: &Scratch, bmi2: bool) {
    shifted(code, scratch, 12, bmi2);
    code.op_reg(false, &[0x0f, 0xb7], scratch.b, scratch.b);
}

/// How far the shadow is for the slot in the register.
fn shadow_of(slot: u8) -> Mem {
    Mem { index: Some(slot), scale: 8, ..Mem::low(EXACT_SHADOWS as u32) }
}

/// [reg + disp]
fn at_reg(reg: u8, disp: usize) -> Mem {
    Mem { base: Base::Reg(reg), disp: disp as i64, ..Mem::low(0) }
}

/// Sets the flags of `bytes` bytes from `[reg]` on.
fn set_flags(code: &mut Code, reg: u8, bytes: u32) {
    let mut at = 0;
    while at < bytes {
        let to = at_reg(reg, at as usize);
        at += match bytes - at {
            1 => {
                code.op_mem(false, &[0xc6], 0, &to, 1);
                code.bytes(&[0xff]);
                1
            }
            2..=3 => {
                code.bytes(&[0x66]);
                code.op_mem(false, &[0xc7], 0, &to, 2);
                code.bytes(&[0xff; 2]);
                2
            }
            4..=7 => {
                code.op_mem(false, &[0xc7], 0, &to, 4);
                code.u32(u32::MAX);
                4
            }
            _ => {
                code.op_mem(true, &[0xc7], 0, &to, 4);
                code.u32(u32::MAX);
                8
            }
        };
    }
}

/// Is the granule of the flag at offset `reg` of the shadows in the list? Not zero: yes. reg = its mark.
fn granule_is_listed(code: &mut Code, reg: u8) {
    code.op_reg(true, &[0xc1], 5, reg);
    code.bytes(&[GRANULE_BYTES.trailing_zeros() as u8]);
    code.op_mem(true, &[0x03], reg, &Mem::low(at!(granule_marks)), 0);
    code.op_mem(false, &[0x80], 7, &at_reg(reg, 0), 1);
    code.bytes(&[0]);
}

/// b = offset in the filter of the block in a. Changes flags.
fn slot_of(code: &mut Code, scratch: &Scratch, block_bytes: u32, bmi2: bool) {
    shifted(code, scratch, (block_bytes.trailing_zeros() - 3) as u8, bmi2);
    code.op_imm(false, 4, scratch.b, ((FILTER_SLOTS - 1) * 8) as i32);
}

/// b = the low 32 bits of a, shifted or rotated to the right: its lower bits are those of a shift.
fn shifted(code: &mut Code, scratch: &Scratch, shift: u8, bmi2: bool) {
    let (a, b) = (scratch.a, scratch.b);
    if bmi2 {
        return rotated(code, a, b, shift);
    }
    code.op_reg(false, &[0x89], a, b);
    code.op_reg(false, &[0xc1], 5, b);
    code.bytes(&[shift]);
}

/// rorx b, a, shift, of 32 bits
fn rotated(code: &mut Code, a: u8, b: u8, shift: u8) {
    let r = if b < 8 { 0x80 } else { 0 };
    let base = if a < 8 { 0x20 } else { 0 };
    code.bytes(&[0xc4, 0x43 | r | base, 0x7b, 0xf0, 0xc0 | (b & 7) << 3 | (a & 7), shift]);
}

/// resume = back
pub(crate) fn resume_at(code: &mut Code, scratch: u8, back: usize) {
    code.rip(&[0x48 | (scratch >> 3) << 2, 0x8d, 5 | (scratch & 7) << 3], back);
    code.store_low(at!(resume), scratch);
}

/// lea reg, mem + offset, without the segment's base.
fn lea(code: &mut Code, reg: u8, mem: &Mem, offset: i64) {
    let flat = Mem { segment: AddressSegment::Flat, disp: mem.disp + offset, ..*mem };
    code.op_mem(true, &[0x8d], reg, &flat, 0);
}

/// A register that is not `taken`, and whether it is dead.
fn pick(dead: u16, taken: u16, busy: u16) -> (u8, bool) {
    let first = |among: u16| SCRATCH_ORDER.into_iter().find(|&reg| among & !taken & 1 << reg != 0);
    if let Some(reg) = first(dead) {
        return (reg, true);
    }
    (first(!busy).or_else(|| first(u16::MAX)).unwrap_or(12), false)
}
