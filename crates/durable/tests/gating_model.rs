//! The gating of answers: `src/rpc/syncer.rs`, compiled against shuttle's threads and atomics. Event loops ask
//! for tickets and sleep; each must be rung once what it waits for is durable, under every schedule.

#[path = "../src/rpc/syncer.rs"]
#[allow(dead_code, reason = "the crate uses more of it than the model does")]
mod syncer;

/// What the file finds as `crate::sync` here.
mod sync {
    pub(crate) use mangrove_testkit::shuttle::Gate;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Shuttle's memory is sequentially consistent.
    pub(crate) fn barrier_after_rmw() {}
}

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread;
use syncer::{Listener, Syncer};

std::thread_local! {
    /// The planted bug: a loop asks first and listens then.
    static LATE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// An event loop's poll: remembers that it was rung, as an eventfd does.
struct Poll {
    rung: sync::Gate,
    seen: AtomicBool,
    listener: Listener,
}

struct Model {
    syncer: Syncer,
    committed: AtomicU64,
    durable: AtomicU64,
    polls: Vec<Poll>,
}

impl Model {
    /// One turn after another: commits, and holds the answer back until it is durable.
    fn serve(&self, number: usize, answers: u32) {
        let poll = &self.polls[number];
        for _ in 0..answers {
            let ticket = self.committed.fetch_add(1, Ordering::SeqCst) + 1;
            loop {
                let before = poll.rung.ticket();
                if LATE.get() {
                    self.syncer.want(ticket);
                    if self.durable.load(Ordering::SeqCst) >= ticket {
                        break;
                    }
                    poll.listener.listen();
                } else {
                    poll.listener.listen();
                    self.syncer.want(ticket);
                    if self.durable.load(Ordering::SeqCst) >= ticket {
                        break;
                    }
                }
                if !poll.seen.swap(false, Ordering::SeqCst) {
                    poll.rung.wait(before);
                    poll.seen.store(false, Ordering::SeqCst);
                }
            }
            assert!(self.durable.load(Ordering::SeqCst) >= ticket, "an answer before it is durable");
        }
    }

    fn sync(&self) {
        let wait = |ticket: u64| {
            thread::yield_now();
            assert!(ticket <= self.committed.load(Ordering::SeqCst), "a ticket that nobody has");
            self.durable.fetch_max(ticket, Ordering::SeqCst);
        };
        self.syncer.run(wait, || {
            for poll in self.polls.iter().filter(|poll| poll.listener.take()) {
                poll.seen.store(true, Ordering::SeqCst);
                poll.rung.open();
            }
        });
    }
}

fn run(loops: usize, answers: u32) {
    let poll = || Poll { rung: sync::Gate::new(), seen: AtomicBool::new(false), listener: Listener::new() };
    let model = Arc::new(Model {
        syncer: Syncer::new(),
        committed: AtomicU64::new(0),
        durable: AtomicU64::new(0),
        polls: (0..loops).map(|_| poll()).collect(),
    });
    let other = Arc::clone(&model);
    let syncer = thread::spawn(move || other.sync());
    let workers: Vec<_> = (0..loops)
        .map(|number| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.serve(number, answers))
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    model.syncer.end();
    syncer.join().unwrap();
    assert_eq!(model.durable.load(Ordering::SeqCst), loops as u64 * u64::from(answers));
}

#[test]
fn every_answer_is_given_once_it_is_durable() {
    shuttle::check_random(|| run(3, 3), 8_000);
    shuttle::check_pct(|| run(2, 3), 6_000, 4);
    shuttle::check_dfs(|| run(1, 1), Some(20_000));
}

#[test]
fn the_model_finds_a_loop_that_listens_too_late() {
    LATE.set(true);
    let found = std::panic::catch_unwind(|| shuttle::check_pct(|| run(1, 2), 20_000, 3));
    LATE.set(false);
    assert!(found.is_err(), "a loop that is never rung went unnoticed");
}
