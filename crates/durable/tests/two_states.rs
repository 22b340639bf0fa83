//! Two states in one process: what one does leaves nothing in the other. Nor does what the process has.

use mangrove_durable::{Allocator, Client, Durable, Error, Medium, Options, Runtime, TrackerChoice};
use mangrove_testkit::command::wait_until;
use mangrove_testkit::process::descriptors_of;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

type Book = BTreeMap<u64, String>;

#[test]
fn a_write_that_asks_another_state_is_refused_and_leaves_nothing_of_it_in_its_own() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let open = |name: &str| Durable::open(scratch.path().join(name), Book::new).expect("opens");
    let (one, other) = (open("one"), open("other"));
    let (inner, here) = (&other, &one);
    // This thread has not asked the other one yet.
    let refused = one.write(|book| {
        book.insert(1, "one".to_owned());
        let read = matches!(inner.read(|book| book.len()), Err(Error::Nested));
        let written = matches!(inner.write(|book| book.len()), Err(Error::Nested));
        (read, written, matches!(here.read(|book| book.len()), Err(Error::Nested)))
    });
    assert_eq!(refused.expect("written"), (true, true, true));
    one.close().expect("closes");
    // The next opening unmaps its memory.
    let third = open("third");
    let look = || other.read(|book| book.len()).expect("read");
    assert_eq!(look(), 0);
    std::thread::scope(|scope| assert_eq!(scope.spawn(look).join().expect("ends"), 0));
    other.write(|book| drop(book.insert(1, "other".to_owned()))).expect("written");
    assert_eq!(look(), 1);
    third.close().expect("closes");
    other.close().expect("closes");
}

unsafe extern "C" fn drop_clients(arg: *mut c_void) {
    // SAFETY: the test passes its clients, alone.
    unsafe { &mut *arg.cast::<Vec<Client>>() }.clear();
}

#[test]
fn a_client_that_a_command_drops_leaves_nothing_in_the_state() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let options = Options::new().tracker(TrackerChoice::Explicit).self_contained(true).medium(Medium::File);
    // SAFETY: without an initialisation.
    let runtime = unsafe { Runtime::open(scratch.path().join("one"), &options, None) }.expect("opens");
    let mut client = runtime.client().expect("a client");
    let mut clients: Vec<_> = (0..20).map(|_| runtime.client().expect("a client")).collect();
    let before = runtime.arena().expect("no command runs").blocks;
    // SAFETY: the command takes these clients, which wait here.
    unsafe { client.write_durable(drop_clients, &[(&raw mut clients).cast()]) }.expect("written");
    assert_eq!((clients.len(), runtime.arena().expect("no command runs").blocks), (0, before));
    drop(client);
    runtime.close().expect("closes");
}

/// The memory of a closed state stays for destructors, and the next opening of any state unmaps it.
#[test]
fn a_state_that_one_thread_opens_while_another_closes_it_keeps_its_memory() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let path = scratch.path().canonicalize().expect("a path").join("one");
    let options = Options::new().tracker(TrackerChoice::Explicit).self_contained(true).medium(Medium::File);
    let open = |path: &Path, options: &Options| -> Arc<Runtime> {
        // SAFETY: without an initialisation.
        unsafe { Runtime::open(path, options, None) }.expect("opens")
    };
    let first = open(&path, &options);
    let (before, patient) = (descriptors_of(&path), options.clone().busy_wait(Duration::from_secs(300)));
    let second = std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let mut opened = None;
            // A state that ends has its addresses for a moment longer than its files.
            wait_until("the addresses are free", || {
                // SAFETY: without an initialisation.
                let tried = unsafe { Runtime::open(&path, &patient, None) };
                let is_taken = matches!(tried, Err(Error::Pool(mangrove_shadow::Error::AddressTaken { .. })));
                opened = Some(tried);
                !is_taken
            });
            opened.expect("tried").expect("opens")
        });
        wait_until("the other thread waits for the state", || descriptors_of(&path) > before);
        first.close().expect("closes");
        opening.join().expect("ends")
    });
    let third = open(&scratch.path().join("third"), &options);
    // SAFETY: a word of the state, which no command writes.
    assert_eq!(unsafe { second.roots().read() }, 0);
    third.close().expect("closes");
    second.close().expect("closes");
}
