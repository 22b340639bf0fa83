//! The goals of the LevelDB API, judged by what this run measured.

use super::lines::{READING, WRITING};
use crate::report::report::{BenchReport, Goal, OURS};

/// The subject that the goals name.
const RIVAL: &str = "LevelDB";

/// How many times better ours is, in the worst line of `section` with `threads` threads.
fn judge_one(report: &BenchReport, goal: String, section: &str, threads: Option<usize>, wanted: f64) -> Goal {
    let ours = report.select(|k| {
        // Values of 100 KB measure the disk's bandwidth, not commits. They are in the table, but not in the goal.
        k.section == section
            && k.subject == OURS
            && k.operation != "fill100K"
            && threads.is_none_or(|t| k.threads == t)
    });
    let worst = ours
        .filter_map(|row| Some((row.times_better(report.beside(&row.key, RIVAL)?), row)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    match worst {
        None => Goal { goal, measured: "not measured in this run".into(), met: None },
        Some((ratio, row)) => Goal {
            goal,
            measured: format!("{ratio:.2}x at worst ({}, {} threads)", row.key.operation, row.key.threads),
            met: Some(ratio >= wanted),
        },
    }
}

/// Judges every goal.
pub(super) fn judge(report: &BenchReport) -> Vec<Goal> {
    let mut goals: Vec<Goal> = [(1, 1.0), (8, 2.0), (32, 3.0)]
        .into_iter()
        .map(|(threads, wanted)| {
            let goal = format!("synced writes, {threads} threads: at least {wanted:.0}x LevelDB");
            judge_one(report, goal, WRITING, Some(threads), wanted)
        })
        .collect();
    goals.push(judge_one(report, "reads: at least 5x LevelDB".into(), READING, None, 5.0));
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::{FigureUnit, RowKey};

    #[test]
    fn the_worst_line_decides_and_nothing_measured_is_nothing_met() {
        let mut report = BenchReport::default();
        assert!(judge(&report).iter().all(|g| g.met.is_none()));
        for (operation, ours, theirs) in [("fillseq", 300.0, 100.0), ("overwrite", 250.0, 100.0)] {
            for (subject, value) in [(OURS, ours), (RIVAL, theirs)] {
                let key = RowKey {
                    section: WRITING,
                    medium: "file".into(),
                    workload: String::new(),
                    operation: operation.into(),
                    threads: 32,
                    subject: subject.into(),
                };
                report.add(key, FigureUnit::PerSecond, value);
            }
        }
        let goals = judge(&report);
        assert_eq!(goals[2].met, Some(false), "{:?}", goals[2]);
        assert!(goals[2].measured.contains("2.50x at worst (overwrite"));
        assert_eq!(goals[1].met, None);
    }
}
