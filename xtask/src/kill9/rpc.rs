//! The clients of `kill9 --app rpc`: they use the wire format of examples/kv and keep the history themselves. A
//! connection ends with the kill of the server; one that ends before is an error.

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// As examples/kv/kv.h has them.
const SLOT_COUNT: u64 = 4096;
const INDEX_BYTES: usize = 7;
const VALUE_BYTES: usize = 100;
const REPLY_BYTES: usize = 128;

/// Starts the server without waiting for it; `early`: it answers before anything is durable.
pub(super) fn start(program: &Path, state: &Path, early: bool) -> Result<Child> {
    let door = state.with_extension("door");
    let interval = ["--interval", "60000"];
    Command::new(program)
        .args(interval.iter().filter(|_| early))
        .arg(state)
        .arg(format!("unix:{}", door.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}

/// Where a server listens.
pub(super) struct Door(String);

impl Door {
    /// Waits until a server prints where it listens.
    pub(super) fn of(server: &mut Child) -> Result<Self> {
        let mut line = String::new();
        BufReader::new(server.stdout.take().context("no pipe")?).read_line(&mut line)?;
        if let Some(door) = line.trim_end().strip_prefix("unix:") {
            return Ok(Self(door.to_owned()));
        }
        let mut complaint = String::new();
        server.stderr.take().context("no pipe")?.read_to_string(&mut complaint)?;
        bail!("the server did not start ({}): {complaint}", server.wait()?)
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(&self.0)
    }

    /// The value of every key, as the checker's lines of `history.rs`.
    pub(super) fn list(&self, keys: u64) -> Result<Vec<String>> {
        let mut stream = self.connect()?;
        let mut lines = Vec::new();
        for index in 0..keys.min(SLOT_COUNT) {
            let value = ask(&mut stream, &request(b'G', index, ""))?;
            let key = name(index);
            if value.is_empty() {
                continue;
            }
            lines.push(match written(&value, &key) {
                Some((thread, number)) => format!("= {key} {thread} {number}"),
                None => format!("! {key} holds {value:?}"),
            });
        }
        lines.push(format!(". {}", lines.len()));
        Ok(lines)
    }
}

/// Clients that write until the server is gone.
pub(super) struct Clients {
    pub(super) round: u16,
    pub(super) threads: u8,
    pub(super) keys: u64,
    pub(super) seed: u64,
    /// Set before the server is killed.
    pub(super) is_killed: AtomicBool,
}

impl Clients {
    /// Writes until the connections end; returns the history, and counts acknowledged writes in `acknowledged`.
    pub(super) fn write(&self, door: &Door, acknowledged: &AtomicU64) -> Result<Vec<String>> {
        let lines = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (lines, acknowledged) = (&lines, &acknowledged);
                    scope.spawn(move || {
                        let worked = self.client(door, thread, lines, acknowledged);
                        worked.or_else(|error| self.ended(error))
                    })
                })
                .collect();
            for client in clients {
                client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<(), anyhow::Error>(())
        })?;
        Ok(lines.into_inner()?)
    }

    /// What it means that a client ended so: a connection ends with the server, and before that with an error.
    fn ended(&self, error: anyhow::Error) -> Result<()> {
        if !error.is::<std::io::Error>() {
            return Err(error);
        }
        // Relaxed: the kill comes after the store, and the end of the connection after the kill.
        if self.is_killed.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(error).context("a connection ended before the server was killed")
    }

    /// Works until its connection ends; no history if it gets none.
    fn client(
        &self,
        door: &Door,
        thread: u8,
        lines: &Mutex<Vec<String>>,
        acknowledged: &AtomicU64,
    ) -> Result<()> {
        let mut stream = door.connect()?;
        let mut rng = StdRng::seed_from_u64(self.seed ^ u64::from(thread) << 32);
        let me = format!("r{}t{thread}", self.round);
        let keys = self.keys.min(SLOT_COUNT);
        let say = |line: String| lines.lock().expect("no client panics").push(line);
        for number in 1.. {
            let index = rng.random_range(0..keys);
            let (key, deletes) = (name(index), rng.random_ratio(1, 5));
            let value = if deletes { String::new() } else { make_value(&me, number, &key) };
            say(format!("> {me} {number} {} {key}", if deletes { 'd' } else { 'p' }));
            let reply = ask(&mut stream, &request(b'P', index, &value))?;
            ensure!(reply.starts_with("OK "), "the server answered {reply:?}");
            say(format!("< {me} {number}"));
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if rng.random_ratio(1, 2) {
                // The key that it has just written, or any other.
                let index = if rng.random_ratio(1, 2) { index } else { rng.random_range(0..keys) };
                let key = name(index);
                say(format!("? {me} {key}"));
                let read = ask(&mut stream, &request(b'G', index, ""))?;
                let saw = match written(&read, &key) {
                    _ if read.is_empty() => "-".to_owned(),
                    Some((thread, number)) => format!("{thread} {number}"),
                    None => bail!("{key} reads {read:?}"),
                };
                say(format!(": {me} {key} {saw}"));
            }
        }
        Ok(())
    }
}

fn name(index: u64) -> String {
    format!("k{index}")
}

/// A value that names its operation and fills the slot, so that any damage shows.
fn make_value(thread: &str, number: u64, key: &str) -> String {
    let unit = format!("{thread} {number} {key} ");
    unit.chars().cycle().take(VALUE_BYTES - 1).collect()
}

/// The operation that a value names, if it is whole.
fn written<'a>(value: &'a str, key: &str) -> Option<(&'a str, u64)> {
    let mut words = value.split(' ');
    let (thread, number) = (words.next()?, words.next()?.parse().ok()?);
    (value == make_value(thread, number, key)).then_some((thread, number))
}

fn request(kind: u8, index: u64, value: &str) -> Vec<u8> {
    let mut bytes = vec![0; 1 + INDEX_BYTES + VALUE_BYTES];
    bytes[0] = kind;
    let index = index.to_string();
    bytes[1..=index.len()].copy_from_slice(index.as_bytes());
    bytes[1 + INDEX_BYTES..][..value.len()].copy_from_slice(value.as_bytes());
    bytes
}

fn ask(stream: &mut UnixStream, request: &[u8]) -> std::io::Result<String> {
    stream.write_all(request)?;
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply)?;
    let text = reply.split(|&b| b == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_before_the_kill_is_an_error() {
        let clients = Clients { round: 0, threads: 1, keys: 1, seed: 1, is_killed: AtomicBool::new(false) };
        let no_server = Door("/nowhere/door".to_owned());
        assert!(clients.write(&no_server, &AtomicU64::new(0)).is_err());
        clients.is_killed.store(true, Ordering::Relaxed);
        assert!(clients.write(&no_server, &AtomicU64::new(0)).is_ok_and(|lines| lines.is_empty()));
    }

    #[test]
    fn values_fill_their_slot_and_name_their_operation() {
        let value = make_value("r1t2", 7, "k3");
        assert_eq!(value.len(), VALUE_BYTES - 1);
        assert!(value.starts_with("r1t2 7 k3 r1t2 7 k3 "));
        let bytes = request(b'P', 4095, &value);
        assert_eq!(bytes.len(), 108);
        assert_eq!(&bytes[..8], b"P4095\0\0\0");
    }
}
