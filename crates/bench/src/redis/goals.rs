//! The goals of the durable server, judged by what this run measured.

use super::cases::{CLIENTS, PIPELINE, RESTART, UPDATES};
use super::lines::{CPU_MAIN, P99, THROUGHPUT};
use super::subjects::ALWAYS;
use crate::report::report::{BenchReport, Goal, OURS, Row};

const STOCK: &str = "Valkey";

/// Our row of a case, and the rival's.
fn pair<'a>(
    report: &'a BenchReport,
    rival: &str,
    picks: impl Fn(&Row) -> bool,
    operation: &str,
) -> Option<(&'a Row, &'a Row)> {
    let ours =
        report.rows.iter().find(|r| r.key.subject == OURS && r.key.operation == operation && picks(r))?;
    Some((ours, report.beside(&ours.key, rival)?))
}

fn at_least(goal: String, ratio: Option<f64>, wanted: f64) -> Goal {
    Goal {
        goal,
        measured: ratio.map_or_else(|| "not measured in this run".into(), |ratio| format!("{ratio:.2}x")),
        met: ratio.map(|ratio| ratio >= wanted),
    }
}

fn at_most(goal: String, ratio: Option<f64>, limit: f64) -> Goal {
    Goal { met: ratio.map(|ratio| ratio <= limit), ..at_least(goal, ratio, 0.0) }
}

/// Judges every goal.
pub(super) fn judge(report: &BenchReport) -> Vec<Goal> {
    let rate = |rival: &str, picks: &dyn Fn(&Row) -> bool| {
        pair(report, rival, picks, THROUGHPUT).map(|(ours, theirs)| ours.median / theirs.median)
    };
    let mut goals = Vec::new();
    for (clients, wanted) in [(16, 1.8), (64, 1.4)] {
        let goal = format!("SET, {clients} clients: at least {wanted} x AOF always");
        let picks = |r: &Row| {
            r.key.section == CLIENTS && r.key.threads == clients && r.key.workload.contains("uniform")
        };
        goals.push(at_least(goal, rate(ALWAYS, &picks), wanted));
    }
    let picks =
        |r: &Row| r.key.section == CLIENTS && r.key.threads == 16 && r.key.workload.contains("uniform");
    let ratio = pair(report, ALWAYS, picks, P99).map(|(ours, theirs)| ours.median / theirs.median);
    goals.push(at_most("p99 of SET, 16 clients: no worse than AOF always".into(), ratio, 1.0));
    for kind in ["strings", "hashes", "lists"] {
        let writes = |r: &Row| {
            r.key.section == PIPELINE && r.key.workload.starts_with(kind) && r.key.workload.contains("100 %")
        };
        let goal = format!("writes to {kind}, pipeline 16: at least AOF always");
        goals.push(at_least(goal, rate(ALWAYS, &writes), 1.0));
        let cpu = pair(report, STOCK, writes, CPU_MAIN).map(|(ours, theirs)| ours.median / theirs.median);
        let goal = format!("main thread's CPU of writes to {kind}, pipeline 16: at most 1.35 x Valkey");
        goals.push(at_most(goal, cpu, 1.35));
    }
    let reads = |r: &Row| r.key.section == UPDATES && r.key.workload.contains(" 0 % updates");
    goals.push(at_least("reads: at least 0.98 x Valkey".into(), rate(STOCK, &reads), 0.98));
    let restart = pair(report, ALWAYS, |r| r.key.section == RESTART, "restart");
    let restart = restart.map(|(ours, theirs)| theirs.median / ours.median);
    goals.push(at_least("restart after SIGKILL: 10 times faster than the AOF's".into(), restart, 10.0));
    goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::{RowKey, Unit};

    #[test]
    fn ratios_are_judged_and_nothing_measured_is_nothing_met() {
        let mut report = BenchReport::default();
        assert!(judge(&report).iter().all(|goal| goal.met.is_none()));
        for (subject, rate, p99) in [(OURS, 190.0, 2.0), (ALWAYS, 100.0, 1.0)] {
            for (operation, unit, value) in
                [(THROUGHPUT, Unit::PerSecond, rate), (P99, Unit::Milliseconds, p99)]
            {
                let key = RowKey {
                    section: CLIENTS,
                    medium: "disk".into(),
                    workload: "strings, uniform, 100 % updates".into(),
                    operation: operation.into(),
                    threads: 16,
                    subject: subject.into(),
                };
                report.add(key, unit, value);
            }
        }
        let goals = judge(&report);
        assert_eq!((goals[0].met, goals[1].met, goals[2].met), (Some(true), None, Some(false)), "{goals:?}");
    }
}
