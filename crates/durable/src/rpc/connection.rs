//! One client of one event loop: its socket, what it sent, what it shall be told.

use super::input::{Input, ReadEnd};
use super::output::Output;
use super::service::{Context, Frame, Service};
use super::stream::Stream;
use mangrove_shadow::Ticket;
use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Bytes read from one client in one turn of the loop, so that others get theirs.
const TURN_BYTES_MAX: usize = 256 << 10;
/// How long a connection that we ended is kept for the client to take the last answer.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Requests are taken.
    Open,
    /// No more requests; answers are still sent.
    Ending,
    /// Everything is sent and our direction closed; what still comes is thrown away, because closing a
    /// socket with unread input may take the last answer from the client.
    Lingering(Instant),
    /// To be removed.
    Dead,
}

/// What a look for the next request found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A read, held by the context.
    Read,
    /// A write, held by the context.
    Write,
    /// Nothing to do for now.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) context: Context,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) phase: Phase,
    /// The socket may have more for us, may take more from us.
    pub(super) readable: bool,
    pub(super) writable: bool,
    eof: bool,
    /// Bytes of the request that the context holds.
    frame: usize,
    /// Unread bytes that are known to hold no whole request.
    seen_incomplete: usize,
    /// In the loop's list of clients that have something to do.
    pub(super) listed: bool,
    pub(super) last_heard: Instant,
    /// When the client last took something, or had nothing to take.
    pub(super) last_took: Instant,
}

impl Connection {
    pub(super) fn new(stream: Stream, context: Context, now: Instant) -> Self {
        Self {
            stream,
            context,
            input: Input::default(),
            output: Output::default(),
            phase: Phase::Open,
            readable: true,
            writable: true,
            eof: false,
            frame: 0,
            seen_incomplete: 0,
            listed: false,
            last_heard: now,
            last_took: now,
        }
    }

    /// Reads what the socket has, within limits.
    pub(super) fn fill(&mut self, request_bytes_max: usize, backlog_bytes_max: usize, now: Instant) {
        if !self.readable || self.eof {
            return;
        }
        match self.phase {
            // A client that does not take its answers is not listened to.
            Phase::Open if self.output.backlog() >= backlog_bytes_max => return,
            Phase::Open => {}
            Phase::Lingering(_) => return self.discard(),
            Phase::Ending | Phase::Dead => return,
        }
        let before = self.input.unread().len();
        match self.input.read_from(&mut self.stream, TURN_BYTES_MAX, request_bytes_max) {
            ReadEnd::Drained => self.readable = false,
            ReadEnd::Budget => {}
            ReadEnd::Eof => self.eof = true,
            ReadEnd::Broken => self.phase = Phase::Dead,
        }
        if self.input.unread().len() > before {
            self.last_heard = now;
        }
    }

    fn discard(&mut self) {
        let mut bin = [0; 4096];
        for _ in 0..64 {
            match self.stream.read(&mut bin) {
                Ok(0) => return self.phase = Phase::Dead,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return self.readable = false,
                Err(_) => return self.phase = Phase::Dead,
            }
        }
    }

    /// Looks for the next request.
    pub(super) fn next(
        &mut self,
        service: &dyn Service,
        request_bytes_max: usize,
        backlog_bytes_max: usize,
    ) -> Next {
        if self.phase != Phase::Open || self.output.backlog() >= backlog_bytes_max {
            return Next::Nothing;
        }
        let unread = self.input.unread();
        if unread.is_empty() || unread.len() == self.seen_incomplete {
            if self.eof {
                self.phase = Phase::Ending;
            }
            return Next::Nothing;
        }
        match service.deserialize(self.context, unread) {
            Frame::Request(count) if count >= 1 && count <= unread.len().min(request_bytes_max) => {
                self.frame = count;
                self.seen_incomplete = 0;
                if service.is_read_only(self.context) { Next::Read } else { Next::Write }
            }
            Frame::Incomplete if unread.len() < request_bytes_max && !self.eof => {
                self.seen_incomplete = unread.len();
                Next::Nothing
            }
            // Too long, cut short, no request, or an application that counts beyond what it was given.
            Frame::Incomplete | Frame::Malformed | Frame::Request(_) => {
                self.phase = Phase::Ending;
                Next::Nothing
            }
        }
    }

    /// Takes the answer to the request that was processed; it may be sent once `ticket` is durable.
    pub(super) fn take_answer(&mut self, service: &dyn Service, ticket: Ticket) {
        self.copy_answer(service);
        self.output.hold(ticket);
    }

    /// The first half of [`Connection::take_answer`]: what the answer points to is not needed any more.
    pub(super) fn copy_answer(&mut self, service: &dyn Service) {
        let answer = service.answer(self.context);
        self.output.append(answer.bytes);
        self.input.consume(self.frame);
        self.frame = 0;
        if answer.close {
            self.phase = Phase::Ending;
        }
    }

    /// The second half of it.
    pub(super) fn hold_answer(&mut self, ticket: Ticket) {
        self.output.hold(ticket);
    }

    /// The request failed and there is nothing to say about it.
    pub(super) fn give_up(&mut self) {
        self.input.consume(self.frame);
        self.frame = 0;
        self.phase = Phase::Ending;
    }

    /// Sends what may be sent, and moves on when there is nothing left.
    pub(super) fn flush(&mut self, may: impl Fn(Ticket) -> bool, now: Instant) {
        self.output.release(may);
        if self.writable && self.output.is_sendable() {
            match self.output.write_to(&mut self.stream) {
                Ok(count) => {
                    self.writable = !self.output.is_sendable();
                    if count > 0 {
                        self.last_took = now;
                    }
                }
                Err(_) => self.phase = Phase::Dead,
            }
        }
        if !self.output.is_sendable() {
            self.last_took = now;
        }
        if self.phase == Phase::Ending && self.output.is_empty() {
            let closed = match &self.stream {
                Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
                Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            };
            self.phase =
                if self.eof || closed.is_err() { Phase::Dead } else { Phase::Lingering(now + LINGER_MAX) };
            self.readable = true;
        }
    }

    /// True when there is, or may be, something of the client's that nobody has looked at.
    pub(super) fn has_unseen(&self) -> bool {
        self.readable || self.input.unread().len() > self.seen_incomplete
    }

    /// True when the loop should come back without waiting for the socket.
    pub(super) fn has_more(&self, backlog_bytes_max: usize) -> bool {
        match self.phase {
            Phase::Open => {
                let open = self.output.backlog() < backlog_bytes_max;
                (open && (self.eof || self.has_unseen())) || (self.writable && self.output.is_sendable())
            }
            Phase::Ending => self.writable && self.output.is_sendable(),
            Phase::Lingering(_) => self.readable,
            Phase::Dead => true,
        }
    }

    /// True when the client was silent or took nothing for longer than it may.
    pub(super) fn is_overdue(&self, now: Instant, stalled_max: Duration, idle_max: Option<Duration>) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        match self.phase {
            Phase::Lingering(until) => now >= until,
            _ if self.output.is_sendable() && since(self.last_took) > stalled_max => true,
            Phase::Open if self.output.is_empty() => idle_max.is_some_and(|max| since(self.last_heard) > max),
            _ => false,
        }
    }
}
