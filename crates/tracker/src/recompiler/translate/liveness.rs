//! Liveness: which registers and flags are never read again.

use super::decode::{Insn, InsnKind, STATUS, analyse, decode};
use crate::recompiler::code_cache::proc_maps::Maps;
use crate::recompiler::run::context::RSP;
use iced_x86::InstructionInfoFactory;

/// How far ahead to look.
const LOOKAHEAD_MAX: usize = 24;

/// General registers and flags that are surely overwritten before they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dead {
    pub(crate) registers: u16,
    pub(crate) flags: u32,
}

/// Nothing is known to be dead.
pub(crate) const NOTHING: Dead = Dead { registers: 0, flags: 0 };

impl Dead {
    pub(crate) fn both(self, other: Self) -> Self {
        Self { registers: self.registers & other.registers, flags: self.flags & other.flags }
    }

    /// What is dead before `insn`, if this is dead after it.
    pub(crate) fn before(self, insn: &Insn) -> Self {
        Self {
            registers: (self.registers | insn.kills) & !insn.reads & !(1 << RSP),
            flags: (self.flags | insn.flags_killed) & !insn.flags_read,
        }
    }
}

/// The effects of the straight-line code at some address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) dead: Dead,
    /// Flags that it reads before it sets them.
    pub(crate) flags_read: u32,
}

/// What is dead at `pc`: looks along the straight-line code there, over jumps and into called functions, up to the
/// first branch or indirect jump.
///
/// Registers that were not overwritten on the way are live, whatever the calling convention says. Flags do not
/// survive a call or a return (System V ABI) unless `flags_cross` is set: the translator checks the code at both
/// ends of every call, and sets it as soon as some code passes flags.
pub(crate) fn look_ahead(
    pc: usize,
    maps: &Maps,
    factory: &mut InstructionInfoFactory,
    flags_cross: bool,
) -> Ahead {
    let mut pc = pc;
    let (mut read, mut flags_read) = (0u16, 0u32);
    let mut dead = NOTHING;
    for _ in 0..LOOKAHEAD_MAX {
        if !maps.find(pc).is_some_and(|mapping| mapping.execute && mapping.read && !mapping.write) {
            break;
        }
        // SAFETY: the mapping is readable.
        let raw = unsafe { decode(pc, maps) }.raw;
        if raw.is_invalid() {
            break;
        }
        let insn = analyse(&raw, factory, true);
        flags_read |= insn.flags_read & !dead.flags;
        read |= insn.reads & !dead.registers;
        match insn.kind {
            InsnKind::Plain => {
                dead.registers |= insn.kills & !read;
                dead.flags |= insn.flags_killed & !flags_read;
                pc = raw.next_ip() as usize;
            }
            InsnKind::Jump => pc = raw.near_branch_target() as usize,
            InsnKind::Call if !flags_cross => {
                dead.flags |= STATUS & !flags_read;
                pc = raw.near_branch_target() as usize;
            }
            InsnKind::Return | InsnKind::IndirectCall if !flags_cross => {
                dead.flags |= STATUS & !flags_read;
                break;
            }
            _ => break,
        }
        if dead.flags == STATUS && dead.registers.count_ones() >= 3 {
            break;
        }
    }
    dead.registers &= !(1 << RSP);
    Ahead { dead, flags_read }
}
