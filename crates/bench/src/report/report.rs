//! The measurements of a run, and queries on them.

use crate::harness::stats::Samples;
use serde::Serialize;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FigureUnit {
    /// Nanoseconds per operation.
    Nanoseconds,
    /// Operations per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// A plain count.
    Count,
}

impl FigureUnit {
    /// True when a smaller number is the better one.
    #[must_use]
    pub fn smaller_is_better(self) -> bool {
        !matches!(self, Self::PerSecond)
    }

    /// As printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns/op",
            Self::PerSecond => "1/s",
            Self::Bytes => "bytes",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Count => "count",
        }
    }
}

/// What a figure is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowKey {
    /// Section of the report.
    pub section: &'static str,
    /// Medium, as on the command line.
    pub medium: String,
    /// Workload or mix.
    pub workload: String,
    /// Operation.
    pub operation: String,
    /// Threads (0 where it does not apply).
    pub threads: usize,
    /// The subject that was measured.
    pub subject: String,
}

impl RowKey {
    /// What was measured on the file medium, without a workload.
    pub(crate) fn on_file(section: &'static str, operation: &str, threads: usize, subject: &str) -> Self {
        Self {
            section,
            medium: "file".into(),
            workload: String::new(),
            operation: operation.into(),
            threads,
            subject: subject.into(),
        }
    }

    /// True when both stand in one line of a table.
    #[must_use]
    pub fn same_line(&self, other: &Self) -> bool {
        self.section == other.section
            && self.medium == other.medium
            && self.workload == other.workload
            && self.operation == other.operation
            && self.threads == other.threads
    }
}

/// One measurement over all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is about.
    #[serde(flatten)]
    pub key: RowKey,
    /// What it counts.
    pub unit: FigureUnit,
    /// Middle of the rounds.
    pub median: f64,
    /// Least of the rounds.
    pub low: f64,
    /// Greatest of the rounds.
    pub high: f64,
    /// Every round.
    pub samples: Samples,
}

/// A goal, and how it was met.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What was asked.
    pub goal: String,
    /// What was measured, or why it was not.
    pub measured: String,
    /// Met or not; `None` when it was not measured.
    pub met: Option<bool>,
}

/// The machine and the circumstances.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MachineInfo {
    /// Processor model.
    pub cpu: String,
    /// Processors of this machine.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Cache-line write-back instruction in use.
    pub flush: String,
    /// File system type and device of the measured directory.
    pub disk: String,
    /// Load average over the last minute when the run began: above 0.5 the figures are suspect.
    pub load: f64,
}

impl MachineInfo {
    /// What stands below a figure.
    pub(crate) fn in_short(&self) -> String {
        format!("{}, {} CPUs, Linux {}", self.cpu, self.cpus, self.kernel)
    }
}

/// Everything that one run measured.
#[derive(Debug, Default, Serialize)]
pub struct BenchReport {
    /// When the run began, seconds since 1970.
    pub started: u64,
    /// Command line.
    pub command: String,
    /// True for a smoke test: the figures mean nothing.
    pub quick: bool,
    /// Rounds asked for.
    pub rounds: usize,
    /// Records of the map's workloads and of its sections on a disk; 0 in the other benches.
    pub records: u64,
    /// Where it ran.
    pub machine: MachineInfo,
    /// The figures.
    pub rows: Vec<Row>,
    /// The goals; empty without `--goals`.
    pub goals: Vec<Goal>,
    /// What a reader should know about this run.
    pub notes: Vec<String>,
}

/// The subject that everything is compared with.
pub(crate) const OURS: &str = "Mangrove";

impl BenchReport {
    /// Adds the figure of one round.
    pub fn add(&mut self, key: RowKey, unit: FigureUnit, value: f64) {
        let at = match self.rows.iter().position(|r| r.key == key) {
            Some(at) => at,
            None => {
                let samples = Samples::default();
                self.rows.push(Row { key, unit, median: 0.0, low: 0.0, high: 0.0, samples });
                self.rows.len() - 1
            }
        };
        let row = &mut self.rows[at];
        row.samples.push(value);
        row.median = row.samples.median();
        row.low = row.samples.low();
        row.high = row.samples.high();
    }

    /// Adds a remark, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The rows for which `f` holds.
    pub fn select(&self, f: impl Fn(&RowKey) -> bool) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |r| f(&r.key))
    }

    /// The row of `subject` in the line of `key`.
    #[must_use]
    pub fn beside(&self, key: &RowKey, subject: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.key.same_line(key) && r.key.subject == subject)
    }
}

impl Row {
    /// How many times better this row is than `other` in the same line.
    #[must_use]
    pub fn times_better(&self, other: &Self) -> f64 {
        if self.unit.smaller_is_better() { other.median / self.median } else { self.median / other.median }
    }
}
