//! The time stamp counter as a clock that orders what threads do: RDTSCP, and whether this machine's counters agree.
//!
//! Stamps order transactions only if a thread that has seen another thread's store also takes a later stamp than that
//! thread took before the store. That needs three things:
//!
//! 1. RDTSCP, not RDTSC. The CPU may execute RDTSC before loads that stand ahead of it, so a thread could load what
//!    another one stored after its own stamp was read, and hold a smaller stamp than the writer. RDTSCP waits until
//!    every earlier load has its value (Intel SDM vol. 2B and AMD APM vol. 3, RDTSCP). Stores after it, or loads after
//!    it, are a different matter: a store becomes visible only after its thread's earlier instructions are complete;
//!    a later load may be executed before RDTSCP.
//! 2. A counter that is invariant: one rate, in all power states (Intel SDM vol. 3B, "Invariant TSC").
//! 3. Counters of different CPUs that agree, up to the time that a store takes from one CPU to another. No bit of
//!    CPUID promises that, so [`tsc`] tries it: two threads on two CPUs hand a word over and back, and each takes a
//!    stamp that must be greater than the one it was given.
//!
//! A stamp is worth something in one run of one machine only: counters restart with it.

use crate::cpu::topology::Topology;
use crate::without_signals;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

/// Hand-overs between two CPUs: one to five milliseconds when both threads run.
const HAND_OVER_COUNT: u32 = 4_000;
/// Fewer say nothing. That many happen even where the threads are hardly ever executed at the same time.
const HAND_OVER_COUNT_MIN: u32 = 16;
/// After that time [`HAND_OVER_COUNT_MIN`] between two CPUs are enough.
const TIME_ENOUGH: Duration = Duration::from_secs(1);
/// All hand-overs of [`tsc`] together take no longer, however busy the machine is.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Pairs of CPUs that are compared: the first CPU and the last of each NUMA node, up to this.
const PAIR_COUNT_MAX: usize = 16;
/// Turns of a waiting loop after which the thread looks at the time and lets others run.
const SPIN_COUNT: u32 = 2_000;
/// Hand-overs after which a thread looks at the time.
const TURNS_A_LOOK: u32 = 64;

/// The time stamp counter, read after every earlier load of this thread has its value, and before any later store of
/// it is visible. (A later load may be executed before it.) The compiler moves no access across it.
///
/// Where the CPU lacks the instruction ([`Tsc::has_rdtscp`]) the thread gets SIGILL. Elsewhere than on x86-64, another
/// clock, which orders nothing.
#[inline(always)]
#[must_use]
pub fn rdtscp() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (low, high): (u64, u64);
        // SAFETY: reads the counter and writes the named registers; ECX gets the number of the CPU. It may clobber
        // memory, so that no access moves across it.
        unsafe {
            std::arch::asm!(
                "rdtscp",
                out("rax") low,
                out("rdx") high,
                out("rcx") _,
                options(nostack, preserves_flags)
            );
        }
        high << 32 | low
    }
    #[cfg(not(target_arch = "x86_64"))]
    crate::ticks()
}

/// What the time stamp counters of this machine are good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tsc {
    /// The CPU has RDTSCP.
    pub has_rdtscp: bool,
    /// The counter has one rate in all power states.
    pub is_invariant: bool,
    /// On the CPUs that were compared, a stamp taken after another one was greater. `None` when that was not found
    /// out.
    pub is_consistent: Option<bool>,
    /// Why stamps of different threads must not be compared, as a sentence without a full stop; `None` when they may
    /// be.
    pub unusable: Option<String>,
}

/// What the time stamp counters of this machine are good for: what CPUID says, and what two threads found when they
/// compared them. Found out at the first call, in some milliseconds, in ten seconds at most where the machine is busy;
/// the later ones cost a copy. What was not found out is asked again.
#[must_use]
pub fn tsc() -> Tsc {
    static FOUND: Answer = Answer::new();
    FOUND.get(|| find(Listed::by_this_cpu(), || compare_cpus(&Topology::detect(), &allowed_cpus())))
}

/// What was found.
struct Answer {
    /// It stays so.
    found: OnceLock<Tsc>,
    /// When it was last not found out, for those who had waited for that.
    not_found: Mutex<Option<(Instant, Tsc)>>,
}

impl Answer {
    const fn new() -> Self {
        Self { found: OnceLock::new(), not_found: Mutex::new(None) }
    }

    fn get(&self, find: impl FnOnce() -> Tsc) -> Tsc {
        if let Some(found) = self.found.get() {
            return found.clone();
        }
        let asked = Instant::now();
        let mut not_found = self.not_found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = self.found.get() {
            return found.clone();
        }
        if let Some((at, answer)) = &*not_found
            && *at >= asked
        {
            return answer.clone();
        }
        let answer = find();
        if answer.may_differ_later() {
            *not_found = Some((Instant::now(), answer.clone()));
        } else {
            // Under the lock, so it is empty.
            let _ = self.found.set(answer.clone());
        }
        answer
    }
}

impl Tsc {
    /// The counters could not be compared, because the machine was busy or without resources.
    fn may_differ_later(&self) -> bool {
        self.has_rdtscp && self.is_invariant && self.is_consistent.is_none()
    }
}

/// How long a comparison takes.
#[derive(Clone, Copy)]
struct Patience {
    /// From then on few hand-overs are enough.
    enough: Instant,
    end: Instant,
}

impl Patience {
    fn of(now: Instant) -> Self {
        Self { enough: now + TIME_ENOUGH, end: now + TIME_MAX }
    }

    /// Whether to leave it at so many hand-overs.
    fn is_over(&self, turn: u32) -> bool {
        let now = Instant::now();
        now >= self.end || turn >= HAND_OVER_COUNT_MIN && now >= self.enough
    }
}

/// What CPUID says.
#[derive(Clone, Copy)]
struct Listed {
    has_rdtscp: bool,
    is_invariant: bool,
}

impl Listed {
    fn by_this_cpu() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use crate::cpu::cpuid::cpuid;
            let last = cpuid(0x8000_0000).eax;
            // Leaf 0x80000001, EDX bit 27; leaf 0x80000007, EDX bit 8 (Intel SDM vol. 2A and AMD APM vol. 3, CPUID).
            let bit = |leaf: u32, bit: u32| last >= leaf && cpuid(leaf).edx & (1 << bit) != 0;
            Self { has_rdtscp: bit(0x8000_0001, 27), is_invariant: bit(0x8000_0007, 8) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self { has_rdtscp: false, is_invariant: false }
    }
}

/// What a comparison of two CPUs found.
#[derive(Debug, PartialEq, Eq)]
enum Comparison {
    /// Each stamp was greater than the one before, in so many hand-overs.
    Grew { count: u32 },
    /// A thread on the second CPU was given a stamp, and took a smaller or equal one.
    Fell { given: u64, taken: u64 },
    /// It was not found out.
    Unknown { why: String },
}

/// Classifies a machine on which CPUID says this, and `compare` what CPUs do.
fn find(listed: Listed, compare: impl FnOnce() -> Result<(), (Option<bool>, String)>) -> Tsc {
    let (is_consistent, unusable) = if !listed.has_rdtscp {
        (None, Some("this CPU does not have the instruction RDTSCP".to_owned()))
    } else if !listed.is_invariant {
        (None, Some("the counter is not invariant: it may stop, or change its rate".to_owned()))
    } else {
        match compare() {
            Ok(()) => (Some(true), None),
            Err((is_consistent, why)) => (is_consistent, Some(why)),
        }
    };
    Tsc { has_rdtscp: listed.has_rdtscp, is_invariant: listed.is_invariant, is_consistent, unusable }
}

/// Compares the counters of `allowed` CPUs, two at a time; the error says what is known of them, and why they are
/// unusable. The counter of a single CPU agrees with itself.
fn compare_cpus(topology: &Topology, allowed: &[usize]) -> Result<(), (Option<bool>, String)> {
    if allowed.is_empty() {
        return Err((None, "the system does not tell which CPUs this process may use".to_owned()));
    }
    let patience = Patience::of(Instant::now());
    for [a, b] in pairs(topology, allowed) {
        match compare([&rdtscp, &rdtscp], Some([a, b]), HAND_OVER_COUNT, patience) {
            Comparison::Grew { .. } => {}
            Comparison::Fell { given, taken } => {
                return Err((
                    Some(false),
                    format!(
                        "the counters of CPUs {a} and {b} disagree: after a stamp of {given} came one of {taken}"
                    ),
                ));
            }
            Comparison::Unknown { why } => {
                return Err((None, format!("the counters of CPUs {a} and {b} could not be compared: {why}")));
            }
        }
    }
    Ok(())
}

/// The pairs to compare among the CPUs that this process may use: counters differ between sockets first, so the first
/// CPU and the last of each node.
fn pairs(topology: &Topology, allowed: &[usize]) -> Vec<[usize; 2]> {
    let Some(&first) = allowed.first() else { return Vec::new() };
    let last_of_each = topology.nodes().iter().filter_map(|node| {
        let mut cpus = node.cpus.iter().rev();
        cpus.find(|cpu| allowed.contains(cpu))
    });
    let pairs = last_of_each.filter(|&&cpu| cpu != first).map(|&cpu| [first, cpu]);
    pairs.take(PAIR_COUNT_MAX).collect()
}

/// The CPUs that this process may use, ascending: those of the calling thread, or of the main thread if they are more
/// (the caller may have been given a CPU of its own).
fn allowed_cpus() -> Vec<usize> {
    let of = |pid| {
        let set = sched_getaffinity(pid).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect::<Vec<_>>()
    };
    let (mine, main) = (of(None), of(Some(rustix::process::getpid())));
    if main.len() > mine.len() { main } else { mine }
}

/// The word that two threads hand over and back, on a line of its own.
#[repr(align(128))]
struct Table {
    /// Hand-overs so far: the thread whose number it is, modulo 2, has the word.
    turn: AtomicU32,
    /// The last stamp.
    stamp: AtomicU64,
    /// A thread has left.
    is_over: AtomicBool,
}

/// Hands a word over `count` times between two threads, each on its CPU where the system allows that, and compares
/// the stamps that their `clocks` take.
fn compare(
    clocks: [&(dyn Fn() -> u64 + Sync); 2],
    cpus: Option<[usize; 2]>,
    count: u32,
    patience: Patience,
) -> Comparison {
    let table = Table { turn: AtomicU32::new(0), stamp: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    let table = &table;
    let play = |number: usize| {
        if let Some(cpus) = cpus {
            let mut only = CpuSet::new();
            only.set(cpus[number]);
            // Where it is refused, the scheduler chooses the CPUs: the comparison may be weaker, never wrong.
            let _ = sched_setaffinity(None, &only);
        }
        let fell = hand_over(table, number as u32, clocks[number], count, patience);
        // Release pairs with the Acquire in `await_turn`; only tells the other thread to leave.
        table.is_over.store(true, Ordering::Release);
        fell
    };
    let results = scope(|scope| {
        let play = &play;
        let start = |number| Builder::new().spawn_scoped(scope, move || play(number));
        let threads = without_signals(|| [start(0), start(1)]);
        if threads.iter().any(Result::is_err) {
            // As above: the thread that did start leaves.
            table.is_over.store(true, Ordering::Release);
        }
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.map(|thread| thread.map(join))
    });
    for result in &results {
        if let Ok(Some((given, taken))) = *result {
            return Comparison::Fell { given, taken };
        }
    }
    if let Some(e) = results.into_iter().find_map(Result::err) {
        return Comparison::Unknown { why: format!("a thread could not be started: {e}") };
    }
    // Relaxed: the threads have been joined.
    let done = table.turn.load(Ordering::Relaxed);
    if done < count.min(HAND_OVER_COUNT_MIN) {
        return Comparison::Unknown {
            why: format!(
                "only {done} hand-overs in {} s, because the machine is busy (to try again may help)",
                TIME_MAX.as_secs()
            ),
        };
    }
    Comparison::Grew { count: done }
}

/// One of the two threads. Returns a stamp that it was given and its own one that was not greater.
fn hand_over(
    table: &Table,
    number: u32,
    clock: &(dyn Fn() -> u64 + Sync),
    count: u32,
    patience: Patience,
) -> Option<(u64, u64)> {
    loop {
        let turn = await_turn(table, number, patience)?;
        if turn >= count || (turn.is_multiple_of(TURNS_A_LOOK) && patience.is_over(turn)) {
            return None;
        }
        // Relaxed: ordered by the turn.
        let given = table.stamp.load(Ordering::Relaxed);
        let taken = clock();
        if taken <= given {
            return Some((given, taken));
        }
        table.stamp.store(taken, Ordering::Relaxed);
        // Release pairs with the Acquire in `await_turn`: who sees the turn sees the stamp.
        table.turn.store(turn + 1, Ordering::Release);
    }
}

/// Waits until the thread `number` has the word; `None` when the other one has left, or there is no patience left.
fn await_turn(table: &Table, number: u32, patience: Patience) -> Option<u32> {
    loop {
        let mut seen = 0;
        for _ in 0..SPIN_COUNT {
            // Acquire pairs with the Release in `hand_over`.
            let turn = table.turn.load(Ordering::Acquire);
            if turn % 2 == number {
                return Some(turn);
            }
            seen = turn;
            std::hint::spin_loop();
        }
        // Acquire pairs with the Release in `compare`.
        if table.is_over.load(Ordering::Acquire) || patience.is_over(seen) {
            return None;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No thread waits that long for the other one, however busy the machine is.
    fn later() -> Patience {
        let later = Instant::now() + Duration::from_secs(600);
        Patience { enough: later, end: later }
    }

    #[test]
    fn a_clock_that_grows_passes_and_one_that_lags_or_stands_is_found() {
        let shared = AtomicU64::new(0);
        // Relaxed: one word has one order.
        let grows = || shared.fetch_add(1, Ordering::Relaxed) + 1;
        assert_eq!(compare([&grows, &grows], None, 1_000, later()), Comparison::Grew { count: 1_000 });
        // The CPUs' own counters, one of them a week behind.
        let (now, lags) = (|| crate::ticks() + (1 << 52), crate::ticks);
        for clocks in [[&now as &(dyn Fn() -> u64 + Sync), &lags], [&lags, &now]] {
            let found = compare(clocks, None, 1_000, later());
            assert!(
                matches!(found, Comparison::Fell { given, taken } if given - taken > 1 << 51),
                "{found:?}"
            );
        }
        let stands = || 7;
        let found = compare([&stands, &stands], None, 1_000, later());
        assert_eq!(found, Comparison::Fell { given: 7, taken: 7 });
    }

    #[test]
    fn a_comparison_that_had_no_time_is_no_result() {
        let now = Instant::now();
        let patience = Patience { enough: now, end: now };
        let found = compare([&crate::ticks, &crate::ticks], None, 1_000, patience);
        assert!(
            matches!(&found, Comparison::Unknown { why } if why.contains("only 0 hand-overs")),
            "{found:?}"
        );
    }

    #[test]
    fn a_comparison_goes_on_until_it_says_something() {
        let shared = AtomicU64::new(0);
        // Relaxed: one word has one order.
        let grows = || shared.fetch_add(1, Ordering::Relaxed) + 1;
        let patience = Patience { enough: Instant::now(), ..later() };
        let found = compare([&grows, &grows], None, u32::MAX, patience);
        assert!(
            matches!(found, Comparison::Grew { count } if count >= HAND_OVER_COUNT_MIN),
            "it had no time for more: {found:?}"
        );
    }

    #[test]
    fn what_was_not_found_out_is_asked_again_and_what_was_is_kept() {
        let tsc = |is_consistent| Tsc { has_rdtscp: true, is_invariant: true, is_consistent, unusable: None };
        let never = || panic!("asked again");
        for (mut found, kept) in [(tsc(Some(true)), true), (tsc(Some(false)), true), (tsc(None), false)] {
            let answer = Answer::new();
            assert_eq!(answer.get(|| found.clone()), found);
            if !kept {
                found = tsc(Some(true));
                assert_eq!(answer.get(|| found.clone()), found);
            }
            assert_eq!(answer.get(never), found);
        }
        let answer = Answer::new();
        let without = Tsc { has_rdtscp: false, ..tsc(None) };
        assert_eq!(answer.get(|| without.clone()), without);
        assert_eq!(answer.get(never), without);
    }

    #[test]
    fn a_machine_is_what_cpuid_and_the_comparison_say() {
        let listed = |has_rdtscp, is_invariant| Listed { has_rdtscp, is_invariant };
        let never = || panic!("compared, although it is of no use");
        let without = find(listed(false, true), never);
        assert!(without.unusable.unwrap().contains("RDTSCP") && without.is_consistent.is_none());
        let variant = find(listed(true, false), never);
        assert!(variant.unusable.unwrap().contains("not invariant") && variant.is_consistent.is_none());
        let good = find(listed(true, true), || Ok(()));
        assert_eq!((good.unusable, good.is_consistent), (None, Some(true)));
        let bad = find(listed(true, true), || Err((Some(false), "they disagree".to_owned())));
        assert_eq!((bad.unusable.as_deref(), bad.is_consistent), (Some("they disagree"), Some(false)));
    }

    #[test]
    fn the_first_cpu_is_compared_with_the_last_of_each_node() {
        let list = |text: &str| crate::parse_cpu_list(text).unwrap();
        let nodes = [("0-3,8-11", 0), ("4-7,12-15", 1), ("", 2)];
        let topology = Topology::of(nodes.map(|(cpus, id)| crate::NumaNode { id, cpus: list(cpus) }).into());
        assert_eq!(pairs(&topology, &list("0-15")), [[0, 11], [0, 15]]);
        assert_eq!(pairs(&topology, &list("2,5-6")), [[2, 6]]);
        assert_eq!(pairs(&topology, &list("5")), [[0_usize; 2]; 0]);
        assert_eq!(compare_cpus(&topology, &list("5")), Ok(()));
        let (known, why) = compare_cpus(&topology, &[]).unwrap_err();
        assert!(known.is_none() && why.contains("which CPUs"), "{why}");
    }

    /// Runs on every kind of machine; the line on standard error says which it was. What is found depends on the
    /// machine, and on how busy it is, so only its parts are compared with each other and with the kernel's word.
    #[test]
    fn this_machine_is_told_without_a_contradiction() {
        let found = tsc();
        eprintln!("time stamp counter of this machine: {found:?}");
        let is_good = found.has_rdtscp && found.is_invariant && found.is_consistent == Some(true);
        assert_eq!(found.unusable.is_none(), is_good);
        assert!(found.may_differ_later() || tsc() == found, "asked once");
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags: Vec<_> = text.split_ascii_whitespace().collect();
        if flags.contains(&"flags") {
            assert_eq!(found.has_rdtscp, flags.contains(&"rdtscp"));
            assert_eq!(found.is_invariant, flags.contains(&"nonstop_tsc"));
        }
        if is_good {
            assert!(rdtscp() < rdtscp());
        }
    }
}
