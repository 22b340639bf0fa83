//! Instructions by class: every general register as base and as index, every width, with live flags.
//!
//! The test functions are generated as assembly. Each sets flags and all registers, executes one store, and saves
//! all registers and flags. Run natively and translated, it must leave the same state, and every byte that changed
//! must be reported.

use super::library::{Library, compile, scratch};
use mangrove_tracker::{Tracker, WriteSet};
use std::fmt::Write;

const REGISTERS: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];
const RSP: usize = 4;

/// Stores; `M` is the memory operand, `Q D W B` a source register in its four widths.
const STORES: [&str; 38] = [
    "mov byte ptr M, B",
    "mov word ptr M, W",
    "mov dword ptr M, D",
    "mov qword ptr M, Q",
    "mov dword ptr M, 0x12345678",
    "mov qword ptr M, -7",
    "add qword ptr M, Q",
    "sub dword ptr M, 5",
    "adc word ptr M, W",
    "sbb byte ptr M, B",
    "xor qword ptr M, 0x55",
    "inc dword ptr M",
    "neg word ptr M",
    "not byte ptr M",
    "shl qword ptr M, 3",
    "shr dword ptr M, cl",
    "rol word ptr M, 5",
    "lock xadd dword ptr M, D",
    "lock cmpxchg qword ptr M, Q",
    "xchg byte ptr M, B",
    "lock bts qword ptr M, 7",
    "bts qword ptr M, Q",
    "lock btr dword ptr M, D",
    "btc word ptr M, W",
    "setc byte ptr M",
    "sete byte ptr M",
    "movups xmmword ptr M, xmm3",
    "movss dword ptr M, xmm5",
    "movsd qword ptr M, xmm6",
    "movhps qword ptr M, xmm7",
    "movnti qword ptr M, Q",
    "pextrw word ptr M, xmm2, 3",
    "fst qword ptr M",
    "fstp tbyte ptr M",
    "movbe dword ptr M, D",
    "fnstcw word ptr M",
    "stmxcsr dword ptr M",
    "mov word ptr M, 0x1234",
];

/// A store to several blocks, for CPUs that have it.
const WIDE: &str = "vpternlogd zmm16, zmm16, zmm16, 0xff\nvmovdqu64 zmmword ptr M, zmm16";

/// Bytes of the buffer that the stores go to.
const BUFFER_BYTES: usize = 4096;

/// The generated functions.
pub(crate) struct Instructions {
    library: Library,
    /// Describes each function in a line.
    pub(crate) lines: Vec<String>,
}

impl Instructions {
    /// Generates and assembles. `dense`: every store with every pair of registers.
    pub(crate) fn new(dense: bool) -> Result<Self, String> {
        let mut text = String::from(".intel_syntax noprefix\n.text\n");
        let mut lines = Vec::new();
        let wide = std::is_x86_feature_detected!("avx512f").then_some(&WIDE);
        for (base, names) in REGISTERS.iter().enumerate() {
            for index in (0..16).map(Some).chain([None]) {
                if index == Some(RSP) {
                    continue;
                }
                for (number, store) in STORES.iter().chain(wide).enumerate() {
                    let turn = base * 17 + index.unwrap_or(16);
                    if dense || number % 6 == turn % 6 {
                        emit(&mut text, lines.len(), base, index, store);
                        lines.push(format!(
                            "{store} base {} index {:?}",
                            names[0],
                            index.map(|i| REGISTERS[i][0])
                        ));
                    }
                }
            }
        }
        text.push_str(".bss\n.balign 64\n.globl results\nresults: here: .zero 256\n");
        text.push_str("saved: .zero 8\nplace: .zero 8\nhalf: .zero 8\n");
        text.push_str(".section .note.GNU-stack,\"\",@progbits\n");
        let source = scratch().join("instructions.s");
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        Ok(Self { library: compile("cc", &source, &[])?, lines })
    }

    /// Runs every function natively and tracked; returns what went wrong. Once its bytes are noted as blocks, and once
    /// exactly.
    pub(crate) fn check(&self, tracker: &dyn Tracker) -> Vec<String> {
        let mut wrong = self.check_way(tracker, false);
        wrong.extend(self.check_way(tracker, true));
        wrong
    }

    fn check_way(&self, tracker: &dyn Tracker, exactly: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let results = self.library.address("results").cast::<[u64; 32]>();
        let mut buffer = vec![0u8; BUFFER_BYTES + 64];
        let place = buffer.as_mut_ptr().addr().next_multiple_of(64) - buffer.as_ptr().addr();
        let mut writes = WriteSet::new(32).expect("32 is a block size");
        if exactly {
            writes.set_exact(&[(buffer.as_ptr().addr(), buffer.len())]);
        }
        for (number, line) in self.lines.iter().enumerate() {
            let function = self.library.function(&format!("store_{number}"));
            // Aligned, and across two blocks, but never across two cache lines: locked instructions would be slow
            // there.
            for shift in [0, 29] {
                let mut run = |tracked: bool| {
                    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7) as u8);
                    let arg = buffer.as_mut_ptr().wrapping_add(place + shift);
                    // SAFETY: generated functions store into the buffer and into `results`.
                    unsafe {
                        results.write([0; 32]);
                        if tracked {
                            writes.clear();
                            tracker
                                .call(&mut writes, function, arg.cast())
                                .map_err(|error| error.to_string())?;
                        } else {
                            function(arg.cast());
                        }
                        Ok::<_, String>((buffer.clone(), results.read()))
                    }
                };
                let native = run(false);
                let tracked = run(true);
                if native != tracked {
                    wrong.push(format!("differs: {line} shift {shift} {}", difference(&native, &tracked)));
                    continue;
                }
                let ranges = writes.ranges().to_vec();
                let base = buffer.as_ptr().addr();
                let missed = buffer.iter().enumerate().find(|&(at, byte)| {
                    let covered =
                        ranges.iter().any(|range| (range.0..range.0 + range.1).contains(&(base + at)));
                    *byte != (at * 7) as u8 && !covered
                });
                if let Some((at, _)) = missed {
                    wrong.push(format!("missed byte {at}: {line} shift {shift}"));
                }
                if !ranges.iter().any(|range| range.0 <= results.addr() && results.addr() < range.0 + range.1)
                {
                    wrong.push(format!("missed the results: {line}"));
                }
            }
        }
        wrong
    }
}

type Outcome = Result<(Vec<u8>, [u64; 32]), String>;

fn difference(native: &Outcome, tracked: &Outcome) -> String {
    match (native, tracked) {
        (Ok(a), Ok(b)) => {
            let memory = a.0.iter().zip(&b.0).position(|(x, y)| x != y);
            let registers: Vec<_> =
                (0..18).filter(|&i| a.1[i] != b.1[i]).map(|i| (i, a.1[i], b.1[i])).collect();
            format!("memory at {memory:?}, registers {registers:x?}")
        }
        (_, Err(error)) => error.clone(),
        _ => String::new(),
    }
}

fn emit(text: &mut String, number: usize, base: usize, index: Option<usize>, store: &str) {
    let mut line = |code: String| {
        text.push_str(&code);
        text.push('\n');
    };
    line(format!(".globl store_{number}\n.type store_{number}, @function\nstore_{number}:"));
    for saved in ["rbx", "rbp", "r12", "r13", "r14", "r15"] {
        line(format!("push {saved}"));
    }
    line("mov [rip + saved], rsp".into());
    line("lea rax, [rdi + 512]\nmov [rip + place], rax\nshr rax, 1\nmov [rip + half], rax".into());
    // Parity, sign, carry and overflow in several combinations.
    line(format!(
        "mov eax, {}\nadd eax, {}",
        [0x7fff_ffffu32, 0xffff_fff0, 1, 0x8000_0001][number % 4],
        [1, 16, 2, 0x8000_0000u32][number % 4 % 4]
    ));
    for (at, names) in REGISTERS.iter().enumerate().filter(|(at, _)| *at != RSP) {
        line(format!("movabs {}, {:#x}", names[0], 0x1111_0000_1111_0001u64.wrapping_mul(at as u64 + 3)));
    }
    for at in 0..8 {
        line(format!("movq xmm{at}, {}", REGISTERS[8 + at][0]));
    }
    line("fninit\nfldpi".into());
    let operand = match index {
        Some(index) if index == base => {
            line(format!("mov {0}, [rip + half]", REGISTERS[base][0]));
            format!("[{0} + {0}]", REGISTERS[base][0])
        }
        Some(index) => {
            line(format!("mov {}, 64\nmov {}, [rip + place]", REGISTERS[index][0], REGISTERS[base][0]));
            format!(
                "[{} + {}*{} + {}]",
                REGISTERS[base][0],
                REGISTERS[index][0],
                [1, 2, 4, 8][number % 4],
                number % 3 * 320
            )
        }
        None => {
            line(format!("mov {}, [rip + place]", REGISTERS[base][0]));
            format!("[{} - {}]", REGISTERS[base][0], number % 2 * 192)
        }
    };
    // A source register that is neither base nor index, changing with the function.
    let source = (0..16)
        .map(|at| (at + number) % 16)
        .find(|&at| at != base && Some(at) != index && at != RSP)
        .unwrap_or(0);
    let names = REGISTERS[source];
    if store.contains("bt") && store.ends_with(['Q', 'D', 'W']) {
        // Bits before and after the operand, but inside the buffer.
        line(format!("mov {}, {}", names[0], number as i64 * 37 % 18_000 - 2_000));
    }
    let store = store.replace('M', &operand);
    let store = store.replace('Q', names[0]).replace('D', names[1]).replace('W', names[2]);
    let store = if let Some(at) = store.rfind('B') { format!("{}{}", &store[..at], names[3]) } else { store };
    line(store);
    line("pushfq".into());
    line("pop qword ptr [rip + here + 128]".into());
    for (at, names) in REGISTERS.iter().enumerate() {
        line(format!("mov [rip + here + {}], {}", at * 8, names[0]));
    }
    line("mov rsp, [rip + saved]".into());
    // rsp itself differs between a native and a tracked call.
    line("lea rax, [rip + here]".into());
    if base != RSP {
        line("mov qword ptr [rax + 32], 0".into());
    }
    for saved in ["r15", "r14", "r13", "r12", "rbp", "rbx"] {
        line(format!("pop {saved}"));
    }
    line("ret".into());
    let _ = writeln!(text, ".size store_{number}, . - store_{number}");
}
