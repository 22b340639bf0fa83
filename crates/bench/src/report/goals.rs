//! The goals of the map, judged by what this run measured. A goal without measurements is "not measured", never
//! "met".

use crate::report::report::{BenchReport, Goal, OURS, Row, RowKey};
use crate::sections::lines::{
    self, BATCHES, BITFLIP, GETS, MEMORY, MIXES, OPEN, OPERATIONS, PERSISTS, PUTS, RANGE, RECOVERY,
};
use crate::subjects::{BLART, HART_PAPER, VOLATILE_ART};

/// The durable structures of the paper's figures.
const RIVALS: [&str; 3] = ["WOART", "ART+CoW", "FPTree"];

/// Judges every goal.
pub(crate) fn judge(report: &BenchReport) -> Vec<Goal> {
    let j = Judge { report };
    let mut goals = Vec::new();
    zero_latency(&j, &mut goals);
    latencies(&j, &mut goals);
    persists(&j, &mut goals);
    ranges_and_recovery(&j, &mut goals);
    disk_writes(&j, &mut goals);
    disk_reads(&j, &mut goals);
    memory(&j, &mut goals);
    goals
}

/// Two volatile radix trees: the goal must be met against both.
const VOLATILE: [&str; 2] = [VOLATILE_ART, BLART];

struct Judge<'a> {
    report: &'a BenchReport,
}

/// A ratio, and where it was found.
type Found = (f64, String);

impl<'a> Judge<'a> {
    fn ours(&self, section: &str, f: impl Fn(&RowKey) -> bool) -> Vec<&'a Row> {
        self.report
            .rows
            .iter()
            .filter(|r| r.key.section == section && r.key.subject == OURS && f(&r.key))
            .collect()
    }

    /// How many times better ours is than `rival`, in every line for which `f` holds.
    fn against(&self, section: &str, rival: &str, f: impl Fn(&RowKey) -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        for row in self.ours(section, f) {
            if let Some(other) = self.report.beside(&row.key, rival) {
                let at = [row.key.workload.as_str(), row.key.operation.as_str()];
                let at = at.iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(", ");
                found.push((row.times_better(other), format!("{at}, {rival}")));
            }
        }
        found
    }

    /// The peers' rows in the line of `ours`.
    fn peers(&self, ours: &Row) -> Vec<&'a Row> {
        let not_peers = [OURS, lines::FLOOR];
        self.report
            .rows
            .iter()
            .filter(|r| r.key.same_line(&ours.key) && !not_peers.contains(&r.key.subject.as_str()))
            .collect()
    }

    fn one(&self, section: &str, operation: &str, threads: usize) -> Option<&'a Row> {
        self.ours(section, |k| k.operation == operation && k.threads == threads).into_iter().next()
    }
}

/// The least of the ratios must reach `wanted`.
fn at_least(goals: &mut Vec<Goal>, goal: &str, wanted: f64, found: Vec<Found>) {
    let least = found.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    goals.push(match least {
        None => unmeasured(goal),
        Some((ratio, at)) => {
            let rest = if found.len() > 1 {
                format!(" at worst of {} ({at})", found.len())
            } else {
                format!(" ({at})")
            };
            Goal { goal: goal.into(), measured: format!("{ratio:.2}x{rest}"), met: Some(*ratio >= wanted) }
        }
    });
}

/// A figure of ours must not exceed `limit`.
fn at_most(goals: &mut Vec<Goal>, goal: &str, limit: f64, unit: &str, rows: &[&Row]) {
    let worst = rows.iter().max_by(|a, b| a.median.total_cmp(&b.median));
    goals.push(match worst {
        None => unmeasured(goal),
        Some(row) => Goal {
            goal: goal.into(),
            measured: format!("{:.2}{unit} {}", row.median, row.key.workload).trim_end().to_owned(),
            met: Some(row.median <= limit),
        },
    });
}

fn unmeasured(goal: &str) -> Goal {
    Goal { goal: goal.into(), measured: "not measured in this run".into(), met: None }
}

fn zero_latency(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let zero = |operation: &'static str| move |k: &RowKey| k.medium == "zero" && k.operation == operation;
    let hart = |operation| j.against(OPERATIONS, HART_PAPER, zero(operation));
    at_least(goals, "zero latency: insert at least 2x HART-paper", 2.0, hart("insert"));
    for rival in ["WOART", "ART+CoW", "FPTree", "P-ART"] {
        let goal = format!("zero latency: insert at least 1.5x {rival}");
        at_least(goals, &goal, 1.5, j.against(OPERATIONS, rival, zero("insert")));
    }
    at_least(goals, "zero latency: update at least 4x HART-paper", 4.0, hart("update"));
    at_least(goals, "zero latency: delete at least 2x HART-paper", 2.0, hart("delete"));
    let search = VOLATILE.iter().flat_map(|v| j.against(OPERATIONS, v, zero("search"))).collect();
    at_least(
        goals,
        "zero latency: search within 1.15x of a volatile ART (at least 0.87x)",
        1.0 / 1.15,
        search,
    );
}

fn latencies(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    for medium in ["300/100", "300/300", "600/300"] {
        for (section, what) in
            [(OPERATIONS, "all four operations of all workloads"), (MIXES, "all three mixes")]
        {
            let found = RIVALS.iter().flat_map(|r| j.against(section, r, |k| k.medium == medium)).collect();
            let goal = format!("{medium}: ahead of WOART, ART+CoW and FPTree in {what}");
            at_least(goals, &goal, 1.0, found);
        }
    }
}

fn persists(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    for (operation, limit) in [("insert", 2.0), ("update", 2.0), ("delete", 1.0)] {
        let goal = format!(
            "{operation}: at most {limit} fences (mean over a run, chunks and segments included: below {limit}.1)"
        );
        let rows = j.ours(PERSISTS, |k| k.operation == format!("{operation}: fences"));
        at_most(goals, &goal, limit + 0.1, "", &rows);
    }
}

fn ranges_and_recovery(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    for rival in [VOLATILE_ART, BLART, "FPTree"] {
        let goal = format!("range of 100k: at least as fast as {rival}");
        at_least(goals, &goal, 1.0, j.against(RANGE, rival, |k| k.medium == "zero"));
    }
    let random = |k: &RowKey| k.medium == "zero" && k.workload == "Random" && k.operation == "recover";
    let rows = j.ours(RECOVERY, random);
    at_most(goals, "recovery of 1M Random under 100 ms", 100.0, " ms", &rows);
    at_least(
        goals,
        "recovery within 2x of FPTree's (at least 0.5x)",
        0.5,
        j.against(RECOVERY, "FPTree", random),
    );
}

/// Compares ours with the best of the peers in one line.
fn against_best(j: &Judge<'_>, goals: &mut Vec<Goal>, goal: &str, wanted: f64, ours: Option<&Row>) {
    let best = ours.and_then(|o| {
        // The best peer is the one that ours beats by the least.
        let best = j.peers(o).into_iter().min_by(|a, b| o.times_better(a).total_cmp(&o.times_better(b)));
        best.map(|b| {
            (o.times_better(b), format!("{} {:.0} against {} {:.0}", OURS, o.median, b.key.subject, b.median))
        })
    });
    at_least(goals, goal, wanted, best.into_iter().collect());
}

fn disk_writes(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let floor = j.against(PUTS, lines::FLOOR, |k| k.threads == 1 && k.operation == lines::PUT);
    at_least(goals, "file, sync, 1 thread: at least 0.9 of the disk's fdatasync rate", 0.9, floor);
    for (threads, wanted) in [(8, 2.0), (32, 3.0)] {
        let goal = format!("file, sync, {threads} threads: {wanted}x the best peer");
        against_best(j, goals, &goal, wanted, j.one(PUTS, lines::PUT, threads));
    }
    let written = j.one(PUTS, lines::WRITTEN, 32);
    against_best(
        j,
        goals,
        "file, sync, 32 threads: bytes written per put no more than the best peer's",
        1.0,
        written,
    );
    against_best(
        j,
        goals,
        "file, interval: 3x the fastest peer's async put",
        3.0,
        j.one(BATCHES, lines::FILL, 1),
    );
    let batches = j.against(BATCHES, "LevelDB", |k| k.operation == lines::BATCH);
    at_least(goals, "file, synced batches of 1,000: 2x LevelDB", 2.0, batches);
}

fn disk_reads(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let open: Vec<_> = j.ours(OPEN, |k| k.operation == lines::OPEN_KILLED);
    at_most(goals, "open after SIGKILL, 1M records: under 200 ms", 200.0, " ms", &open);
    let flips = j.ours(BITFLIP, |k| k.operation == lines::SILENT);
    at_most(goals, "one bit flipped anywhere: 0 silently wrong or missing answers", 0.0, "", &flips);
    let gets = j.against(GETS, "LMDB", |k| k.operation == lines::GET && k.threads == 1);
    at_least(goals, "gets, 1M random, one thread: 4x LMDB", 4.0, gets);
    // Two readers and a writer need three processors.
    let crowded = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 3);
    for operation in [lines::GET, if crowded { lines::GET_PREFIX_CPU } else { lines::GET_PREFIX }] {
        let goal = format!("{operation}: 1.9x on 2 threads");
        let one = j.one(GETS, operation, 1);
        let two = j.one(GETS, operation, 2);
        let scaling = one.zip(two).map(|(one, two)| (two.median / one.median, "2 threads over 1".to_owned()));
        at_least(goals, &goal, 1.9, scaling.into_iter().collect());
    }
    let scan = j.against(GETS, "LMDB", |k| k.operation == lines::SCAN);
    at_least(goals, "ordered scan: at least LMDB's", 1.0, scan);
}

fn memory(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let dram = VOLATILE.iter().flat_map(|v| j.against(MEMORY, v, |k| k.operation == lines::DRAM)).collect();
    let goal = "DRAM per record no more than a volatile ART's plus 10 % (at least 0.91x)";
    at_least(goals, goal, 1.0 / 1.1, dram);
    let durable = j.against(MEMORY, "FPTree", |k| k.operation == lines::DURABLE);
    at_least(goals, "durable bytes per record no more than FPTree's", 1.0, durable);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::Unit;

    fn add(
        report: &mut BenchReport,
        section: &'static str,
        operation: &str,
        threads: usize,
        subject: &str,
        value: f64,
    ) {
        let key = RowKey {
            section,
            medium: if section == PUTS { "file" } else { "zero" }.into(),
            workload: String::new(),
            operation: operation.into(),
            threads,
            subject: subject.into(),
        };
        report.add(key, if section == PUTS { Unit::PerSecond } else { Unit::Nanoseconds }, value);
    }

    fn goal<'a>(goals: &'a [Goal], part: &str) -> &'a Goal {
        goals.iter().find(|g| g.goal.contains(part)).expect("the goal exists")
    }

    #[test]
    fn nothing_measured_is_nothing_met() {
        assert!(judge(&BenchReport::default()).iter().all(|g| g.met.is_none()));
    }

    #[test]
    fn goals_are_met_or_missed_by_the_numbers() {
        let mut report = BenchReport::default();
        add(&mut report, OPERATIONS, "insert", 1, OURS, 500.0);
        add(&mut report, OPERATIONS, "insert", 1, HART_PAPER, 1100.0);
        add(&mut report, OPERATIONS, "insert", 1, "WOART", 600.0);
        add(&mut report, PUTS, lines::PUT, 32, OURS, 190_000.0);
        add(&mut report, PUTS, lines::PUT, 32, lines::FLOOR, 16_000.0);
        add(&mut report, PUTS, lines::PUT, 32, "LevelDB", 60_000.0);
        add(&mut report, PUTS, lines::PUT, 32, "LMDB", 7_000.0);
        let goals = judge(&report);
        assert_eq!(goal(&goals, "insert at least 2x HART-paper").met, Some(true));
        assert_eq!(goal(&goals, "insert at least 1.5x WOART").met, Some(false));
        let puts = goal(&goals, "32 threads: 3x");
        assert_eq!(puts.met, Some(true));
        assert!(puts.measured.contains("LevelDB"), "{}", puts.measured);
        assert_eq!(goal(&goals, "8 threads").met, None);
    }
}
