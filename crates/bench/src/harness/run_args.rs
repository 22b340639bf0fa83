//! The options that every bench has, and what follows from them.

use super::machine;
use crate::report::report::BenchReport;
use crate::report::say;
use anyhow::bail;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Seconds of a measurement, and rounds, in a smoke test.
const QUICK_SECONDS: f64 = 0.05;
/// A load average above this disturbs figures.
const LOAD_MAX: f64 = 0.5;

/// What every bench can be told.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Sections to run, comma separated; `--only list` prints them
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Interleaved rounds: every subject once a round, the median over the rounds is printed
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds that each throughput measurement lasts (default: 1; of the map 3, its YCSB 2, its overwrites 10)
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Directory for the report as text and JSON, and for the figures
    #[arg(long, default_value = "bench-out")]
    pub out: PathBuf,
    /// Write the report as a Markdown page too
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Judge the goals of this bench and print them before the tables
    #[arg(long)]
    pub goals: bool,
    /// Smoke test: tiny inputs, one round, a few seconds; its figures mean nothing
    #[arg(long)]
    pub quick: bool,
}

impl RunArgs {
    /// Seconds of a measurement: as told, or `usual`.
    pub(crate) fn seconds_or(&self, usual: f64) -> f64 {
        let seconds = self.seconds.unwrap_or(usual);
        if self.quick { seconds.min(QUICK_SECONDS) } else { seconds }
    }

    /// Seconds of a measurement.
    pub(crate) fn seconds(&self) -> f64 {
        self.seconds_or(1.0)
    }

    /// With one round if this is a smoke test.
    pub(crate) fn limited(self) -> Self {
        Self { rounds: if self.quick { 1 } else { self.rounds }, ..self }
    }

    /// Whether this section was asked for, by its name or by naming none.
    pub(crate) fn wants(&self, section: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name.trim() == section)
    }

    /// A report to which nothing was added, about a run on the disk of `dir`.
    pub(crate) fn report(&self, dir: &Path) -> BenchReport {
        let mut report = BenchReport { quick: self.quick, rounds: self.rounds, ..BenchReport::default() };
        report.command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        report.started = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs());
        report.machine = machine::describe(dir);
        let load = report.machine.load;
        if load > LOAD_MAX && !self.quick {
            say::note(format_args!(
                "The load average is {load:.2}: other programs disturb these measurements."
            ));
            report.note(format!(
                "The load average was {load:.2} when the run began: the figures are disturbed."
            ));
        }
        report
    }

    /// Whether only the names of the sections are wanted.
    pub(crate) fn lists(&self) -> bool {
        self.only.iter().any(|name| name.trim() == "list")
    }

    /// # Errors
    /// When a section was asked for that is not among `sections`.
    pub(crate) fn check_names(&self, sections: &[&str]) -> anyhow::Result<()> {
        match self.only.iter().find(|name| !sections.contains(&name.trim())) {
            Some(unknown) => {
                bail!("there is no section '{unknown}'; there are {}", sections.join(", "))
            }
            None => Ok(()),
        }
    }
}

/// The names of sections, each with its caption.
pub(crate) fn list(sections: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, caption) in sections {
        let _ = writeln!(text, "{}", format!("{name:<11} {caption}").trim_end());
    }
    text
}
