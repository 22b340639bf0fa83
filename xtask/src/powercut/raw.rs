//! The raw program: appends to a file and syncs it, and prints the stream of `history.rs`.
//!
//! It is right by inspection, so it proves the harness without Mangrove. With the sync nothing may be lost on an
//! honest disk; without it, or on a lying disk, the harness must find the loss. It runs inside the guest, as this
//! very binary.
//!
//! Record: `len u32, check u64, body`, little endian; the body is `KIND T N KEY` and filler. The file is read up to
//! the first record that is not whole. A write is acknowledged when an fdatasync that began after it has returned.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Write, stdout};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const PATH: &str = "/mnt/log";
const HEAD_BYTES: usize = 12;

/// What the host asks of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    Write,
    Check,
}

/// The numbers of one run.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Numbers {
    #[arg(long, hide = true, default_value_t = 0)]
    round: u64,
    #[arg(long, hide = true, default_value_t = false)]
    early: bool,
}

/// Runs a role until the power goes, or to its end.
pub(super) fn run(role: Role, numbers: &Numbers, threads: u8, keys: u64, seed: u64) -> anyhow::Result<()> {
    let path = Path::new(PATH);
    match role {
        Role::Check => {
            let mut out = String::new();
            let records = if path.exists() { scan(&std::fs::read(path)?).0 } else { BTreeMap::new() };
            for (key, written) in &records {
                out.push_str(&format!("= {key} {written}\n"));
            }
            out.push_str(&format!(". {}\n", records.len()));
            Ok(stdout().write_all(out.as_bytes())?)
        }
        Role::Write => write(path, numbers, threads, keys, seed),
    }
}

fn write(path: &Path, numbers: &Numbers, threads: u8, keys: u64, seed: u64) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let end = if file.metadata()?.len() == 0 { 0 } else { scan(&std::fs::read(path)?).1 };
    // Bytes after the last whole record must never be taken for a record.
    file.set_len(end)?;
    if !numbers.early {
        file.sync_all()?;
        File::open(path.parent().context("a file lies in a directory")?)?.sync_all()?;
    }
    let end = Mutex::new(end);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let writer = Writer { file: &file, end: &end, name: format!("r{}t{thread}", numbers.round) };
                let rng = StdRng::seed_from_u64(seed ^ u64::from(thread) << 32);
                scope.spawn(move || writer.run(rng, keys, numbers.early))
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer does not panic")?;
        }
        Ok(())
    })
}

struct Writer<'a> {
    file: &'a File,
    end: &'a Mutex<u64>,
    name: String,
}

impl Writer<'_> {
    fn run(self, mut rng: StdRng, keys: u64, early: bool) -> anyhow::Result<()> {
        for number in 1u64.. {
            let key = format!("k{}", rng.random_range(0..keys));
            let kind = if rng.random_ratio(1, 4) { 'd' } else { 'p' };
            say(&format!("> {} {number} {kind} {key}\n", self.name))?;
            let filler = "x".repeat(rng.random_range(0..2_000));
            let record = record(&format!("{kind} {} {number} {key} {filler}", self.name));
            {
                // Under the lock, so that a later record never lies in the file without all earlier ones.
                let mut end = self.end.lock().expect("a writer does not panic");
                self.file.write_all_at(&record, *end)?;
                *end += record.len() as u64;
            }
            if !early {
                self.file.sync_data()?;
            }
            say(&format!("< {} {number}\n", self.name))?;
        }
        Ok(())
    }
}

/// Prints a line with one `write(2)`, bypassing the buffer of `stdout`.
fn say(line: &str) -> anyhow::Result<()> {
    use std::os::fd::AsFd;
    let mut out = File::from(stdout().as_fd().try_clone_to_owned()?);
    Ok(out.write_all(line.as_bytes())?)
}

fn record(body: &str) -> Vec<u8> {
    let mut record = (body.len() as u32).to_le_bytes().to_vec();
    record.extend(check(body.as_bytes()).to_le_bytes());
    record.extend(body.as_bytes());
    record
}

/// Key to `T N` of its last put, and where the whole records end.
fn scan(bytes: &[u8]) -> (BTreeMap<String, String>, u64) {
    let mut records = BTreeMap::new();
    let mut at = 0;
    while let Some((body, next)) = body(bytes, at) {
        let words: Vec<&str> = body.split(' ').collect();
        if let [kind, thread, number, key, ..] = words.as_slice() {
            if *kind == "d" {
                records.remove(*key);
            } else {
                records.insert((*key).to_owned(), format!("{thread} {number}"));
            }
        }
        at = next;
    }
    (records, at as u64)
}

fn body(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let len = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
    let expected = u64::from_le_bytes(bytes.get(at + 4..at + HEAD_BYTES)?.try_into().ok()?);
    let body = bytes.get(at + HEAD_BYTES..(at + HEAD_BYTES).checked_add(len)?)?;
    (len > 0 && check(body) == expected)
        .then(|| Some((std::str::from_utf8(body).ok()?, at + HEAD_BYTES + len)))?
}

/// FNV-1a.
fn check(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_ends_at_the_first_record_that_is_not_whole() {
        let mut bytes = record("p r0t0 1 a x");
        bytes.extend(record("p r0t0 2 b x"));
        bytes.extend(record("d r0t0 3 a x"));
        let whole = bytes.len();
        bytes.extend(record("p r0t0 4 c x"));
        bytes[whole + 15] ^= 1;
        bytes.extend(record("p r0t0 5 d x"));
        let (records, end) = scan(&bytes);
        assert_eq!(end, whole as u64);
        assert_eq!(records.into_iter().collect::<Vec<_>>(), [("b".to_owned(), "r0t0 2".to_owned())]);
    }
}
