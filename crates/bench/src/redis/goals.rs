//! The goals of the durable server, judged by what this run measured: the worst of the lines that a goal is about.

use super::cases::{CLIENTS, LARGE, PIPELINE, RESTART, UPDATES};
use super::lines::{CPU, CPU_MAIN, DIRECT_WRITE, P99, START, THROUGHPUT};
use super::subjects::{ALWAYS, EMULATED, STOCK};
use crate::report::report::{BenchReport, Goal, OURS, Row, RowKey};
use crate::sections::floors::FLOOR;

/// Judges every goal.
struct Judge<'a> {
    report: &'a BenchReport,
    goals: Vec<Goal>,
}

/// Which lines a goal is about.
type Picks<'p> = &'p dyn Fn(&RowKey) -> bool;

impl Judge<'_> {
    /// `subject`'s value divided by `rival`'s in each line.
    fn ratios(&self, subject: &str, rival: &str, operation: &str, picks: Picks<'_>) -> Vec<(f64, String)> {
        let ours =
            self.report.select(|key| key.subject == subject && key.operation == operation && picks(key));
        ours.filter_map(|row| {
            let theirs = self.report.beside(&row.key, rival)?;
            Some((row.median / theirs.median, place(row)))
        })
        .collect()
    }

    fn at_least(&mut self, goal: impl Into<String>, wanted: f64, mut ratios: Vec<(f64, String)>) {
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.judge(goal.into(), ratios.first(), |ratio| ratio >= wanted);
    }

    fn at_most(&mut self, goal: impl Into<String>, limit: f64, mut ratios: Vec<(f64, String)>) {
        ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.judge(goal.into(), ratios.first(), |ratio| ratio <= limit);
    }

    fn judge(&mut self, goal: String, worst: Option<&(f64, String)>, is_met: impl Fn(f64) -> bool) {
        self.goals.push(Goal {
            goal,
            measured: match worst {
                Some((ratio, place)) => format!("{ratio:.2}x ({place})"),
                None => "not measured in this run".into(),
            },
            met: worst.map(|(ratio, _)| is_met(*ratio)),
        });
    }
}

/// The line of a row, in a few words.
fn place(row: &Row) -> String {
    let many = if row.key.section == LARGE { ", many keys" } else { "" };
    format!("{}{many}", row.key.workload)
}

/// Judges every goal.
pub(super) fn judge(report: &BenchReport) -> Vec<Goal> {
    let mut j = Judge { report, goals: Vec::new() };
    let of = |key: &RowKey, sections: &[&str], clients: usize| {
        sections.contains(&key.section) && key.threads == clients
    };
    let is_piped = |key: &RowKey| key.workload.contains("pipeline");
    let is_all_writes = |key: &RowKey| key.workload.contains(" 100 % updates");

    // Writes that wait for the disk.
    let single: Picks<'_> =
        &|key| of(key, &[UPDATES, CLIENTS, LARGE], 16) && is_all_writes(key) && !is_piped(key);
    j.at_least("SET, 16 clients: 1.8x AOF always", 1.8, j.ratios(OURS, ALWAYS, THROUGHPUT, single));
    let floor = report.select(|key| key.subject == FLOOR && key.operation == DIRECT_WRITE).next();
    let ours = report.select(|key| key.subject == OURS && key.operation == THROUGHPUT && single(key));
    let bound = floor.map_or_else(Vec::new, |floor| {
        ours.map(|row| (row.median / (16.0 * floor.median), place(row))).collect()
    });
    j.at_least("SET, 16 clients: 0.7x of 16 / latency of a direct synchronous write of 4 KB", 0.7, bound);
    let crowd: Picks<'_> = &|key| of(key, &[CLIENTS], 50);
    j.at_least("SET, 50 clients: 1.4x AOF always", 1.4, j.ratios(OURS, ALWAYS, THROUGHPUT, crowd));
    j.at_most(
        "p99 of SET, 16 clients: no worse than AOF always (at most 1x)",
        1.0,
        j.ratios(OURS, ALWAYS, P99, single),
    );
    for kind in ["strings", "hashes", "lists"] {
        let piped: Picks<'_> = &|key| {
            of(key, &[PIPELINE, LARGE], 50)
                && key.workload.starts_with(kind)
                && is_all_writes(key)
                && is_piped(key)
        };
        let goal = format!("writes to {kind}, pipeline 16: 1x AOF always");
        j.at_least(goal, 1.0, j.ratios(OURS, ALWAYS, THROUGHPUT, piped));
        let goal = format!("main thread's CPU of writes to {kind}, pipeline 16: at most 1.35x Valkey");
        j.at_most(goal, 1.35, j.ratios(OURS, STOCK, CPU_MAIN, piped));
        let goal = format!("server's CPU of writes to {kind}, pipeline 16: at most 1.8x Valkey");
        j.at_most(goal, 1.8, j.ratios(OURS, STOCK, CPU, piped));
    }

    // The commit alone.
    let memory = |is_wanted: bool| {
        move |key: &RowKey| {
            [UPDATES, CLIENTS, PIPELINE].contains(&key.section)
                && is_all_writes(key)
                && is_piped(key) == is_wanted
                && (16..=50).contains(&key.threads)
        }
    };
    let ratios = j.ratios(EMULATED, STOCK, CPU, &memory(false));
    j.at_most("CPU of writes, emulated 0/0: at most 1.3x Valkey", 1.3, ratios);
    let ratios = j.ratios(EMULATED, STOCK, CPU, &memory(true));
    j.at_most("CPU of writes, emulated 0/0, pipeline 16: at most 1.5x Valkey", 1.5, ratios);

    let reads: Picks<'_> =
        &|key| [UPDATES, PIPELINE, LARGE].contains(&key.section) && key.workload.contains(" 0 % updates");
    j.at_least("reads: 0.98x Valkey", 0.98, j.ratios(OURS, STOCK, THROUGHPUT, reads));
    let restarts: Picks<'_> = &|key| key.section == RESTART;
    let faster = j.ratios(OURS, ALWAYS, START, restarts);
    let faster = faster.into_iter().map(|(ratio, place)| (1.0 / ratio, place)).collect();
    j.at_least("restart after SIGKILL: 10x faster than the AOF's", 10.0, faster);
    j.goals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::FigureUnit;

    #[test]
    fn the_worst_line_is_judged_and_nothing_measured_is_nothing_met() {
        let mut report = BenchReport::default();
        assert!(judge(&report).iter().all(|goal| goal.met.is_none()));
        let mut add = |section, clients, subject: &str, operation: &str, unit, value| {
            let key = RowKey {
                section,
                medium: String::new(),
                workload: "strings, uniform, 100 % updates".into(),
                operation: operation.into(),
                threads: clients,
                subject: subject.into(),
            };
            report.add(key, unit, value);
        };
        for (subject, rate, p99) in [(OURS, 190.0, 2.0), (ALWAYS, 100.0, 1.0)] {
            add(CLIENTS, 16, subject, THROUGHPUT, FigureUnit::PerSecond, rate);
            add(CLIENTS, 50, subject, THROUGHPUT, FigureUnit::PerSecond, rate);
            add(CLIENTS, 16, subject, P99, FigureUnit::Milliseconds, p99);
            // With many keys we are slower than with 16 clients the goal allows.
            add(
                LARGE,
                16,
                subject,
                THROUGHPUT,
                FigureUnit::PerSecond,
                if subject == OURS { 150.0 } else { 100.0 },
            );
        }
        let goals = judge(&report);
        let goal = |part: &str| goals.iter().find(|goal| goal.goal.contains(part)).expect("the goal exists");
        assert_eq!(goal("16 clients: 1.8x").met, Some(false));
        assert!(goal("16 clients: 1.8x").measured.contains("1.50x"), "{goals:?}");
        assert_eq!(goal("50 clients: 1.4x").met, Some(true));
        assert_eq!(goal("p99").met, Some(false));
        assert_eq!(goal("restart").met, None);
    }
}
