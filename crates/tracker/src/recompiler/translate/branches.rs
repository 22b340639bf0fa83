//! Control transfers: links between blocks, indirect branches, calls, native leaves.
//!
//! The program's stack always holds original return addresses, so the unwinder, longjmp and debuggers see what they
//! would see natively.
//!
//! An indirect branch jumps through a table by the low 16 bits of its target, without touching flags. The table
//! leads to the *entry* of a block, which compares bits 16 to 47 of the target with its own, again without touching
//! flags, and passes on to the next entry of the same slot if they differ. The bits above are 0 in user space.

use super::decode::{Insn, InsnKind};
use super::emit::{AddressSegment, Base, Mem, reaches};
use super::translate::{AfterBlock, Piece};
use crate::recompiler::code_cache::blocks::Mode;
use crate::recompiler::code_cache::cache::link;
use crate::recompiler::run::context::{R11, RCX, TARGETS};
use crate::recompiler::run::stubs;
use crate::recompiler::state::{CallFailure, ExitReason, NativeLeaf, RecompilerState};
use iced_x86::{Mnemonic, OpKind, Register};

impl RecompilerState {
    /// Emits the entry of the block of `pc` and makes it the first of its slot. The entry continues at `main`, or,
    /// for `None`, in the code that is emitted next. Returns the entry's address.
    pub(crate) fn emit_entry(&mut self, arena: usize, pc: usize, mode: Mode, main: Option<usize>) -> usize {
        let slot = TARGETS[mode as usize] + (pc & 0xffff) * 8;
        // SAFETY: a slot of the branch table.
        let next = unsafe { std::ptr::with_exposed_provenance::<u64>(slot).read() };
        let arena = self.cache.arena(arena);
        let next = arena.constant(next);
        let code = if main.is_some() { &mut arena.cold } else { &mut arena.hot };
        let entry = code.pos;
        code.op_mem(false, &[0x8b], RCX, &Mem::low(at!(branch_target) + 2), 0);
        code.bytes(&[0x8d, 0x89]); // lea ecx, [rcx - bits]
        code.u32(((pc >> 16) as u32).wrapping_neg());
        code.bytes(&[0xe3, 0x06]); // jrcxz over the jump
        code.rip(&[0xff, 0x25], next);
        code.load_low(RCX, at!(branch_rcx));
        if let Some(main) = main {
            code.relative(&[0xe9], main);
        }
        // SAFETY: as above; only this thread uses the table.
        unsafe { std::ptr::with_exposed_provenance_mut::<u64>(slot).write(entry as u64) };
        entry
    }

    /// Gives a translated block an entry.
    pub(crate) fn add_entry(&mut self, pc: usize, mode: Mode, main: usize) -> Result<(), CallFailure> {
        let arena = self.cache.all().position(|arena| arena.contains(main)).ok_or(CallFailure::NoSpace)?;
        if self.cache.arena(arena).cold.free_bytes() < 256 {
            self.flush();
            return self.block_with_entry(pc, mode).map(drop);
        }
        let entry = self.emit_entry(arena, pc, mode, Some(main));
        self.blocks.set(pc, mode, main, entry);
        Ok(())
    }

    /// A jump (`opcode`: e9 or 0f 8x) to the translation of `target`.
    pub(crate) fn emit_jump(&mut self, piece: &Piece, opcode: &[u8], target: usize) {
        let known = self.blocks.get(target, piece.mode).map(|block| block.main);
        let arena = self.cache.arena(piece.arena);
        if let Some(main) = known.filter(|main| arena.contains(*main)) {
            arena.hot.relative(opcode, main);
            return;
        }
        let stub = arena.cold.pos;
        arena.cold.store_low_imm(at!(exit), self.exits.len() as u32);
        arena.cold.jump_low(at!(dispatch));
        arena.hot.relative(opcode, stub);
        let site = arena.hot.pos - 4;
        self.exits.push(ExitReason::Direct { target, site, stub, mode: piece.mode });
    }

    /// Links a jump that came to the dispatcher, and returns where to continue.
    pub(crate) fn link_exit(
        &mut self,
        target: usize,
        site: usize,
        stub: usize,
        mode: Mode,
    ) -> Result<usize, CallFailure> {
        let flushes = self.counts.flushes;
        let main = self.block(target, mode)?.main;
        if self.counts.flushes != flushes {
            return Ok(main);
        }
        if let Some(arena) = self.cache.arena_of(site)
            && !link(arena, site, main)
        {
            // Another arena: the stub becomes a jump through memory, which is shorter than the stub.
            let constant = arena.constant(main as u64);
            let rel = constant.wrapping_sub(stub + 6) as u32;
            let (delta, stub) = (arena.cold.delta, stub);
            let mut bytes = [0xff, 0x25, 0, 0, 0, 0];
            bytes[2..].copy_from_slice(&rel.to_le_bytes());
            // SAFETY: the stub's own bytes, in the writable mapping of its arena.
            unsafe {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(stub.wrapping_add_signed(delta));
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
        Ok(main)
    }

    /// Copies an instruction; its RIP-relative operand keeps its address.
    pub(crate) fn emit_copy(&mut self, piece: &Piece, insn: &Insn) {
        if matches!(insn.raw.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Endbr32) {
            return;
        }
        let code = &mut self.cache.arena(piece.arena).hot;
        let at = code.pos;
        let mut bytes = [0u8; 16];
        let len = copy_bytes(insn, &mut bytes);
        code.bytes(&bytes[..len]);
        if insn.raw.is_ip_rel_memory_operand() {
            let target = insn.raw.ip_rel_memory_address() as usize;
            let rel = target.wrapping_sub(at + len) as u32;
            assert!(reaches(target, at + len), "an arena serves what its modules refer to");
            code.patch32(at + usize::from(insn.disp_offset), rel);
        }
    }

    /// Emitted after an instruction that set rsp: does it still point into the right stack?
    pub(crate) fn emit_stack_check(&mut self, piece: &Piece, next: usize) {
        let exit = self.exits.len() as u32;
        self.exits.push(ExitReason::Stack { next });
        let code = &mut self.cache.arena(piece.arena).hot;
        code.store_low(at!(stub) + 24, 0);
        let site = code.relative_later(&[0x48, 0x8d, 0x05]); // lea rax, [rip + back]
        code.store_low(at!(resume), 0);
        code.store_low_imm(at!(exit), exit);
        code.jump_low(at!(check_stack) + 8 * piece.mode as u32);
        let back = code.pos;
        code.patch_relative(site, back);
    }

    /// The instruction that ends a block.
    pub(crate) fn emit_transfer(&mut self, piece: &mut Piece, insn: &Insn) -> AfterBlock {
        let (next, target) = (insn.raw.next_ip() as usize, insn.raw.near_branch_target() as usize);
        match insn.kind {
            InsnKind::Jump => return self.emit_goto(piece, target),
            InsnKind::Branch => {
                let condition = insn.raw.condition_code() as u8 - 1;
                self.emit_jump(piece, &[0x0f, 0x80 | condition], target);
                return self.emit_goto(piece, next);
            }
            InsnKind::ShortBranch => {
                let mut bytes = [0u8; 16];
                let len = copy_bytes(insn, &mut bytes);
                bytes[len - 1] = 2;
                let code = &mut self.cache.arena(piece.arena).hot;
                code.bytes(&bytes[..len]);
                code.bytes(&[0xeb, 0x05]);
                self.emit_jump(piece, &[0xe9], target);
                return self.emit_goto(piece, next);
            }
            InsnKind::Call => {
                if let Some((leaf, function, slot)) = self.leaf_at(target) {
                    self.emit_leaf_call(piece, leaf, function, slot, target, next);
                    return self.emit_goto(piece, next);
                }
                self.emit_push(piece, next);
                self.emit_jump(piece, &[0xe9], target);
            }
            InsnKind::IndirectJump | InsnKind::IndirectCall => self.emit_indirect(piece, insn, next),
            InsnKind::Return => {
                let code = &mut self.cache.arena(piece.arena).hot;
                code.store_low(at!(branch_rcx), RCX);
                code.bytes(&[0x59]); // pop rcx
                if insn.raw.op_count() == 1 {
                    let popped =
                        Mem { base: Base::Reg(4), disp: insn.raw.immediate16().into(), ..Mem::low(0) };
                    code.op_mem(true, &[0x8d], 4, &popped, 0);
                }
                emit_lookup(code, piece.mode);
            }
            InsnKind::Syscall => self.emit_exit(piece, ExitReason::Syscall { next }),
            InsnKind::TransactionBegin => {
                self.cache.arena(piece.arena).hot.bytes(&[0xb8, 0, 0, 0, 0]); // mov eax, 0: aborted, no retry
                self.emit_jump(piece, &[0xe9], target);
            }
            InsnKind::Refused(why) => self.emit_exit(piece, ExitReason::Refused { why }),
            InsnKind::Trap | InsnKind::Plain | InsnKind::SwitchesStack => {
                let mut bytes = [0u8; 16];
                let len = copy_bytes(insn, &mut bytes);
                let code = &mut self.cache.arena(piece.arena).hot;
                code.bytes(&bytes[..len]);
                self.emit_jump(piece, &[0xe9], next);
            }
        }
        AfterBlock::End
    }

    fn emit_exit(&mut self, piece: &Piece, exit: ExitReason) {
        let number = self.exits.len() as u32;
        self.exits.push(exit);
        let code = &mut self.cache.arena(piece.arena).hot;
        code.store_low_imm(at!(exit), number);
        code.jump_low(at!(dispatch));
    }

    /// Continues at `pc`: in line if that is possible.
    fn emit_goto(&mut self, piece: &Piece, pc: usize) -> AfterBlock {
        if self.may_continue(piece, pc) {
            return AfterBlock::Continue(pc);
        }
        self.emit_jump(piece, &[0xe9], pc);
        AfterBlock::End
    }

    /// Pushes an original return address.
    fn emit_push(&mut self, piece: &Piece, value: usize) {
        let arena = self.cache.arena(piece.arena);
        if let Ok(small) = i32::try_from(value) {
            arena.hot.bytes(&[0x68]);
            arena.hot.u32(small as u32);
            return;
        }
        let constant = arena.constant(value as u64);
        arena.hot.rip(&[0xff, 0x35], constant);
    }

    fn emit_indirect(&mut self, piece: &Piece, insn: &Insn, next: usize) {
        let code = &mut self.cache.arena(piece.arena).hot;
        code.store_low(at!(branch_rcx), RCX);
        if insn.raw.op0_kind() == OpKind::Register {
            let from = super::decode::gpr(insn.raw.op0_register()).unwrap_or(RCX);
            if from != RCX {
                code.op_reg(true, &[0x89], from, RCX);
            }
        } else {
            code.op_mem(true, &[0x8b], RCX, &operand(insn), 0);
        }
        if insn.kind == InsnKind::IndirectCall {
            self.emit_push(piece, next);
        }
        emit_lookup(&mut self.cache.arena(piece.arena).hot, piece.mode);
    }

    /// Emits code for addresses that hold no ordinary code. True if `pc` is such an address.
    pub(crate) fn emit_special(&mut self, piece: &Piece, pc: usize) -> bool {
        let leave = stubs::mangrove_tracker_leave as *const () as usize;
        let leave_thrown = stubs::mangrove_tracker_leave_thrown as *const () as usize;
        if pc == stubs::mangrove_tracker_return as *const () as usize {
            self.emit_native_jump(piece, leave);
        } else if pc == stubs::mangrove_tracker_thrown as *const () as usize {
            self.emit_native_jump(piece, leave_thrown);
        } else if let Some(NativeLeaf::Refused(why)) = self.leaf(pc) {
            self.emit_exit(piece, ExitReason::Refused { why });
        } else if let Some(leaf) = self.leaf(pc) {
            self.emit_leaf(piece, leaf, pc);
        } else {
            return false;
        }
        true
    }

    /// Emits a jump out of the cache to `pc`.
    pub(crate) fn emit_native_jump(&mut self, piece: &Piece, pc: usize) {
        let arena = self.cache.arena(piece.arena);
        let constant = arena.constant(pc as u64);
        arena.hot.rip(&[0xff, 0x25], constant);
    }

    /// Emits a native leaf that is entered by a jump: its return address is on the stack already.
    fn emit_leaf(&mut self, piece: &Piece, leaf: NativeLeaf, function: usize) {
        self.emit_leaf_record(piece, leaf);
        let arena = self.cache.arena(piece.arena);
        let constant = arena.constant(function as u64);
        let code = &mut arena.hot;
        code.op_mem(false, &[0x8f], 0, &Mem::low(at!(leaf_return)), 0); // pop [leaf_return]
        self.emit_native_call(piece, leaf, constant);
        let code = &mut self.cache.arena(piece.arena).hot;
        code.store_low(at!(branch_rcx), RCX);
        code.load_low(RCX, at!(leaf_return));
        emit_lookup(code, piece.mode);
    }

    fn emit_leaf_record(&mut self, piece: &Piece, leaf: NativeLeaf) {
        if leaf == NativeLeaf::Copy && self.recording {
            let code = &mut self.cache.arena(piece.arena).hot;
            let site = code.relative_later(&[0x48, 0x8d, 0x0d]); // lea rcx, [rip + back]
            code.jump_low(at!(slow_copy));
            let back = code.pos;
            code.patch_relative(site, back);
        }
    }

    /// Emits a call of a native leaf in line. `slot`: a GOT slot that must still hold the function.
    fn emit_leaf_call(
        &mut self,
        piece: &Piece,
        leaf: NativeLeaf,
        function: usize,
        slot: Option<usize>,
        target: usize,
        next: usize,
    ) {
        if let Some(slot) = slot {
            // By convention r11 belongs to the PLT.
            let arena = self.cache.arena(piece.arena);
            let constant = arena.constant(function as u64);
            let code = &mut arena.hot;
            code.op_mem(true, &[0x8b], R11, &Mem { base: Base::Rip, disp: slot as i64, ..Mem::low(0) }, 0);
            code.op_mem(
                true,
                &[0x3b],
                R11,
                &Mem { base: Base::Rip, disp: constant as i64, ..Mem::low(0) },
                0,
            );
            let other = code.relative_later(&[0x0f, 0x85]);
            self.emit_ordinary_call_out_of_line(piece, other, target, next);
        }
        self.emit_leaf_record(piece, leaf);
        let arena = self.cache.arena(piece.arena);
        let constant = arena.constant(function as u64);
        self.emit_native_call(piece, leaf, constant);
    }

    /// Emits the call of the function whose address stands at `constant`, between the changes of its mark. They keep
    /// every register: a compiler that sees the function lets its caller rely on those that the function leaves alone,
    /// whatever the convention says (-fipa-ra of GCC). The flags are free on both sides, by the System V ABI.
    fn emit_native_call(&mut self, piece: &Piece, leaf: NativeLeaf, constant: usize) {
        let arena = self.cache.arena(piece.arena);
        let NativeLeaf::Marked(mark) = leaf else {
            return arena.hot.rip(&[0xff, 0x15], constant); // call
        };
        let mark = arena.constant(mark as u64);
        let code = &mut arena.hot;
        emit_change(code, mark, 0x03); // inc
        code.rip(&[0xff, 0x15], constant); // call
        emit_change(code, mark, 0x0b); // dec
    }

    /// Emits the ordinary call out of line, for when the GOT slot has changed.
    fn emit_ordinary_call_out_of_line(&mut self, piece: &Piece, site: usize, target: usize, next: usize) {
        let arena = self.cache.arena(piece.arena);
        let constant = arena.constant(next as u64);
        let at = arena.cold.pos;
        arena.hot.patch_relative(site, at);
        arena.cold.rip(&[0xff, 0x35], constant);
        let jump = arena.cold.relative_later(&[0xe9]);
        let stub = arena.cold.pos;
        arena.cold.store_low_imm(at!(exit), self.exits.len() as u32);
        arena.cold.jump_low(at!(dispatch));
        arena.cold.patch_relative(jump, stub);
        self.exits.push(ExitReason::Direct { target, site: jump, stub, mode: piece.mode });
    }

    /// Is `target` a native leaf, or a PLT stub bound to one? The slot is `None` if it cannot change.
    fn leaf_at(&mut self, target: usize) -> Option<(NativeLeaf, usize, Option<usize>)> {
        if let Some(leaf) = self.native_leaf(target) {
            return Some((leaf, target, None));
        }
        let mut pc = target;
        for _ in 0..2 {
            self.maps.find(pc).filter(|mapping| mapping.execute && mapping.read)?;
            // SAFETY: readable, and so is the rest of the page.
            let raw = unsafe { super::decode::decode(pc, &self.maps) }.raw;
            if raw.mnemonic() == Mnemonic::Endbr64 {
                pc = raw.next_ip() as usize;
                continue;
            }
            if raw.mnemonic() != Mnemonic::Jmp || !raw.is_ip_rel_memory_operand() {
                return None;
            }
            let slot = raw.ip_rel_memory_address() as usize;
            let holds = self.maps.find(slot).filter(|mapping| mapping.read)?;
            // SAFETY: a readable, aligned word of the module's GOT.
            let function = unsafe { std::ptr::with_exposed_provenance::<usize>(slot).read_unaligned() };
            let leaf = self.native_leaf(function)?;
            return Some((leaf, function, holds.write.then_some(slot)));
        }
        None
    }
}

/// Emits the increment or decrement, by its ModRM byte, of the word whose address stands at `mark`. Changes flags only.
fn emit_change(code: &mut super::emit::Code, mark: usize, modrm: u8) {
    code.store_low(at!(scratch_a), R11);
    code.rip(&[0x4c, 0x8b, 0x1d], mark); // mov r11, [mark]
    code.bytes(&[0x49, 0xff, modrm]); // inc or dec qword [r11]
    code.load_low(R11, at!(scratch_a));
}

/// Emits a jump to the original target in rcx; the program's rcx is saved already.
fn emit_lookup(code: &mut super::emit::Code, mode: Mode) {
    code.store_low(at!(branch_target), RCX);
    code.bytes(&[0x0f, 0xb7, 0xc9]); // movzx ecx, cx
    let slot = Mem { index: Some(RCX), scale: 8, disp: TARGETS[mode as usize] as i64, ..Mem::low(0) };
    code.op_mem(false, &[0xff], 4, &slot, 0);
}

/// Copies the instruction's bytes and returns how many there are.
fn copy_bytes(insn: &Insn, to: &mut [u8; 16]) -> usize {
    let len = insn.raw.len();
    // SAFETY: the instruction was decoded from there.
    unsafe {
        let from = std::ptr::with_exposed_provenance::<u8>(insn.raw.ip() as usize);
        std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), len);
    }
    to[0] = insn.first_byte;
    len
}

/// The memory operand of an indirect branch.
fn operand(insn: &Insn) -> Mem {
    let raw = &insn.raw;
    let base = raw.memory_base();
    let narrow = raw.memory_base().is_gpr32() || raw.memory_index().is_gpr32();
    Mem {
        base: match base {
            Register::RIP | Register::EIP => Base::Rip,
            Register::None => Base::None,
            _ => super::decode::gpr(base).map_or(Base::None, Base::Reg),
        },
        index: super::decode::gpr(raw.memory_index()),
        scale: raw.memory_index_scale() as u8,
        disp: raw.memory_displacement64() as i64,
        narrow,
        segment: match raw.segment_prefix() {
            Register::FS => AddressSegment::Fs,
            Register::GS => AddressSegment::Gs,
            _ => AddressSegment::Flat,
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Error;
    use crate::recompiler::recompiler::Recompiler;
    use crate::tracker::Tracker;
    use crate::write_set::write_set::WriteSet;
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static MARK: AtomicUsize = AtomicUsize::new(0);

    // As a compiler makes them that sees both: the caller knows that the leaf leaves r11 alone. The leaf copies the
    // mark, whose address is the argument's third word, to the second.
    std::arch::global_asm!(
        ".text",
        ".p2align 4",
        ".globl mangrove_test_marked_leaf",
        ".hidden mangrove_test_marked_leaf",
        "mangrove_test_marked_leaf:",
        "mov rax, [rdi + 16]",
        "mov rax, [rax]",
        "mov [rdi + 8], rax",
        "ret",
        ".p2align 4",
        ".globl mangrove_test_caller_of_leaf",
        ".hidden mangrove_test_caller_of_leaf",
        "mangrove_test_caller_of_leaf:",
        "sub rsp, 8",
        "mov r11d, 77",
        "call mangrove_test_marked_leaf",
        "mov [rdi], r11",
        "add rsp, 8",
        "ret",
    );

    unsafe extern "C" {
        fn mangrove_test_marked_leaf(arg: *mut c_void);
        fn mangrove_test_caller_of_leaf(arg: *mut c_void);
    }

    #[test]
    fn a_marked_leaf_changes_no_register_that_its_caller_relies_on() {
        let tracker = Recompiler::new().unwrap();
        assert!(tracker.add_marked_leaf(mangrove_test_marked_leaf as *const () as usize, &MARK));
        let mut writes = WriteSet::new(32).unwrap();
        let mut words = [0, 0, MARK.as_ptr().expose_provenance() as u64];
        let arg = words.as_mut_ptr().cast();
        // SAFETY: the function's argument.
        while unsafe { tracker.call(&mut writes, mangrove_test_caller_of_leaf, arg) } == Err(Error::Busy) {}
        assert_eq!((words[0], words[1], MARK.load(Ordering::Relaxed)), (77, 1, 0));
    }
}
