//! Which registers and flags nobody will read.

use super::context::RSP;
use super::decode::{Insn, Kind, STATUS, analyse, decode};
use super::maps::Maps;
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

/// What the straight code at some address does first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead {
    pub(crate) dead: Dead,
    /// Flags that it reads as it finds them.
    pub(crate) flags_read: u32,
}

/// What is dead at `pc`: looks along the straight code there, over jumps and into called functions, up to the
/// first branch or indirect jump.
///
/// Registers that were not overwritten on the way are alive, whatever the calling convention says. Flags do
/// not survive a call or a return (System V ABI) unless `flags_cross`: the translator checks the code at both
/// ends of every call, and sets that as soon as some code does otherwise.
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
            Kind::Plain => {
                dead.registers |= insn.kills & !read;
                dead.flags |= insn.flags_killed & !flags_read;
                pc = raw.next_ip() as usize;
            }
            Kind::Jump => pc = raw.near_branch_target() as usize,
            Kind::Call if !flags_cross => {
                dead.flags |= STATUS & !flags_read;
                pc = raw.near_branch_target() as usize;
            }
            Kind::Return | Kind::IndirectCall if !flags_cross => {
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
