//! The goals of the Python package, judged by what this run measured.

use super::lines::{GET, READING, SCAN, SYNCED_PUT, WRITING};
use crate::report::report::{BenchReport, Goal, OURS, Row};

/// Synced puts of many threads beside those of one: the interpreter's lock is free while they wait.
const THREADS: usize = 32;
const THREADS_TIMES: f64 = 10.0;
const SCANNED: f64 = 3e6;

/// The line of ours.
fn ours<'a>(report: &'a BenchReport, section: &str, operation: &str, threads: usize) -> Option<&'a Row> {
    report
        .select(|k| k.section == section && k.operation == operation && k.threads == threads)
        .find(|row| row.key.subject == OURS)
}

/// The better of the others in the line of `row`.
fn best_other<'a>(report: &'a BenchReport, row: &Row) -> Option<&'a Row> {
    report
        .select(|k| k.same_line(&row.key) && k.subject != OURS)
        .max_by(|a, b| a.times_better(b).total_cmp(&1.0))
}

fn judge_one(report: &BenchReport, goal: String, line: Option<&Row>, wanted: f64) -> Goal {
    let Some((row, other)) = line.and_then(|row| Some((row, best_other(report, row)?))) else {
        return Goal { goal, measured: "not measured in this run".into(), met: None };
    };
    let ratio = row.times_better(other);
    Goal { goal, measured: format!("{ratio:.2}x {}", other.key.subject), met: Some(ratio >= wanted) }
}

/// Judges every goal.
pub(super) fn judge(report: &BenchReport) -> Vec<Goal> {
    let mut goals: Vec<Goal> = [(1, 1.3), (8, 1.7), (THREADS, 2.0)]
        .into_iter()
        .map(|(threads, wanted)| {
            let goal = format!("synced puts, {threads} threads: at least {wanted}x the better of the others");
            judge_one(report, goal, ours(report, WRITING, SYNCED_PUT, threads), wanted)
        })
        .collect();
    let rate = |section, operation, threads| ours(report, section, operation, threads).map(|row| row.median);
    let goal = format!("synced puts: {THREADS} threads at least {THREADS_TIMES}x one");
    goals.push(match (rate(WRITING, SYNCED_PUT, 1), rate(WRITING, SYNCED_PUT, THREADS)) {
        (Some(one), Some(many)) => {
            Goal { goal, measured: format!("{:.1}x", many / one), met: Some(many >= THREADS_TIMES * one) }
        }
        _ => Goal { goal, measured: "not measured in this run".into(), met: None },
    });
    let goal = "gets: at least 1.5x the better of the others".to_owned();
    goals.push(judge_one(report, goal, ours(report, READING, GET, 1), 1.5));
    let goal = "scans: at least 3 M records a second".to_owned();
    goals.push(match rate(READING, SCAN, 1) {
        Some(rate) => Goal { goal, measured: format!("{:.2} M/s", rate / 1e6), met: Some(rate >= SCANNED) },
        None => Goal { goal, measured: "not measured in this run".into(), met: None },
    });
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::{FigureUnit, RowKey};

    #[test]
    fn the_better_of_the_others_decides_and_nothing_measured_is_nothing_met() {
        let mut report = BenchReport::default();
        assert!(judge(&report).iter().all(|goal| goal.met.is_none()));
        let mut add = |section, operation: &str, threads, subject: &str, value| {
            let key = RowKey::on_file(section, operation, threads, subject);
            report.add(key, FigureUnit::PerSecond, value);
        };
        for (subject, one, many) in [(OURS, 150.0, 1_400.0), ("plyvel", 100.0, 600.0), ("lmdb", 60.0, 90.0)] {
            add(WRITING, SYNCED_PUT, 1, subject, one);
            add(WRITING, SYNCED_PUT, 32, subject, many);
            add(READING, GET, 1, subject, if subject == "lmdb" { 200.0 } else { one });
        }
        add(READING, SCAN, 1, OURS, 3.1e6);
        let goals = judge(&report);
        let met: Vec<_> = goals.iter().map(|goal| goal.met).collect();
        assert_eq!(met, [Some(true), None, Some(true), Some(false), Some(false), Some(true)], "{goals:?}");
        assert_eq!(goals[0].measured, "1.50x plyvel");
        assert_eq!(goals[4].measured, "0.75x lmdb");
    }
}
