//! HTM+SGL: transactions that change durable memory in place. What was acknowledged comes back, what a crash
//! interrupts is undone, and each place that the text of Algorithm 1 leaves open.
//!
//! A crash is a copy of the pool's files that is made while a transaction runs: emulated memory is mapped from them, so
//! they hold every store so far.

use crate::bank::{Bank, Body};
use mangrove_pool::{
    Error, Fault, FaultKind, Faulty, FaultyOperation, Lsn, MediumOps, Observers, OsStorage, Pool,
    PoolOptions, Region, Site, StoreObserver,
};
use mangrove_shadow::Options;
use mangrove_testkit::process::in_child;
use mangrove_txn::{
    Create, Domain, Halt, HardwareLimits, HtmSgl, InPlaceMemory, InPlaceOptions, Isolation, Latency, Medium,
    MediumKind, Protocol, TxAccess, TxError, TxThread,
};
use std::convert::Infallible;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

const EMULATED: Medium = Medium::Emulated(Latency::new(0, 0));
const DOMAINS: [Domain; 2] = [Domain::Adr, Domain::Eadr];
const BANK: Bank = Bank { accounts: 64, threads: 3, varies: true };
const ENTRIES: u64 = 64;
/// Words that `fill` fills.
const FILLED: usize = 8;
/// Where the undo log and the data begin; see docs/format/in-place.md.
const AT_LOG: u64 = 4096;
const AT_DATA: u64 = AT_LOG + 4096;
/// The word of cleared entries.
const AT_CLEARED: u64 = 64;
/// Bytes of an entry, and what its words are.
const ENTRY_BYTES: u64 = 32;
const IN_ENTRY_COUNT: u64 = 24;

fn options(domain: Domain) -> InPlaceOptions {
    InPlaceOptions::new().medium(EMULATED).bytes(1 << 16).undo_entries(ENTRIES).domain(domain)
}

fn open(path: &Path, domain: Domain) -> Arc<InPlaceMemory> {
    let memory = options(domain).open(path).unwrap();
    memory.check().unwrap();
    Arc::new(memory)
}

fn word(memory: &InPlaceMemory, at: usize) -> u64 {
    assert!((at as u64) < memory.bytes() / 8);
    // SAFETY: inside the data, aligned, and no transaction runs.
    unsafe { memory.base().cast::<u64>().add(at).read() }
}

/// A crash now: the files as they are.
fn crash(pool: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let to = pool.with_extension(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir(&to).unwrap();
    for file in std::fs::read_dir(pool).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    to
}

fn image(pool: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().read(true).write(true).open(pool.join("image")).unwrap()
}

fn set_word(pool: &Path, at: u64, value: u64) {
    image(pool).write_all_at(&value.to_le_bytes(), at).unwrap();
}

/// Hardware that takes no write: every transaction that writes has the lock.
const NO_ROOM: HardwareLimits =
    HardwareLimits { write_sets: 1, write_ways: 0, read_lines_max: 64, spurious_per_million: 0 };

/// Runs the test on the lock path of each executor that is right on each domain. The first words are filled.
fn with_the_lock(test: impl Fn(&Path, Domain, Arc<InPlaceMemory>, &mut dyn Transacts)) {
    let filled = |path: &Path, domain, memory: Arc<InPlaceMemory>, thread: &mut dyn Transacts| {
        fill(memory.base().addr(), thread);
        test(path, domain, memory, thread);
    };
    for domain in DOMAINS {
        for executor in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("memory");
            let memory = open(&path, domain);
            match executor {
                0 => {
                    let executor = HtmSgl::one_lock(Arc::clone(&memory)).unwrap();
                    filled(&path, domain, memory, &mut executor.thread());
                }
                1 if domain == Domain::Eadr => {
                    let executor = HtmSgl::modelled(Arc::clone(&memory), NO_ROOM).unwrap();
                    filled(&path, domain, memory, &mut executor.thread());
                }
                2 if domain == Domain::Eadr && !mangrove_sys::rtm().commits() => {
                    let executor = HtmSgl::rtm(Arc::clone(&memory)).unwrap();
                    filled(&path, domain, memory, &mut executor.thread());
                }
                _ => {}
            }
        }
    }
}

type Words<'a> = &'a mut dyn FnMut(&mut dyn Accesses) -> Result<(), Halt<&'static str>>;

/// What the tests need of a thread, whichever the executor.
trait Transacts {
    fn transact(&mut self, body: Words<'_>) -> Result<(), TxError<&'static str, Error>>;
    fn alone(&mut self, writes: &[(usize, u64)]) -> Result<(), TxError<Infallible, Error>>;
}

/// What the tests need of a transaction.
trait Accesses {
    fn set(&mut self, at: usize, value: u64) -> Result<(), Halt<&'static str>>;
    fn set_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), Halt<&'static str>>;
    fn undone(&mut self, at: usize, value: u64);
}

impl<T: TxAccess> Accesses for T {
    fn set(&mut self, at: usize, value: u64) -> Result<(), Halt<&'static str>> {
        Ok(self.write_word(at, value)?)
    }

    fn set_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), Halt<&'static str>> {
        Ok(self.write_bytes(at, bytes)?)
    }

    /// A nested transaction that is undone.
    fn undone(&mut self, at: usize, value: u64) {
        let answer = self.nested(|tx| {
            tx.write_word(at, value)?;
            Err::<(), _>(Halt::Abort("undone"))
        });
        assert_eq!(answer, Err(Halt::Abort("undone")));
    }
}

impl<H: TxThread<SinkError = Error>> Transacts for H {
    fn transact(&mut self, body: Words<'_>) -> Result<(), TxError<&'static str, Error>> {
        self.run(|tx| body(tx))
    }

    fn alone(&mut self, writes: &[(usize, u64)]) -> Result<(), TxError<Infallible, Error>> {
        self.irrevocable(|tx| writes.iter().try_for_each(|&(at, value)| tx.write_word(at, value)))
    }
}

fn fill(base: usize, thread: &mut dyn Transacts) {
    thread.transact(&mut |tx| (0..FILLED).try_for_each(|n| tx.set(base + n * 8, n as u64 + 1))).unwrap();
}

/// The words of the copy are those that `fill` has left.
fn is_filled(copy: &Path, domain: Domain) {
    let memory = open(copy, domain);
    let found: Vec<u64> = (0..FILLED).map(|at| word(&memory, at)).collect();
    assert_eq!(found, (1..=FILLED as u64).collect::<Vec<_>>(), "{domain:?}");
}

#[test]
fn recovery_undoes_the_newest_store_first() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let mut crashed = Vec::new();
        thread
            .transact(&mut |tx| {
                // The same word three times, bytes of it, and a range over two words.
                tx.set(base, 70)?;
                crashed.push(crash(path));
                tx.set(base, 71)?;
                tx.set_bytes(base + 3, &[9, 9])?;
                crashed.push(crash(path));
                tx.set(base, 72)?;
                tx.set_bytes(base + 5, &[7; 9])?;
                tx.undone(base + 24, 73);
                tx.undone(base, 74);
                crashed.push(crash(path));
                Ok(())
            })
            .unwrap();
        for copy in &crashed {
            is_filled(copy, domain);
        }
        // Committed, so nothing is undone.
        let copy = crash(path);
        assert_eq!(word(&open(&copy, domain), 3), 4);
        assert_eq!(word(&open(&copy, domain), 0), 72 | 7 << 40 | 7 << 48 | 7 << 56);
    });
}

#[test]
fn a_recovery_that_is_interrupted_begins_again() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let mut copy = None;
        thread
            .transact(&mut |tx| {
                (0..8).try_for_each(|n| tx.set(base + n * 8, 100))?;
                (0..8).try_for_each(|n| tx.set(base + n * 8, 101))?;
                copy = Some(crash(path));
                Ok(())
            })
            .unwrap();
        // Some of the stores of recovery, newest first, and the log as it was.
        for done in 0..16_u64 {
            let copy = crash(copy.as_ref().unwrap());
            for at in (16 - done..16).rev() {
                set_word(&copy, AT_DATA + at % 8 * 8, if at < 8 { at + 1 } else { 100 });
            }
            is_filled(&copy, domain);
            is_filled(&copy, domain);
        }
    });
}

#[test]
fn an_entry_without_its_count_is_none() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let mut copy = None;
        thread
            .transact(&mut |tx| {
                tx.set(base, 70)?;
                tx.set(base + 8, 71)?;
                copy = Some(crash(path));
                tx.set(base + 16, 72)
            })
            .unwrap();
        // The third entry is as far as a crash let it come; the words of the first transaction's third are still there.
        let third = AT_LOG + 2 * ENTRY_BYTES;
        for words in 0..=3 {
            let copy = crash(copy.as_ref().unwrap());
            for word in 0..words {
                set_word(&copy, third + word * 8, 0xDEAD << word);
            }
            is_filled(&copy, domain);
        }
    });
}

#[test]
fn a_damaged_undo_log_is_refused() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let mut copy = None;
        thread
            .transact(&mut |tx| {
                (0..3).try_for_each(|n| tx.set(base + n * 8, 100))?;
                copy = Some(crash(path));
                Ok(())
            })
            .unwrap();
        let copy = copy.unwrap();
        // Each byte of three entries, of the header's words, and of the count of cleared entries.
        for at in (AT_LOG..AT_LOG + 3 * ENTRY_BYTES).chain(0..48).chain(64..72) {
            let damaged = crash(&copy);
            let mut byte = [0];
            image(&damaged).read_exact_at(&mut byte, at).unwrap();
            image(&damaged).write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            let error = options(domain).open(&damaged).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. } | Error::Newer { .. }), "byte {at}: {error}");
        }
        // An entry that is missing before others, and one that restores what is no data.
        let damaged = crash(&copy);
        set_word(&damaged, AT_LOG + ENTRY_BYTES + IN_ENTRY_COUNT, 0);
        let error = options(domain).open(&damaged).unwrap_err();
        assert!(error.to_string().contains("an undo entry is damaged"), "{error}");
        // A count of cleared entries that was lost: none would count, and the transaction would stay in part.
        let damaged = crash(&copy);
        set_word(&damaged, AT_CLEARED, 0);
        let error = options(domain).open(&damaged).unwrap_err();
        assert!(error.to_string().contains("older than its entries"), "{error}");
        is_filled(&copy, domain);
    });
}

#[test]
fn a_blank_header_is_refused_where_memory_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    drop(open(&path, Domain::Eadr));
    image(&path).write_all_at(&[0; 128], 0).unwrap();
    let error = options(Domain::Eadr).open(&path).unwrap_err();
    assert!(error.to_string().contains("its header is blank"), "{error}");
}

#[test]
fn a_transaction_longer_than_the_log_is_undone_and_fails() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let long: Vec<(usize, u64)> = (0..=ENTRIES).map(|n| (base + n as usize % 8 * 8, 1000 + n)).collect();
        let names_the_cure = |error: Error| assert!(error.to_string().contains("undo_entries"), "{error}");
        for swallows in [false, true] {
            let mut runs = 0;
            let answer = thread.transact(&mut |tx| {
                runs += 1;
                let written = long.iter().try_for_each(|&(at, value)| tx.set(at, value));
                if swallows { Ok(()) } else { written }
            });
            let Err(TxError::Refused(error)) = answer else { panic!("{answer:?}") };
            names_the_cure(error);
            assert!(runs <= 2, "run in hardware and with the lock, and not again: {runs}");
            is_filled(&crash(path), domain);
        }
        let Err(TxError::Refused(error)) = thread.alone(&long) else { panic!("an irrevocable one") };
        names_the_cure(error);
        is_filled(&crash(path), domain);
        thread.alone(&long[..ENTRIES as usize]).unwrap();
        memory.check().unwrap();
        assert_eq!(word(&memory, 7), 1000 + ENTRIES - 1);
    });
}

#[test]
fn aborts_and_panics_with_the_lock_leave_nothing() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let answer = thread.transact(&mut |tx| {
            (0..8).try_for_each(|n| tx.set(base + n * 8, 100))?;
            Err(Halt::Abort("not covered"))
        });
        assert!(matches!(answer, Err(TxError::Aborted("not covered"))), "{answer:?}");
        memory.check().unwrap();
        is_filled(&crash(path), domain);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            thread.transact(&mut |tx| {
                (0..8).try_for_each(|n| tx.set(base + n * 8, 100))?;
                panic!("in a body")
            })
        }));
        assert!(panics.is_err());
        memory.check().unwrap();
        is_filled(&crash(path), domain);
        // What comes afterwards is not taken for a part of it.
        thread.transact(&mut |tx| tx.set(base, 5)).unwrap();
        assert_eq!(word(&open(&crash(path), domain), 0), 5);
    });
}

/// The error of a child of fork.
fn is_forked(error: &Error) -> bool {
    matches!(error, Error::Unsupported { what } if what.contains("before this process was forked"))
}

/// Emulated memory is a file that parent and child have mapped together.
#[test]
fn a_child_of_fork_runs_no_transaction_on_its_parents_memory() {
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        let status = in_child(|| {
            let mut runs = 0;
            let answer = thread.transact(&mut |tx| {
                runs += 1;
                tx.set(base, 70)
            });
            assert!(matches!(&answer, Err(TxError::Refused(error)) if is_forked(error)), "{answer:?}");
            let answer = thread.alone(&[(base, 71)]);
            assert!(matches!(&answer, Err(TxError::Refused(error)) if is_forked(error)), "{answer:?}");
            assert_eq!(runs, 0);
        });
        assert_eq!((status, word(&memory, 0)), (0, 1));
        memory.check().unwrap();
        is_filled(&crash(path), domain);
    });
}

/// The child has a copy of the parent's transaction, and must not end that one: not store, not undo, not clear its log.
#[test]
fn a_child_that_is_forked_in_a_body_leaves_the_parents_transaction_alone() {
    /// Ends a child that waits.
    const SECONDS_MAX: u32 = 300;
    with_the_lock(|path, domain, memory, thread| {
        let base = memory.base().addr();
        for ending in [Ok(()), Err(Halt::Retry), Err(Halt::Abort("in the child"))] {
            let (mut child, mut seen) = (-1, None);
            let answer = thread.transact(&mut |tx| {
                tx.set(base, 70)?;
                // SAFETY: the child leaves the body, which allocates little of the process's memory, and exits.
                child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: asks for a signal.
                    unsafe { libc::alarm(SECONDS_MAX) };
                    let _ = tx.set(base + 8, 71);
                    return ending;
                }
                let mut status = -1;
                // SAFETY: waits for the child.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                seen = Some((status, word(&memory, 0), word(&memory, 1), crash(path)));
                Err(Halt::Abort("in the parent"))
            });
            if child == 0 {
                let refused = matches!(&answer, Err(TxError::Refused(error)) if is_forked(error));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!refused)) };
            }
            assert!(matches!(answer, Err(TxError::Aborted("in the parent"))), "{answer:?}");
            let (status, first, second, copy) = seen.expect("the parent's body ran");
            assert_eq!((status, first, second), (0, 70, 2), "{ending:?}");
            is_filled(&copy, domain);
            is_filled(&crash(path), domain);
        }
    });
}

#[test]
fn a_child_of_fork_does_not_close_its_parents_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let mut memory = Arc::into_inner(open(&path, Domain::Eadr));
    let status = in_child(|| {
        let error = memory.take().unwrap().close().unwrap_err();
        assert!(is_forked(&error), "{error}");
    });
    assert_eq!((status, Pool::inspect(&path).unwrap().clean), (0, false));
    memory.unwrap().close().unwrap();
    assert!(Pool::inspect(&path).unwrap().clean);
}

/// Memory that tells of each store to the word of cleared entries.
struct Watched {
    memory: Box<[u64]>,
    hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl MediumOps for Watched {
    fn observers(self: Arc<Self>) -> Observers {
        Observers { stores: Some(self), ..Observers::default() }
    }

    unsafe fn flush(&self, _offset: u64, _ptr: *const u8, _len: usize, _site: Site) {}

    fn fence(&self, _site: Site) {}

    fn wait(&self, _lsn: Lsn, _site: Site) -> Result<(), Error> {
        Ok(())
    }

    fn grow(&self, bytes: u64) -> Result<(), Error> {
        assert!(bytes <= self.memory.len() as u64 * 8);
        Ok(())
    }
}

impl StoreObserver for Watched {
    fn stored(&self, offset: u64, _len: usize, _site: Site) {
        if let Some(hook) = self.hook.get().filter(|_| offset == AT_CLEARED) {
            hook();
        }
    }
}

/// Otherwise recovery would undo what hardware committed before the log of an aborted transaction was cleared.
#[test]
fn no_hardware_commits_before_the_log_of_an_aborted_transaction_is_cleared() {
    let medium = Arc::new(Watched { memory: vec![0; 4096].into(), hook: OnceLock::new() });
    let base = NonNull::new(medium.memory.as_ptr().cast_mut().cast()).unwrap();
    // SAFETY: the medium keeps the memory, and only the region stores there.
    let region = unsafe { Region::new(base, 8 * 4096, Arc::clone(&medium) as Arc<dyn MediumOps>) };
    let memory = Arc::new(options(Domain::Eadr).bytes(4096).on_region(region).unwrap());
    let base = memory.base().addr();
    let limits = HardwareLimits { write_sets: 1, write_ways: 4, ..HardwareLimits::default() };
    let executor = Arc::new(HtmSgl::modelled(Arc::clone(&memory), limits).unwrap());
    let (begins, begun) = channel();
    let (ends, ended) = channel();
    let other = Arc::clone(&executor);
    let worker = std::thread::spawn(move || {
        begun.recv().unwrap();
        let answer = other.thread().run(|tx| -> Body<()> { Ok(tx.write_word(base, 5)?) });
        ends.send(()).unwrap();
        answer.unwrap();
    });
    let ended = Mutex::new(ended);
    let early = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&early);
    let hook = move || {
        let _ = begins.send(());
        // The right executor makes the other thread wait, however long this is.
        seen.fetch_or(
            ended.lock().unwrap().recv_timeout(Duration::from_millis(200)).is_ok(),
            Ordering::Relaxed,
        );
    };
    assert!(medium.hook.set(Box::new(hook)).is_ok());
    // More lines than hardware holds.
    let answer = executor.thread().run(|tx| {
        (0..8).try_for_each(|n| tx.write_word(base + n * 64, 7))?;
        Err::<(), _>(Halt::Abort(()))
    });
    assert!(matches!(answer, Err(TxError::Aborted(()))));
    assert!(!early.load(Ordering::Relaxed), "a commit in hardware while the log was not cleared");
    worker.join().unwrap();
    assert_eq!(word(&memory, 0), 5);
}

#[test]
fn what_is_not_right_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |error: Error, words: &[&str]| {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    };
    let path = folder.path().join("file");
    let file = options(Domain::Eadr).medium(Medium::File).open(&path).unwrap_err();
    refused(file, &["HTM+SGL on the file medium", "use a heap"]);
    assert!(!path.exists(), "nothing is made");
    for (medium, words) in [(Medium::File, "on the file medium"), (EMULATED, "use InPlaceMemory")] {
        let shadow =
            Options::new().create(Create::IfMissing).medium(medium).capacity(1 << 20).log_bytes(64 << 10);
        let shadow = Arc::new(shadow.open(folder.path().join(format!("shadow {medium}"))).unwrap());
        refused(Protocol::HtmSgl.log(shadow).unwrap_err(), &["HTM+SGL", words]);
    }
    let path = folder.path().join("adr");
    let memory = open(&path, Domain::Adr);
    let words = ["HTM+SGL in hardware", "persistent caches (eADR)", "lock path"];
    refused(HtmSgl::modelled(Arc::clone(&memory), HardwareLimits::default()).unwrap_err(), &words);
    refused(HtmSgl::rtm(Arc::clone(&memory)).unwrap_err(), &words);
    let first = HtmSgl::one_lock(Arc::clone(&memory)).unwrap();
    refused(HtmSgl::one_lock(Arc::clone(&memory)).unwrap_err(), &["another executor"]);
    drop(first);
    drop(HtmSgl::one_lock(memory).unwrap());
    for wrong in [options(Domain::Eadr).undo_entries(0), options(Domain::Eadr).undo_entries(1 << 25)] {
        refused(wrong.open(folder.path().join("entries")).unwrap_err(), &["1 to 16777216 entries"]);
    }
    refused(
        options(Domain::Eadr).bytes(0).open(folder.path().join("bytes")).unwrap_err(),
        &["8 bytes or more"],
    );
}

#[test]
fn a_creation_that_finds_no_space_leaves_nothing() {
    const ENOSPC: i32 = 28;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let storage = Faulty::new(Arc::new(OsStorage));
    let (operations, kind) = (vec![FaultyOperation::Allocate], FaultKind::ErrnoForEver(ENOSPC));
    storage.plant(Fault { file: None, operations, nth: 0, kind });
    let options = options(Domain::Adr).storage(Arc::new(storage.clone()));
    let error = options.open(&path).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!path.exists());
    storage.heal();
    options.open(&path).unwrap().close().unwrap();
}

#[test]
fn a_pool_of_another_kind_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    for medium in [EMULATED, Medium::File] {
        let path = folder.path().join(format!("{medium}"));
        let pool = PoolOptions::new().create(Create::IfMissing).kind("map").medium(medium).capacity(1 << 20);
        pool.open(&path).unwrap().close().unwrap();
        let error = InPlaceOptions::new().open(&path).unwrap_err();
        assert!(
            matches!(&error, Error::WrongKind { found, wanted, .. } if found == "map" && wanted == "in-place")
        );
        assert!(Pool::inspect(&path).unwrap().clean);
    }
    let path = folder.path().join("ours");
    Arc::into_inner(open(&path, Domain::Eadr)).unwrap().close().unwrap();
    let info = Pool::inspect(&path).unwrap();
    assert_eq!(
        (&*info.kind, info.medium, info.made, info.clean),
        ("in-place", MediumKind::Emulated, true, true)
    );
}

fn come_back<X: Isolation>(domain: Domain, make: impl Fn(Arc<InPlaceMemory>) -> Result<X, Error>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory");
    let mut acknowledged = BANK.none();
    for opening in 0..4 {
        let memory = Arc::new(options(domain).bytes(1 << 20).open(&path).unwrap());
        memory.check().unwrap();
        // Beyond the part of the pool that the undo log's flushes tell of.
        let first = (memory.bytes() as usize - 4096) / 8;
        let base = memory.base().addr() + first * 8;
        let executor = make(Arc::clone(&memory)).unwrap();
        if opening == 0 {
            BANK.fill(&executor, base);
        } else {
            let words: Vec<u64> = (0..BANK.words()).map(|at| word(&memory, first + at)).collect();
            BANK.is_right(&words, &acknowledged, &format!("{domain:?}"));
        }
        acknowledged = BANK.transfers(&executor, base, 100);
        drop(executor);
        memory.check().unwrap();
        if opening % 2 == 0 {
            // The next opening compares every page with its checksum.
            Arc::into_inner(memory).unwrap().close().unwrap();
            assert!(Pool::check(&path).unwrap().damage.is_empty());
        }
        // Otherwise it ends without being closed: a crash, as far as the data can tell.
    }
}

#[test]
fn what_was_acknowledged_comes_back() {
    for domain in DOMAINS {
        come_back(domain, HtmSgl::one_lock);
    }
    let limits = HardwareLimits { spurious_per_million: 20_000, ..HardwareLimits::default() };
    come_back(Domain::Eadr, |memory| HtmSgl::modelled(memory, limits));
    come_back(Domain::Eadr, |memory| HtmSgl::modelled(memory, NO_ROOM));
    come_back(Domain::Eadr, HtmSgl::rtm);
}
