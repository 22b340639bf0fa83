//! A closed-loop client: one thread drives many connections; each sends its next commands when it has all answers to
//! the last ones.
//!
//! A latency is the time from the write of a connection's commands to the moment at which this thread has the answer.
//! A closed loop sends less while the server stalls, so it shows the latency at the throughput that was reached, not
//! that of users who do not wait.

use super::cases::Case;
use super::commands::Draw;
use super::reply;
use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The share of the time for which nothing is recorded at first.
const WARMUP: f64 = 0.15;
/// A server that is silent for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Commands in one write while records are made.
const LOAD_BATCH: u64 = 200;

/// What one run of the client gave.
pub(super) struct ClientRun {
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// In nanoseconds.
    pub(super) latencies: Histogram<u64>,
}

impl ClientRun {
    /// Nothing yet.
    pub(super) fn empty() -> anyhow::Result<Self> {
        let latencies = Histogram::new_with_bounds(1_000, 60_000_000_000, 3)?;
        Ok(Self { operations: 0, seconds: 0.0, latencies })
    }

    /// Takes another run in.
    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.operations += other.operations;
        self.seconds += other.seconds;
        self.latencies.add(&other.latencies)?;
        Ok(())
    }
}

/// One connection.
struct Connection {
    stream: UnixStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
    /// Answers that are still to come.
    due: usize,
    sent: Instant,
}

impl Connection {
    fn open(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("cannot connect to the server")?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self { stream, unsent: Vec::new(), received: Vec::new(), due: 0, sent: Instant::now() })
    }

    fn send(&mut self, commands: usize) -> anyhow::Result<()> {
        self.sent = Instant::now();
        self.due = commands;
        self.stream.write_all(&self.unsent).context("cannot send")?;
        self.unsent.clear();
        Ok(())
    }

    /// Reads what is there, once; returns how many answers it completed.
    fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        let len = self.stream.read(buffer).context("no answer")?;
        ensure!(len > 0, "the server has closed a connection");
        let arrived = if self.received.is_empty() {
            // Mostly whole answers: no copy.
            let (replies, used) = reply::count(&buffer[..len])?;
            self.received.extend_from_slice(&buffer[used..len]);
            replies
        } else {
            self.received.extend_from_slice(&buffer[..len]);
            let (replies, used) = reply::count(&self.received)?;
            self.received.drain(..used);
            replies
        };
        ensure!(arrived <= self.due, "the server answers what nothing asked");
        self.due -= arrived;
        Ok(arrived)
    }
}

/// Makes the records of all cases.
pub(super) fn load(socket: &Path, records: u64) -> anyhow::Result<()> {
    let mut connection = Connection::open(socket)?;
    let mut buffer = vec![0; 1 << 16];
    let hashes = super::commands::hashes(records);
    let mut next = 0;
    while next < records {
        let end = (next + LOAD_BATCH).min(records);
        let mut commands = 0;
        for record in next..end {
            commands += 1 + usize::from(record < hashes);
            super::commands::make_record(record, record < hashes, &mut connection.unsent);
        }
        connection.send(commands)?;
        while connection.due > 0 {
            connection.receive(&mut buffer)?;
        }
        next = end;
    }
    Ok(())
}

/// Runs a case for `time`; calls `begin` when the recording begins and `end` when it ends.
pub(super) fn drive(
    socket: &Path,
    case: &Case,
    records: u64,
    seed: u64,
    time: Duration,
    mut begin: impl FnMut(),
    mut end: impl FnMut(),
) -> anyhow::Result<ClientRun> {
    let mut draw = Draw::new(case, records, SmallRng::seed_from_u64(seed))?;
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
    let mut connections = Vec::with_capacity(case.clients);
    for number in 0..case.clients {
        let connection = Connection::open(socket)?;
        epoll::add(&ready, &connection.stream, EventData::new_u64(number as u64), EventFlags::IN)?;
        connections.push(connection);
    }
    let mut latencies = ClientRun::empty()?.latencies;
    let mut buffer = vec![0; 1 << 16];
    let mut events = Vec::with_capacity(case.clients);
    let (warm, mut recording, mut operations) = (time.mul_f64(WARMUP), None, 0);
    let started = Instant::now();
    for connection in &mut connections {
        (0..case.pipeline).for_each(|_| draw.command(&mut connection.unsent));
        connection.send(case.pipeline)?;
    }
    loop {
        events.clear();
        let wait = SILENCE_MAX.try_into().ok();
        match epoll::wait(&ready, rustix::buffer::spare_capacity(&mut events), wait.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).context("cannot wait for answers"),
            Ok(0) => bail!("no answer in {SILENCE_MAX:?}"),
            Ok(_) => {}
        }
        for event in &events {
            let connection = &mut connections[event.data.u64() as usize];
            let answers = connection.receive(&mut buffer)?;
            let now = Instant::now();
            if recording.is_some() && answers > 0 {
                let nanoseconds = now.duration_since(connection.sent).as_nanos();
                latencies.saturating_record_n(u64::try_from(nanoseconds).unwrap_or(u64::MAX), answers as u64);
                operations += answers as u64;
            }
            if connection.due == 0 {
                (0..case.pipeline).for_each(|_| draw.command(&mut connection.unsent));
                connection.send(case.pipeline)?;
            }
        }
        let now = Instant::now();
        match recording {
            None if now.duration_since(started) >= warm => {
                begin();
                recording = Some(Instant::now());
            }
            Some(since) if now.duration_since(since) >= time => {
                end();
                let seconds = since.elapsed().as_secs_f64();
                return Ok(ClientRun { operations, seconds, latencies });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::cases::DataKind;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// Answers every command by its name until its client goes.
    fn answer(stream: UnixStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut out = stream;
        loop {
            let mut words = Vec::new();
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            for _ in 0..line[1..].trim().parse().unwrap_or(0) {
                line.clear();
                reader.read_line(&mut line)?;
                let mut word = vec![0; line[1..].trim().parse::<usize>().unwrap_or(0) + 2];
                reader.read_exact(&mut word)?;
                words.push(word);
            }
            let reply: &[u8] = match words[0].as_slice() {
                b"SET\r\n" => b"+OK\r\n",
                b"HSET\r\n" | b"LPUSH\r\n" => b":0\r\n",
                _ => b"$3\r\nabc\r\n",
            };
            out.write_all(reply)?;
        }
    }

    #[test]
    fn a_loop_counts_the_answers_it_waited_for() -> anyhow::Result<()> {
        let socket = std::env::temp_dir().join(format!("mangrove-bench-{}.sock", std::process::id()));
        let listener = UnixListener::bind(&socket)?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || answer(stream));
            }
        });
        load(&socket, 450)?;
        for (kind, pipeline) in [(DataKind::Strings, 1), (DataKind::Hashes, 16)] {
            let case =
                Case { section: "updates", kind, updates: 50, clients: 3, pipeline, is_skewed: pipeline > 1 };
            let (mut begun, mut ended) = (0, 0);
            let time = Duration::from_millis(30);
            let outcome = drive(&socket, &case, 450, 1, time, || begun += 1, || ended += 1)?;
            assert_eq!((begun, ended), (1, 1));
            assert!(outcome.operations > 0 && outcome.operations == outcome.latencies.len());
            assert!(outcome.seconds >= 0.03);
        }
        std::fs::remove_file(socket)?;
        Ok(())
    }
}
