//! Tests of the runtime over a backing that forgets, delays and fails on request.

#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what the tests point to lives on their stacks, and waits"
)]

use crate::runtime::fake::{FakeBacking, fake_runtime};
use crate::runtime::open_batch::forked;
use crate::{Error, Runtime};
use mangrove_tracker::{Explicit, SyscallHook, Tracker, WriteSet, in_tracked_call, will_write};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An argument of `add`: where, how much, and what was there.
#[repr(C)]
struct Add {
    to: *mut u64,
    amount: u64,
    before: u64,
}

unsafe extern "C" fn add(arg: *mut c_void) {
    assert!(in_tracked_call());
    // SAFETY: the tests pass an Add, alone.
    unsafe {
        let add = &mut *arg.cast::<Add>();
        will_write(add.to.cast(), 8);
        add.before = *add.to;
        *add.to += add.amount;
    }
}

fn cell() -> *mut u64 {
    // A cache line of its own: blocks of 32 bytes may be copied whole.
    let line: &'static mut [u64; 16] = Box::leak(Box::new([0; 16]));
    let at = line.as_mut_ptr();
    // SAFETY: within the sixteen words.
    unsafe { at.add(at.align_offset(64)) }
}

#[test]
fn an_answered_write_survives_and_one_that_waits_is_not_answered() {
    let (runtime, fake) = fake_runtime(true);
    let counter = cell();
    let mut client = runtime.client().unwrap();
    let mut one = Add { to: counter, amount: 5, before: 9 };
    let arg = (&raw mut one).cast();
    unsafe { client.write_durable(add, &[arg, arg]) }.unwrap();
    assert_eq!((one.before, fake.survivor(counter), fake.groups()), (5, 10, 1), "two commands, one group");

    fake.hold(true);
    let ticket = unsafe { client.write(add, &[arg]) }.unwrap();
    assert!(!runtime.may_answer(ticket));
    assert_eq!(fake.survivor(counter), 10);
    let ((), seen) = client.read(|| ()).unwrap();
    assert_eq!(seen, ticket, "a read waits for what it may have seen");
    fake.hold(false);
    runtime.wait(seen).unwrap();
    assert_eq!(fake.survivor(counter), 15);
    let stat = runtime.stat();
    assert_eq!((stat.batches, stat.commands, stat.committed, stat.durable), (2, 3, ticket, ticket));
    drop(client);
    runtime.close().unwrap();
}

#[test]
fn the_next_batch_runs_while_the_last_is_synced() {
    let (runtime, fake) = fake_runtime(true);
    let counter = cell();
    fake.hold(true);
    let done = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (mut client, done, at) = (runtime.client().unwrap(), Arc::clone(&done), counter.addr());
            std::thread::spawn(move || {
                let mut one = Add { to: at as *mut u64, amount: 1, before: 0 };
                unsafe { client.write_durable(add, &[(&raw mut one).cast()]) }.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    while runtime.stat().commands < 4 {
        std::thread::yield_now();
    }
    assert_eq!(done.load(Ordering::SeqCst), 0, "nobody is answered before the sync");
    fake.hold(false);
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(fake.survivor(counter), 4);
}

#[test]
fn with_an_interval_answers_do_not_wait() {
    let (runtime, fake) = fake_runtime(false);
    fake.hold(true);
    let counter = cell();
    let mut one = Add { to: counter, amount: 1, before: 0 };
    let mut client = runtime.client().unwrap();
    unsafe { client.write_durable(add, &[(&raw mut one).cast()]) }.unwrap();
    assert_eq!(client.read_durable(|| unsafe { *counter }).unwrap(), 1);
    fake.hold(false);
    runtime.sync().unwrap();
    assert_eq!(fake.survivor(counter), 1);
}

#[test]
fn an_error_of_the_medium_ends_writing_and_reads_go_on() {
    let (runtime, fake) = fake_runtime(true);
    let counter = cell();
    let mut one = Add { to: counter, amount: 1, before: 0 };
    let arg = (&raw mut one).cast();
    let mut client = runtime.client().unwrap();
    unsafe { client.write_durable(add, &[arg]) }.unwrap();
    fake.fail();
    let error = unsafe { client.write_durable(add, &[arg]) }.unwrap_err();
    assert!(matches!(&error, Error::Poisoned { first } if first.contains("the disk is gone")), "{error}");
    let ran = runtime.stat().commands;
    let again = unsafe { client.write(add, &[arg]) }.unwrap_err();
    assert_eq!(again.to_string(), error.to_string(), "the first error stays");
    assert_eq!(runtime.stat().commands, ran, "no command runs any more");
    assert!(client.read_durable(|| unsafe { *counter }).unwrap() >= 1);
    assert_eq!(fake.survivor(counter), 1);
    drop(client);
    assert!(runtime.close().is_err());
}

#[test]
fn no_command_runs_once_the_medium_has_failed_behind() {
    let (runtime, fake) = fake_runtime(false);
    let counter = cell();
    let mut one = Add { to: counter, amount: 1, before: 0 };
    let arg = (&raw mut one).cast();
    let mut client = runtime.client().unwrap();
    unsafe { client.write(add, &[arg]) }.unwrap();
    assert!(runtime.stat().failure.is_none());
    fake.poison();
    assert!(runtime.stat().failure.is_some_and(|error| error.to_string().contains("went unseen")));
    let error = unsafe { client.write(add, &[arg]) }.unwrap_err();
    assert!(matches!(&error, Error::Poisoned { first } if first.contains("went unseen")), "{error}");
    assert_eq!(runtime.failure().map(|e| e.to_string()), Some(error.to_string()));
    assert_eq!((runtime.stat().commands, client.read_durable(|| unsafe { *counter }).unwrap()), (1, 1));
}

#[test]
fn a_command_that_ended_halfway_ends_everything() {
    let (runtime, fake) = fake_runtime(true);
    let counter = cell();
    let mut one = Add { to: counter, amount: 1, before: 0 };
    let arg = (&raw mut one).cast();
    let mut client = runtime.client().unwrap();
    unsafe { client.write_durable(add, &[arg]) }.unwrap();
    static BROKEN: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);
    *BROKEN.lock() = Some(Arc::clone(&runtime));
    unsafe extern "C" fn half(arg: *mut c_void) {
        // SAFETY: passed on.
        unsafe { add(arg) };
        let runtime = BROKEN.lock().take().unwrap();
        runtime.abandon();
    }
    let error = unsafe { client.write(half, &[arg]) }.unwrap_err();
    assert!(matches!(&error, Error::Broken { what } if what.contains("it panicked")), "{error}");
    assert!(matches!(client.read(|| ()), Err(Error::Broken { .. })));
    assert_eq!((fake.groups(), fake.survivor(counter)), (1, 1), "half a command is never committed");
}

#[test]
fn after_half_a_command_no_other_of_its_batch_runs() {
    let (runtime, fake) = fake_runtime(true);
    let counter = cell();
    struct Step {
        runtime: Arc<Runtime>,
        to: *mut u64,
        gives_up: bool,
    }
    unsafe extern "C" fn step(arg: *mut c_void) {
        // SAFETY: the test passes a Step, alone.
        unsafe {
            let step = &*arg.cast::<Step>();
            will_write(step.to.cast(), 8);
            *step.to += 1;
            if step.gives_up {
                step.runtime.abandon();
            }
        }
    }
    let make = |gives_up| Step { runtime: Arc::clone(&runtime), to: counter, gives_up };
    let mut steps = [false, true, false].map(make);
    let args = steps.each_mut().map(|step| std::ptr::from_mut(step).cast::<c_void>());
    let error = unsafe { runtime.client().unwrap().write(step, &args) }.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert_eq!(unsafe { *counter }, 2, "the third command sees nothing of the second");
    assert_eq!((fake.groups(), fake.survivor(counter)), (0, 0));
}

/// A tracker of a process in which another thread opens a state and sets up its tracker: for so many calls.
struct BusyAtFirst(AtomicU64);

impl Tracker for BusyAtFirst {
    fn name(&self) -> &'static str {
        Explicit.name()
    }

    unsafe fn call(
        &self,
        writes: &mut WriteSet,
        f: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    ) -> mangrove_tracker::Result<()> {
        if self.0.load(Ordering::Relaxed) > 0 {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return Err(mangrove_tracker::Error::Busy);
        }
        // SAFETY: passed on.
        unsafe { Explicit.call(writes, f, arg) }
    }

    fn add_leaf(&self, _address: usize) {}

    fn set_syscall_hook(&self, _hook: &'static dyn SyscallHook) {}
}

#[test]
fn a_command_waits_for_the_tracker() {
    let fake = FakeBacking::default();
    let tracker = Box::new(BusyAtFirst(AtomicU64::new(3)));
    let runtime = Runtime::over(tracker, Box::new(fake.clone()), WriteSet::new(32).unwrap(), true);
    let (runtime, counter) = (Arc::new(runtime), cell());
    let mut one = Add { to: counter, amount: 1, before: 9 };
    unsafe { runtime.client().unwrap().write_durable(add, &[(&raw mut one).cast()]) }.unwrap();
    assert_eq!((one.before, fake.survivor(counter)), (0, 1));
}

#[test]
fn calls_from_inside_a_command_are_refused() {
    let (runtime, _fake) = fake_runtime(true);
    struct Inner {
        client: crate::Client,
        answers: [bool; 2],
    }
    unsafe extern "C" fn nested(arg: *mut c_void) {
        // SAFETY: the test passes an Inner, alone.
        let inner = unsafe { &mut *arg.cast::<Inner>() };
        let write = unsafe { inner.client.write(nested, &[arg]) };
        let read = inner.client.read(|| ());
        inner.answers = [matches!(write, Err(Error::Nested)), matches!(read, Err(Error::Nested))];
    }
    let mut inner = Inner { client: runtime.client().unwrap(), answers: [false; 2] };
    let mut client = runtime.client().unwrap();
    unsafe { client.write_durable(nested, &[(&raw mut inner).cast()]) }.unwrap();
    assert_eq!(inner.answers, [true, true]);
}

#[test]
fn reads_of_another_state_from_inside_a_command_are_refused() {
    let [(runtime, _), (other, _)] = [fake_runtime(true), fake_runtime(true)];
    struct Inner {
        client: crate::Client,
        is_refused: bool,
    }
    unsafe extern "C" fn nested(arg: *mut c_void) {
        // SAFETY: the test passes an Inner, alone.
        let inner = unsafe { &mut *arg.cast::<Inner>() };
        inner.is_refused = matches!(inner.client.read(|| ()), Err(Error::Nested));
    }
    let mut inner = Inner { client: other.client().unwrap(), is_refused: false };
    unsafe { runtime.client().unwrap().write_durable(nested, &[(&raw mut inner).cast()]) }.unwrap();
    assert!(inner.is_refused);
    inner.client.read(|| ()).unwrap();
}

#[test]
fn a_runtime_with_clients_is_not_closed() {
    let (runtime, _fake) = fake_runtime(true);
    let client = runtime.client().unwrap();
    let error = Arc::clone(&runtime).close().unwrap_err().to_string();
    assert!(error.contains("clients are still alive"), "{error}");
    drop(client);
    runtime.close().unwrap();
}

/// As by `_Fork`: no handler of pthread_atfork runs there.
#[test]
fn a_child_that_was_made_past_the_handlers_is_refused() {
    let (runtime, _fake) = fake_runtime(true);
    let mut client = runtime.client().unwrap();
    // The child's message fits into this thread's block: a thread that it does not have may hold a lock of the heap.
    drop(forked());
    let flags = libc::c_long::from(libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: as fork(2); the child asks, and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    if child == 0 {
        let is_refused = matches!(client.read(|| ()), Err(Error::Batch { .. }));
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    assert!(child > 0);
    let mut status = -1;
    assert_eq!(unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) }, child as libc::pid_t);
    assert_eq!(status, 0, "the child is refused");
    client.read(|| ()).unwrap();
}

/// Eight threads, one counter each and one for all: sums are right, and reads see whole batches.
#[test]
fn threads_agree() {
    let (runtime, fake) = fake_runtime(true);
    let cells = [cell(), cell()];
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, at) = (runtime.client().unwrap(), cells.map(|c| c.addr()));
            std::thread::spawn(move || {
                for _ in 0..300 {
                    let mut adds = at.map(|a| Add { to: a as *mut u64, amount: 1, before: 0 });
                    let [first, second] = &mut adds;
                    let args = [(&raw mut *first).cast(), (&raw mut *second).cast()];
                    unsafe { client.write_durable(add, &args) }.unwrap();
                    assert_eq!(adds[0].before, adds[1].before, "a job's commands run together");
                    let (a, b) = client
                        .read_durable(|| unsafe { (*(at[0] as *mut u64), *(at[1] as *mut u64)) })
                        .unwrap();
                    assert_eq!(a, b);
                    assert!(a > adds[0].before, "a thread reads its own write");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(cells.map(|c| fake.survivor(c)), [2400, 2400]);
}
