//! What a client sent and the application has not consumed.
//!
//! Invariant: bytes do not move while a request that was found in them is unanswered: the buffer is compacted
//! and grown in `read_from` only, which the event loop calls between requests.

use std::io::{ErrorKind, Read};

/// Bytes asked of a socket at once: at first, and at most. A read that fills the room makes the next one larger.
const FIRST_READ_BYTES: usize = 4 << 10;
const READ_BYTES: usize = 64 << 10;
/// An empty buffer larger than this is freed.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// The socket has no more for now.
    Drained,
    /// The budget is spent, the socket may have more.
    Budget,
    /// The client will send no more.
    Eof,
    /// The connection broke.
    Broken,
}

#[derive(Debug)]
pub(crate) struct InputBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes asked of the socket next.
    room: usize,
}

impl Default for InputBuffer {
    fn default() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, room: FIRST_READ_BYTES }
    }
}

impl InputBuffer {
    /// Frees what an idle client does not need.
    pub(crate) fn give_back(&mut self) {
        if self.start == self.end && self.bytes.len() > FIRST_READ_BYTES {
            *self = Self::default();
        }
    }

    /// Bytes that the buffer takes.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Makes space for one more read, by moving what is left to the front or by growing.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.end >= self.room {
            return;
        }
        if self.start >= self.room.max(self.end - self.start) {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < self.room {
            // Doubles, so that a long request is copied a bounded number of times.
            self.bytes.resize((self.bytes.len() * 2).max(self.end + self.room), 0);
        }
    }

    /// Reads until the socket is drained, `budget` bytes were read, or more than `unread_max` are unread.
    pub(crate) fn read_from(&mut self, source: &mut impl Read, budget: usize, unread_max: usize) -> ReadEnd {
        let mut count = 0;
        while count < budget && self.end - self.start <= unread_max {
            self.make_room();
            let room = &mut self.bytes[self.end..];
            let whole = room.len();
            match source.read(room) {
                Ok(0) => return ReadEnd::Eof,
                Ok(read) => {
                    self.end += read;
                    count += read;
                    if read == whole {
                        self.room = (self.room * 4).min(READ_BYTES);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return ReadEnd::Drained,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return ReadEnd::Broken,
            }
        }
        ReadEnd::Budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A socket that gives pieces of these sizes.
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let Some(mut piece) = self.0.pop_front() else { return Err(ErrorKind::WouldBlock.into()) };
            let count = piece.len().min(buffer.len());
            buffer[..count].copy_from_slice(&piece[..count]);
            if count < piece.len() {
                self.0.push_front(piece.split_off(count));
            }
            Ok(count)
        }
    }

    #[test]
    fn every_byte_comes_out_once_in_order() {
        let all: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let mut source = Pieces(all.chunks(99_991).map(<[u8]>::to_vec).collect());
        let (mut input, mut out) = (InputBuffer::default(), Vec::new());
        let mut step = 1;
        loop {
            let end = input.read_from(&mut source, 150_000, 1 << 20);
            while input.unread().len() >= step {
                out.extend_from_slice(&input.unread()[..step]);
                input.consume(step);
                step = step * 5 % 70_001 + 1;
            }
            if end == ReadEnd::Drained {
                break;
            }
            assert_eq!(end, ReadEnd::Budget);
        }
        out.extend_from_slice(input.unread());
        assert!(out == all);
        assert!(input.bytes.len() < 1 << 20, "{} bytes for short requests", input.bytes.len());
    }

    #[test]
    fn the_buffer_is_as_large_as_its_client_needs() {
        let ask = |input: &mut InputBuffer, bytes: usize| {
            let mut source = Pieces(VecDeque::from([vec![1; bytes]]));
            assert_eq!(input.read_from(&mut source, usize::MAX, usize::MAX), ReadEnd::Drained);
            assert_eq!(input.unread().len(), bytes);
            input.consume(bytes);
        };
        let mut input = InputBuffer::default();
        for bytes in [100, 1, 4000, 90] {
            ask(&mut input, bytes);
        }
        assert!(input.size() <= 2 * FIRST_READ_BYTES, "{} bytes for short requests", input.size());
        ask(&mut input, 900_000);
        let large = input.size();
        input.give_back();
        assert!(large > 900_000 && input.size() <= FIRST_READ_BYTES, "{large}, then {}", input.size());
        let mut source = Pieces(VecDeque::from([vec![1; 70_000]]));
        input.read_from(&mut source, usize::MAX, usize::MAX);
        input.give_back();
        assert_eq!(input.unread().len(), 70_000, "what was not looked at stays");
    }

    #[test]
    fn reading_stops_at_the_limit_and_at_the_end() {
        let mut source = Pieces(VecDeque::from([vec![1; 1 << 20], vec![]]));
        let mut input = InputBuffer::default();
        assert_eq!(input.read_from(&mut source, usize::MAX, 100_000), ReadEnd::Budget);
        assert!(input.unread().len() < 100_000 + 4 * READ_BYTES);
        assert_eq!(input.read_from(&mut source, usize::MAX, usize::MAX), ReadEnd::Eof);
        assert_eq!(input.unread().len(), 1 << 20);
    }
}
