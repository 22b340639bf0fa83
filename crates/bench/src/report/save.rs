//! The files that a run leaves.

use super::figures::Figure;
use super::render::{self, Page};
use super::report::BenchReport;
use crate::harness::run_args::RunArgs;
use anyhow::Context as _;
use std::fmt::Write as _;
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

/// Draws figures beside a page that was written, and shows them at its end.
pub(crate) fn illustrate(
    file: &Path,
    draw: impl FnOnce(&Path) -> anyhow::Result<Vec<Figure>>,
) -> anyhow::Result<()> {
    let mut text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let figures = draw(file.parent().unwrap_or(Path::new(".")))?;
    if !figures.is_empty() {
        text.push_str("\n## Figures\n");
    }
    for Figure { file, title } in figures {
        let _ = write!(text, "\n![{title}]({file})\n");
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
