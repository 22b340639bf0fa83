//! Machine code, byte by byte: the few forms that instrumentation and branches need.

use crate::recompiler::run::context::RSP;

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mem {
    pub(crate) base: Base,
    pub(crate) index: Option<u8>,
    /// 1, 2, 4 or 8.
    pub(crate) scale: u8,
    /// For [`Base::Rip`] the absolute address.
    pub(crate) disp: i64,
    /// 32-bit address arithmetic.
    pub(crate) narrow: bool,
    pub(crate) segment: AddressSegment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    None,
    Reg(u8),
    Rip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressSegment {
    Flat,
    Fs,
    Gs,
}

impl Mem {
    /// An absolute address below 2 GiB.
    pub(crate) fn low(addr: u32) -> Self {
        Self {
            base: Base::None,
            index: None,
            scale: 1,
            disp: addr.into(),
            narrow: false,
            segment: AddressSegment::Flat,
        }
    }

    /// General registers the address is made of.
    pub(crate) fn registers(&self) -> u16 {
        let base = if let Base::Reg(reg) = self.base { 1 << reg } else { 0 };
        base | self.index.map_or(0, |reg| 1 << reg)
    }
}

/// A part of the code cache that is being filled. `pos` and `end` are addresses where the code will run; the bytes
/// are written through the other mapping, `delta` away.
pub(crate) struct Code {
    pub(crate) base: usize,
    pub(crate) pos: usize,
    pub(crate) end: usize,
    pub(crate) delta: isize,
}

impl Code {
    pub(crate) fn free_bytes(&self) -> usize {
        self.end - self.pos
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.free_bytes(),
            "a stretch of the code cache is sized for its largest block"
        );
        // SAFETY: inside the part (asserted), whose writable mapping lies `delta` away.
        unsafe {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(self.pos.wrapping_add_signed(self.delta));
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.pos += bytes.len();
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Overwrites four bytes at `at`, emitted earlier.
    pub(crate) fn patch32(&mut self, at: usize, value: u32) {
        debug_assert!((self.base..self.pos).contains(&at));
        // SAFETY: inside the emitted code.
        unsafe {
            std::ptr::with_exposed_provenance_mut::<u32>(at.wrapping_add_signed(self.delta))
                .write_unaligned(value);
        }
    }

    /// An instruction `opcode` with a register (or opcode extension) and a memory operand.
    /// `tail` bytes of immediate follow.
    pub(crate) fn op_mem(&mut self, wide: bool, opcode: &[u8], reg: u8, mem: &Mem, tail: usize) {
        match mem.segment {
            AddressSegment::Flat => {}
            AddressSegment::Fs => self.bytes(&[0x64]),
            AddressSegment::Gs => self.bytes(&[0x65]),
        }
        if mem.narrow {
            self.bytes(&[0x67]);
        }
        let base = if let Base::Reg(reg) = mem.base { reg } else { 0 };
        let index = mem.index.unwrap_or(0);
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        if rex != 0x40 {
            self.bytes(&[rex]);
        }
        self.bytes(opcode);
        let reg = (reg & 7) << 3;
        let disp = mem.disp as i32;
        match (mem.base, mem.index) {
            (Base::Rip, _) => {
                self.bytes(&[reg | 5]);
                let next = self.pos + 4 + tail;
                self.u32(rel32(mem.disp as usize, next));
            }
            (Base::None, None) => {
                self.bytes(&[reg | 4, 0x25]);
                self.u32(disp as u32);
            }
            (Base::None, Some(index)) => {
                self.bytes(&[reg | 4, scale_bits(mem.scale) | (index & 7) << 3 | 5]);
                self.u32(disp as u32);
            }
            (Base::Reg(base), index) => {
                let (mode, bytes) = match disp {
                    0 if base & 7 != 5 => (0x00, 0),
                    -128..=127 => (0x40, 1),
                    _ => (0x80, 4),
                };
                if index.is_none() && base & 7 != RSP {
                    self.bytes(&[mode | reg | (base & 7)]);
                } else {
                    let index = index.map_or(4 << 3, |index| (index & 7) << 3);
                    self.bytes(&[mode | reg | 4, scale_bits(mem.scale) | index | (base & 7)]);
                }
                self.bytes(&disp.to_le_bytes()[..bytes]);
            }
        }
    }

    /// `mov [low], reg`
    pub(crate) fn store_low(&mut self, addr: u32, reg: u8) {
        self.op_mem(true, &[0x89], reg, &Mem::low(addr), 0);
    }

    /// `mov reg, [low]`
    pub(crate) fn load_low(&mut self, reg: u8, addr: u32) {
        self.op_mem(true, &[0x8b], reg, &Mem::low(addr), 0);
    }

    /// `mov dword [low], imm`
    pub(crate) fn store_low_imm(&mut self, addr: u32, value: u32) {
        self.op_mem(false, &[0xc7], 0, &Mem::low(addr), 4);
        self.u32(value);
    }

    /// As `store_low_imm`, to 8 bytes; below 2 GiB.
    pub(crate) fn store_low_imm_wide(&mut self, addr: u32, value: u32) {
        self.op_mem(true, &[0xc7], 0, &Mem::low(addr), 4);
        self.u32(value);
    }

    /// `jmp [low]`
    pub(crate) fn jump_low(&mut self, addr: u32) {
        self.op_mem(false, &[0xff], 4, &Mem::low(addr), 0);
    }

    /// An instruction with two registers, `opcode reg, rm`.
    pub(crate) fn op_reg(&mut self, wide: bool, opcode: &[u8], reg: u8, rm: u8) {
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | rm >> 3;
        if rex != 0x40 {
            self.bytes(&[rex]);
        }
        self.bytes(opcode);
        self.bytes(&[0xc0 | (reg & 7) << 3 | (rm & 7)]);
    }

    /// and/sub/cmp/... reg, imm by opcode extension (4 and, 5 sub, 7 cmp).
    pub(crate) fn op_imm(&mut self, wide: bool, extension: u8, reg: u8, value: i32) {
        if let Ok(value) = i8::try_from(value) {
            self.op_reg(wide, &[0x83], extension, reg);
            self.bytes(&value.to_le_bytes());
        } else {
            self.op_reg(wide, &[0x81], extension, reg);
            self.bytes(&value.to_le_bytes());
        }
    }

    /// A jump or call with a 32-bit displacement; `opcode` without it.
    pub(crate) fn relative(&mut self, opcode: &[u8], target: usize) {
        self.bytes(opcode);
        let next = self.pos + 4;
        self.u32(rel32(target, next));
    }

    /// As `relative`, to be patched later: returns where the displacement lies.
    pub(crate) fn relative_later(&mut self, opcode: &[u8]) -> usize {
        self.bytes(opcode);
        self.u32(0);
        self.pos - 4
    }

    /// Makes the displacement at `site` point to `target`.
    pub(crate) fn patch_relative(&mut self, site: usize, target: usize) {
        self.patch32(site, rel32(target, site + 4));
    }

    /// Instruction with a RIP-relative operand (`opcode` with its ModRM byte), no immediate.
    pub(crate) fn rip(&mut self, opcode: &[u8], addr: usize) {
        self.relative(opcode, addr);
    }
}

/// True if a 32-bit displacement reaches.
pub(crate) fn reaches(target: usize, from: usize) -> bool {
    let delta = target.wrapping_sub(from) as isize;
    delta as i32 as isize == delta
}

fn rel32(target: usize, next: usize) -> u32 {
    assert!(reaches(target, next), "the code cache lies within 2 GiB of what it refers to");
    target.wrapping_sub(next) as u32
}

fn scale_bits(scale: u8) -> u8 {
    (scale.trailing_zeros() as u8) << 6
}
