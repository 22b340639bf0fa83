//! What every section needs: the arguments, the subjects, the report.

use super::TxnArgs;
use super::peer::{TxnDomain, TxnKind};
use super::place::{LOG_BYTES, PlaceOptions};
use super::ways::Way;
use crate::harness::progress::SectionProgress;
use crate::report::report::{BenchReport, FigureUnit, RowKey};

/// Seconds of a measurement in a smoke test, and the bytes of a log and of words.
const QUICK_SECONDS: f64 = 0.002;
const QUICK_LOG_BYTES: u64 = 1 << 20;
const QUICK_BYTES: usize = 1 << 20;

/// One run.
pub(super) struct TxnBench<'a> {
    pub(super) args: TxnArgs,
    /// Libraries that run the same words, Mangrove among them.
    pub(super) kinds: Vec<&'a dyn TxnKind>,
    pub(super) report: BenchReport,
    pub(super) progress: SectionProgress,
}

impl TxnBench<'_> {
    /// Seconds of a measurement.
    pub(super) fn seconds(&self) -> f64 {
        if self.args.run.quick { QUICK_SECONDS } else { self.args.run.seconds() }
    }

    /// Bytes of a log, of a smoke test's at most so many.
    pub(super) fn quick_log(&self, bytes: u64) -> u64 {
        if self.args.run.quick { bytes.min(QUICK_LOG_BYTES) } else { bytes }
    }

    /// Bytes of words, of a smoke test's at most so many.
    pub(super) fn quick_bytes(&self, bytes: usize) -> usize {
        if self.args.run.quick { bytes.min(QUICK_BYTES) } else { bytes }
    }

    /// A kind of pool: without latencies, replayed.
    pub(super) fn place(&self, domain: TxnDomain) -> PlaceOptions {
        PlaceOptions { log_bytes: self.quick_log(LOG_BYTES), ..PlaceOptions::new(domain) }
    }

    /// The executors that were asked for and run here.
    pub(super) fn ways(&mut self) -> anyhow::Result<Vec<Way>> {
        let mut ways = Vec::new();
        for name in &self.args.executors {
            let way = Way::parse(name)?;
            if way.runs_here() {
                ways.push(way);
            } else {
                self.report.note(format!(
                    "{} does not run here: RTM is {}.",
                    way.subject(),
                    mangrove_sys::rtm()
                ));
            }
        }
        Ok(ways)
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add(
        &mut self,
        section: &'static str,
        medium: &str,
        workload: &str,
        operation: &str,
        threads: usize,
        subject: &str,
        unit: FigureUnit,
        value: f64,
    ) {
        let [medium, workload, operation, subject] =
            [medium, workload, operation, subject].map(str::to_owned);
        self.report.add(RowKey { section, medium, workload, operation, threads, subject }, unit, value);
    }
}
