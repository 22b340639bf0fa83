//! One instruction: its registers, its flags, its stores.

use super::emit::{AddressSegment, Base, Mem};
use crate::recompiler::code_cache::proc_maps::Maps;
use crate::recompiler::run::context::{RCX, RDI, RSP};
use iced_x86::{
    Code, CodeSize, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register, RflagsBits, UsedMemory,
};

/// The arithmetic flags.
pub(crate) const STATUS: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;

/// How many stores of one instruction are handled separately. An instruction with more is a rare one.
pub(crate) const STORES_MAX: usize = 2;

/// Bytes that a translated instruction reads at most.
const INSTRUCTION_BYTES_MAX: usize = 15;

/// A decoded instruction.
#[derive(Clone, Copy)]
pub(crate) struct Insn {
    pub(crate) raw: Instruction,
    /// Where in its bytes the displacement of a memory operand lies.
    pub(crate) disp_offset: u8,
    /// Its first byte in the program: in memory a debugger's breakpoint may cover it.
    pub(crate) first_byte: u8,
    /// General registers read; overwritten in full; changed at all.
    pub(crate) reads: u16,
    pub(crate) kills: u16,
    pub(crate) changes: u16,
    /// Arithmetic flags read and surely overwritten.
    pub(crate) flags_read: u32,
    pub(crate) flags_killed: u32,
    pub(crate) stores: [Option<InsnStore>; STORES_MAX],
    pub(crate) kind: InsnKind,
}

/// A store as its instruction addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InsnStore {
    pub(crate) mem: Mem,
    pub(crate) bytes: u32,
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Always `bytes` bytes.
    Plain,
    /// Some of them: a masked store.
    Masked,
    /// rep movs / rep stos: rcx elements of `bytes` bytes upwards from rdi.
    Repeat,
    /// Worked out by the dispatcher, which has all registers.
    Rare,
}

/// How the instruction is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsnKind {
    /// It is copied.
    Plain,
    /// It changes rsp to something that may lie on another stack.
    SwitchesStack,
    /// It ends a block.
    Jump,
    Branch,
    /// jrcxz, loop: they have no long form.
    ShortBranch,
    Call,
    IndirectJump,
    IndirectCall,
    Return,
    Syscall,
    /// xbegin: aborts at once.
    TransactionBegin,
    /// ud2, int3, hlt...: faults.
    Trap,
    /// It cannot be run translated; why.
    Refused(&'static str),
}

/// Number of a general register (of any width), if it is one.
pub(crate) fn gpr(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| (full as u32 - Register::RAX as u32) as u8)
}

/// An instruction as the program has it.
pub(crate) struct Decoded {
    pub(crate) raw: Instruction,
    pub(crate) disp_offset: u8,
    pub(crate) first_byte: u8,
}

/// Decodes the instruction at `pc` as the program has it. A debugger's breakpoint over its first byte is not part
/// of it, and a copy of the breakpoint in the code cache would mean nothing to the debugger.
///
/// # Safety
/// `pc` must be readable, and so must the rest of its page.
pub(crate) unsafe fn decode(pc: usize, maps: &Maps) -> Decoded {
    const BREAKPOINT: u8 = 0xcc;
    let left = 4096 - (pc & 4095);
    let len = match maps.find((pc | 4095) + 1) {
        Some(next_page) if next_page.read => INSTRUCTION_BYTES_MAX,
        _ => INSTRUCTION_BYTES_MAX.min(left),
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(pc), len) };
    let mut whole = [0; INSTRUCTION_BYTES_MAX];
    whole[..len].copy_from_slice(bytes);
    if whole[0] == BREAKPOINT {
        whole[0] = maps.byte_in_file(pc).unwrap_or(BREAKPOINT);
    }
    let mut decoder = Decoder::with_ip(64, &whole[..len], pc as u64, DecoderOptions::NONE);
    let raw = decoder.decode();
    let disp_offset = decoder.get_constant_offsets(&raw).displacement_offset() as u8;
    Decoded { raw, disp_offset, first_byte: whole[0] }
}

/// Works out everything about `raw`. `direction_known`: no code seen so far ever sets the direction flag.
pub(crate) fn analyse(
    raw: &Instruction,
    factory: &mut InstructionInfoFactory,
    direction_known: bool,
) -> Insn {
    let mut insn = Insn {
        raw: *raw,
        disp_offset: 0,
        first_byte: 0,
        reads: 0,
        kills: 0,
        changes: 0,
        flags_read: raw.rflags_read() & STATUS,
        flags_killed: raw.rflags_modified() & STATUS,
        stores: [None; STORES_MAX],
        kind: kind(raw),
    };
    if may_leave_flags(raw) {
        insn.flags_killed = 0;
    }
    if raw.mnemonic() == Mnemonic::Enter {
        // Its many stores go below rsp; `info` would list all of them.
        insn.reads = 1 << RSP | 1 << 5;
        insn.changes = 1 << RSP | 1 << 5;
        insn.stores[0] = Some(InsnStore { mem: stack_top(), bytes: 8, shape: Shape::Rare });
        return insn;
    }
    let info = factory.info(raw);
    for used in info.used_registers() {
        let Some(reg) = gpr(used.register()) else { continue };
        let bit = 1 << reg;
        match used.access() {
            OpAccess::Write if used.register().size() >= 4 => {
                insn.kills |= bit;
                insn.changes |= bit;
            }
            OpAccess::None | OpAccess::NoMemAccess => {}
            OpAccess::Read | OpAccess::CondRead => insn.reads |= bit,
            _ => {
                insn.reads |= bit;
                insn.changes |= bit;
            }
        }
    }
    let rare = is_rare(raw, direction_known);
    let mut count = 0;
    for used in info.used_memory() {
        let writes = matches!(
            used.access(),
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        );
        if !writes || count == STORES_MAX {
            continue;
        }
        insn.stores[count] = Some(store(raw, used, rare));
        count += 1;
    }
    let is_known = |store: &InsnStore| store.bytes != 0 || rare || raw.is_string_instruction();
    if !insn.stores.iter().flatten().all(is_known) {
        insn.kind = InsnKind::Refused("it runs an instruction whose writes the recompiler does not know");
    }
    if rare && count == 0 {
        insn.stores[0] = Some(InsnStore { mem: Mem::low(0), bytes: 8, shape: Shape::Rare });
    }
    insn
}

/// Shifts and repeated string instructions leave the flags unchanged when their count is 0.
fn may_leave_flags(raw: &Instruction) -> bool {
    let shifts = matches!(
        raw.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Sal
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd
    );
    shifts || (raw.is_string_instruction() && (raw.has_rep_prefix() || raw.has_repne_prefix()))
}

fn stack_top() -> Mem {
    Mem { base: Base::Reg(RSP), index: None, scale: 1, disp: 0, narrow: false, segment: AddressSegment::Flat }
}

fn store(raw: &Instruction, used: &UsedMemory, rare: bool) -> InsnStore {
    let mut base = used.base().full_register();
    if raw.is_ip_rel_memory_operand() && (base == Register::None || base == Register::RIP) {
        base = Register::RIP;
    }
    let segment = match used.segment() {
        Register::FS => AddressSegment::Fs,
        Register::GS => AddressSegment::Gs,
        _ => AddressSegment::Flat,
    };
    let narrow = used.address_size() == CodeSize::Code32;
    let mut disp = used.displacement() as i64;
    if narrow && base != Register::RIP {
        disp = i64::from(disp as i32);
    }
    let mem = Mem {
        base: if base == Register::RIP { Base::Rip } else { gpr(base).map_or(Base::None, Base::Reg) },
        index: gpr(used.index()),
        scale: used.scale() as u8,
        disp,
        narrow: narrow && base != Register::RIP,
        segment,
    };
    let bytes = used.memory_size().size() as u32;
    let repeated = raw.is_string_instruction() && (raw.has_rep_prefix() || raw.has_repne_prefix());
    let far = mem.base == Base::None && i32::try_from(mem.disp).is_err();
    let shape = if rare
        || far
        || (bytes == 0 && !repeated)
        || bytes > 64
        || segment == AddressSegment::Gs
        || used.index().is_vector_register()
    {
        Shape::Rare
    } else if repeated {
        Shape::Repeat
    } else if matches!(used.access(), OpAccess::CondWrite) && raw.op_mask() != Register::None {
        Shape::Masked
    } else {
        Shape::Plain
    };
    if shape == Shape::Repeat {
        let mem = Mem { base: Base::Reg(RDI), ..stack_top() };
        return InsnStore { mem, bytes: element_bytes(raw), shape: if narrow { Shape::Rare } else { shape } };
    }
    InsnStore { mem, bytes, shape }
}

/// Bytes of one element of a string instruction.
pub(crate) fn element_bytes(raw: &Instruction) -> u32 {
    match raw.mnemonic() {
        Mnemonic::Movsb | Mnemonic::Stosb | Mnemonic::Insb => 1,
        Mnemonic::Movsw | Mnemonic::Stosw | Mnemonic::Insw => 2,
        Mnemonic::Movsd | Mnemonic::Stosd | Mnemonic::Insd => 4,
        _ => 8,
    }
}

/// Stores that only the dispatcher can work out.
fn is_rare(raw: &Instruction, direction_known: bool) -> bool {
    use Mnemonic as M;
    if raw.is_string_instruction() && !direction_known {
        return matches!(raw.mnemonic(), M::Movsb | M::Movsw | M::Movsd | M::Movsq)
            || matches!(raw.mnemonic(), M::Stosb | M::Stosw | M::Stosd | M::Stosq);
    }
    matches!(
        raw.mnemonic(),
        M::Xsave
            | M::Xsave64
            | M::Xsavec
            | M::Xsavec64
            | M::Xsaveopt
            | M::Xsaveopt64
            | M::Fxsave
            | M::Fxsave64
            | M::Maskmovq
            | M::Maskmovdqu
            | M::Vmaskmovdqu
            | M::Clzero
            | M::Fnsave
            | M::Fnstenv
    ) || is_bit_string(raw)
        || (raw.op0_kind() == OpKind::Memory && stores_by_mask(raw))
}

/// Loads and moves between registers share these mnemonics.
fn stores_by_mask(raw: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(raw.mnemonic(), M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq)
        || (raw.op_mask() != Register::None && compresses(raw))
}

/// bts, btr, btc whose bit may lie anywhere around the operand.
pub(crate) fn is_bit_string(raw: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(raw.mnemonic(), M::Bts | M::Btr | M::Btc)
        && raw.op0_kind() == OpKind::Memory
        && raw.op1_kind() == OpKind::Register
}

/// vpcompress*: how far it writes depends on how many mask bits are set.
pub(crate) fn compresses(raw: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        raw.mnemonic(),
        M::Vpcompressb | M::Vpcompressw | M::Vpcompressd | M::Vpcompressq | M::Vcompressps | M::Vcompresspd
    )
}

fn kind(raw: &Instruction) -> InsnKind {
    use Mnemonic as M;
    if raw.is_invalid() {
        return InsnKind::Refused("it runs an instruction that the recompiler does not know");
    }
    if let Some(why) = refused(raw) {
        return InsnKind::Refused(why);
    }
    match raw.flow_control() {
        FlowControl::Next if switches_stack(raw) => InsnKind::SwitchesStack,
        FlowControl::Next => InsnKind::Plain,
        FlowControl::UnconditionalBranch => InsnKind::Jump,
        FlowControl::ConditionalBranch if raw.is_jcc_short_or_near() => InsnKind::Branch,
        FlowControl::ConditionalBranch => InsnKind::ShortBranch,
        FlowControl::Call if raw.mnemonic() == M::Syscall => InsnKind::Syscall,
        FlowControl::Call => InsnKind::Call,
        FlowControl::IndirectBranch => InsnKind::IndirectJump,
        FlowControl::IndirectCall => InsnKind::IndirectCall,
        FlowControl::Return => InsnKind::Return,
        FlowControl::XbeginXabortXend if raw.mnemonic() == M::Xbegin => InsnKind::TransactionBegin,
        _ => InsnKind::Trap,
    }
}

fn refused(raw: &Instruction) -> Option<&'static str> {
    use Mnemonic as M;
    Some(match raw.mnemonic() {
        M::Sysenter | M::Int => "it uses a 32-bit system call, which the recompiler does not follow",
        M::Wrfsbase => "it changes the thread pointer (wrfsbase)",
        M::Tilestored => "it stores matrix tiles (AMX), which the recompiler does not follow",
        M::Rstorssp | M::Saveprevssp | M::Wrssd | M::Wrssq | M::Setssbsy | M::Clrssbsy => {
            "it changes a hardware shadow stack (CET), which the recompiler does not follow"
        }
        M::Enqcmd | M::Enqcmds => "it submits work to a device (enqcmd), whose writes nobody sees",
        M::Iret | M::Iretd | M::Iretq | M::Retf | M::Sysexit | M::Sysret => "it returns across segments",
        M::Senduipi | M::Uiret => "it uses user interrupts",
        M::Jmp | M::Call
            if matches!(raw.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32)
                || matches!(raw.code(), Code::Jmp_m1616 | Code::Jmp_m1632 | Code::Jmp_m1664)
                || matches!(raw.code(), Code::Call_m1616 | Code::Call_m1632 | Code::Call_m1664) =>
        {
            "it jumps across segments"
        }
        M::Mov
            if raw.op0_kind() == OpKind::Register
                && matches!(raw.op0_register(), Register::FS | Register::GS) =>
        {
            "it loads a segment register"
        }
        _ => return None,
    })
}

/// True unless the new rsp is the old one plus a constant, aligned, or less something.
fn switches_stack(raw: &Instruction) -> bool {
    use Mnemonic as M;
    let op =
        |idx: u32| if raw.op_kind(idx) == OpKind::Register { raw.op_register(idx) } else { Register::None };
    let is_rsp = |register: Register| register.full_register() == Register::RSP;
    match raw.mnemonic() {
        M::Leave => true,
        M::Lea => {
            is_rsp(op(0)) && (raw.memory_base() != Register::RSP || raw.memory_index() != Register::None)
        }
        M::Mov | M::Pop | M::Movq | M::Cmovne | M::Cmove | M::Cmova | M::Cmovae | M::Cmovb | M::Cmovbe => {
            is_rsp(op(0))
        }
        M::Cmovl | M::Cmovle | M::Cmovg | M::Cmovge | M::Cmovs | M::Cmovns => is_rsp(op(0)),
        M::Cmovp | M::Cmovnp | M::Cmovo | M::Cmovno => is_rsp(op(0)),
        // A subtraction only allocates on the same stack (alloca).
        M::Add => is_rsp(op(0)) && (op(1) != Register::None || raw.op1_kind() == OpKind::Memory),
        M::Xchg | M::Xadd => is_rsp(op(0)) || is_rsp(op(1)),
        _ => false,
    }
}

/// The registers that a rep string instruction uses.
pub(crate) const REPEAT_REGISTERS: u16 = 1 << RCX | 1 << RDI;
