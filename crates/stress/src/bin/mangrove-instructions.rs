//! Instructions per transaction, counted exactly: a parent process steps its child through each transaction by
//! ptrace(2), one instruction at a time. So the figures need neither hardware counters nor a quiet machine.
//! `cargo xtask instructions` compares them with the golden table (3 %), `BLESS=1` renews it.
//!
//! *alone*: solo mode; *records*: ownership records. *heap*: by `Heap::transaction`; *executor*: by a thread's own
//! handle of the executor, over the same log. One fence a commit, on emulated persistent memory without latency; replay
//! is off. An instruction with a `rep` prefix counts once, and a system call counts as one instruction.

#[cfg(target_arch = "x86_64")]
mod stepper {
    use std::io::{Error, Result};

    /// Where a counted region begins and ends.
    #[inline(never)]
    pub(super) fn mark() {
        // SAFETY: a breakpoint, for which the parent waits.
        unsafe { std::arch::asm!("int3", options(nomem, nostack, preserves_flags)) };
    }

    /// Runs `child` in a child process, and returns how many instructions lie between each two of its marks.
    ///
    /// # Errors
    /// When the child cannot be made or traced, or does not end well.
    ///
    /// # Panics
    /// When `child` was called by a process with several threads.
    pub(super) fn count(child: impl FnOnce()) -> Result<Vec<u64>> {
        // SAFETY: this process has one thread, so the child may do what it wants.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(Error::last_os_error());
        }
        if pid == 0 {
            // SAFETY: the request has no arguments.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME) } != 0 {
                eprintln!("this process cannot be traced: {}", Error::last_os_error());
                std::process::exit(1);
            }
            child();
            std::process::exit(0);
        }
        let mut counts = Vec::new();
        let mut runs = wait(pid)?;
        while runs {
            let end = instruction_pointer(pid);
            let (mut count, mut before) = (0, end);
            loop {
                if !go_on(libc::PTRACE_SINGLESTEP, pid)? {
                    return Err(Error::other("the child ended inside a counted region"));
                }
                let at = instruction_pointer(pid);
                // The repetitions of an instruction with a `rep` prefix stop at the same place.
                count += u64::from(at != before);
                before = at;
                if at == end {
                    break;
                }
            }
            counts.push(count);
            runs = go_on(libc::PTRACE_CONT, pid)?;
        }
        Ok(counts)
    }

    /// Continues the child until it stops for a trap; false when it has ended.
    fn go_on(request: libc::c_uint, pid: i32) -> Result<bool> {
        // SAFETY: a stopped child of this process, whose memory the requests do not touch.
        if unsafe { libc::ptrace(request, pid, 0, 0) } != 0 {
            return Err(Error::last_os_error());
        }
        wait(pid)
    }

    /// Waits until the child stops for a trap; false when it has ended.
    fn wait(pid: i32) -> Result<bool> {
        let mut status = 0;
        // SAFETY: `status` is writable.
        if unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
            return Err(Error::last_os_error());
        }
        if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP {
            return Ok(true);
        }
        let well = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        if well { Ok(false) } else { Err(Error::other("the child did not end well")) }
    }

    fn instruction_pointer(pid: i32) -> u64 {
        // SAFETY: a stopped child; the offset is that of a register.
        unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, pid, libc::RIP as usize * 8, 0) as u64 }
    }
}

#[cfg(target_arch = "x86_64")]
mod table {
    use super::stepper::{count, mark};
    use mangrove_shadow::{Create, Latency, Medium, Options};
    use mangrove_txn::{
        Halt, Heap, HeapLog, HeapOptions, Isolation, Ptr, Stm, StmOptions, TxAccess, TxMemory, TxThread,
    };
    use std::convert::Infallible;
    use std::fmt::Write;
    use std::hint::black_box;
    use std::path::Path;
    use std::sync::Arc;

    const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.golden");

    /// Bytes between two words: each has a cache line and an ownership record of its own.
    const STRIDE: usize = 64;
    const WORDS: usize = 128;
    /// Transactions before the first that is counted, so that lists have their length and solo mode has begun.
    const WARM: usize = 100;
    /// The median of so many counts: now and then a transaction looks at the clock, or takes a page fault.
    const ROUNDS: usize = 5;
    /// By how many hundredths a figure may differ from the golden one.
    const TOLERANCE: u64 = 3;

    #[derive(Clone, Copy)]
    enum Work {
        Read,
        Write,
        Swap,
    }

    const ROWS: [(&str, Work, usize); 9] = [
        ("nothing", Work::Read, 0),
        ("1 word read", Work::Read, 1),
        ("64 words read", Work::Read, 64),
        ("1 word written", Work::Write, 1),
        ("64 words written", Work::Write, 64),
        ("1 swap", Work::Swap, 1),
        ("4 swaps", Work::Swap, 4),
        ("16 swaps", Work::Swap, 16),
        ("64 swaps", Work::Swap, 64),
    ];

    const COLUMNS: [&str; 4] = ["heap, alone", "heap, records", "executor, alone", "executor, records"];

    /// Runs a row's transaction, given as work, a count, and the address of the first word.
    macro_rules! body {
        ($tx:ident, $work:ident, $count:ident, $base:ident, $read:expr, $write:expr) => {{
            for number in 0..$count {
                let one = $base + number * STRIDE;
                match $work {
                    Work::Read => _ = black_box($read($tx, one)?),
                    Work::Write => $write($tx, one, number as u64)?,
                    Work::Swap => {
                        let other = one + WORDS / 2 * STRIDE;
                        let (x, y) = ($read($tx, one)?, $read($tx, other)?);
                        $write($tx, one, y)?;
                        $write($tx, other, x)?;
                    }
                }
            }
            Ok(())
        }};
    }

    fn on_heap(heap: &Heap, work: Work, count: usize, base: usize) {
        let answer = heap.transaction(|tx| {
            body!(
                tx,
                work,
                count,
                base,
                |tx: &mut mangrove_txn::Tx<'_>, at| tx.read(Ptr::<u64>::at(at)),
                |tx: &mut mangrove_txn::Tx<'_>, at, value: u64| tx.write(Ptr::at(at), value)
            )
        });
        answer.expect("the medium is memory");
    }

    fn on_executor<T: TxThread>(thread: &mut T, work: Work, count: usize, base: usize) {
        let answer = thread.run(|tx| -> Result<(), Halt<Infallible>> {
            body!(
                tx,
                work,
                count,
                base,
                |tx: &mut T::Tx, at| tx.read_word(at),
                |tx: &mut T::Tx, at, value| tx.write_word(at, value)
            )
        });
        assert!(answer.is_ok(), "the medium is memory");
    }

    /// Counts each row; `checkpoint` empties the log.
    fn rows(checkpoint: impl Fn(), mut transaction: impl FnMut(Work, usize)) {
        for (_, work, count) in ROWS {
            (0..WARM).for_each(|_| transaction(work, count));
            for _ in 0..ROUNDS {
                checkpoint();
                transaction(work, count);
                let (work, count) = black_box((work, count));
                mark();
                transaction(work, count);
                mark();
            }
        }
    }

    /// What is counted, column by column.
    fn columns(folder: &Path) {
        // What the marks cost.
        mark();
        mark();
        for solo in [true, false] {
            let options = HeapOptions::new().executor(executor(solo)).create(Create::New).background(false);
            let options = options.medium(Medium::Emulated(Latency::new(0, 0)));
            let options = options.capacity(64 << 20).log_bytes(1 << 20).log_count(2);
            let heap = options.open(folder.join(format!("heap-{solo}"))).expect("a heap");
            let base = heap.transaction(|tx| tx.alloc_bytes(STRIDE * WORDS, STRIDE)).expect("room");
            rows(
                || heap.shadow().checkpoint().expect("the medium is memory"),
                |work, count| on_heap(&heap, work, count, base),
            );
        }
        for solo in [true, false] {
            let options = Options::new()
                .create(Create::New)
                .background(false)
                .medium(Medium::Emulated(Latency::new(0, 0)));
            let options = options.capacity(64 << 20).log_bytes(1 << 20).log_count(2);
            let shadow = Arc::new(options.open(folder.join(format!("words-{solo}"))).expect("a pool"));
            shadow.grow((STRIDE * WORDS) as u64).expect("room");
            // SAFETY: the executor ends before the shadow, and only transactions touch the words meanwhile.
            let memory = unsafe { TxMemory::new(shadow.base(), STRIDE * WORDS) };
            let stm = Stm::new(memory, HeapLog::new(Arc::clone(&shadow)), executor(solo));
            let mut thread = stm.thread();
            rows(
                || shadow.checkpoint().expect("the medium is memory"),
                |work, count| on_executor(&mut thread, work, count, memory.base()),
            );
        }
    }

    fn executor(solo: bool) -> StmOptions {
        StmOptions { solo_after: solo.then_some(1), ..StmOptions::default() }
    }

    /// Figures, row by row.
    type Figures = [[u64; COLUMNS.len()]; ROWS.len()];

    fn figures(mut counts: impl Iterator<Item = u64>) -> Figures {
        let marks = counts.next().expect("the marks were counted");
        let mut figures = Figures::default();
        for column in 0..COLUMNS.len() {
            for row in &mut figures {
                let mut rounds: Vec<u64> = counts.by_ref().take(ROUNDS).map(|count| count - marks).collect();
                rounds.sort_unstable();
                row[column] = rounds[ROUNDS / 2];
            }
        }
        figures
    }

    fn text(figures: &Figures) -> String {
        let mut text = format!("{:<20}", "instructions");
        COLUMNS.iter().for_each(|column| write!(text, "{column:>20}").expect("a string"));
        for ((name, ..), row) in ROWS.iter().zip(figures) {
            write!(text, "\n{name:<20}").expect("a string");
            row.iter().for_each(|figure| write!(text, "{figure:>20}").expect("a string"));
        }
        text + "\n"
    }

    /// What a text says.
    fn parse(text: &str) -> Option<Figures> {
        let mut figures = Figures::default();
        let mut lines = text.lines().skip(1);
        for row in &mut figures {
            let words: Vec<&str> = lines.next()?.split_whitespace().collect();
            for (figure, word) in row.iter_mut().zip(&words[words.len().checked_sub(COLUMNS.len())?..]) {
                *figure = word.parse().ok()?;
            }
        }
        Some(figures)
    }

    pub(super) fn run() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let counts = count(|| columns(folder.path())).expect("a child that can be traced");
        assert_eq!(counts.len(), 1 + COLUMNS.len() * ROWS.len() * ROUNDS, "two marks for each region");
        let found = figures(counts.into_iter());
        let found_text = text(&found);
        print!("{found_text}");
        let per = |column: usize, row: usize| (found[row + 1][column] - found[row][column]) as f64 / 63.0;
        for (column, name) in COLUMNS.iter().enumerate() {
            println!("{name}: {:.1} a further read, {:.1} a further write", per(column, 1), per(column, 3));
        }
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(GOLDEN, &found_text).expect("the golden table can be written");
        }
        let golden = std::fs::read_to_string(GOLDEN).ok().and_then(|text| parse(&text));
        let golden = golden.expect("a golden table; BLESS=1 makes one");
        let mut differs = 0;
        for ((name, ..), (row, golden)) in ROWS.iter().zip(found.iter().zip(&golden)) {
            for (column, (&now, &was)) in COLUMNS.iter().zip(row.iter().zip(golden)) {
                if now.abs_diff(was) * 100 > was * TOLERANCE {
                    println!("{name}, {column}: {now} instructions; the golden table says {was}");
                    differs += 1;
                }
            }
        }
        if differs > 0 {
            println!("{differs} figures differ by more than {TOLERANCE} % (BLESS=1 renews the table)");
            std::process::exit(1);
        }
    }
}

fn main() {
    #[cfg(target_arch = "x86_64")]
    table::run();
    #[cfg(not(target_arch = "x86_64"))]
    println!("instructions are counted on x86-64 only");
}
