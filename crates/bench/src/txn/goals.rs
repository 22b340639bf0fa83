//! The goals of transactions, judged by what this run measured.

use super::beside::BESIDE;
use super::crowd::CROWD;
use super::endurance::ENDURANCE;
use super::floors::{FLOORS, LINE};
use super::load::TxnWork;
use super::opening::OPENING;
use super::recovery::RECOVERY;
use super::tickets::TICKETS;
use super::words::{MAP, ORDERED, SWAPS};
use crate::report::report::{BenchReport, Goal, OURS, Row};

/// Swaps a transaction, and lines stored, flushed and fenced that it may take as long as.
const SWAPS_IN_LINES: [(u32, f64); 4] = [(1, 1.1), (4, 1.3), (16, 1.9), (64, 4.5)];

/// Swaps a transaction, and how many times PMDK's rate is asked for.
const SWAPS_OF_PMDK: [(u32, f64); 4] = [(1, 7.0), (4, 16.0), (16, 45.0), (64, 75.0)];
const PMDK: &str = "PMDK";
const PLAIN: &str = "no transactions";
const VOLATILE: &str = "Mangrove (volatile)";

/// Judges every goal that this bench measures.
pub(super) fn judge(report: &BenchReport) -> Vec<Goal> {
    let mut goals = Vec::new();
    swaps(report, &mut goals);
    opening(report, &mut goals);
    recovery(report, &mut goals);
    crowd(report, &mut goals);
    beside(report, &mut goals);
    endurance(report, &mut goals);
    tickets(report, &mut goals);
    maps(report, &mut goals);
    goals
}

/// How many times a row of ours is one of another subject, in the same line or in one with other threads.
fn times(report: &BenchReport, key: [&str; 3], threads: [usize; 2], other: &str) -> Option<f64> {
    Some(row_of(report, key, threads[0], OURS)?.median / row_of(report, key, threads[1], other)?.median)
}

/// A goal of a ratio between rows, left out where the other subject was not measured.
fn ratio(goals: &mut Vec<Goal>, text: String, times: Option<f64>, least: f64) {
    if let Some(times) = times {
        goal(goals, text, Some((format!("{times:.2}x"), times >= least)));
    }
}

fn tickets(report: &BenchReport, goals: &mut Vec<Goal>) {
    let key = [TICKETS, "ADR", "1 swap a transaction, a wait each 64"];
    ratio(
        goals,
        "64 tickets a fence: 3x the figure with a fence each".into(),
        times(report, key, [1, 1], "no tickets"),
        3.0,
    );
}

fn maps(report: &BenchReport, goals: &mut Vec<Goal>) {
    for (section, name) in [(MAP, "hash map"), (ORDERED, "ordered map")] {
        let reads = [section, "ADR", "look-ups, 0 % of them updates"];
        let of_plain = times(report, reads, [1, 1], PLAIN).map(|share| 1.0 / share);
        if let Some(slower) = of_plain {
            let measured = Some(at_most(slower, 1.15, "x"));
            goal(goals, format!("{name}, look-ups, 1 thread: at most 1.15x the plain time"), measured);
        }
        let two = times(report, reads, [2, 1], OURS);
        ratio(goals, format!("{name}, look-ups: 2 threads 1.9x one"), two, 1.9);
        for threads in [1, 2] {
            let key = [section, "ADR", "look-ups, 50 % of them updates"];
            let text = format!("{name}, 50 % updates, ADR, {threads} threads: 2x PMDK");
            ratio(goals, text, times(report, key, [threads; 2], PMDK), 2.0);
        }
    }
}

/// A goal that `measured`, if there is such a figure, meets or not.
fn goal(goals: &mut Vec<Goal>, goal: String, measured: Option<(String, bool)>) {
    goals.push(match measured {
        Some((measured, met)) => Goal { goal, measured, met: Some(met) },
        None => Goal { goal, measured: "not measured in this run".into(), met: None },
    });
}

/// The row of a section, a medium and an operation with so many threads.
fn row_of<'a>(
    report: &'a BenchReport,
    [section, medium, operation]: [&str; 3],
    threads: usize,
    subject: &str,
) -> Option<&'a Row> {
    report.rows.iter().find(|row| {
        let key = &row.key;
        key.section == section
            && key.medium == medium
            && key.operation == operation
            && key.threads == threads
            && key.subject == subject
    })
}

fn at_most(value: f64, most: f64, unit: &str) -> (String, bool) {
    (format!("{value:.2}{unit}"), value <= most)
}

fn swaps(report: &BenchReport, goals: &mut Vec<Goal>) {
    let line = report.rows.iter().find(|row| row.key.section == FLOORS && row.key.operation == LINE);
    for (count, most) in SWAPS_IN_LINES {
        let operation = TxnWork::Swaps(count).operation();
        let row = row_of(report, [SWAPS, "ADR", &operation], 1, OURS);
        let lines = row.zip(line).map(|(row, line)| 1e9 / row.median / line.median);
        goal(
            goals,
            format!("{operation}, ADR, 1 thread: at most {most} F"),
            lines.map(|l| at_most(l, most, " F")),
        );
    }
    for (count, least) in SWAPS_OF_PMDK {
        let operation = TxnWork::Swaps(count).operation();
        let text = format!("{operation}, ADR, 1 thread: {least}x PMDK");
        ratio(goals, text, times(report, [SWAPS, "ADR", &operation], [1, 1], PMDK), least);
    }
    for (count, _) in SWAPS_OF_PMDK {
        let operation = TxnWork::Swaps(count).operation();
        if let Some(share) = times(report, [SWAPS, "eADR", &operation], [1, 1], VOLATILE) {
            let measured = Some(at_most(1.0 / share, 2.0, "x"));
            goal(goals, format!("{operation}, eADR, 1 thread: at most 2x the volatile time"), measured);
        }
    }
}

fn opening(report: &BenchReport, goals: &mut Vec<Goal>) {
    for medium in ["ADR", "file"] {
        for (what, most) in [("copy on write: opening", 50.0), ("copy on write: first allocation", 1.0)] {
            let row = row_of(report, [OPENING, medium, what], 0, OURS);
            goal(
                goals,
                format!("{medium}, {what} within {most} ms"),
                row.map(|r| at_most(r.median, most, " ms")),
            );
        }
    }
}

fn recovery(report: &BenchReport, goals: &mut Vec<Goal>) {
    let word = |cpus| row_of(report, [RECOVERY, "ADR", "a logged word"], cpus, OURS);
    let one = word(1).map(|row| at_most(row.median, 10.0, " ns"));
    goal(goals, "recovery: a logged word within 10 ns on one thread".into(), one);
    // Where there is but one CPU, nothing is measured.
    if let Some((one, two)) = word(1).zip(word(2)) {
        let times = one.median / two.median;
        goal(
            goals,
            "recovery: 1.6 times as fast on two".into(),
            Some((format!("{times:.2}x"), times >= 1.6)),
        );
    }
}

/// At 2, 4 and 12 times the best number of threads, within 10 % of the best throughput.
fn crowd(report: &BenchReport, goals: &mut Vec<Goal>) {
    let rows: Vec<&Row> = report.select(|key| key.section == CROWD && key.subject == OURS).collect();
    let mut works: Vec<&str> = rows.iter().map(|row| row.key.operation.as_str()).collect();
    works.dedup();
    for work in works {
        let mine: Vec<_> = rows.iter().filter(|row| row.key.operation == work).collect();
        let Some(best) = mine.iter().max_by(|a, b| a.median.total_cmp(&b.median)) else { continue };
        let after = mine.iter().filter(|row| row.key.threads > best.key.threads);
        let worst = after.min_by(|a, b| a.median.total_cmp(&b.median));
        let measured = worst.map(|worst| {
            let share = worst.median / best.median;
            let text = format!(
                "{:.0} % of that of {} with {} threads",
                share * 100.0,
                best.key.threads,
                worst.key.threads
            );
            (text, share >= 0.9)
        });
        goal(goals, format!("{work}: more threads than the best keep 90 % of its throughput"), measured);
    }
}

fn beside(report: &BenchReport, goals: &mut Vec<Goal>) {
    let p99 = |company: &str| {
        report
            .rows
            .iter()
            .find(|row| {
                let key = &row.key;
                key.section == BESIDE
                    && key.workload == company
                    && key.operation == "p99"
                    && key.subject == OURS
            })
            .map(|row| row.median)
    };
    let measured = p99("beside transactions of 10 ms").zip(p99("alone")).map(|(long, alone)| {
        (format!("{:.2}x ({long:.0} ns, alone {alone:.0} ns)", long / alone), long <= 2.0 * alone)
    });
    goal(goals, "p99 of short updates beside a 10 ms transaction: at most 2x of alone".into(), measured);
}

fn endurance(report: &BenchReport, goals: &mut Vec<Goal>) {
    let lines = report
        .select(|key| key.section == ENDURANCE && key.operation == "lines of the durable copy a word")
        .map(|row| row.median)
        .max_by(f64::total_cmp);
    let measured = lines.map(|lines| at_most(lines, 0.15, " lines"));
    goal(goals, "the durable copy: at most 0.15 lines a word, 8 MiB, ring of 32 MiB".into(), measured);
}
