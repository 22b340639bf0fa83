//! Every interleaving of the leases of log writers, by loom: `src/leases.rs` itself, with loom's mutexes and an event
//! count made of them in its `sync` module.

#[path = "../src/log/leases.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses more of it than the model does")]
mod leases;

/// The module `crate::sync` for `src/leases.rs` in this program.
#[path = "support/loom_sync.rs"]
mod sync;

use leases::Leases;
use loom::sync::Arc;
use loom::thread;
use sync::SILENT;

/// The writer of a log: its position, which only its owner changes.
struct Writer {
    slot: usize,
    position: loom::cell::UnsafeCell<u64>,
}

impl Writer {
    fn write(&self) {
        // SAFETY: the owner of the writer is the only one; loom reports it if not.
        self.position.with_mut(|position| unsafe { *position += 1 });
    }

    fn position(&self) -> u64 {
        // SAFETY: as above.
        self.position.with(|position| unsafe { *position })
    }
}

fn writers(count: usize) -> Arc<Leases<Writer>> {
    let writer = |slot| Writer { slot, position: loom::cell::UnsafeCell::new(0) };
    Arc::new(Leases::new((0..count).map(writer)))
}

/// Two threads lease a writer and put it back, a third commits to it: nobody waits forever, nobody shares it.
fn leases_and_a_commit() {
    let leases = writers(1);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let leases = Arc::clone(&leases);
            thread::spawn(move || {
                let writer = leases.take(|_| true);
                writer.write();
                leases.put_back(writer.slot, writer);
            })
        })
        .collect();
    leases.lock(0).write();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(leases.lock(0).position(), 3);
}

/// Two writers for two threads: neither waits for the other.
fn a_writer_for_each() {
    let leases = writers(2);
    let (mine, other) = (leases.take(|_| true), Arc::clone(&leases));
    let thread = thread::spawn(move || {
        let writer = other.take(|_| true);
        writer.write();
        other.put_back(writer.slot, writer);
    });
    mine.write();
    thread.join().unwrap();
    leases.put_back(mine.slot, mine);
    assert_eq!(leases.lock(0).position() + leases.lock(1).position(), 2);
}

/// A thread takes a writer that is near, the other one when that is leased, and waits for none of them before it must.
fn near_writers_first() {
    let leases = writers(3);
    let takes = |near: usize| leases.take(move |slot| slot == near).slot;
    assert_eq!([takes(1), takes(1), takes(1)], [1, 0, 2]);
    assert!(leases.try_take(|_| true).is_none());
}

/// Threads have more interleavings than a test has time for; those with few switches find the injected fault.
fn bounded(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn one_writer_serves_all_and_is_never_shared() {
    bounded(leases_and_a_commit);
}

#[test]
fn as_many_writers_as_threads_keep_nobody_waiting() {
    bounded(a_writer_for_each);
}

#[test]
fn the_near_writer_is_taken_first_and_the_others_after_it() {
    loom::model(near_writers_first);
}

#[test]
fn a_writer_put_back_in_silence_is_caught() {
    SILENT.set(Some(|| panic!("a thread waits that no thread will wake")));
    let caught = std::panic::catch_unwind(|| bounded(leases_and_a_commit));
    SILENT.set(None);
    assert!(caught.is_err(), "a thread that waits for the writer was not woken, and nobody noticed");
}
