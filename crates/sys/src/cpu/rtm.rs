//! Intel's restricted transactional memory (RTM): its four instructions, and whether they work on this machine.
//!
//! Source: Intel SDM vol. 1, "Programming with Intel Transactional Synchronization Extensions", and the pages of
//! XBEGIN, XEND, XABORT and XTEST in vol. 2. The bits of CPUID: vol. 2A, CPUID, leaf 7.
//!
//! CPUID alone does not tell whether transactions commit: microcode or a hypervisor may abort every one. So [`rtm`]
//! tries some, once in a process.
//!
//! Measured on a machine where they commit: clwb, clflushopt, non-temporal stores, PAUSE
//! ([`std::hint::spin_loop`]), CPUID, system calls and page faults abort with a status without a reason. RDTSCP,
//! sfence and locked instructions do not abort. A page that is not mapped yet, or copied on write, aborts each attempt
//! until a thread touches it outside of a transaction.

use std::fmt;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Transactions that [`rtm`] tries.
pub const RTM_TRIAL_COUNT: u32 = 2_000;

/// What EAX holds where XBEGIN has begun a transaction. No abort leaves it: bits 6 to 23 of a status are zero.
#[cfg(target_arch = "x86_64")]
const STARTED: u32 = u32::MAX;

/// Why a transaction aborted: what XBEGIN leaves in EAX (Intel SDM vol. 1, "RTM Abort Status Definition").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortStatus(u32);

impl AbortStatus {
    /// The status that these bits are.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, as EAX had them.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The code that XABORT named, when XABORT was the cause.
    #[inline]
    #[must_use]
    pub const fn explicit_code(self) -> Option<u8> {
        if self.0 & 1 != 0 { Some((self.0 >> 24) as u8) } else { None }
    }

    /// The CPU expects that the same transaction may succeed when it is tried again.
    #[inline]
    #[must_use]
    pub const fn may_retry(self) -> bool {
        self.0 & (1 << 1) != 0
    }

    /// Another thread used a line that this transaction used, and one of the two wrote it.
    #[inline]
    #[must_use]
    pub const fn is_conflict(self) -> bool {
        self.0 & (1 << 2) != 0
    }

    /// The transaction used more lines than the CPU can observe.
    #[inline]
    #[must_use]
    pub const fn is_capacity(self) -> bool {
        self.0 & (1 << 3) != 0
    }

    /// A breakpoint was hit.
    #[inline]
    #[must_use]
    pub const fn is_debug(self) -> bool {
        self.0 & (1 << 4) != 0
    }

    /// The abort happened in a nested transaction. The outermost one is undone all the same.
    #[inline]
    #[must_use]
    pub const fn is_nested(self) -> bool {
        self.0 & (1 << 5) != 0
    }

    /// The CPU names no reason: a page fault, a system call, an interrupt, an instruction that transactions cannot
    /// execute, or a machine that aborts every transaction.
    #[inline]
    #[must_use]
    pub const fn is_without_reason(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for AbortStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_without_reason() {
            return f.write_str("no reason");
        }
        let explicit = self.explicit_code().map(|code| format!("XABORT {code}"));
        let named = [
            (self.is_conflict(), "conflict"),
            (self.is_capacity(), "capacity"),
            (self.is_debug(), "breakpoint"),
            (self.is_nested(), "nested"),
            (self.may_retry(), "may succeed when tried again"),
        ];
        let words = named.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word.to_owned());
        let words: Vec<_> = explicit.into_iter().chain(words).collect();
        // Only bits that the manual reserves.
        if words.is_empty() { write!(f, "status {:#x}", self.0) } else { f.write_str(&words.join(", ")) }
    }
}

/// Begins a transaction. After `Ok` the calling thread is in it: its stores become visible to others at [`xend`], all
/// at once, or never. After an abort the thread is here again, with its registers and all memory as they were, and
/// gets the reason.
///
/// A transaction within a transaction becomes a part of it; an abort of either undoes both.
///
/// # Errors
/// The reason of the abort. Elsewhere than on x86-64, always, without a reason.
///
/// # Safety
/// The CPU must have the instruction: [`Rtm::has_instructions`] of [`rtm`]. Without it the thread gets SIGILL.
#[inline(always)]
pub unsafe fn xbegin() -> Result<(), AbortStatus> {
    #[cfg(target_arch = "x86_64")]
    {
        let mut status = STARTED;
        // SAFETY: the caller guarantees the instruction. The abort's way ends at the same label with all registers
        // and memory as before, save EAX, so for the compiler this is one instruction that writes EAX. It may
        // clobber memory, so that no access moves across it.
        unsafe { std::arch::asm!("xbegin 2f", "2:", inout("eax") status, options(nostack)) };
        if status == STARTED { Ok(()) } else { Err(AbortStatus(status)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Err(AbortStatus(0))
}

/// Ends the transaction: commits it, or goes back to its [`xbegin`] with a reason.
///
/// # Safety
/// The calling thread must be in a transaction. Outside of one it gets SIGSEGV.
#[inline(always)]
pub unsafe fn xend() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: in a transaction (the caller's promise), so the CPU has the instruction. It may clobber memory, so that
    // no access moves across it.
    unsafe {
        std::arch::asm!("xend", options(nostack, preserves_flags));
    }
}

/// Aborts the transaction: the calling thread goes back to its [`xbegin`], which returns [`AbortStatus`] with `CODE`.
/// Outside of a transaction it does nothing, and returns.
///
/// # Safety
/// The CPU must have the instruction: [`Rtm::has_instructions`] of [`rtm`]. Without it the thread gets SIGILL.
#[inline(always)]
pub unsafe fn xabort<const CODE: u8>() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees the instruction. An abort goes to `xbegin`, whose block tells the compiler what
    // that changes; else nothing happens.
    unsafe {
        std::arch::asm!("xabort {code}", code = const CODE, options(nostack, preserves_flags));
    }
}

/// True in a transaction.
///
/// # Safety
/// The CPU must have the instruction: [`Rtm::has_instructions`] of [`rtm`]. Without it the thread gets SIGILL.
#[inline(always)]
#[must_use]
pub unsafe fn xtest() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let inside: u8;
        // SAFETY: the caller guarantees the instruction; it reads no memory and writes the flags only.
        unsafe {
            std::arch::asm!("xtest", "setnz {inside}", inside = out(reg_byte) inside, options(nomem, nostack));
        }
        inside != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// What this machine does with transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rtm {
    /// The CPU does not have the instructions.
    Absent,
    /// The CPU has the instructions, and CPUID says that it aborts every transaction.
    AlwaysAborts,
    /// The CPU has the instructions, and none of [`RTM_TRIAL_COUNT`] small transactions committed.
    NeverCommitted {
        /// Why the last one aborted.
        last: AbortStatus,
    },
    /// Transactions commit.
    Commits {
        /// How many of [`RTM_TRIAL_COUNT`] small ones did.
        count: u32,
    },
}

impl Rtm {
    /// XBEGIN, XABORT and XTEST may be executed.
    #[inline]
    #[must_use]
    pub const fn has_instructions(self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// Transactions commit here.
    #[inline]
    #[must_use]
    pub const fn commits(self) -> bool {
        matches!(self, Self::Commits { .. })
    }
}

impl fmt::Display for Rtm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("not there: CPUID does not list it"),
            Self::AlwaysAborts => f.write_str("there, but CPUID says that every transaction aborts"),
            Self::NeverCommitted { last } => {
                write!(
                    f,
                    "there, but none of {RTM_TRIAL_COUNT} small transactions committed (last abort: {last})"
                )
            }
            Self::Commits { count } => {
                write!(f, "there: {count} of {RTM_TRIAL_COUNT} small transactions committed")
            }
        }
    }
}

/// What this machine does with transactions: what CPUID says, and what became of [`RTM_TRIAL_COUNT`] of them. Found
/// out at the first call, which takes as long as the trial; the later ones cost a load.
#[must_use]
pub fn rtm() -> Rtm {
    static FOUND: OnceLock<Rtm> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // Without the black box the word is a register, and the transactions store nothing.
        let word = AtomicU32::new(0);
        let word = black_box(&word);
        // SAFETY: `find` tries only where CPUID lists the instructions.
        find(Listed::by_this_cpu(), || unsafe { add_one(word) })
    })
}

/// What CPUID says.
#[derive(Clone, Copy)]
struct Listed {
    has_rtm: bool,
    always_aborts: bool,
}

impl Listed {
    fn by_this_cpu() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use crate::cpu::cpuid::cpuid;
            if cpuid(0).eax < 7 {
                return Self { has_rtm: false, always_aborts: false };
            }
            let leaf = cpuid(7);
            Self { has_rtm: leaf.ebx & (1 << 11) != 0, always_aborts: leaf.edx & (1 << 11) != 0 }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self { has_rtm: false, always_aborts: false }
    }
}

/// Classifies a machine on which CPUID says this, and on which `attempt` begins and ends one small transaction.
fn find(listed: Listed, mut attempt: impl FnMut() -> Result<(), AbortStatus>) -> Rtm {
    // RTM_ALWAYS_ABORT first: with it, the bit RTM may be 0 although XBEGIN is a valid instruction.
    if listed.always_aborts {
        return Rtm::AlwaysAborts;
    }
    if !listed.has_rtm {
        return Rtm::Absent;
    }
    let (mut count, mut last) = (0, AbortStatus(0));
    for _ in 0..RTM_TRIAL_COUNT {
        match attempt() {
            Ok(()) => count += 1,
            Err(status) => last = status,
        }
    }
    if count == 0 { Rtm::NeverCommitted { last } } else { Rtm::Commits { count } }
}

/// One small transaction.
///
/// # Safety
/// The CPU must have the instructions.
unsafe fn add_one(word: &AtomicU32) -> Result<(), AbortStatus> {
    // Relaxed: no other thread uses the word. The store outside faults its page in, which no transaction could.
    let before = word.load(Ordering::Relaxed);
    word.store(before, Ordering::Relaxed);
    // SAFETY: the caller guarantees the instructions; XEND ends what XBEGIN began.
    unsafe {
        xbegin()?;
        word.store(before + 1, Ordering::Relaxed);
        xend();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_each_cause() {
        let of = AbortStatus::from_bits;
        let facts =
            |s: AbortStatus| [s.may_retry(), s.is_conflict(), s.is_capacity(), s.is_debug(), s.is_nested()];
        assert!(of(0).is_without_reason() && of(0).explicit_code().is_none());
        assert_eq!(of(0).to_string(), "no reason");
        assert_eq!(of(0xab00_0001).explicit_code(), Some(0xab));
        assert_eq!(of(0xab00_0000).explicit_code(), None, "the code counts only with bit 0");
        assert_eq!(of(0xff00_0021).to_string(), "XABORT 255, nested");
        for (bit, word) in [
            (1, "may succeed when tried again"),
            (2, "conflict"),
            (3, "capacity"),
            (4, "breakpoint"),
            (5, "nested"),
        ] {
            let status = of(1 << bit);
            let mut expected = [false; 5];
            expected[bit - 1] = true;
            assert_eq!((facts(status), status.to_string().as_str()), (expected, word));
            assert!(!status.is_without_reason() && status.explicit_code().is_none());
        }
        assert_eq!(of(6).to_string(), "conflict, may succeed when tried again");
        assert_eq!((of(1 << 7).to_string(), of(1 << 7).bits()), ("status 0x80".to_owned(), 128));
    }

    #[test]
    fn a_machine_is_what_cpuid_and_the_trial_say() {
        let listed = |has_rtm, always_aborts| Listed { has_rtm, always_aborts };
        let nothing =
            || -> Result<(), AbortStatus> { panic!("tried, although CPUID says that it is of no use") };
        assert_eq!(find(listed(false, false), nothing), Rtm::Absent);
        assert_eq!(find(listed(true, true), nothing), Rtm::AlwaysAborts);
        assert_eq!(find(listed(false, true), nothing), Rtm::AlwaysAborts);
        let never = find(listed(true, false), || Err(AbortStatus(8)));
        assert_eq!(never, Rtm::NeverCommitted { last: AbortStatus(8) });
        let mut tried = 0;
        let once = find(listed(true, false), || {
            tried += 1;
            if tried == RTM_TRIAL_COUNT { Ok(()) } else { Err(AbortStatus(0)) }
        });
        assert_eq!((once, tried), (Rtm::Commits { count: 1 }, RTM_TRIAL_COUNT));
        assert!(once.commits() && !never.commits() && never.has_instructions());
        assert!(!Rtm::Absent.has_instructions() && Rtm::AlwaysAborts.has_instructions());
    }

    /// Executes `body` once outside of a transaction, which faults its pages in, and then tries it in one until it
    /// commits; the last reason when it does not.
    #[cfg(target_arch = "x86_64")]
    fn try_often(body: impl Fn()) -> Result<(), AbortStatus> {
        body();
        let mut last = AbortStatus(0);
        for _ in 0..10_000 {
            // SAFETY: the callers have asked `rtm`.
            match unsafe { xbegin() } {
                Ok(()) => {
                    body();
                    // SAFETY: in the transaction, which `body` has not ended.
                    unsafe { xend() };
                    return Ok(());
                }
                Err(status) => last = status,
            }
        }
        Err(last)
    }

    /// Runs on every kind of machine and tests what that kind does; the line on standard error says which it was.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_machine_does_what_was_found_out() {
        let found = rtm();
        eprintln!("RTM of this machine: {found}");
        assert_eq!(rtm(), found, "asked once");
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel_has_it = flags.split_ascii_whitespace().any(|flag| flag == "rtm");
        if !found.has_instructions() {
            assert!(!kernel_has_it, "the kernel has found what we have not");
            return;
        }
        // SAFETY: the instructions are there.
        assert!(!unsafe { xtest() });
        // SAFETY: as above; outside of a transaction it does nothing.
        unsafe { xabort::<1>() };
        if !found.commits() {
            for _ in 0..100 {
                // SAFETY: as above.
                let begun = unsafe { xbegin() };
                assert!(begun.is_err(), "a transaction has begun where none was found to commit");
            }
            return;
        }
        a_commit_is_visible_and_an_abort_undoes();
        what_may_stand_in_a_transaction_commits();
        a_pause_never_commits();
    }

    #[cfg(target_arch = "x86_64")]
    fn a_commit_is_visible_and_an_abort_undoes() {
        // Relaxed throughout: one thread. The black box keeps the words in memory.
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let [word, inside] = black_box(&words);
        try_often(|| {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            // SAFETY: the instructions are there.
            inside.store(u32::from(unsafe { xtest() }), Ordering::Relaxed);
        })
        .unwrap();
        let words = (word.load(Ordering::Relaxed), inside.load(Ordering::Relaxed));
        assert_eq!(words, (2, 1), "one step outside, one in the transaction, none in those that aborted");
        // Aborts for other reasons may come first.
        let aborted = |is_nested: bool| {
            (0..10_000).any(|_| {
                // SAFETY: the instructions are there, and no way leads out of the transaction but XABORT.
                let status = unsafe {
                    xbegin().map(|()| {
                        word.store(3, Ordering::Relaxed);
                        if is_nested {
                            let _ = xbegin();
                        }
                        xabort::<0xa5>();
                    })
                };
                let status = status.expect_err("XABORT went on");
                assert_eq!(word.load(Ordering::Relaxed), 2, "an abort undoes the store");
                status.explicit_code() == Some(0xa5) && status.is_nested() == is_nested
            })
        };
        assert!(aborted(false), "the code arrives");
        assert!(aborted(true), "and from a nested transaction, which is said");
    }

    #[cfg(target_arch = "x86_64")]
    fn what_may_stand_in_a_transaction_commits() {
        let word = AtomicU32::new(0);
        let word = black_box(&word);
        let bodies: [(&str, &dyn Fn()); 4] = [
            ("RDTSCP", &|| {
                black_box(crate::rdtscp());
            }),
            ("sfence", &crate::fence),
            ("a locked instruction", &|| {
                // SeqCst: any ordering is the same locked instruction.
                word.fetch_add(1, Ordering::SeqCst);
            }),
            ("spinning for 500 ticks", &|| crate::spin_ticks(500)),
        ];
        for (what, body) in bodies {
            assert_eq!(try_often(body), Ok(()), "{what} never commits");
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn a_pause_never_commits() {
        let status = try_often(std::hint::spin_loop).expect_err("a transaction with PAUSE has committed");
        assert!(status.explicit_code().is_none(), "{status}");
    }

    #[test]
    #[cfg(not(target_arch = "x86_64"))]
    fn there_is_none_here() {
        assert_eq!(rtm(), Rtm::Absent);
        // SAFETY: no instruction is executed on this architecture.
        unsafe {
            assert_eq!(xbegin(), Err(AbortStatus(0)));
            assert!(!xtest());
        }
    }
}
