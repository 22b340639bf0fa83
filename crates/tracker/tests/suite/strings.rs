//! String instructions: every width, with and without a prefix, both directions, counts from none to large, at page
//! ends, into exact ranges and into the stack.
//!
//! Generated assembly, as in `instructions.rs`. Run natively and tracked, it must leave the same memory, registers
//! and flags. Every byte that changed must be reported, and none that lies outside the blocks of those.

use super::library::{Function, Library, compile, scratch};
use mangrove_tracker::{Recompiler, Tracker, WriteSet};
use std::fmt::Write;

/// (instruction, bytes of an element, the instruction with `repne` as bytes)
const STRINGS: [(&str, usize, &str); 8] = [
    ("stosb", 1, ".byte 0xf2, 0xaa"),
    ("stosw", 2, ".byte 0x66, 0xf2, 0xab"),
    ("stosd", 4, ".byte 0xf2, 0xab"),
    ("stosq", 8, ".byte 0xf2, 0x48, 0xab"),
    ("movsb", 1, ".byte 0xf2, 0xa4"),
    ("movsw", 2, ".byte 0x66, 0xf2, 0xa5"),
    ("movsd", 4, ".byte 0xf2, 0xa5"),
    ("movsq", 8, ".byte 0xf2, 0x48, 0xa5"),
];
/// Registers that the instructions do not use.
const OTHERS: [&str; 11] = ["rbx", "rdx", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const SAVED: [&str; 6] = ["rbx", "rbp", "r12", "r13", "r14", "r15"];

const PAGE: usize = 4096;
const BLOCK: usize = 32;
/// Bytes of the buffer that is written; it begins at a page.
const TARGET_BYTES: usize = 2 << 20;
/// Offsets in it at which the stores begin.
const OFFSETS: [usize; 7] =
    [3 * PAGE, 3 * PAGE + 1, 3 * PAGE + 29, 4 * PAGE - 1, 4 * PAGE - 31, 4 * PAGE - 64, 4 * PAGE - 8];
/// How many bytes they write. More than a mebibyte only at the first offset.
const LENGTHS: [usize; 11] = [0, 1, 3, 8, 40, 64, 65, 72, PAGE, 9000, (1 << 20) + 24];

/// The argument of a generated function.
#[repr(C)]
struct Job {
    to: usize,
    from: usize,
    count: usize,
    value: u64,
}

struct StringOp {
    function: Function,
    line: String,
    bytes: usize,
    repeated: bool,
    backward: bool,
}

/// The generated functions.
pub(crate) struct Strings {
    library: Library,
    list: Vec<StringOp>,
}

impl Strings {
    /// Generates and assembles.
    pub(crate) fn new() -> Result<Self, String> {
        let mut text = String::from(".intel_syntax noprefix\n.text\n");
        let mut lines = Vec::new();
        for (name, bytes, repne) in STRINGS {
            for (prefix, code) in
                [("", name.to_owned()), ("rep ", format!("rep {name}")), ("repne ", repne.into())]
            {
                for backward in [false, true] {
                    for dead in [false, true] {
                        emit(&mut text, lines.len(), &code, backward, dead);
                        let line =
                            format!("{prefix}{name}, backward {backward}, registers and flags dead {dead}");
                        lines.push((line, bytes, !prefix.is_empty(), backward));
                    }
                }
            }
        }
        text.push_str(".bss\n.balign 64\n.globl results\nresults: here: .zero 256\n");
        text.push_str(".section .note.GNU-stack,\"\",@progbits\n");
        let source = scratch().join("strings.s");
        std::fs::write(&source, text).map_err(|error| error.to_string())?;
        let library = compile("cc", &source, &[])?;
        let list =
            lines.into_iter().enumerate().map(|(number, (line, bytes, repeated, backward))| StringOp {
                function: library.function(&format!("string_{number}")),
                line,
                bytes,
                repeated,
                backward,
            });
        Ok(Self { list: list.collect(), library })
    }

    /// How many functions there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Runs them all and returns what went wrong. Backward functions come last, because the first of them makes
    /// later ones slow.
    pub(crate) fn check(&self, tracker: &Recompiler) -> Vec<String> {
        tracker.forget_code();
        let mut bench = Bench::new(self);
        for exact in [false, true] {
            bench.set_exact(exact);
            for string in self.list.iter().filter(|string| !string.backward) {
                bench.check(tracker, string, true);
            }
        }
        for exact in [false, true] {
            bench.set_exact(exact);
            for string in &self.list {
                bench.check(tracker, string, false);
            }
        }
        tracker.forget_code();
        bench.wrong
    }
}

/// Memory for the functions, and what was found.
struct Bench {
    results: *mut [u64; 32],
    target: Vec<u8>,
    /// Where the first page of `target` begins.
    place: usize,
    source: Vec<u8>,
    writes: WriteSet,
    exact: Vec<(usize, usize)>,
    wrong: Vec<String>,
}

impl Bench {
    fn new(strings: &Strings) -> Self {
        let target = vec![0u8; TARGET_BYTES + PAGE];
        let place = target.as_ptr().addr().next_multiple_of(PAGE) - target.as_ptr().addr();
        Self {
            results: strings.library.address("results").cast(),
            target,
            place,
            source: (0..TARGET_BYTES).map(|at| (at * 11 + 5) as u8).collect(),
            writes: WriteSet::new(BLOCK).expect("a block size"),
            exact: Vec::new(),
            wrong: Vec::new(),
        }
    }

    fn set_exact(&mut self, some: bool) {
        let page = self.target.as_ptr().addr() + self.place + 3 * PAGE;
        self.exact =
            if some { vec![(page + 3, 50), (page + PAGE - 4, 9), (page + PAGE + 1000, 1)] } else { vec![] };
        self.writes.set_exact(&self.exact);
    }

    /// Runs one function with every offset and length, and into the stack. `inline`: forward ones need no
    /// dispatcher.
    fn check(&mut self, tracker: &Recompiler, string: &StringOp, inline: bool) {
        for (turn, offset) in OFFSETS.into_iter().enumerate() {
            for length in LENGTHS {
                let count = if string.repeated { length / string.bytes } else { 7 };
                if (length > 1 << 20 && (turn > 0 || !self.exact.is_empty()))
                    || (!string.repeated && length > 0)
                {
                    continue;
                }
                let written = if string.repeated { count * string.bytes } else { string.bytes };
                // Backward functions write as many bytes, the last of them at the same place.
                let first = self.target.as_ptr().addr() + self.place + offset;
                let to =
                    if string.backward { first + written.max(string.bytes) - string.bytes } else { first };
                let dispatches = self.run(tracker, string, to, count, (first, written));
                let by_hand = !inline || !self.exact.is_empty() || written > 1 << 20;
                if dispatches > 0 && !by_hand {
                    self.say(string, &format!("{dispatches} dispatches"), offset, count);
                }
            }
        }
        self.check_stack(tracker, string, inline);
    }

    fn say(&mut self, string: &StringOp, what: &str, offset: usize, count: usize) {
        let exact = if self.exact.is_empty() { "" } else { ", exact ranges" };
        self.wrong.push(format!("{what}: {}, offset {offset}, count {count}{exact}", string.line));
    }

    /// Runs it natively and tracked and compares the report. Returns how often the second tracked run entered the
    /// dispatcher.
    fn run(
        &mut self,
        tracker: &Recompiler,
        string: &StringOp,
        to: usize,
        count: usize,
        (first, written): (usize, usize),
    ) -> u64 {
        let base = self.target.as_ptr().addr();
        let around =
            (first - base).saturating_sub(PAGE)..(first - base + written + PAGE).min(self.target.len());
        let mut outcomes = Vec::new();
        let mut dispatches = 0;
        for tracked in [false, true, true] {
            self.target[around.clone()].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7) as u8);
            let before = dispatches_of(tracker);
            self.call(string, to, count, tracked.then_some(tracker));
            dispatches = dispatches_of(tracker) - before;
            // SAFETY: the library's results.
            outcomes.push((self.target[around.clone()].to_vec(), unsafe { self.results.read() }));
        }
        let offset = first - base - self.place;
        if outcomes[0] != outcomes[1] || outcomes[0] != outcomes[2] {
            self.say(string, "differs", offset, count);
        }
        let is_exact = |at: usize| self.exact.iter().any(|range| (range.0..range.0 + range.1).contains(&at));
        let must = |at: usize| (first..first + written).contains(&at);
        let may = |at: usize| {
            let (lo, hi) = (first / BLOCK * BLOCK, (first + written).next_multiple_of(BLOCK));
            written > 0 && if is_exact(at) { must(at) } else { (lo..hi).contains(&at) }
        };
        let mut reported = vec![false; around.len()];
        let lo = base + around.start;
        for &(addr, len) in self.writes.ranges() {
            (addr.max(lo)..(addr + len).min(lo + reported.len())).for_each(|at| reported[at - lo] = true);
        }
        let wrong = (0..reported.len()).find(|&at| if reported[at] { !may(lo + at) } else { must(lo + at) });
        if let Some(at) = wrong {
            let what = if reported[at] { "reported" } else { "missed" };
            self.say(string, &format!("{what} byte {}", (lo + at) as isize - first as isize), offset, count);
        }
        dispatches
    }

    fn call(&mut self, string: &StringOp, to: usize, count: usize, tracker: Option<&Recompiler>) {
        let last = if string.repeated { count.max(1) - 1 } else { 0 } * string.bytes;
        let from = self.source.as_ptr().addr() + if string.backward { last } else { 0 };
        let mut job = Job { to, from, count, value: 0x9182_7364_5546_3728 };
        let arg = std::ptr::from_mut(&mut job).cast();
        // SAFETY: the functions write `count` elements to `to`, which lie in the buffer, and into the results.
        unsafe {
            self.results.write([0; 32]);
            match tracker {
                Some(tracker) => {
                    self.writes.clear();
                    let result = tracker.call(&mut self.writes, string.function, arg);
                    if let Err(error) = result {
                        self.wrong.push(format!("{}: {error}", string.line));
                    }
                }
                None => (string.function)(arg),
            }
        }
    }

    /// Writes to the caller's stack are not reported: forward functions leave no trace of them.
    fn check_stack(&mut self, tracker: &Recompiler, string: &StringOp, inline: bool) {
        let mut local = [0u8; 3 * PAGE];
        let base = local.as_mut_ptr().expose_provenance();
        for length in [8, 40, 64, 72, 2 * PAGE] {
            let (count, written) =
                if string.repeated { (length / string.bytes, length) } else { (1, string.bytes) };
            let to = base + if string.backward { written - string.bytes } else { 0 };
            self.call(string, to, count, Some(tracker));
            let inside = |addr: usize| (base..base + local.len()).contains(&addr);
            let seen = self.writes.ranges().iter().any(|range| inside(range.0));
            let kept = self.writes.large().iter().any(|range| inside(range.0))
                || self.writes.blocks().iter().any(|&block| inside(block as usize));
            if seen || (kept && inline) {
                self.say(string, "reported the stack", 0, count);
            }
            if std::hint::black_box(&local)[0] == 0 {
                self.say(string, "did not write the stack", 0, count);
            }
        }
    }
}

fn dispatches_of(tracker: &Recompiler) -> u64 {
    tracker.statistics().iter().find(|(name, _)| *name == "dispatches").map_or(0, |found| found.1)
}

fn emit(text: &mut String, number: usize, code: &str, backward: bool, dead: bool) {
    let mut line = |code: &str| {
        text.push_str(code);
        text.push('\n');
    };
    line(&format!(".globl string_{number}\n.type string_{number}, @function\nstring_{number}:"));
    SAVED.iter().for_each(|register| line(&format!("push {register}")));
    line("mov rsi, [rdi + 8]\nmov rcx, [rdi + 16]\nmov rax, [rdi + 24]\nmov rdi, [rdi]");
    for (at, register) in OTHERS.iter().enumerate() {
        line(&format!("movabs {register}, {:#x}", 0x1111_0000_1111_0001u64.wrapping_mul(at as u64 + 3)));
    }
    if backward {
        line("std");
    }
    line("cmp rcx, 3");
    line(code);
    if backward {
        line("cld");
    }
    if dead {
        line("mov eax, 1\nmov edx, 2\nmov r8d, 3\nxor r9d, r9d");
    }
    line("pushfq\npop qword ptr [rip + here + 128]");
    for (at, register) in OTHERS.iter().chain(&["rax", "rcx", "rsi", "rdi"]).enumerate() {
        line(&format!("mov [rip + here + {}], {register}", at * 8));
    }
    SAVED.iter().rev().for_each(|register| line(&format!("pop {register}")));
    line("ret");
    let _ = writeln!(text, ".size string_{number}, . - string_{number}");
}
