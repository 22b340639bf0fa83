//! A command that ends halfway ends a load without a log, too. Threads that write what was loaded read the state's
//! memory, which moves when the state is given up.

use mangrove_durable::{Create, Error, Medium, Options, Runtime, TrackerChoice, lab, will_write};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

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

#[test]
fn a_load_that_breaks_ends_its_threads_before_its_memory_moves() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().join("state");
    let options = Options::new().tracker(TrackerChoice::Explicit).self_contained(true).medium(Medium::File);
    let options = options.create(Create::New).capacity(1 << 30).bulk_load(true);
    for _ in 0..ROUNDS {
        // SAFETY: without an initialisation. The round before has left nothing.
        let runtime = unsafe { Runtime::open(&path, &options, None) }.expect("opens");
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
