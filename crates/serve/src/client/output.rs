//! The answers for a client, in order, each held back until it is durable.

use mangrove_durable::Ticket;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};

/// An empty buffer larger than this is freed.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// As much is left to an idle client.
const IDLE_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    bytes: Vec<u8>,
    /// Sent so far.
    sent: usize,
    /// Bytes up to here may be sent.
    free: usize,
    /// Ends of stretches that wait, each with its ticket; both grow.
    held: VecDeque<(Ticket, usize)>,
}

impl OutputBuffer {
    /// Frees what an idle client does not need.
    pub(crate) fn give_back(&mut self) {
        if self.is_empty() && self.bytes.capacity() > IDLE_BYTES_MAX {
            *self = Self::default();
        }
    }

    /// Bytes that the buffer takes.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds an answer. It stays until [`OutputBuffer::hold`] gives it a ticket.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What was appended may be sent once `ticket` is durable.
    pub(crate) fn hold(&mut self, ticket: Ticket) {
        let end = self.bytes.len();
        match self.held.back_mut() {
            // An answer never overtakes an earlier one: it waits for the earlier ticket too.
            Some((last, stretch)) if *last >= ticket => *stretch = end,
            _ => self.held.push_back((ticket, end)),
        }
    }

    /// The ticket that the newest waiting answer waits for, if one waits.
    pub(crate) fn waits_for(&self) -> Option<Ticket> {
        self.held.back().map(|&(ticket, _)| ticket)
    }

    /// Releases the answers whose ticket passes `may`.
    pub(crate) fn release(&mut self, may: impl Fn(Ticket) -> bool) {
        while let Some(&(ticket, end)) = self.held.front() {
            if !may(ticket) {
                break;
            }
            self.free = end;
            self.held.pop_front();
        }
    }

    /// Unsent bytes, held back or not.
    pub(crate) fn backlog(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// True when something could be sent now.
    pub(crate) fn is_sendable(&self) -> bool {
        self.sent < self.free
    }

    /// True when nothing is left to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len() && self.held.is_empty()
    }

    /// Sends what may be sent; returns how much the socket took.
    ///
    /// # Errors
    /// The connection broke.
    pub(crate) fn write_to(&mut self, sink: &mut impl Write) -> io::Result<usize> {
        let begun = self.sent;
        while self.sent < self.free {
            match sink.write(&self.bytes[self.sent..self.free]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let count = self.sent - begun;
        self.tidy();
        Ok(count)
    }

    fn tidy(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        } else if self.sent > KEPT_BYTES_MAX && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
        } else {
            return;
        }
        let gone = self.sent;
        self.sent = 0;
        self.free -= gone;
        for (_, end) in &mut self.held {
            *end -= gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes seven bytes at a time, then blocks.
    struct Slow(Vec<u8>, bool);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(7);
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn push(output: &mut OutputBuffer, bytes: &[u8], ticket: Ticket) {
        output.append(bytes);
        output.hold(ticket);
    }

    #[test]
    fn answers_leave_in_order_and_never_before_their_ticket() {
        let (mut output, mut sink, mut expected) =
            (OutputBuffer::default(), Slow(Vec::new(), false), Vec::new());
        for n in 0..200u64 {
            let answer = vec![n as u8; (n % 40) as usize];
            push(&mut output, &answer, Ticket(n / 3));
            expected.extend_from_slice(&answer);
            if n == 100 {
                push(&mut output, b"early", Ticket(1)); // a read that saw less still waits its turn
                expected.extend_from_slice(b"early");
            }
        }
        let whole = expected.len();
        for durable in 0..=66 {
            output.release(|ticket| ticket.0 <= durable);
            while output.is_sendable() {
                output.write_to(&mut sink).unwrap();
            }
            let bound = (0..3 * (durable + 1)).map(|n| n % 40).sum::<u64>() as usize + 5;
            assert!(sink.0.len() <= bound, "{} bytes out at {durable}", sink.0.len());
            assert_eq!(output.backlog(), whole - sink.0.len());
        }
        assert!(output.is_empty());
        assert_eq!(sink.0, expected);
    }

    #[test]
    fn an_empty_answer_still_counts_as_waiting() {
        let mut output = OutputBuffer::default();
        push(&mut output, b"", Ticket(4));
        assert!(!output.is_empty());
        assert_eq!(output.waits_for(), Some(Ticket(4)));
        output.release(|_| true);
        assert!(output.is_empty() && output.waits_for().is_none());
    }
}
