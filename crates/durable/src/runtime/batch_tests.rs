//! Tests of batches that a program fills itself, over a backing that forgets, delays and fails on request.

#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "what the tests point to lives on their stacks or for ever, and waits"
)]

use crate::runtime::fake::fake_runtime;
use crate::{Error, Runtime, Ticket};
use mangrove_testkit::process::in_child;
use mangrove_tracker::will_write;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A moment that is long enough for what must not happen.
const MOMENT: Duration = Duration::from_millis(30);

unsafe extern "C" fn increment(arg: *mut c_void) {
    let cell = arg.cast::<u64>();
    will_write(cell.cast(), 8);
    unsafe { *cell += 1 };
}

fn cells() -> &'static mut [u64; 32] {
    #[repr(align(128))]
    struct Aligned([u64; 32]);
    &mut Box::leak(Box::new(Aligned([0; 32]))).0
}

fn call(runtime: &Arc<Runtime>, cell: &mut u64) -> crate::Result<()> {
    unsafe { runtime.batch_call(increment, std::ptr::from_mut(cell).cast()) }
}

fn is_readable(fd: RawFd, limit: Duration) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    unsafe { libc::poll(&raw mut one, 1, limit.as_millis() as i32) == 1 }
}

/// The descriptor's count, which clears it; 0 when it is not readable.
fn take(fd: RawFd) -> u64 {
    let mut count = 0u64;
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
    count
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_calls_of_a_batch_are_one_group_and_tickets_grow() {
    let (runtime, fake) = fake_runtime(true);
    let [a, .., b] = cells();
    fake.hold(true);
    let mut before = Ticket(0);
    for round in 1..=5 {
        for _ in 0..100 {
            call(&runtime, a).unwrap();
            call(&runtime, b).unwrap();
        }
        assert_eq!(fake.groups(), round - 1, "nothing is committed before the commit");
        let ticket = runtime.batch_commit().unwrap();
        assert!(ticket > before && runtime.durable() < ticket);
        before = ticket;
        assert_eq!(fake.groups(), round);
    }
    assert_eq!((fake.survivor(a), fake.survivor(b)), (0, 0));
    fake.hold(false);
    runtime.batch_wait(Ticket(2)).unwrap();
    assert_eq!((fake.survivor(a), fake.survivor(b)), (200, 200));
    runtime.batch_wait(before).unwrap();
    assert_eq!((runtime.durable(), fake.survivor(a), fake.survivor(b)), (before, 500, 500));
    let stat = runtime.stat();
    assert_eq!((stat.batches, stat.commands, stat.committed, stat.durable), (5, 1000, before, before));
}

#[test]
fn clients_wait_while_a_batch_is_open() {
    let (runtime, fake) = fake_runtime(true);
    let [a, .., b] = cells();
    call(&runtime, a).unwrap();
    let (mut writer, mut reader) = (runtime.client().unwrap(), runtime.client().unwrap());
    let (wrote, read) = (AtomicBool::new(false), AtomicBool::new(false));
    let (to, from) = (std::ptr::from_mut(b).addr(), std::ptr::from_ref(a).addr());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            unsafe { writer.write_durable(increment, &[to as *mut c_void]) }.unwrap();
            wrote.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            let (seen, ticket) = reader.read(|| unsafe { *(from as *const u64) }).unwrap();
            assert!(seen == 2 && ticket > Ticket(0), "a read sees whole batches, and their ticket");
            read.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(MOMENT);
        call(&runtime, a).unwrap();
        assert!(!wrote.load(Ordering::SeqCst) && !read.load(Ordering::SeqCst));
        runtime.batch_commit().unwrap();
    });
    assert_eq!((fake.survivor(a), fake.survivor(b)), (2, 1));
}

#[test]
fn the_descriptor_tells_when_a_batch_becomes_durable_and_else_never() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    let fd = runtime.notify_fd().unwrap();
    assert_eq!(runtime.notify_fd().unwrap(), fd);
    assert!(!is_readable(fd, MOMENT));
    for round in 1..=20 {
        fake.hold(true);
        call(&runtime, a).unwrap();
        let ticket = runtime.batch_commit().unwrap();
        if round < 4 {
            assert!(!is_readable(fd, MOMENT), "nothing has become durable");
        }
        fake.hold(false);
        assert!(is_readable(fd, LONG), "round {round}");
        assert_eq!((take(fd), runtime.durable(), fake.survivor(a)), (1, ticket, round));
    }
    assert!(!is_readable(fd, MOMENT), "one event a batch");
    // Several batches under way may become durable together.
    fake.hold(true);
    let tickets: Vec<_> = (0..5)
        .map(|_| {
            call(&runtime, a).unwrap();
            runtime.batch_commit().unwrap()
        })
        .collect();
    fake.hold(false);
    while runtime.durable() < tickets[4] {
        assert!(is_readable(fd, LONG));
        assert!((1..=5).contains(&take(fd)));
    }
    runtime.close().unwrap();
}

#[test]
fn what_was_committed_before_the_descriptor_was_asked_for_becomes_durable_too() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    call(&runtime, a).unwrap();
    let ticket = runtime.batch_commit().unwrap();
    let fd = runtime.notify_fd().unwrap();
    assert!(is_readable(fd, LONG));
    assert_eq!((runtime.durable(), fake.survivor(a)), (ticket, 1));
}

#[test]
fn the_first_error_stays_and_nothing_is_reported_durable_after_it() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    let fd = runtime.notify_fd().unwrap();
    call(&runtime, a).unwrap();
    let durable = runtime.batch_commit().unwrap();
    runtime.batch_wait(durable).unwrap();
    while runtime.durable() < durable || take(fd) == 0 {}
    fake.hold(true);
    call(&runtime, a).unwrap();
    let lost = runtime.batch_commit().unwrap();
    fake.fail();
    fake.hold(false);
    assert!(is_readable(fd, LONG), "the loop is woken, to learn of it");
    let error = runtime.batch_wait(lost).unwrap_err();
    assert!(matches!(&error, Error::Poisoned { first } if first.contains("the disk is gone")), "{error}");
    runtime.batch_wait(durable).unwrap();
    assert_eq!(runtime.durable(), durable);
    assert_eq!(call(&runtime, a).unwrap_err().to_string(), error.to_string());
    assert_eq!(runtime.batch_commit().unwrap_err().to_string(), error.to_string());
    assert!(!runtime.has_open_batch() && runtime.medium_failed());
    assert_eq!((runtime.durable(), fake.survivor(a)), (durable, 1));
    let mut client = runtime.client().unwrap();
    client.read(|| ()).unwrap();
}

#[test]
fn a_commit_that_is_refused_ends_the_batch_and_writing() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    call(&runtime, a).unwrap();
    fake.refuse_one();
    assert!(matches!(runtime.batch_commit(), Err(Error::Poisoned { first }) if first.contains("no room")));
    assert!(!runtime.has_open_batch());
    assert!(call(&runtime, a).is_err() && runtime.batch_commit().is_err() && fake.groups() == 0);
}

#[test]
fn with_an_interval_waits_return_at_once_and_the_descriptor_tells() {
    let (runtime, fake) = fake_runtime(false);
    let [a, ..] = cells();
    let fd = runtime.notify_fd().unwrap();
    fake.hold(true);
    call(&runtime, a).unwrap();
    let ticket = runtime.batch_commit().unwrap();
    runtime.batch_wait(ticket).unwrap();
    assert!(runtime.durable() < ticket && !is_readable(fd, MOMENT));
    fake.hold(false);
    assert!(!is_readable(fd, MOMENT), "the notifier itself syncs nothing");
    runtime.sync().unwrap();
    assert!(is_readable(fd, LONG));
    assert_eq!((runtime.durable(), fake.survivor(a)), (ticket, 1));
    fake.fail();
    runtime.sync().unwrap_err();
    runtime.batch_wait(ticket).unwrap();
}

#[test]
fn after_a_refused_commit_the_descriptor_tells_of_those_before_it() {
    for gated in [true, false] {
        let (runtime, fake) = fake_runtime(gated);
        let [a, ..] = cells();
        let fd = runtime.notify_fd().unwrap();
        fake.hold(true);
        call(&runtime, a).unwrap();
        let ticket = runtime.batch_commit().unwrap();
        call(&runtime, a).unwrap();
        fake.refuse_one();
        runtime.batch_commit().unwrap_err();
        assert!(!is_readable(fd, MOMENT), "gated: {gated}: nothing has become durable");
        fake.hold(false);
        runtime.sync().unwrap();
        assert!(is_readable(fd, LONG), "gated: {gated}");
        assert_eq!((take(fd), runtime.durable(), fake.survivor(a)), (1, ticket, 1));
        assert!(!is_readable(fd, MOMENT), "once");
    }
}

#[test]
fn the_descriptor_tells_that_the_medium_failed_though_nothing_was_wanted() {
    for gated in [true, false] {
        let (runtime, fake) = fake_runtime(gated);
        let [a, ..] = cells();
        let fd = runtime.notify_fd().unwrap();
        call(&runtime, a).unwrap();
        runtime.batch_commit().unwrap();
        runtime.sync().unwrap();
        assert!(is_readable(fd, LONG));
        assert_eq!(take(fd), 1);
        fake.poison();
        assert!(is_readable(fd, LONG), "gated: {gated}");
        assert!(take(fd) == 1 && runtime.failure().is_some());
        assert!(call(&runtime, a).is_err() && !is_readable(fd, MOMENT), "once");
    }
}

#[test]
fn half_a_command_ends_the_batch() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    struct Half {
        runtime: Arc<Runtime>,
        cell: *mut u64,
    }
    unsafe extern "C" fn half(arg: *mut c_void) {
        let half = unsafe { &*arg.cast::<Half>() };
        unsafe { increment(half.cell.cast()) };
        half.runtime.abandon();
    }
    call(&runtime, a).unwrap();
    let mut broken = Half { runtime: Arc::clone(&runtime), cell: a };
    let error = unsafe { runtime.batch_call(half, (&raw mut broken).cast()) }.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert!(matches!(runtime.batch_commit(), Err(Error::Broken { .. })));
    assert!(matches!(call(&runtime, a), Err(Error::Broken { .. })));
    // A client is refused, and does not wait for the batch.
    assert!(matches!(runtime.client().unwrap().read(|| ()), Err(Error::Broken { .. })));
    assert_eq!((fake.groups(), fake.survivor(a)), (0, 0));
}

#[test]
fn wrong_calls_change_nothing() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    let is_batch = |error: Error| matches!(error, Error::Batch { .. });
    assert!(is_batch(runtime.batch_commit().unwrap_err()));
    assert!(is_batch(runtime.batch_wait(Ticket(1)).unwrap_err()));
    let mut client = runtime.client().unwrap();
    let in_read = client.read(|| call(&runtime, a)).unwrap().0;
    assert!(matches!(in_read, Err(Error::Nested)));
    call(&runtime, a).unwrap();
    let at = std::ptr::from_mut(a).addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = unsafe { runtime.batch_call(increment, at as *mut c_void) }.unwrap_err();
            assert!(is_batch(error));
            assert!(is_batch(runtime.batch_commit().unwrap_err()));
        });
    });
    assert!(is_batch(client.read(|| ()).unwrap_err()));
    assert!(is_batch(unsafe { client.write(increment, &[at as *mut c_void]) }.unwrap_err()));
    drop(client);
    assert!(is_batch(Arc::clone(&runtime).close().unwrap_err()));
    // Another runtime is not concerned.
    let (other, _) = fake_runtime(true);
    let mut elsewhere = other.client().unwrap();
    elsewhere.read(|| ()).unwrap();
    unsafe { elsewhere.write_durable(increment, &[at as *mut c_void]) }.unwrap();
    let ticket = runtime.batch_commit().unwrap();
    runtime.batch_wait(ticket).unwrap();
    assert_eq!((fake.groups(), runtime.stat().commands), (1, 1));
    // Now another thread may.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            unsafe { runtime.batch_call(increment, at as *mut c_void) }.unwrap();
            runtime.batch_commit().unwrap();
        });
    });
    assert_eq!(fake.groups(), 2);
    runtime.close().unwrap();
}

#[test]
fn a_forked_child_waits_for_no_batch_of_its_parent() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    call(&runtime, a).unwrap();
    let durable = runtime.batch_commit().unwrap();
    runtime.batch_wait(durable).unwrap();
    fake.hold(true);
    call(&runtime, a).unwrap();
    let ticket = runtime.batch_commit().unwrap();
    let status = in_child(|| {
        runtime.batch_wait(durable).unwrap();
        let is_forked = |error: &Error| matches!(error, Error::Batch { what } if what.contains("forked"));
        assert!(runtime.batch_wait(ticket).is_err_and(|error| is_forked(&error)));
        assert!(runtime.wait(ticket).is_err_and(|error| is_forked(&error)));
        assert!(runtime.client().is_err_and(|error| is_forked(&error)));
        assert!(runtime.failure().is_none());
    });
    assert_eq!(status, 0);
    fake.hold(false);
    runtime.batch_wait(ticket).unwrap();
}

#[test]
fn a_thread_that_ends_with_a_batch_open_makes_nobody_wait() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    let at = std::ptr::from_mut(a).addr();
    let opener = Arc::clone(&runtime);
    let open = move || unsafe { opener.batch_call(increment, at as *mut c_void) }.unwrap();
    std::thread::spawn(open).join().unwrap();
    let (tell, told) = mpsc::channel();
    let other = Arc::clone(&runtime);
    std::thread::spawn(move || {
        let mut client = other.client().unwrap();
        let written = unsafe { client.write(increment, &[at as *mut c_void]) };
        let errors = [written.unwrap_err(), client.read(|| ()).unwrap_err()];
        tell.send(errors.map(|error| (matches!(error, Error::Broken { .. }), error.to_string()))).unwrap();
    });
    for (is_broken, text) in told.recv_timeout(Duration::from_secs(300)).unwrap() {
        assert!(is_broken && text.contains("without committing it"), "{text}");
    }
    assert!(!runtime.has_open_batch() && runtime.batch_commit().is_err());
    assert_eq!((*a, fake.groups()), (1, 0));
}

#[test]
fn a_runtime_that_is_dropped_in_a_batch_ends_its_thread() {
    let (runtime, fake) = fake_runtime(true);
    let [a, ..] = cells();
    runtime.notify_fd().unwrap();
    call(&runtime, a).unwrap();
    drop(runtime);
    assert_eq!(fake.groups(), 0);
}
