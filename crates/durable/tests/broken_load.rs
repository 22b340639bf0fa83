//! A command that ends halfway ends a load without a log, too. Threads that write what was loaded read the state's
//! memory, which moves when the state is given up. And what ends a load writes that memory as it is.

use mangrove_durable::{Create, Error, Medium, Options, Runtime, TrackerChoice, lab, will_write};
use mangrove_testkit::command::wait_until;
use mangrove_testkit::process::{is_asleep, own_thread};
use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const BLOCK_BYTES: usize = 4 << 20;
const BLOCKS: usize = 16;
const ROUNDS: usize = 5;

unsafe extern "C" fn fill(_: *mut c_void) {
    let block = lab::alloc(BLOCK_BYTES);
    assert!(!block.is_null());
    will_write(block, BLOCK_BYTES);
    // SAFETY: a fresh block of so many bytes.
    unsafe { block.write_bytes(0xab, BLOCK_BYTES) };
}

unsafe extern "C" fn give_up(arg: *mut c_void) {
    // SAFETY: the runtime that runs the command.
    unsafe { &*arg.cast::<Runtime>() }.abandon();
}

fn options() -> Options {
    Options::new()
        .tracker(TrackerChoice::Explicit)
        .self_contained(true)
        .medium(Medium::File)
        .create(Create::New)
        .capacity(1 << 30)
        .bulk_load(true)
}

/// A load of a state that is not there.
fn load(path: &Path) -> Arc<Runtime> {
    // SAFETY: without an initialisation.
    unsafe { Runtime::open(path, &options(), None) }.expect("opens, and nothing is left of another load")
}

#[test]
fn a_load_that_breaks_ends_its_threads_before_its_memory_moves() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("state");
    for _ in 0..ROUNDS {
        let runtime = load(&path);
        let mut client = runtime.client().expect("a client");
        for _ in 0..BLOCKS {
            // SAFETY: the command takes no argument.
            unsafe { client.write(fill, &[null_mut()]) }.expect("written");
        }
        let arg = Arc::as_ptr(&runtime).cast_mut().cast();
        // SAFETY: the command takes a runtime.
        let error = unsafe { client.write(give_up, &[arg]) }.expect_err("it gives up");
        assert!(matches!(error, Error::Broken { .. }), "{error}");
        drop(client);
        drop(runtime);
    }
}

#[test]
fn a_checkpoint_does_not_end_a_load_that_broke() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("state");
    let runtime = load(&path);
    let mut client = runtime.client().expect("a client");
    // SAFETY: the command takes no argument.
    unsafe { client.write(fill, &[null_mut()]) }.expect("written");
    let arg = Arc::as_ptr(&runtime).cast_mut().cast();
    // SAFETY: the command takes a runtime.
    unsafe { client.write(give_up, &[arg]) }.expect_err("it gives up");
    let error = runtime.checkpoint().expect_err("memory has half a command");
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    drop(client);
    drop(runtime);
    drop(load(&path));
}

/// Looks at a thread until it counts as asleep for good.
const LOOKS: u32 = 1000;

/// Argument of a command that stores to two roots.
struct TwoStores<'a> {
    roots: *mut usize,
    between: &'a dyn Fn(),
}

unsafe extern "C" fn store_twice(arg: *mut c_void) {
    // SAFETY: by contract.
    let stores = unsafe { &*arg.cast::<TwoStores<'_>>() };
    for number in 0..2 {
        let root = stores.roots.wrapping_add(number);
        will_write(root.cast(), size_of::<usize>());
        // SAFETY: a word of the state.
        unsafe { root.write(7) };
        if number == 0 {
            (stores.between)();
        }
    }
}

#[test]
fn a_checkpoint_ends_a_load_between_commands() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("state");
    let runtime = load(&path);
    let mut client = runtime.client().expect("a client");
    let (is_inside, has_ended, thread) = (AtomicBool::new(false), AtomicBool::new(false), OnceLock::new());
    let (written, ended) = std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            wait_until("the command runs", || is_inside.load(Ordering::SeqCst));
            thread.set(own_thread()).expect("set once");
            let ended = runtime.checkpoint();
            has_ended.store(true, Ordering::SeqCst);
            ended
        });
        let between = || {
            is_inside.store(true, Ordering::SeqCst);
            let mut looks = 0;
            wait_until("the checkpoint waits", || {
                looks = if thread.get().is_some_and(|thread| is_asleep(thread)) { looks + 1 } else { 0 };
                looks == LOOKS || has_ended.load(Ordering::SeqCst)
            });
        };
        let mut stores = TwoStores { roots: runtime.roots(), between: &between };
        // SAFETY: the command takes two stores.
        let written = unsafe { client.write(store_twice, &[(&raw mut stores).cast()]) };
        (written, ending.join().expect("ends"))
    });
    written.expect("the load had not ended");
    ended.expect("the load ends");
    drop(client);
    runtime.close().expect("closes");
    // SAFETY: without an initialisation.
    let found = unsafe { Runtime::open(&path, &options().create(Create::Never).bulk_load(false), None) };
    let runtime = found.expect("the state is there");
    // SAFETY: two words of the state.
    assert_eq!(unsafe { [runtime.roots().read(), runtime.roots().add(1).read()] }, [7, 7]);
    runtime.close().expect("closes");
}
