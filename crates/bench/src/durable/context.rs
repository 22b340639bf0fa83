//! What every section needs: the arguments, where things lie, the report.

use super::DurableArgs;
use super::media::StatePlace;
use crate::report::report::{BenchReport, FigureUnit, OURS, RowKey};
use anyhow::Context as _;
use std::path::{Path, PathBuf};

/// One run.
pub(super) struct DurableBench {
    pub(super) args: DurableArgs,
    pub(super) report: BenchReport,
}

impl DurableBench {
    /// A size of the real run, or of the smoke test.
    pub(super) fn size(&self, full: usize, quick: usize) -> usize {
        if self.args.run.quick { quick.min(full) } else { full }
    }

    pub(super) fn places(&self) -> anyhow::Result<Vec<StatePlace>> {
        self.args.media.iter().map(|name| StatePlace::new(name, &self.args.dir)).collect()
    }

    pub(super) fn sources(&self) -> PathBuf {
        let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        self.args.sources.clone().unwrap_or(built_from)
    }

    pub(super) fn libraries(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.args.libraries {
            return Ok(dir.canonicalize()?);
        }
        let exe = std::env::current_exe().context("cannot find this program's file")?;
        Ok(exe.parent().map_or_else(PathBuf::new, Path::to_owned))
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add_of(
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
        let key = RowKey {
            section,
            medium: medium.to_owned(),
            workload: workload.to_owned(),
            operation: operation.to_owned(),
            threads,
            subject: subject.to_owned(),
        };
        self.report.add(key, unit, value);
    }

    /// Adds a figure of Mangrove.
    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add(
        &mut self,
        section: &'static str,
        medium: &str,
        workload: &str,
        operation: &str,
        threads: usize,
        unit: FigureUnit,
        value: f64,
    ) {
        self.add_of(section, medium, workload, operation, threads, OURS, unit, value);
    }

    /// Adds a figure to compare Mangrove's with.
    #[expect(clippy::too_many_arguments, reason = "the columns of a row")]
    pub(super) fn add_floor(
        &mut self,
        section: &'static str,
        medium: &str,
        workload: &str,
        operation: &str,
        subject: &str,
        unit: FigureUnit,
        value: f64,
    ) {
        self.add_of(section, medium, workload, operation, 1, subject, unit, value);
    }
}
