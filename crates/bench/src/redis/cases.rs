//! The cases: which commands on which keys, from how many clients.

use super::args::RedisArgs;

pub(super) const UPDATES: &str = "updates";
pub(super) const CLIENTS: &str = "clients";
pub(super) const PIPELINE: &str = "pipeline";
pub(super) const HASHES: &str = "hashes";
pub(super) const PEAK: &str = "peak";
pub(super) const LARGE: &str = "large";
pub(super) const DEDUP: &str = "dedup";
pub(super) const RESTART: &str = "restart";

/// The sections, each with its caption.
pub(super) const SECTIONS: [(&str, &str); 8] = [
    (UPDATES, "GET and SET of 100 bytes, by the share of updates"),
    (CLIENTS, "SET of 100 bytes, by clients"),
    (PIPELINE, "Pipeline 16, 50 clients"),
    (
        HASHES,
        "Latency against throughput: HGET and HSET of one field, hashes of 10 fields of 100 bytes (the Mangosteen \
         paper's workload)",
    ),
    (PEAK, "Throughput of the paper's workload from 0 to 100 % updates, 96 clients"),
    (LARGE, "The same commands with more keys"),
    (DEDUP, "Deduplication on and off: HSET, pipeline 16, 50 clients"),
    (RESTART, "From the start after SIGKILL to the first answer"),
];

/// Clients of the sections with one count.
const USUAL_CLIENTS: usize = 16;
/// Clients of the section with pipelines.
const PIPELINE_CLIENTS: usize = 50;
/// Clients of the section on throughput from 0 to 100 %.
const PEAK_CLIENTS: usize = 96;

/// What the commands work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataKind {
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
    pub(super) kind: DataKind,
    /// Percent.
    pub(super) updates: u8,
    pub(super) clients: usize,
    /// Commands that a client sends at once.
    pub(super) pipeline: usize,
    /// Keys by Zipf's law, else uniform.
    pub(super) is_skewed: bool,
}

impl Case {
    const fn writes(section: &'static str, kind: DataKind) -> Self {
        Self { section, kind, updates: 100, clients: USUAL_CLIENTS, pipeline: 1, is_skewed: false }
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> String {
        let kind = match self.kind {
            DataKind::Strings => "strings",
            DataKind::Hashes => "hashes",
            DataKind::Lists => "lists",
        };
        let keys = if self.is_skewed { "Zipf 0.99" } else { "uniform" };
        let pipeline =
            if self.pipeline > 1 { format!(", pipeline {}", self.pipeline) } else { String::new() };
        format!("{kind}, {keys}, {} % updates{pipeline}", self.updates)
    }
}

/// The cases on the usual number of records.
pub(super) fn cases(args: &RedisArgs) -> Vec<Case> {
    let strings = |section| Case::writes(section, DataKind::Strings);
    let hashes = |section| Case::writes(section, DataKind::Hashes);
    let mut cases: Vec<Case> =
        args.updates.iter().map(|&updates| Case { updates, ..strings(UPDATES) }).collect();
    cases.extend(args.clients.iter().map(|&clients| Case { clients, ..strings(CLIENTS) }));
    cases.push(Case { is_skewed: true, ..strings(CLIENTS) });

    let piped = Case { clients: PIPELINE_CLIENTS, pipeline: 16, ..strings(PIPELINE) };
    cases.extend([DataKind::Strings, DataKind::Hashes, DataKind::Lists].map(|kind| Case { kind, ..piped }));
    cases.extend(
        args.updates.iter().filter(|&&updates| updates < 100).map(|&updates| Case { updates, ..piped }),
    );
    for is_skewed in [false, true] {
        for updates in [10, 90] {
            let curve = Case { updates, is_skewed, ..hashes(HASHES) };
            cases.extend(args.hash_clients.iter().map(|&clients| Case { clients, ..curve }));
        }
        let peak = Case { is_skewed, clients: PEAK_CLIENTS, ..hashes(PEAK) };
        cases.extend(args.updates.iter().map(|&updates| Case { updates, ..peak }));
    }
    cases.retain(|case| args.run.wants(case.section));
    cases
}

/// The cases on many records.
pub(super) fn large_cases() -> Vec<Case> {
    let strings = Case::writes(LARGE, DataKind::Strings);
    let piped = Case { clients: PIPELINE_CLIENTS, pipeline: 16, ..strings };
    vec![
        Case { updates: 0, ..strings },
        Case { updates: 50, ..strings },
        strings,
        Case { is_skewed: true, ..strings },
        piped,
        Case { kind: DataKind::Hashes, is_skewed: true, ..piped },
    ]
}

/// The cases with and without deduplication.
pub(super) fn dedup_cases() -> Vec<Case> {
    let piped = Case { clients: PIPELINE_CLIENTS, pipeline: 16, ..Case::writes(DEDUP, DataKind::Hashes) };
    vec![piped, Case { is_skewed: true, ..piped }]
}
