//! The goals of durable applications, judged by what this run measured.

use super::{calls, log, programs, ratios, recovery, sqlite};
use crate::report::report::{BenchReport, Goal, OURS, Row};

fn find<'a>(report: &'a BenchReport, section: &str, workload: &str, operation: &str) -> Option<&'a Row> {
    report.rows.iter().find(|r| {
        r.key.section == section && r.key.workload == workload && r.key.operation.starts_with(operation)
    })
}

fn judged(goal: impl Into<String>, measured: Option<(String, bool)>) -> Goal {
    let (measured, met) = match measured {
        Some((text, met)) => (text, Some(met)),
        None => ("not measured in this run".to_owned(), None),
    };
    Goal { goal: goal.into(), measured, met }
}

fn at_most(goal: impl Into<String>, value: Option<f64>, limit: f64, unit: &str) -> Goal {
    judged(goal, value.map(|v| (format!("{v:.2}{unit}"), v <= limit)))
}

fn at_least(goal: impl Into<String>, value: Option<f64>, limit: f64, unit: &str) -> Goal {
    judged(goal, value.map(|v| (format!("{v:.2}{unit}"), v >= limit)))
}

/// Judges every goal.
pub(super) fn judge(report: &BenchReport) -> Vec<Goal> {
    let mut goals = Vec::new();
    calls_and_puts(report, &mut goals);
    let slowdowns = [
        ("hash map, 100 B values, 1,000 puts a call", 2.0),
        ("std::map, 1,000 puts a call", 1.2),
        ("qsort of 100,000", 1.5),
        ("zlib, 400 KB at level 6", 1.25),
        ("SQLite, 100 inserts a call", 1.6),
        ("SQLite, one insert a call", 2.0),
    ];
    for (program, limit) in slowdowns {
        let value = find(report, programs::PROGRAMS, program, programs::SLOWDOWN).map(|r| r.median);
        goals.push(at_most(format!("tracked {program}: at most {limit} of native"), value, limit, ""));
    }
    throughput(report, &mut goals);
    sqlite_goals(report, &mut goals);
    recovery_goals(report, &mut goals);
    goals
}

fn calls_and_puts(report: &BenchReport, goals: &mut Vec<Goal>) {
    let call = |operation| find(report, calls::CALLS, "", operation).map(|r| r.median);
    let beyond = call(calls::READ).zip(call(calls::NATIVE_READ)).map(|(durable, native)| durable - native);
    goals.push(at_most("a read costs at most 20 ns beyond an unwrapped call", beyond, 20.0, " ns"));
    goals.push(at_most("enter and leave a tracked call: at most 35 ns", call(calls::TRACKED), 35.0, " ns"));
    let put = find(report, calls::PUTS, "100 bytes", "put").map(|r| r.median);
    goals.push(at_most("durable PUT of 100 B, emulated zero: at most 400 ns", put, 400.0, " ns"));
    let ratios = report.select(|k| k.section == calls::PUTS && k.subject == OURS);
    let worst = ratios
        .filter_map(|r| Some((r.median / report.beside(&r.key, calls::COPIES)?.median, &r.key.workload)))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    goals.push(judged(
        "values of 64 B to 100 KB: within 3x of two memcpys",
        worst.map(|(ratio, of)| (format!("{ratio:.2}x at worst ({of})"), ratio <= 3.0)),
    ));
    let fences = find(report, log::LOG, "uniform", log::FENCES_COMMIT).map(|r| r.median);
    goals.push(at_most("fences of a commit: at most 2 (the mean of a run: below 2.1)", fences, 2.1, ""));
}

fn throughput(report: &BenchReport, goals: &mut Vec<Goal>) {
    let rows = report.select(|k| k.section == ratios::LOCAL && k.medium == "file" && k.subject == OURS);
    let worst = rows
        .filter_map(|r| Some((r.times_better(report.beside(&r.key, ratios::VOLATILE)?), &r.key.workload)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    goals.push(judged(
        "file, 32 clients: at least 0.8 of the volatile store (or the disk's bandwidth, not judged here)",
        worst.map(|(ratio, of)| (format!("{ratio:.3}x at worst ({of})"), ratio >= 0.8)),
    ));
}

/// Ours, beside the best of those that lose as little in a power cut.
fn sqlite_inserts(report: &BenchReport, operation: &str, clients: usize) -> Option<f64> {
    let rows = || {
        report.rows.iter().filter(|r| {
            r.key.section == sqlite::SQLITE && r.key.operation == operation && r.key.threads == clients
        })
    };
    let weaker = [OURS, sqlite::INTERVAL, sqlite::NORMAL, sqlite::MEMORY];
    let peers = rows().filter(|r| !weaker.contains(&r.key.subject.as_str()));
    let best = peers.max_by(|a, b| a.median.total_cmp(&b.median))?;
    let ours = rows().find(|r| r.key.subject == OURS)?;
    Some(ours.median / best.median)
}

fn sqlite_goals(report: &BenchReport, goals: &mut Vec<Goal>) {
    for (clients, wanted) in [(1, 1.0), (8, 3.0)] {
        let goal = format!(
            "SQLite, single-row transactions, {clients} clients: at least {wanted:.0}x the better WAL"
        );
        goals.push(at_least(goal, sqlite_inserts(report, sqlite::INSERT, clients), wanted, "x"));
    }
    for rows in sqlite::ROWS {
        let goal = format!("SQLite, {rows} rows a transaction: at least as fast as the better WAL");
        goals.push(at_least(goal, sqlite_inserts(report, &sqlite::insert_of(rows), 1), 1.0, "x"));
    }
    let read = |subject: &str| {
        report
            .rows
            .iter()
            .find(|r| r.key.operation == sqlite::READ && r.key.threads == 1 && r.key.subject == subject)
    };
    let ratio = read(OURS).zip(read(sqlite::MEMORY)).map(|(ours, memory)| ours.median / memory.median);
    goals.push(at_least("SQLite, reads: at the speed of :memory: (at least 0.97x)", ratio, 0.97, "x"));
}

fn recovery_goals(report: &BenchReport, goals: &mut Vec<Goal>) {
    let ready = find(report, recovery::RECOVERY, "8192 MiB", &format!("{}, warm", recovery::MAPPED));
    goals.push(at_most("ready under 1 s for 8 GiB, copy on write", ready.map(|r| r.median), 1000.0, " ms"));
    let all = find(report, recovery::RECOVERY, "1024 MiB", &format!("{}, warm", recovery::ALL));
    let rate = all.map(|r| 1.024 * 1.048_576 / (r.median / 1e3));
    goals.push(at_least("recovery: at least 2 GB/s on one thread", rate, 2.0, " GB/s"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::{FigureUnit, RowKey};

    #[test]
    fn nothing_measured_is_nothing_met_and_numbers_decide() {
        let mut report = BenchReport::default();
        assert!(judge(&report).iter().all(|g| g.met.is_none()));
        let key = |operation: &str, subject: &str, clients| RowKey {
            section: sqlite::SQLITE,
            medium: "file".into(),
            workload: String::new(),
            operation: operation.into(),
            threads: clients,
            subject: subject.into(),
        };
        for (subject, rate) in [(OURS, 40.0), ("WAL, one", 10.0), ("WAL, each", 20.0)] {
            report.add(key(sqlite::INSERT, subject, 1), FigureUnit::PerSecond, rate);
            report.add(key(sqlite::INSERT, subject, 8), FigureUnit::PerSecond, rate);
        }
        let goals = judge(&report);
        let of = |part: &str| goals.iter().find(|g| g.goal.contains(part)).and_then(|g| g.met);
        assert_eq!((of("1 clients"), of("8 clients")), (Some(true), Some(false)));
    }
}
