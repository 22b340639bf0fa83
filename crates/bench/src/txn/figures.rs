//! SVG figures of transactions.

use super::beside::BESIDE;
use super::crowd::CROWD;
use super::mixes::MIXES_SECTION;
use super::words::{MAP, ORDERED, SWAPS};
use crate::report::figures::{Figure, grouped_bars};
use crate::report::report::{BenchReport, Row};
use std::path::Path;

/// Which rows a figure shows, and by what they stand together.
type Shown = (&'static str, &'static str, fn(&Row) -> String, fn(&Row) -> bool);

fn by_work(row: &Row) -> String {
    format!(
        "{} x{}",
        row.key.operation.replace(" a transaction", "").replace("look-ups, ", ""),
        row.key.threads
    )
}

/// "1/9 x2": writes, reads, threads.
fn by_mix(row: &Row) -> String {
    let mix = row.key.operation.replace("writes ", "").replace(", reads ", "/");
    format!("{mix} x{}", row.key.threads)
}

fn is_mix(row: &Row, medium: fn(&str) -> bool) -> bool {
    row.key.section == MIXES_SECTION && medium(&row.key.medium)
}

const FIGURES: [Shown; 11] = [
    ("txn-swaps-adr.svg", "Swaps, ADR", by_work, |r| r.key.section == SWAPS && r.key.medium == "ADR"),
    ("txn-swaps-eadr.svg", "Swaps, eADR", by_work, |r| r.key.section == SWAPS && r.key.medium == "eADR"),
    ("txn-map.svg", "Hash map, ADR", by_work, |r| r.key.section == MAP && r.key.medium == "ADR"),
    ("txn-ordered.svg", "Ordered map, ADR", by_work, |r| r.key.section == ORDERED && r.key.medium == "ADR"),
    ("txn-mixes-adr.svg", "Mixes (writes/reads x threads): ADR, no latency, clwb, replay on", by_mix, |r| {
        is_mix(r, |medium| medium == "ADR zero clwb, replay on")
    }),
    ("txn-mixes-adr-off.svg", "Mixes: ADR, no latency, clwb, replay off", by_mix, |r| {
        is_mix(r, |medium| medium == "ADR zero clwb, replay off")
    }),
    ("txn-mixes-eadr.svg", "Mixes: eADR, replay on; HTM+SGL in place", by_mix, |r| {
        is_mix(r, |medium| medium == "eADR, replay on" || medium == "eADR, in place")
    }),
    ("txn-mixes-eadr-off.svg", "Mixes: eADR, replay off", by_mix, |r| {
        is_mix(r, |medium| medium == "eADR, replay off")
    }),
    (
        "txn-mixes-latencies.svg",
        "5 writes, 5 reads, one thread: ADR by latency and instruction, replay on",
        |r| r.key.medium.replace("ADR ", "").replace(", replay on", ""),
        |r| {
            is_mix(r, |medium| medium.starts_with("ADR") && medium.ends_with("replay on"))
                && r.key.threads == 1
                && r.key.operation == "writes 5, reads 5"
        },
    ),
    (
        "txn-crowd.svg",
        "Threads",
        |r| format!("{} x{}", r.key.operation, r.key.threads),
        |r| r.key.section == CROWD,
    ),
    (
        "txn-beside.svg",
        "Time of short updates, p99",
        |r| r.key.workload.clone(),
        |r| r.key.section == BESIDE && r.key.operation == "p99",
    ),
];

/// Draws every figure for which this run has measurements into `dir`.
pub(super) fn draw(report: &BenchReport, dir: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut done = Vec::new();
    for (file, title, group, shows) in FIGURES {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| shows(row)).collect();
        if !rows.is_empty() {
            grouped_bars(&dir.join(file), title, &rows, group, &report.machine)?;
            done.push(Figure { file: file.to_owned(), title: title.to_owned() });
        }
    }
    Ok(done)
}
