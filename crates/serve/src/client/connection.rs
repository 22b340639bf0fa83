//! One client of one event loop: its socket, its input, and the answers for it.

use crate::client::input::{InputBuffer, ReadEnd};
use crate::client::output::OutputBuffer;
use crate::client::stream::Stream;
use crate::service::{Context, Frame, Service};
use mangrove_durable::Ticket;
use std::io::Read;
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// Bytes read from one client in one turn of the loop, so that others get their turn.
const TURN_BYTES_MAX: usize = 256 << 10;
/// How long a connection that the server ended stays open for the client to take the last answer.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Requests are taken.
    Open,
    /// No more requests; answers are still sent.
    Ending,
    /// Everything is sent and the server's direction is closed. Further input is thrown away, because closing a
    /// socket with unread input may take the last answer from the client.
    Lingering(Instant),
    /// To be removed.
    Dead,
}

/// What a look for the next request found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// A read, held by the context.
    Read,
    /// A write, held by the context.
    Write,
    /// Nothing to do for now.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) context: Context,
    pub(crate) input: InputBuffer,
    pub(crate) output: OutputBuffer,
    pub(crate) phase: Phase,
    /// The socket may have more to read; it may take more.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    eof: bool,
    /// Bytes of the request that the context holds.
    frame: usize,
    /// Unread bytes that are known to hold no whole request.
    seen_incomplete: usize,
    /// Whether the loop's list of clients with work has it.
    pub(crate) listed: bool,
    pub(crate) last_heard: Instant,
    /// When the client last took something, or had nothing to take.
    pub(crate) last_took: Instant,
}

impl Connection {
    pub(crate) fn new(stream: Stream, context: Context, now: Instant) -> Self {
        Self {
            stream,
            context,
            input: InputBuffer::default(),
            output: OutputBuffer::default(),
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
    pub(crate) fn fill(&mut self, request_bytes_max: usize, backlog_bytes_max: usize, now: Instant) {
        if !self.readable || self.eof {
            return;
        }
        match self.phase {
            // A client that does not take its answers is not read from.
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
    pub(crate) fn next(
        &mut self,
        service: &dyn Service,
        request_bytes_max: usize,
        backlog_bytes_max: usize,
    ) -> NextRequest {
        if self.phase != Phase::Open || self.output.backlog() >= backlog_bytes_max {
            return NextRequest::Nothing;
        }
        let unread = self.input.unread();
        if unread.is_empty() || unread.len() == self.seen_incomplete {
            if self.eof {
                self.phase = Phase::Ending;
            }
            return NextRequest::Nothing;
        }
        match service.deserialize(self.context, unread) {
            Frame::Request(count) if count >= 1 && count <= unread.len().min(request_bytes_max) => {
                self.frame = count;
                self.seen_incomplete = 0;
                if service.is_read_only(self.context) { NextRequest::Read } else { NextRequest::Write }
            }
            Frame::Incomplete if unread.len() < request_bytes_max && !self.eof => {
                self.seen_incomplete = unread.len();
                NextRequest::Nothing
            }
            // Too long, cut short, no request, or a count beyond the bytes that the application was given.
            Frame::Incomplete | Frame::Malformed | Frame::Request(_) => {
                self.phase = Phase::Ending;
                NextRequest::Nothing
            }
        }
    }

    /// Takes the answer to the request that was processed; it may be sent once `ticket` is durable.
    pub(crate) fn take_answer(&mut self, service: &dyn Service, ticket: Ticket) {
        self.copy_answer(service);
        self.output.hold(ticket);
    }

    /// The first half of [`Connection::take_answer`]: the memory that the answer points to is not needed afterwards.
    pub(crate) fn copy_answer(&mut self, service: &dyn Service) {
        let answer = service.answer(self.context);
        self.output.append(answer.bytes);
        self.input.consume(self.frame);
        self.frame = 0;
        if answer.close {
            self.phase = Phase::Ending;
        }
    }

    /// The second half of it.
    pub(crate) fn hold_answer(&mut self, ticket: Ticket) {
        self.output.hold(ticket);
    }

    /// The request failed and gets no answer.
    pub(crate) fn give_up(&mut self) {
        self.input.consume(self.frame);
        self.frame = 0;
        self.phase = Phase::Ending;
    }

    /// Sends what may be sent. When nothing is left, enters the next phase.
    pub(crate) fn flush(&mut self, may: impl Fn(Ticket) -> bool, now: Instant) {
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

    /// True when the client has, or may have, sent bytes that were not looked at.
    pub(crate) fn has_unseen(&self) -> bool {
        self.readable || self.input.unread().len() > self.seen_incomplete
    }

    /// True when the loop should come back without waiting for the socket.
    pub(crate) fn has_more(&self, backlog_bytes_max: usize) -> bool {
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

    /// True when the client sent or took nothing for longer than it may.
    pub(crate) fn is_overdue(&self, now: Instant, stalled_max: Duration, idle_max: Option<Duration>) -> bool {
        let since = |then: Instant| now.saturating_duration_since(then);
        match self.phase {
            Phase::Lingering(until) => now >= until,
            _ if self.output.is_sendable() && since(self.last_took) > stalled_max => true,
            Phase::Open if self.output.is_empty() => idle_max.is_some_and(|max| since(self.last_heard) > max),
            _ => false,
        }
    }
}
