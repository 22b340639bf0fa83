//! SVG figures of this bench.

use super::cases::{CLIENTS, DEDUP, HASHES, PEAK, PIPELINE, RESTART, UPDATES};
use super::lines::{CPU_MAIN, LOGGED, P99, START, THROUGHPUT};
use crate::report::figures::{Figure, curves_of, grouped_bars};
use crate::report::report::{BenchReport, Row};
use std::path::Path;

/// How a row's group is called.
type Group = fn(&Row) -> String;

/// Draws every figure for which this run has measurements into `dir`.
pub(super) fn draw(report: &BenchReport, dir: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut done = Vec::new();
    let updates = |r: &Row| r.key.workload.rsplit(", ").next().unwrap_or_default().replace(" updates", "");
    let clients = |r: &Row| format!("{} clients", r.key.threads);
    let kind = |r: &Row| r.key.workload.split(", ").next().unwrap_or_default().to_owned();
    let bars: [(&str, &str, &str, &str, Group); 5] = [
        ("redis-updates.svg", "Throughput by the share of updates, 16 clients", UPDATES, THROUGHPUT, updates),
        ("redis-clients.svg", "SET by clients", CLIENTS, THROUGHPUT, clients),
        ("redis-pipeline.svg", "Writes, pipeline 16, 50 clients", PIPELINE, THROUGHPUT, kind),
        ("redis-cpu.svg", "Main thread's CPU of a write, pipeline 16", PIPELINE, CPU_MAIN, kind),
        ("redis-restart.svg", "Restart after SIGKILL", RESTART, START, |r| r.key.workload.clone()),
    ];
    for (file, title, section, operation, group) in bars {
        let picks = |r: &&Row| {
            let is_write = r.key.workload.contains("100 % updates") || section != PIPELINE;
            // Skewed keys have tables of their own.
            r.key.section == section
                && r.key.operation == operation
                && is_write
                && !r.key.workload.contains("Zipf")
        };
        let rows: Vec<&Row> = report.rows.iter().filter(picks).collect();
        if !rows.is_empty() {
            grouped_bars(&dir.join(file), title, &rows, group, &report.machine)?;
            done.push(Figure { file: file.into(), title: title.into() });
        }
    }
    for (name, keys) in [("uniform", "uniform"), ("zipf", "Zipf 0.99")] {
        let prefix = format!("hashes, {keys}, ");
        let points: Vec<(&str, (f64, f64))> = report
            .rows
            .iter()
            .filter(|r| r.key.section == PEAK && r.key.operation == THROUGHPUT)
            .filter_map(|r| {
                let updates = r.key.workload.strip_prefix(&prefix)?.strip_suffix(" % updates")?;
                Some((r.key.subject.as_str(), (updates.parse().ok()?, r.median / 1e3)))
            })
            .collect();
        if !points.is_empty() {
            let file = format!("redis-peak-{name}.svg");
            let title = format!("Throughput by the share of updates: hashes, {keys}, 96 clients");
            let axes = ["percent of updates", "thousands per second"];
            curves_of(&dir.join(&file), &title, axes, &points)?;
            done.push(Figure { file, title });
        }
    }
    let deduplicated: Vec<&Row> = report
        .rows
        .iter()
        .filter(|r| r.key.section == DEDUP && r.key.operation.starts_with(LOGGED))
        .collect();
    if !deduplicated.is_empty() {
        let (file, title) = ("redis-dedup.svg", "Bytes logged a command, deduplication on and off");
        let group = |r: &Row| {
            let keys = r.key.workload.split(", ").nth(1).unwrap_or_default();
            let how = r.key.operation.rsplit(", ").next().unwrap_or_default();
            format!("{}, {keys}, {how}", r.key.medium)
        };
        grouped_bars(&dir.join(file), title, &deduplicated, group, &report.machine)?;
        done.push(Figure { file: file.into(), title: title.into() });
    }
    for updates in [10, 90] {
        for (name, keys) in [("uniform", "uniform"), ("zipf", "Zipf 0.99")] {
            let workload = format!("hashes, {keys}, {updates} % updates");
            let points: Vec<(&str, (f64, f64))> = report
                .rows
                .iter()
                .filter(|r| r.key.section == HASHES && r.key.workload == workload && r.key.operation == P99)
                .filter_map(|latency| {
                    let mut key = latency.key.clone();
                    key.operation = THROUGHPUT.into();
                    let rate = report.rows.iter().find(|r| r.key == key)?;
                    Some((latency.key.subject.as_str(), (rate.median / 1e3, latency.median)))
                })
                .collect();
            if !points.is_empty() {
                let file = format!("redis-hashes-{name}-{updates}.svg");
                let title = format!("Latency against throughput: {workload}");
                curves_of(
                    &dir.join(&file),
                    &title,
                    ["thousands per second", "p99 in milliseconds"],
                    &points,
                )?;
                done.push(Figure { file, title });
            }
        }
    }
    Ok(done)
}
