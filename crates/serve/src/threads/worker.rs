//! One event loop: its clients, their requests, and their answers.
//!
//! A turn reads from the clients that sent something, then visits them in rounds. Each round takes one request of
//! each client (any number of reads, which are answered at once), has all writes of the round done as one job of the
//! combiner, and takes the answers. So the requests of a client are processed in order, one at a time, and clients
//! share batches. Nothing in a turn waits for the medium: `output.rs` holds answers back, and the syncer wakes the
//! loop.

use crate::client::connection::{Connection, NextRequest, Phase};
use crate::client::stream::Stream;
use crate::io_error::io_error;
use crate::service::Context;
use crate::shared::ServerShared;
use mangrove_durable::Ticket;
use mangrove_durable::{Client, Error};
use mio::event::Source;
use mio::{Events, Interest, Poll, Token};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The token of the waker; clients have the ones above it.
pub(crate) const WAKER: Token = Token(0);
/// Rounds in a turn, so that sockets are looked at in between.
const ROUND_COUNT_MAX: usize = 32;
/// Reads of one client in a round.
const READ_COUNT_MAX: usize = 64;
/// Clients that have gone before their memory is given back to the system, at least: that takes a while.
const GONE_COUNT_MIN: usize = 256;
/// How often the loop looks for overdue and for idle clients.
const TICK: Duration = Duration::from_millis(500);
/// In place of a time that the clock cannot show: a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(crate) struct Worker {
    shared: Arc<ServerShared>,
    number: usize,
    poll: Poll,
    client: Client,
    connections: Vec<Option<Connection>>,
    vacant: Vec<usize>,
    /// Clients that have work; each once, and none that has gone.
    active: Vec<usize>,
    /// Clients of this round that wait for the batch, and its arguments.
    going: Vec<usize>,
    writers: Vec<usize>,
    args: Vec<Context>,
    draining: Option<Instant>,
    /// Clients that have gone since their memory was given back.
    gone: usize,
    last_tick: Instant,
    now: Instant,
}

impl Worker {
    pub(crate) fn new(shared: Arc<ServerShared>, number: usize, poll: Poll, client: Client) -> Self {
        let now = Instant::now();
        Self {
            shared,
            number,
            poll,
            client,
            connections: Vec::new(),
            vacant: Vec::new(),
            active: Vec::new(),
            going: Vec::new(),
            writers: Vec::new(),
            args: Vec::new(),
            draining: None,
            gone: 0,
            last_tick: now,
            now,
        }
    }

    /// Serves until the server is stopped and the last client has gone.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            let timeout = if self.active.is_empty() { self.sleep_time() } else { Some(Duration::ZERO) };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                self.shared.report(io_error("wait for clients", &error));
                break;
            }
            self.now = Instant::now();
            for event in &events {
                if event.token() == WAKER {
                    self.handle_wake();
                } else if let Some(connection) =
                    self.connections.get_mut(event.token().0 - 1).and_then(Option::as_mut)
                {
                    connection.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                    connection.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
                    self.list(event.token().0 - 1);
                }
            }
            if self.shared.stopping.load(Ordering::Acquire) && self.draining.is_none() {
                self.drain();
            }
            self.turn();
            self.tick();
            self.give_back_memory();
            if self.draining.is_some() && self.connections.iter().all(Option::is_none) {
                break;
            }
        }
        for index in 0..self.connections.len() {
            self.remove(index);
        }
    }

    /// How long the loop may sleep when no client has work.
    fn sleep_time(&self) -> Option<Duration> {
        let has_clients = self.connections.len() > self.vacant.len();
        has_clients.then_some(TICK)
    }

    fn list(&mut self, index: usize) {
        if let Some(connection) = self.connections[index].as_mut()
            && !connection.listed
        {
            connection.listed = true;
            self.active.push(index);
        }
    }

    /// Woken: for new clients, a stop, or durability reached.
    fn handle_wake(&mut self) {
        self.welcome_arrived();
        for index in 0..self.connections.len() {
            if self.connections[index].as_ref().is_some_and(|c| c.output.waits_for().is_some()) {
                self.list(index);
            }
        }
    }

    fn welcome_arrived(&mut self) {
        let arrived = std::mem::take(&mut *self.shared.loops[self.number].arriving.lock());
        for stream in arrived {
            self.welcome(stream);
        }
    }

    fn welcome(&mut self, mut stream: Stream) {
        let shared = Arc::clone(&self.shared);
        let index = self.vacant.last().copied().unwrap_or(self.connections.len());
        let interests = Interest::READABLE | Interest::WRITABLE;
        // The system watches a limited number of sockets; beyond that only this client fails.
        let context =
            stream.register(self.poll.registry(), Token(index + 1), interests).ok().and_then(|()| {
                let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
                shared.service.connect(id)
            });
        let Some(context) = context else {
            shared.clients.fetch_sub(1, Ordering::Relaxed);
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let connection = Connection::new(stream, context, self.now);
        if self.vacant.pop().is_some() {
            self.connections[index] = Some(connection);
        } else {
            self.connections.push(Some(connection));
        }
        self.list(index);
    }

    fn remove(&mut self, index: usize) {
        let Some(mut connection) = self.connections[index].take() else { return };
        let _ = connection.stream.deregister(self.poll.registry());
        if connection.listed {
            // The place may belong to another client before the next turn.
            self.active.retain(|&listed| listed != index);
        }
        self.shared.service.disconnect(connection.context);
        self.shared.clients.fetch_sub(1, Ordering::Relaxed);
        self.vacant.push(index);
        self.gone += 1;
    }

    /// Gives the memory of clients that have gone back to the system, once they are many and no client has work.
    fn give_back_memory(&mut self) {
        if self.gone >= GONE_COUNT_MIN.max(self.connections.len() - self.vacant.len())
            && self.active.is_empty()
        {
            self.gone = 0;
            mangrove_sys::give_back_freed_memory();
        }
    }

    /// Shutdown: what was received in full is still processed and answered, also of clients that arrived after the
    /// loop was last woken. None arrives any more.
    fn drain(&mut self) {
        self.welcome_arrived();
        let end = self.now.checked_add(self.shared.options.shutdown_max);
        self.draining = Some(end.unwrap_or_else(|| self.now + FOR_EVER));
        for index in 0..self.connections.len() {
            self.list(index);
        }
    }

    fn turn(&mut self) {
        let options = &self.shared.options;
        let (request_max, backlog_max) = (options.request_bytes_max, options.backlog_bytes_max);
        let active = std::mem::take(&mut self.active);
        for &index in &active {
            if let Some(connection) = self.connections[index].as_mut() {
                connection.listed = false;
                connection.fill(request_max, backlog_max, self.now);
            }
        }
        self.going.clear();
        self.going.extend_from_slice(&active);
        let mut rounds = 0;
        while !self.going.is_empty() && rounds < ROUND_COUNT_MAX {
            self.round(request_max, backlog_max);
            rounds += 1;
        }
        for &index in &active {
            self.settle(index, backlog_max);
        }
        self.await_durability(&active);
    }

    /// One request of each client that has one.
    fn round(&mut self, request_max: usize, backlog_max: usize) {
        let shared = Arc::clone(&self.shared);
        self.writers.clear();
        self.args.clear();
        let mut going = std::mem::take(&mut self.going);
        going.retain(|&index| {
            let Some(connection) = self.connections[index].as_mut() else { return false };
            for _ in 0..READ_COUNT_MAX {
                match connection.next(&*shared.service, request_max, backlog_max) {
                    NextRequest::Nothing => return false,
                    NextRequest::Write => {
                        self.writers.push(index);
                        self.args.push(connection.context);
                        return true;
                    }
                    NextRequest::Read => {
                        let (command, Context(arg)) = (shared.service.command(), connection.context);
                        let read = self.client.read(|| {
                            // SAFETY: the service's contract, for a request that is a read.
                            unsafe { command(arg) };
                            // Inside the read: the answer may point into the state.
                            connection.copy_answer(&*shared.service);
                        });
                        match read {
                            Ok(((), seen)) => {
                                shared.counters.reads.fetch_add(1, Ordering::Relaxed);
                                // After the medium failed reads continue (see `Client::read_durable`).
                                let lost = shared.runtime.medium_failed();
                                connection.hold_answer(if lost { Ticket(0) } else { seen });
                            }
                            Err(error) => refuse(&shared, connection, &error),
                        }
                    }
                }
            }
            true
        });
        self.going = going;
        if self.writers.is_empty() {
            return;
        }
        // SAFETY: the service's contract; the contexts' owners wait here.
        let result = unsafe { self.client.write(shared.service.command(), Context::args(&self.args)) };
        shared.counters.writes.fetch_add(self.args.len() as u64, Ordering::Relaxed);
        for &index in &self.writers {
            let Some(connection) = self.connections[index].as_mut() else { continue };
            match &result {
                Ok(ticket) => connection.take_answer(&*shared.service, *ticket),
                Err(error) => refuse(&shared, connection, error),
            }
        }
    }

    /// Sends what may be sent, and decides whether the client stays.
    fn settle(&mut self, index: usize, backlog_max: usize) {
        let draining = self.draining.is_some();
        let (runtime, now) = (&self.shared.runtime, self.now);
        let Some(connection) = self.connections[index].as_mut() else { return };
        connection.flush(|ticket| runtime.may_answer(ticket), now);
        if draining && !connection.has_unseen() && connection.phase == Phase::Open {
            connection.phase = Phase::Ending;
            connection.flush(|ticket| runtime.may_answer(ticket), now);
        }
        if connection.phase == Phase::Dead {
            self.remove(index);
        } else if connection.has_more(backlog_max) {
            self.list(index);
        }
    }

    /// Has the syncer wake this loop when held answers may leave; lets those leave that may leave now.
    fn await_durability(&mut self, active: &[usize]) {
        let runtime = Arc::clone(&self.shared.runtime);
        let held = |c: &Connection| c.output.waits_for();
        let newest = active.iter().filter_map(|&i| self.connections[i].as_ref().and_then(held)).max();
        let Some(newest) = newest else { return };
        self.shared.loops[self.number].listening.listen();
        self.shared.syncer.want(newest.0);
        // Both checks come after the listening: whatever happens from now on wakes the loop.
        let failed = runtime.medium_failed();
        if failed {
            self.cut_off_held();
        }
        if failed || runtime.may_answer(newest) {
            for &index in active {
                self.list(index);
            }
        }
    }

    /// The medium failed: answers that are not durable are never sent.
    fn cut_off_held(&mut self) {
        for index in 0..self.connections.len() {
            if self.connections[index]
                .as_ref()
                .is_some_and(|c| c.output.waits_for().is_some_and(|t| !self.shared.runtime.may_answer(t)))
            {
                self.remove(index);
            }
        }
    }

    /// Every `TICK`: ends clients that are overdue, and an overdue shutdown; an idle client's buffers are freed.
    fn tick(&mut self) {
        if self.now.saturating_duration_since(self.last_tick) < TICK {
            return;
        }
        self.last_tick = self.now;
        let late = self.draining.is_some_and(|until| self.now >= until);
        let (stalled_max, idle_max) = (self.shared.options.stalled_max, self.shared.options.idle_max);
        for index in 0..self.connections.len() {
            let Some(connection) = self.connections[index].as_mut() else { continue };
            if !connection.listed && connection.last_heard + TICK <= self.now {
                connection.input.give_back();
                connection.output.give_back();
            }
            if late || connection.is_overdue(self.now, stalled_max, idle_max) {
                if !matches!(connection.phase, Phase::Lingering(_)) {
                    self.shared.counters.cut_off.fetch_add(1, Ordering::Relaxed);
                }
                self.remove(index);
            }
        }
    }
}

/// The request that the context holds was not done.
fn refuse(shared: &ServerShared, connection: &mut Connection, error: &Error) {
    if shared.service.failed(connection.context, error) {
        // It depends on nothing that could be lost.
        connection.take_answer(&*shared.service, Ticket(0));
    } else {
        connection.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::ready;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// The other end of a client that was accepted for the loop, which does not know of it yet, and sends something.
    fn accept(worker: &Worker, says: &[u8]) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(says).unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = Stream::Unix(mio::net::UnixStream::from_std(ours));
        worker.shared.clients.fetch_add(1, Ordering::Relaxed);
        worker.shared.loops[0].arriving.lock().push(ours);
        theirs
    }

    /// As `accept`; the loop is woken.
    fn arrive(worker: &mut Worker, says: &[u8]) -> UnixStream {
        let theirs = accept(worker, says);
        worker.handle_wake();
        theirs
    }

    #[test]
    fn a_client_that_was_accepted_just_before_a_stop_is_answered() {
        let mut ready = ready();
        let (shared, poll) = (Arc::clone(&ready.shared), ready.polls.remove(0));
        let client = shared.runtime.client().unwrap();
        let mut worker = Worker::new(shared, 0, poll, client);
        worker.handle_wake();
        let mut theirs = accept(&worker, b"inc\n");
        worker.drain();
        while !worker.active.is_empty() {
            worker.turn();
        }
        let mut told = String::new();
        theirs.read_to_string(&mut told).unwrap();
        assert_eq!(told, "1\n");
    }

    #[test]
    fn a_shutdown_may_wait_for_ever() {
        let mut ready = ready();
        Arc::get_mut(&mut ready.shared).unwrap().options.shutdown_max = Duration::MAX;
        let (shared, poll) = (Arc::clone(&ready.shared), ready.polls.remove(0));
        let client = shared.runtime.client().unwrap();
        let mut worker = Worker::new(shared, 0, poll, client);
        let mut theirs = arrive(&mut worker, b"inc\n");
        worker.drain();
        worker.now += 2 * TICK;
        worker.tick();
        while !worker.active.is_empty() {
            worker.turn();
        }
        let mut told = String::new();
        theirs.read_to_string(&mut told).unwrap();
        assert_eq!(told, "1\n");
    }

    #[test]
    fn an_idle_client_keeps_little_memory() {
        let mut ready = ready();
        let (shared, poll) = (Arc::clone(&ready.shared), ready.polls.remove(0));
        let client = shared.runtime.client().unwrap();
        let mut worker = Worker::new(shared, 0, poll, client);
        let mut theirs = arrive(&mut worker, b"");
        let buffers = |worker: &Worker| {
            let connection = worker.connections[0].as_ref().unwrap();
            connection.input.size() + connection.output.size()
        };
        for _ in 0..20 {
            theirs.write_all(&b"get\n".repeat(2000)).unwrap();
            worker.connections[0].as_mut().unwrap().readable = true;
            worker.list(0);
            while !worker.active.is_empty() {
                worker.turn();
            }
            let mut told = [0; 4000];
            theirs.read_exact(&mut told).unwrap();
        }
        assert!(buffers(&worker) > 8 << 10, "{} bytes at work", buffers(&worker));
        worker.now += 2 * TICK;
        worker.tick();
        assert!(buffers(&worker) <= 8 << 10, "{} bytes at rest", buffers(&worker));
        theirs.write_all(b"get\n").unwrap();
        worker.connections[0].as_mut().unwrap().readable = true;
        worker.list(0);
        worker.turn();
        let mut told = [0; 2];
        theirs.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"0\n");
    }

    #[test]
    fn the_place_of_a_client_that_had_something_to_do_is_listed_once_for_the_next() {
        let mut ready = ready();
        let (shared, poll) = (Arc::clone(&ready.shared), ready.polls.remove(0));
        let client = shared.runtime.client().unwrap();
        let mut worker = Worker::new(shared, 0, poll, client);
        let _first = arrive(&mut worker, b"");
        worker.turn();
        worker.list(0);
        worker.remove(0);
        let mut second = arrive(&mut worker, b"inc\n");
        worker.turn();
        assert_eq!(worker.shared.runtime.stat().commands, 1);
        worker.remove(0);
        let mut told = String::new();
        second.read_to_string(&mut told).unwrap();
        assert_eq!(told, "1\n");
    }
}
