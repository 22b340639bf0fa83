//! The files that a run leaves.

use super::render::{self, Page};
use super::report::BenchReport;
use crate::harness::run_args::RunArgs;
use anyhow::Context as _;
use std::path::Path;

/// Writes the report as `name`.txt and `name`.json, and as a page of the documentation if that was asked for.
pub(crate) fn save(report: &BenchReport, page: &Page<'_>, name: &str, args: &RunArgs) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.out).with_context(|| format!("cannot make {}", args.out.display()))?;
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(&args.out.join(format!("{name}.txt")), &render::page(page, report, false))?;
    write(&args.out.join(format!("{name}.json")), &serde_json::to_string_pretty(report)?)?;
    match &args.markdown {
        Some(file) => write(file, &render::page(page, report, true)),
        None => Ok(()),
    }
}
