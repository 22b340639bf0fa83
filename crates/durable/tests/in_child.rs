//! A child of fork(2) has a state of its own, while a thread that only its parent has runs a command of another one. A
//! test program of its own: no other test holds a lock at the fork.

use mangrove_durable::{Medium, Options, Runtime, TrackerChoice, will_write};
use mangrove_testkit::process::in_child;
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

fn open(path: &Path, tracker: TrackerChoice) -> Arc<Runtime> {
    let options = Options::new().tracker(tracker).self_contained(true).medium(Medium::File);
    // SAFETY: without an initialisation.
    unsafe { Runtime::open(path, &options.log_bytes(64 << 10), None) }.expect("opens")
}

#[test]
fn a_child_runs_commands_of_its_own_state_beside_one_of_its_parent() {
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
