//! Translation of a piece of code. A piece runs straight on from its start, over branches not taken. It ends in a
//! jump to translated code, a call, a return, or when its budget is used up.

use super::decode::{Decoded, Insn, InsnKind, STATUS, Shape, analyse, decode};
use super::emit::{Base, Mem};
use super::liveness::{Dead, NOTHING, look_ahead};
use super::record::{Recorder, SPAN_MAX, StoreRecord};
use crate::recompiler::code_cache::blocks::{CodeBlock, Mode};
use crate::recompiler::code_cache::proc_maps::{Mapping, Origin};
use crate::recompiler::run::context::RSP;
use crate::recompiler::run::stubs;
use crate::recompiler::state::{CallFailure, ExitReason, RecompilerState};
use iced_x86::Mnemonic;

/// Instructions of a piece, approximately.
const PIECE_INSTRUCTIONS_MAX: usize = 96;
/// Instructions of a basic block; longer ones are cut.
const BLOCK_INSTRUCTIONS_MAX: usize = 48;
/// How far from a store registers count as busy, in instructions.
const BUSY_BEFORE: usize = 4;
const BUSY_AFTER: usize = 8;
const RECORDS_MAX: usize = 2 * BLOCK_INSTRUCTIONS_MAX;

/// Where the translation stands.
pub(crate) struct Piece {
    pub(crate) arena: usize,
    pub(crate) mode: Mode,
    budget: usize,
}

/// What comes after a basic block.
pub(crate) enum AfterBlock {
    /// The piece continues in line, at this address.
    Continue(usize),
    End,
}

/// A basic block being translated.
struct Basic {
    insns: [Option<Insn>; BLOCK_INSTRUCTIONS_MAX],
    len: usize,
    /// Address after the last instruction.
    end: usize,
    dead: [Dead; BLOCK_INSTRUCTIONS_MAX + 1],
    records: [Option<StoreRecord>; RECORDS_MAX],
    record_count: usize,
}

impl Basic {
    /// General registers that the instructions before and after this one use.
    fn busy_at(&self, idx: usize) -> u16 {
        let near = idx.saturating_sub(BUSY_BEFORE)..(idx + BUSY_AFTER).min(self.len);
        self.insns[near].iter().flatten().fold(0, |busy, insn| busy | insn.reads | insn.changes)
    }
}

impl RecompilerState {
    /// The translation of `pc`, made if there is none.
    pub(crate) fn block(&mut self, pc: usize, mode: Mode) -> Result<CodeBlock, CallFailure> {
        if let Some(block) = self.blocks.get(pc, mode) {
            return Ok(block);
        }
        self.translate(pc, mode, false)?;
        self.blocks.get(pc, mode).ok_or(CallFailure::NoSpace)
    }

    /// The same, with an entry for indirect branches.
    pub(crate) fn block_with_entry(&mut self, pc: usize, mode: Mode) -> Result<CodeBlock, CallFailure> {
        match self.blocks.get(pc, mode) {
            Some(block) if block.entry != 0 => return Ok(block),
            Some(block) => self.add_entry(pc, mode, block.main)?,
            None => self.translate(pc, mode, true)?,
        }
        self.blocks.get(pc, mode).ok_or(CallFailure::NoSpace)
    }

    /// May code at `pc` be translated? `Ok(false)`: there is no code, and running it faults.
    pub(crate) fn admit(&mut self, pc: usize) -> Result<bool, CallFailure> {
        let mut found = self.maps.find(pc);
        if !found.is_some_and(|mapping| mapping.execute) {
            if !self.maps.refresh() {
                return Err(CallFailure::NoMaps);
            }
            found = self.maps.find(pc);
        }
        let Some(mapping) = found.filter(|mapping| mapping.execute) else { return Ok(false) };
        if mapping.write || mapping.origin != Origin::File || !mapping.read {
            // The list may be out of date.
            if !self.maps.refresh() {
                return Err(CallFailure::NoMaps);
            }
            let Some(mapping) = self.maps.find(pc).filter(|mapping| mapping.execute) else {
                return Ok(false);
            };
            if mapping.write || mapping.origin != Origin::File || !mapping.read {
                return Err(CallFailure::MadeCode(pc));
            }
        }
        if !self.sources.iter().any(|source| source.0 <= pc && pc < source.1) {
            self.sources.push((mapping.lo, mapping.hi));
        }
        Ok(true)
    }

    fn translate(&mut self, start: usize, mode: Mode, entry: bool) -> Result<(), CallFailure> {
        if !self.is_special(start) && !self.admit(start)? {
            return Err(CallFailure::NoCode(start));
        }
        let mut arena = self.arena(start)?;
        if !self.cache.arena(arena).has_space() {
            self.flush();
            arena = self.arena(start)?;
        }
        let mut piece = Piece { arena, mode, budget: PIECE_INSTRUCTIONS_MAX };
        let mut pc = start;
        while let AfterBlock::Continue(next) = self.basic_block(&mut piece, pc, entry && pc == start)? {
            pc = next;
        }
        if self.flush_wanted {
            // The code read on the way changes how code is translated: start over.
            self.flush();
            return self.translate(start, mode, entry);
        }
        Ok(())
    }

    fn arena(&mut self, pc: usize) -> Result<usize, CallFailure> {
        self.cache.arena_for(pc, &mut self.maps).ok_or(CallFailure::NoSpace)
    }

    fn basic_block(&mut self, piece: &mut Piece, pc: usize, entry: bool) -> Result<AfterBlock, CallFailure> {
        self.begin_block(piece, pc, entry);
        if self.emit_special(piece, pc) {
            return Ok(AfterBlock::End);
        }
        if !self.admit(pc)? {
            self.emit_native_jump(piece, pc);
            return Ok(AfterBlock::End);
        }
        let mut block = self.read_block(piece, pc);
        piece.budget = piece.budget.saturating_sub(block.len);
        self.find_dead(&mut block);
        self.collect_records(piece, &mut block);
        hoist(&mut block);
        self.emit_block(piece, &block)
    }

    fn begin_block(&mut self, piece: &Piece, pc: usize, entry: bool) {
        let at = if entry { self.emit_entry(piece.arena, pc, piece.mode, None) } else { 0 };
        let main = self.cache.arena(piece.arena).hot.pos;
        self.blocks.set(pc, piece.mode, main, at);
        self.origins.push((main, pc));
        self.counts.blocks += 1;
    }

    /// Decodes up to the first instruction that ends a block.
    fn read_block(&mut self, piece: &Piece, start: usize) -> Basic {
        let mut block = Basic {
            insns: [None; BLOCK_INSTRUCTIONS_MAX],
            len: 0,
            end: start,
            dead: [NOTHING; BLOCK_INSTRUCTIONS_MAX + 1],
            records: [None; RECORDS_MAX],
            record_count: 0,
        };
        // `admit` did not look beyond the mapping.
        let end = self.maps.find(start).map_or(start, |mapping| mapping.hi);
        while block.len < BLOCK_INSTRUCTIONS_MAX {
            let pc = block.end;
            let over = pc >= end || self.is_special(pc) || self.blocks.get(pc, piece.mode).is_some();
            if block.len > 0 && over {
                break;
            }
            // SAFETY: `admit` found the mapping readable, and `pc` has not left it. An instruction that crosses
            // into the next page is read there only if that page is mapped.
            let Decoded { raw, disp_offset, first_byte } = unsafe { decode(pc, &self.maps) };
            let mut insn = analyse(&raw, &mut self.factory, self.direction_known);
            (insn.disp_offset, insn.first_byte) = (disp_offset, first_byte);
            if self.direction_known
                && matches!(raw.mnemonic(), Mnemonic::Std | Mnemonic::Popfq | Mnemonic::Popf)
            {
                self.direction_known = false;
                self.flush_wanted = true;
            }
            block.insns[block.len] = Some(insn);
            block.len += 1;
            block.end = raw.next_ip() as usize;
            if !matches!(insn.kind, InsnKind::Plain | InsnKind::SwitchesStack) {
                break;
            }
        }
        self.counts.instructions += block.len as u64;
        block
    }

    fn ahead(&mut self, pc: usize) -> Dead {
        look_ahead(pc, &self.maps, &mut self.factory, self.flags_cross).dead
    }

    fn find_dead(&mut self, block: &mut Basic) {
        let Some(last) = block.insns[block.len - 1] else { return };
        let target = last.raw.near_branch_target() as usize;
        let by_convention = Dead { registers: 0, flags: if self.flags_cross { 0 } else { STATUS } };
        let mut dead = match last.kind {
            InsnKind::Plain | InsnKind::SwitchesStack => self.ahead(block.end),
            InsnKind::Jump => self.ahead(target),
            InsnKind::Branch | InsnKind::ShortBranch => self.ahead(target).both(self.ahead(block.end)),
            InsnKind::Call => {
                self.check_flags_cross(target);
                self.check_flags_cross(block.end);
                let ahead = self.ahead(target);
                Dead { registers: ahead.registers, flags: if self.flags_cross { 0 } else { STATUS } }
            }
            InsnKind::IndirectCall => {
                self.check_flags_cross(block.end);
                by_convention
            }
            InsnKind::IndirectJump if last.raw.is_ip_rel_memory_operand() => by_convention,
            InsnKind::Return => by_convention,
            _ => NOTHING,
        };
        block.dead[block.len] = dead;
        for idx in (0..block.len).rev() {
            if let Some(insn) = &block.insns[idx] {
                dead = if matches!(insn.kind, InsnKind::Trap | InsnKind::Refused(_) | InsnKind::Syscall) {
                    NOTHING
                } else {
                    dead.before(insn)
                };
            }
            block.dead[idx] = dead;
        }
    }

    /// Does the code after a call, or at the start of a called function, read flags before it sets them?
    fn check_flags_cross(&mut self, pc: usize) {
        if !self.flags_cross && look_ahead(pc, &self.maps, &mut self.factory, true).flags_read != 0 {
            self.flags_cross = true;
            self.flush_wanted = true;
        }
    }

    fn collect_records(&mut self, piece: &Piece, block: &mut Basic) {
        if !self.recording {
            return;
        }
        for idx in 0..block.len {
            let Some(insn) = block.insns[idx] else { continue };
            for store in insn.stores.into_iter().flatten() {
                if store.mem.base == Base::Reg(RSP) && piece.mode == Mode::OwnStack {
                    continue;
                }
                let record = StoreRecord { at: idx, of: idx, store };
                if store.shape == Shape::Plain && merge(block, &record) {
                    continue;
                }
                block.records[block.record_count] = Some(record);
                block.record_count += 1;
            }
        }
    }

    fn emit_block(&mut self, piece: &mut Piece, block: &Basic) -> Result<AfterBlock, CallFailure> {
        for idx in 0..block.len {
            let Some(insn) = &block.insns[idx] else { continue };
            for record in
                block.records[..block.record_count].iter().flatten().filter(|record| record.at == idx)
            {
                let pc = block.insns[record.of].map_or(0, |of| of.raw.ip() as usize);
                self.emit_record(piece, record, pc, block.dead[idx], block.busy_at(idx));
            }
            let at = self.cache.arena(piece.arena).hot.pos;
            self.origins.push((at, insn.raw.ip() as usize));
            match insn.kind {
                InsnKind::Plain => self.emit_copy(piece, insn),
                InsnKind::SwitchesStack => {
                    self.emit_copy(piece, insn);
                    self.emit_stack_check(piece, insn.raw.next_ip() as usize);
                }
                _ => return Ok(self.emit_transfer(piece, insn)),
            }
        }
        if self.may_continue(piece, block.end) {
            return Ok(AfterBlock::Continue(block.end));
        }
        self.emit_jump(piece, &[0xe9], block.end);
        Ok(AfterBlock::End)
    }

    /// May the piece continue in line at `pc`? Not where `admit` may object, because the program may never get
    /// there.
    pub(crate) fn may_continue(&mut self, piece: &Piece, pc: usize) -> bool {
        let admitted = |mapping: Mapping| {
            mapping.execute && mapping.read && !mapping.write && mapping.origin == Origin::File
        };
        piece.budget > 0
            && self.maps.find(pc).is_some_and(admitted)
            && self.blocks.get(pc, piece.mode).is_none()
            && !self.is_special(pc)
            && self.cache.arena(piece.arena).serves(pc)
    }

    fn emit_record(&mut self, piece: &Piece, record: &StoreRecord, pc: usize, dead: Dead, busy: u16) {
        let exit = self.exits.len() as u32;
        match record.store.shape {
            Shape::Rare => {
                let code = &mut self.cache.arena(piece.arena).hot;
                code.store_low_imm(crate::recompiler::run::context::at!(exit), exit);
                code.jump_low(crate::recompiler::run::context::at!(dispatch));
                let resume = code.pos;
                self.exits.push(ExitReason::Rare { pc, resume });
                return;
            }
            Shape::Masked => self.exits.push(ExitReason::Masked { pc }),
            _ => {}
        }
        let (block_bytes, bmi2) = (self.block_bytes, self.bmi2);
        let mut recorder = Recorder { arena: self.cache.arena(piece.arena), block_bytes, bmi2, busy };
        recorder.record(&record.store, dead, exit);
    }

    /// Addresses with a meaning to the recompiler, and functions that run natively.
    pub(crate) fn is_special(&self, pc: usize) -> bool {
        pc == stubs::mangrove_tracker_return as *const () as usize
            || pc == stubs::mangrove_tracker_thrown as *const () as usize
            || self.leaf(pc).is_some()
    }
}

/// Joins a store with an earlier record relative to the same unchanged registers, if they touch: no byte is
/// reported that neither of them writes.
fn merge(block: &mut Basic, new: &StoreRecord) -> bool {
    let mem = &new.store.mem;
    let uses = mem.registers();
    for slot in (0..block.record_count).rev() {
        let Some(old) = block.records[slot] else { continue };
        let same = old.store.shape == Shape::Plain && Mem { disp: mem.disp, ..old.store.mem } == *mem;
        if !same {
            continue;
        }
        let changed = block.insns[old.at..new.at].iter().flatten().any(|insn| insn.changes & uses != 0);
        let (from, to) = (old.store.mem.disp, old.store.mem.disp + i64::from(old.store.bytes));
        let (lo, hi) = (from.min(mem.disp), to.max(mem.disp + i64::from(new.store.bytes)));
        let touches = mem.disp <= to && mem.disp + i64::from(new.store.bytes) >= from;
        if changed || !touches || hi - lo > SPAN_MAX {
            continue;
        }
        if let Some(old) = &mut block.records[slot] {
            old.store.mem.disp = lo;
            old.store.bytes = (hi - lo) as u32;
        }
        return true;
    }
    false
}

/// Moves records up to where the flags are dead, as long as their addresses are known there.
fn hoist(block: &mut Basic) {
    for slot in 0..block.record_count {
        let Some(record) = block.records[slot] else { continue };
        // The dispatcher must evaluate a rare or masked store with the registers that the store sees: masks are not
        // general registers.
        let looked_at = matches!(record.store.shape, Shape::Rare | Shape::Masked);
        if block.dead[record.at].flags == STATUS || looked_at {
            continue;
        }
        let mut uses = record.store.mem.registers();
        if record.store.shape == Shape::Repeat {
            uses |= super::decode::REPEAT_REGISTERS;
        }
        let mut at = record.at;
        while at > 0 {
            let Some(insn) = &block.insns[at - 1] else { break };
            if insn.changes & uses != 0 || insn.kind != InsnKind::Plain {
                break;
            }
            at -= 1;
            if block.dead[at].flags == STATUS {
                if let Some(record) = &mut block.records[slot] {
                    record.at = at;
                }
                break;
            }
        }
    }
}
