//! A child of fork(2) has a state of its own, while a thread that only its parent has runs a command of another one, or
//! opens one. A test program of its own, whose tests take turns: no other test holds a lock at the fork.

use mangrove_durable::{Medium, Options, Runtime, TrackerChoice, will_write};
use mangrove_testkit::command::wait_until;
use mangrove_testkit::process::{descriptors_of, in_child};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

static TURN: Mutex<()> = Mutex::new(());
static IS_INSIDE: AtomicBool = AtomicBool::new(false);
static MAY_END: AtomicBool = AtomicBool::new(false);

/// A command that lasts.
unsafe extern "C" fn last(_: *mut c_void) {
    IS_INSIDE.store(true, Ordering::SeqCst);
    while !MAY_END.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

unsafe extern "C" fn set(arg: *mut c_void) {
    will_write(arg.cast(), size_of::<usize>());
    // SAFETY: a root of the state, and no other thread uses it.
    unsafe { arg.cast::<usize>().write(7) };
}

fn options(tracker: TrackerChoice) -> Options {
    Options::new().tracker(tracker).self_contained(true).medium(Medium::File).log_bytes(64 << 10)
}

fn open_with(path: &Path, options: &Options) -> Arc<Runtime> {
    // SAFETY: without an initialisation.
    unsafe { Runtime::open(path, options, None) }.expect("opens")
}

fn open(path: &Path, tracker: TrackerChoice) -> Arc<Runtime> {
    open_with(path, &options(tracker))
}

#[test]
fn a_child_runs_commands_of_its_own_state_beside_one_of_its_parent() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, tracker) in [("explicit", TrackerChoice::Explicit), ("auto", TrackerChoice::Auto)] {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let runtime = open(&scratch.path().join("parent"), tracker);
        let mut client = runtime.client().expect("a client");
        IS_INSIDE.store(false, Ordering::SeqCst);
        MAY_END.store(false, Ordering::SeqCst);
        let status = std::thread::scope(|scope| {
            // SAFETY: the command takes no argument.
            scope.spawn(move || unsafe { client.write_durable(last, &[null_mut()]) }.expect("written"));
            while !IS_INSIDE.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let status = in_child(|| {
                let own = open(&scratch.path().join("child"), tracker);
                let root = own.roots();
                // SAFETY: the command takes a word of the state.
                let written = unsafe { own.client().expect("a client").write_durable(set, &[root.cast()]) };
                written.expect("written");
                // SAFETY: no command runs.
                assert_eq!(unsafe { root.read() }, 7);
            });
            MAY_END.store(true, Ordering::SeqCst);
            status
        });
        assert_eq!(status, 0, "{name}");
        runtime.close().expect("closes");
    }
}

#[test]
fn a_child_opens_its_own_state_while_a_thread_of_its_parent_opens_one() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().canonicalize().expect("a path").join("parent");
    let options = options(TrackerChoice::Explicit);
    let first = open_with(&path, &options);
    let (before, patient) = (descriptors_of(&path), options.clone().busy_wait(Duration::from_secs(300)));
    let status = std::thread::scope(|scope| {
        // SAFETY: without an initialisation.
        let opening = scope.spawn(|| unsafe { Runtime::open(&path, &patient, None) });
        wait_until("the other thread waits for the state", || descriptors_of(&path) > before);
        let status = in_child(|| open_with(&scratch.path().join("child"), &options).close().expect("closes"));
        first.close().expect("closes");
        // Whether it opens the state then is no matter here.
        let _ = opening.join().expect("ends");
        status
    });
    assert_eq!(status, 0);
}
