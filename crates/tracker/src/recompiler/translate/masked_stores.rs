//! Stores whose bytes depend on more than an address: masks, counts, directions, state areas.

use super::decode::{compresses, decode, element_bytes, gpr, is_bit_string};
use crate::recompiler::run::context::{RAX, RCX, RDI, RDX, RSP, context};
use crate::recompiler::run::raw_syscall::syscall;
use crate::recompiler::state::RecompilerState;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::sync::OnceLock;

const DIRECTION_FLAG: u64 = 1 << 10;
/// Offsets in the standard form of an XSAVE area (Intel SDM volume 1, chapter 13).
const XMM: usize = 160;
const HEADER: usize = 512;
const HEADER_BYTES: usize = 64;
const AVX: u32 = 2;
const OPMASK: u32 = 5;
const ZMM_HI256: u32 = 6;
const HI16_ZMM: u32 = 7;

impl RecompilerState {
    /// Records what the masked store at `pc` is about to write from `addr` on.
    pub(crate) fn record_masked_at(&mut self, pc: usize, addr: usize) {
        // SAFETY: the instruction was translated from there.
        let raw = unsafe { decode(pc, &self.maps) }.raw;
        self.record_masked(&raw, addr);
    }

    /// Records what the instruction at `pc` is about to store.
    pub(crate) fn record_rare(&mut self, pc: usize) {
        // SAFETY: the instruction was translated from there.
        let raw = unsafe { decode(pc, &self.maps) }.raw;
        use Mnemonic as M;
        match raw.mnemonic() {
            M::Enter => {
                let level = usize::from(raw.immediate8_2nd() & 31);
                let bytes = 8 * (1 + level);
                self.record((self.register(RSP) as usize).wrapping_sub(bytes), bytes);
            }
            _ if raw.is_string_instruction() => self.record_string(&raw),
            M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => self.record_mask_bytes(&raw),
            M::Vmaskmovps | M::Vpmaskmovd => self.record_sign_mask(&raw, 4),
            M::Vmaskmovpd | M::Vpmaskmovq => self.record_sign_mask(&raw, 8),
            M::Clzero => self.record(self.register(RAX) as usize & !63, 64),
            M::Xsave | M::Xsave64 | M::Xsaveopt | M::Xsaveopt64 => self.record_state_area(&raw, false),
            M::Xsavec | M::Xsavec64 => self.record_state_area(&raw, true),
            // The rest of the 512 bytes belongs to software.
            M::Fxsave | M::Fxsave64 => self.record(self.address(&raw), 416),
            _ if raw.is_vsib() => self.record_scatter(&raw),
            _ if raw.op_mask() != Register::None => self.record_masked(&raw, self.address(&raw)),
            _ if is_bit_string(&raw) => self.record_bit_string(&raw),
            _ => {
                let bytes = raw.memory_size().size();
                self.record(self.address(&raw), bytes);
            }
        }
    }

    fn record_string(&mut self, raw: &Instruction) {
        let narrow = raw.op0_kind() == OpKind::MemoryESEDI;
        let width = if narrow { u64::from(u32::MAX) } else { u64::MAX };
        let size = element_bytes(raw) as usize;
        let count =
            if raw.has_rep_prefix() || raw.has_repne_prefix() { self.register(RCX) & width } else { 1 };
        let bytes = count as usize * size;
        let mut addr = (self.register(RDI) & width) as usize;
        if bytes == 0 {
            return;
        }
        // SAFETY: the context is mapped.
        if unsafe { (*context()).flags } & DIRECTION_FLAG != 0 {
            addr = addr.wrapping_sub(bytes - size);
        }
        self.record(addr, bytes);
    }

    /// maskmov: bytes whose mask byte has its high bit set, at rdi.
    fn record_mask_bytes(&mut self, raw: &Instruction) {
        let mask = raw.op_register(2);
        let mut addr = self.register(RDI) as usize;
        if raw.op0_kind() == OpKind::MemorySegEDI {
            addr &= u32::MAX as usize;
        }
        addr = addr.wrapping_add(self.segment_base(raw.segment_prefix()));
        let lanes = if raw.mnemonic() == Mnemonic::Maskmovq { 8 } else { 16 };
        for lane in 0..lanes {
            let set =
                if lanes == 8 { self.mmx_byte(mask, lane) } else { self.vector_bytes(mask, lane, 1) } & 0x80;
            if set != 0 {
                self.record(addr + lane, 1);
            }
        }
    }

    fn record_sign_mask(&mut self, raw: &Instruction, size: usize) {
        let addr = self.address(raw);
        let mask = raw.op1_register();
        for lane in 0..raw.memory_size().size() / size {
            if self.vector_bytes(mask, lane * size, size) >> (size * 8 - 1) != 0 {
                self.record(addr + lane * size, size);
            }
        }
    }

    /// A store under an opmask. Compressing ones write as many elements as bits are set.
    fn record_masked(&mut self, raw: &Instruction, addr: usize) {
        let size = raw.memory_size().element_size().max(1);
        let lanes = raw.memory_size().size() / size;
        let mask = self.opmask(raw.op_mask());
        if compresses(raw) {
            let set = (mask & low_bits(lanes)).count_ones() as usize;
            return self.record(addr, set * size);
        }
        for lane in (0..lanes).filter(|lane| mask >> lane & 1 != 0) {
            self.record(addr + lane * size, size);
        }
    }

    /// bts, btr, btc with the bit's number in a register. The number is signed and counts from the operand on, in
    /// words of its size.
    fn record_bit_string(&mut self, raw: &Instruction) {
        let bytes = raw.memory_size().size();
        let number = gpr(raw.op1_register()).map_or(0, |reg| self.register(reg));
        let number = match bytes {
            2 => i64::from(number as i16),
            4 => i64::from(number as i32),
            _ => number as i64,
        };
        let bits = bytes as i64 * 8;
        self.record(self.address_plus(raw, number.div_euclid(bits) * bytes as i64), bytes);
    }

    fn record_scatter(&mut self, raw: &Instruction) {
        use Mnemonic as M;
        let index = raw.memory_index();
        let index_bytes = match raw.mnemonic() {
            M::Vpscatterdd | M::Vpscatterdq | M::Vscatterdps | M::Vscatterdpd => 4,
            _ => 8,
        };
        let size = raw.memory_size().size();
        let data = raw.op1_register();
        let lanes = (index.size() / index_bytes).min(data.size() / size);
        let mask = self.opmask(raw.op_mask());
        let base = gpr(raw.memory_base()).map_or(0, |reg| self.register(reg));
        let base = base.wrapping_add(raw.memory_displacement64()) as usize;
        let segment = self.segment_base(raw.segment_prefix());
        for lane in (0..lanes).filter(|lane| mask >> lane & 1 != 0) {
            let value = self.vector_bytes(index, lane * index_bytes, index_bytes);
            let value = if index_bytes == 4 { i64::from(value as i32) } else { value as i64 };
            let addr = base.wrapping_add_signed(value as isize * raw.memory_index_scale() as isize);
            let addr = if raw.memory_base().is_gpr32() { addr & 0xffff_ffff } else { addr };
            self.record(addr.wrapping_add(segment), size);
        }
    }

    /// The xsave family: the legacy part, the header, and the requested components.
    fn record_state_area(&mut self, raw: &Instruction, compact: bool) {
        let addr = self.address(raw);
        let enabled = xcr0();
        let wanted = (self.register(RDX) << 32 | self.register(RAX) & 0xffff_ffff) & enabled;
        self.record(addr, HEADER);
        self.record(addr + HEADER, HEADER_BYTES);
        let mut next = HEADER + HEADER_BYTES;
        for component in 2..63u32 {
            if wanted >> component & 1 == 0 {
                continue;
            }
            let StateComponent { offset, bytes, is_aligned } = state_component(component);
            if compact && is_aligned {
                next = next.next_multiple_of(64);
            }
            self.record(addr + if compact { next } else { offset }, bytes);
            next += bytes;
        }
    }

    /// Effective address of the instruction's memory operand.
    fn address(&self, raw: &Instruction) -> usize {
        self.address_plus(raw, 0)
    }

    /// The same, `offset` bytes further.
    fn address_plus(&self, raw: &Instruction, offset: i64) -> usize {
        if raw.is_ip_rel_memory_operand() {
            return (raw.ip_rel_memory_address() as usize)
                .wrapping_add_signed(offset as isize)
                .wrapping_add(self.segment_base(raw.segment_prefix()));
        }
        let base = gpr(raw.memory_base()).map_or(0, |reg| self.register(reg));
        let index = gpr(raw.memory_index()).map_or(0, |reg| self.register(reg));
        let sum = base
            .wrapping_add(index.wrapping_mul(u64::from(raw.memory_index_scale())))
            .wrapping_add(raw.memory_displacement64())
            .wrapping_add_signed(offset);
        let narrow = raw.memory_base().is_gpr32() || raw.memory_index().is_gpr32();
        let mut sum = if narrow { sum & 0xffff_ffff } else { sum };
        match raw.mnemonic() {
            // The stack pointer moves first.
            Mnemonic::Pop if raw.memory_base() == Register::RSP => sum = sum.wrapping_add(8),
            Mnemonic::Push | Mnemonic::Call => return (self.register(RSP) as usize).wrapping_sub(8),
            // movdir64b: the address is in a register.
            Mnemonic::Movdir64b => sum = gpr(raw.op0_register()).map_or(0, |reg| self.register(reg)),
            _ => {}
        }
        (sum as usize).wrapping_add(self.segment_base(raw.segment_prefix()))
    }

    fn segment_base(&self, segment: Register) -> usize {
        match segment {
            // SAFETY: the context is mapped.
            Register::FS => unsafe { (*context()).fs_base as usize },
            Register::GS => {
                const ARCH_GET_GS: u64 = 0x1004;
                let mut base = 0usize;
                let to = std::ptr::from_mut(&mut base).expose_provenance() as u64;
                // SAFETY: writes the base into our variable.
                unsafe { syscall(libc::SYS_arch_prctl, [ARCH_GET_GS, to, 0, 0, 0, 0]) };
                base
            }
            _ => 0,
        }
    }

    /// `size` bytes (up to 8) at `offset` of a vector register of the program.
    fn vector_bytes(&self, register: Register, offset: usize, size: usize) -> u64 {
        let number = register.number();
        let (component, at) = match offset {
            _ if number >= 16 => (HI16_ZMM, (number - 16) * 64 + offset),
            0..16 => (1, XMM + number * 16 + offset),
            16..32 => (AVX, number * 16 + offset - 16),
            _ => (ZMM_HI256, number * 32 + offset - 32),
        };
        self.state_bytes(component, at, size)
    }

    fn mmx_byte(&self, register: Register, offset: usize) -> u64 {
        self.state_bytes(0, 32 + register.number() * 16 + offset, 1)
    }

    fn opmask(&self, register: Register) -> u64 {
        if register == Register::None { u64::MAX } else { self.state_bytes(OPMASK, register.number() * 8, 8) }
    }

    /// Reads the area that the dispatcher saved. A component in its initial state is all zeros there.
    fn state_bytes(&self, component: u32, at: usize, size: usize) -> u64 {
        let offset = state_component(component).offset;
        let mut bytes = [0u8; 8];
        // SAFETY: inside the area, whose size is that of all components.
        unsafe {
            let area = std::ptr::with_exposed_provenance::<u8>((*context()).xsave_area as usize);
            let in_use = area.add(HEADER).cast::<u64>().read();
            if in_use >> component & 1 == 0 {
                return 0;
            }
            std::ptr::copy_nonoverlapping(area.add(offset + at), bytes.as_mut_ptr(), size);
        }
        u64::from_le_bytes(bytes)
    }
}

fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Where an XSAVE area has a component of the processor's state.
#[derive(Clone, Copy, Default)]
struct StateComponent {
    /// From the start of an area in standard form.
    offset: usize,
    bytes: usize,
    /// In compact form it begins at a multiple of 64.
    is_aligned: bool,
}

/// Asks the CPU once: in a virtual machine each question goes to its host, and takes as long as thousands of stores.
fn state_component(component: u32) -> StateComponent {
    static COMPONENTS: OnceLock<[StateComponent; 64]> = OnceLock::new();
    let components = COMPONENTS.get_or_init(|| {
        let enabled = xcr0();
        std::array::from_fn(|component| {
            // The first two lie in the legacy part.
            if component < 2 || enabled >> component & 1 == 0 {
                return StateComponent::default();
            }
            let leaf = cpuid(0xd, component as u32);
            StateComponent {
                offset: leaf.ebx as usize,
                bytes: leaf.eax as usize,
                is_aligned: leaf.ecx & 2 != 0,
            }
        })
    });
    components[component as usize]
}

/// Learns what [`state_component`] tells, outside of commands.
pub(crate) fn learn_state_components() {
    state_component(0);
}

/// The standard library's function is unsafe in some of the compilers that build this, and safe in others.
const CPUID: unsafe fn(u32, u32) -> CpuidResult = __cpuid_count;

/// A part of a leaf of CPUID.
pub(crate) fn cpuid(leaf: u32, part: u32) -> CpuidResult {
    // SAFETY: every x86-64 CPU has the instruction, and it changes nothing.
    unsafe { CPUID(leaf, part) }
}

/// State components that the operating system has enabled.
pub(crate) fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE was checked before the recompiler was made.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
    };
    u64::from(high) << 32 | u64::from(low)
}
