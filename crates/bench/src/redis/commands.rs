//! The commands of a case as they go over the wire.

use super::cases::{Case, DataKind};
use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use std::io::Write;

/// Exponent of the skewed keys, as in YCSB.
const SKEW: f64 = 0.99;
const FIELD_COUNT: u64 = 10;
/// Bytes of a value and of a field.
const VALUE: [u8; 100] = [b'v'; 100];
/// Digits of a record's number in its key.
const DIGITS: usize = 12;
/// Lists are trimmed by nothing: many of them stay short.
const LIST_COUNT: u64 = 1_000;

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
    format!("{kind}:{number:0DIGITS$}").into_bytes()
}

fn field(number: u64) -> Vec<u8> {
    format!("field{number}").into_bytes()
}

/// Appends a command.
fn command(to: &mut Vec<u8>, words: &[&[u8]]) {
    // Writes to a vector do not fail.
    let _ = write!(to, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(to, "${}\r\n", word.len());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// A command but for the digits of its key and of its field: the client must not be slower than the server.
struct Template {
    bytes: Vec<u8>,
    key_at: usize,
    field_at: Option<usize>,
}

impl Template {
    /// `words` behind the command's name; `key` and `field` among them are filled in.
    fn new(name: &[u8], kind: &str, rest: &[&[u8]]) -> Self {
        let key = key(kind, 0);
        let mut words: Vec<&[u8]> = vec![name, &key];
        words.extend(rest);
        let mut bytes = Vec::new();
        command(&mut bytes, &words);
        let at = |part: &[u8]| bytes.windows(part.len()).position(|window| window == part);
        let key_at = at(&key).unwrap_or(0) + key.len() - DIGITS;
        let field_at = at(&field(0)).map(|at| at + field(0).len() - 1);
        Self { bytes, key_at, field_at }
    }

    fn append(&self, mut record: u64, field: u64, to: &mut Vec<u8>) {
        let from = to.len();
        to.extend_from_slice(&self.bytes);
        for digit in to[from + self.key_at..][..DIGITS].iter_mut().rev() {
            *digit = b'0' + (record % 10) as u8;
            record /= 10;
        }
        if let Some(at) = self.field_at {
            to[from + at] = b'0' + field as u8;
        }
    }
}

/// Draws the commands of a case.
pub(super) struct Draw {
    read: Template,
    update: Template,
    updates: u8,
    records: u64,
    zipf: Option<Zipf<f64>>,
    rng: SmallRng,
}

impl Draw {
    pub(super) fn new(case: &Case, records: u64, rng: SmallRng) -> anyhow::Result<Self> {
        let field = field(0);
        let (read, update, records) = match case.kind {
            DataKind::Strings => {
                (Template::new(b"GET", "s", &[]), Template::new(b"SET", "s", &[&VALUE]), records)
            }
            DataKind::Hashes => (
                Template::new(b"HGET", "h", &[&field]),
                Template::new(b"HSET", "h", &[&field, &VALUE]),
                hashes(records),
            ),
            DataKind::Lists => {
                (Template::new(b"LINDEX", "l", &[b"0"]), Template::new(b"LPUSH", "l", &[&VALUE]), LIST_COUNT)
            }
        };
        let zipf = if case.is_skewed { Some(Zipf::new(records as f64, SKEW)?) } else { None };
        Ok(Self { read, update, updates: case.updates, records, zipf, rng })
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
        let (record, field) = (self.record(), self.rng.random_range(0..FIELD_COUNT));
        let template = if is_update { &self.update } else { &self.read };
        template.append(record, field, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_template_gives_what_the_whole_command_would_be() {
        let mut found = Vec::new();
        Template::new(b"HSET", "h", &[b"field0", &VALUE]).append(1_234, 7, &mut found);
        let mut wanted = Vec::new();
        command(&mut wanted, &[b"HSET", b"h:000000001234", b"field7", &VALUE]);
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&wanted));
    }

    #[test]
    fn the_share_of_updates_is_that_of_the_case() -> anyhow::Result<()> {
        let case = Case {
            section: "updates",
            kind: DataKind::Strings,
            updates: 10,
            clients: 1,
            pipeline: 1,
            is_skewed: true,
        };
        let mut draw = Draw::new(&case, 1_000, SmallRng::seed_from_u64(1))?;
        let mut bytes = Vec::new();
        (0..10_000).for_each(|_| draw.command(&mut bytes));
        let sets = String::from_utf8(bytes)?.matches("SET").count();
        assert!((900..1_100).contains(&sets), "{sets} of 10,000");
        Ok(())
    }
}
