//! The cases: which commands on which keys, from how many clients.

use super::args::RedisArgs;
use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use std::io::Write;

pub(super) const UPDATES: &str = "updates";
pub(super) const CLIENTS: &str = "clients";
pub(super) const PIPELINE: &str = "pipeline";
pub(super) const HASHES: &str = "hashes";
pub(super) const RESTART: &str = "restart";

/// The sections, each with its caption.
pub(super) const SECTIONS: [(&str, &str); 5] = [
    (UPDATES, "GET and SET of 100 bytes, by the share of updates"),
    (CLIENTS, "SET of 100 bytes, by clients"),
    (PIPELINE, "Writes, pipeline 16"),
    (
        HASHES,
        "HGET and HSET of one field, hashes of 10 fields of 100 bytes (the Mangosteen paper's workload)",
    ),
    (RESTART, "From the start after SIGKILL to the first answer"),
];

/// Clients of the sections with one count.
const USUAL_CLIENTS: usize = 16;
/// Clients of the section with pipelines.
const PIPELINE_CLIENTS: usize = 50;
/// Exponent of the skewed keys, as in YCSB.
const SKEW: f64 = 0.99;
const FIELD_COUNT: u64 = 10;
/// Bytes of a value and of a field.
const VALUE: [u8; 100] = [b'v'; 100];
/// Lists are trimmed by nothing: many of them stay short.
const LIST_COUNT: u64 = 1_000;

/// What the commands work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SET and GET.
    Strings,
    /// HSET and HGET.
    Hashes,
    /// LPUSH and LINDEX.
    Lists,
}

/// A case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) section: &'static str,
    pub(super) kind: Kind,
    /// Percent.
    pub(super) updates: u8,
    pub(super) clients: usize,
    /// Commands that a client sends at once.
    pub(super) pipeline: usize,
    /// Keys by Zipf's law, else uniform.
    pub(super) is_skewed: bool,
}

impl Case {
    /// What the report calls it.
    pub(super) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Strings => "strings",
            Kind::Hashes => "hashes",
            Kind::Lists => "lists",
        };
        let keys = if self.is_skewed { "Zipf 0.99" } else { "uniform" };
        let pipeline =
            if self.pipeline > 1 { format!(", pipeline {}", self.pipeline) } else { String::new() };
        format!("{kind}, {keys}, {} % updates{pipeline}", self.updates)
    }
}

/// All cases of a run.
pub(super) fn cases(args: &RedisArgs) -> Vec<Case> {
    let base = Case {
        section: UPDATES,
        kind: Kind::Strings,
        updates: 100,
        clients: USUAL_CLIENTS,
        pipeline: 1,
        is_skewed: false,
    };
    let mut cases: Vec<Case> = args.updates.iter().map(|&updates| Case { updates, ..base }).collect();
    cases.extend(args.clients.iter().map(|&clients| Case { section: CLIENTS, clients, ..base }));
    cases.push(Case { section: CLIENTS, is_skewed: true, ..base });
    let piped = Case { section: PIPELINE, clients: PIPELINE_CLIENTS, pipeline: 16, ..base };
    cases.extend([Kind::Strings, Kind::Hashes, Kind::Lists].map(|kind| Case { kind, ..piped }));
    cases.push(Case { updates: 0, ..piped });
    for is_skewed in [false, true] {
        for updates in [10, 90] {
            let hashes = Case { section: HASHES, kind: Kind::Hashes, updates, is_skewed, ..base };
            cases.extend(args.clients.iter().map(|&clients| Case { clients, ..hashes }));
        }
    }
    cases.retain(|case| args.run.wants(case.section));
    cases
}

/// Hashes beside so many strings.
pub(super) fn hashes(records: u64) -> u64 {
    records.div_ceil(10)
}

/// Appends the commands that make a string, and a hash if there is one with this number.
pub(super) fn make_record(record: u64, has_hash: bool, to: &mut Vec<u8>) {
    command(to, &[b"SET", &key("s", record), &VALUE]);
    if has_hash {
        let hash = key("h", record);
        let fields: Vec<Vec<u8>> = (0..FIELD_COUNT).map(field).collect();
        let mut words: Vec<&[u8]> = vec![b"HSET", &hash];
        words.extend(fields.iter().flat_map(|name| [name.as_slice(), &VALUE]));
        command(to, &words);
    }
}

fn key(kind: &str, number: u64) -> Vec<u8> {
    format!("{kind}:{number:012}").into_bytes()
}

fn field(number: u64) -> Vec<u8> {
    format!("field{number}").into_bytes()
}

/// Appends a command as it goes over the wire.
fn command(to: &mut Vec<u8>, words: &[&[u8]]) {
    // Writes to a vector do not fail.
    let _ = write!(to, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(to, "${}\r\n", word.len());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// Draws the commands of a case.
pub(super) struct Draw {
    kind: Kind,
    updates: u8,
    records: u64,
    zipf: Option<Zipf<f64>>,
    rng: SmallRng,
}

impl Draw {
    pub(super) fn new(case: &Case, records: u64, rng: SmallRng) -> anyhow::Result<Self> {
        let records = match case.kind {
            Kind::Strings => records,
            Kind::Hashes => hashes(records),
            Kind::Lists => LIST_COUNT,
        };
        let zipf = if case.is_skewed { Some(Zipf::new(records as f64, SKEW)?) } else { None };
        Ok(Self { kind: case.kind, updates: case.updates, records, zipf, rng })
    }

    fn record(&mut self) -> u64 {
        match &self.zipf {
            None => self.rng.random_range(0..self.records),
            // Popular records lie anywhere among the others.
            Some(zipf) => {
                let rank = zipf.sample(&mut self.rng) as u64;
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.records
            }
        }
    }

    /// Appends the next command.
    pub(super) fn command(&mut self, to: &mut Vec<u8>) {
        let is_update = self.rng.random_range(0..100) < self.updates;
        let record = self.record();
        match (self.kind, is_update) {
            (Kind::Strings, true) => command(to, &[b"SET", &key("s", record), &VALUE]),
            (Kind::Strings, false) => command(to, &[b"GET", &key("s", record)]),
            (Kind::Lists, true) => command(to, &[b"LPUSH", &key("l", record), &VALUE]),
            (Kind::Lists, false) => command(to, &[b"LINDEX", &key("l", record), b"0"]),
            (Kind::Hashes, is_update) => {
                let (hash, field) = (key("h", record), field(self.rng.random_range(0..FIELD_COUNT)));
                if is_update {
                    command(to, &[b"HSET", &hash, &field, &VALUE]);
                } else {
                    command(to, &[b"HGET", &hash, &field]);
                }
            }
        }
    }
}
