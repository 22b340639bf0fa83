//! The bytes that records are read from. A pipe or a terminal that has none for a while says so, instead of
//! keeping its reader waiting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

/// The longest that a read waits for bytes, and the shortest time between two reads that found none.
const WAIT_MS: u64 = 50;

/// A file, a pipe or a terminal. A read that finds no bytes fails with [`ErrorKind::WouldBlock`], and can be
/// repeated.
pub(crate) struct InputSource {
    file: File,
    /// When the next wait ends; `None` where there is nothing to wait for.
    wait_until: Option<Instant>,
}

impl InputSource {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let is_file = file.metadata()?.is_file();
        Ok(Self { file, wait_until: (!is_file).then(Instant::now) })
    }
}

impl Read for InputSource {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = &mut self.wait_until
            && !is_ready(&self.file, until.saturating_duration_since(Instant::now()))?
        {
            *until = Instant::now() + Duration::from_millis(WAIT_MS);
            return Err(ErrorKind::WouldBlock.into());
        }
        self.file.read(bytes)
    }
}

/// True when there are bytes, an end or an error to read, false after `wait` or a signal.
fn is_ready(file: &File, wait: Duration) -> io::Result<bool> {
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
