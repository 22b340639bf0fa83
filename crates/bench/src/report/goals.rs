//! The goals of the map, judged by what this run measured. A goal without measurements is "not measured", never
//! "met".

use crate::report::report::{BenchReport, Goal, OURS, Row, RowKey};
use crate::sections::lines::{
    self, BATCHES, BITFLIP, GETS, MEMORY, MIXES, OPEN, OPERATIONS, PERSISTS, PUTS, RANGE, RECOVERY, YCSB,
};
use crate::sections::overwrites;
use crate::subjects::{BLART, HART_PAPER, MangroveC, VOLATILE_ART};

/// The durable structures of the paper's figures.
const RIVALS: [&str; 3] = ["WOART", "ART+CoW", "FPTree"];
/// Two volatile radix trees: a goal must be met against both, so against the faster one.
const VOLATILE: [&str; 2] = [VOLATILE_ART, BLART];
/// How a program calls the map, and the subject that does it so.
const DOORS: [(&str, &str); 2] = [("Rust", OURS), ("C", MangroveC::NAME)];
const MILLION: u64 = 1_000_000;
/// Records, and the milliseconds that opening may take with so many after SIGKILL.
const OPEN_KILLED_MS: [(u64, f64); 2] = [(MILLION, 80.0), (10 * MILLION, 1_000.0)];

/// Judges every goal.
pub(crate) fn judge(report: &BenchReport) -> Vec<Goal> {
    let j = Judge { report };
    let mut goals = Vec::new();
    zero_latency(&j, &mut goals);
    shuffled(&j, &mut goals);
    latencies(&j, &mut goals);
    persists(&j, &mut goals);
    ranges_and_recovery(&j, &mut goals);
    synced_puts(&j, &mut goals);
    unsynced_puts(&j, &mut goals);
    random_overwrites(&j, &mut goals);
    opening(&j, &mut goals);
    disk_reads(&j, &mut goals);
    memory(&j, &mut goals);
    goals
}

struct Judge<'a> {
    report: &'a BenchReport,
}

/// A ratio, and where it was found.
type Found = (f64, String);

impl<'a> Judge<'a> {
    fn rows(&self, subject: &str, section: &str, f: impl Fn(&RowKey) -> bool) -> Vec<&'a Row> {
        self.report
            .rows
            .iter()
            .filter(|r| r.key.section == section && r.key.subject == subject && f(&r.key))
            .collect()
    }

    fn ours(&self, section: &str, f: impl Fn(&RowKey) -> bool) -> Vec<&'a Row> {
        self.rows(OURS, section, f)
    }

    /// How many times better ours is than `rival`, in every line for which `f` holds.
    fn against(&self, section: &str, rival: &str, f: impl Fn(&RowKey) -> bool) -> Vec<Found> {
        self.compared(self.ours(section, f), rival)
    }

    /// How many times better each of `rows` is than `rival` in its line.
    fn compared(&self, rows: Vec<&Row>, rival: &str) -> Vec<Found> {
        let mut found = Vec::new();
        for row in rows {
            if let Some(other) = self.report.beside(&row.key, rival) {
                let at = [row.key.workload.as_str(), row.key.operation.as_str()];
                let at = at.iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(", ");
                found.push((row.times_better(other), format!("{at}, {rival}")));
            }
        }
        found
    }

    /// `rows`, if this run had so many records: a limit in milliseconds belongs to a number of records.
    fn with_records(&self, records: u64, rows: Vec<&'a Row>) -> Vec<&'a Row> {
        if self.report.records == records { rows } else { Vec::new() }
    }

    /// How many times as fast as one thread two are.
    fn scaling(&self, section: &str, operation: &str) -> Vec<Found> {
        let rates = self.one(section, operation, 1).zip(self.one(section, operation, 2));
        let scaling = rates.map(|(one, two)| (two.median / one.median, "2 threads over 1".to_owned()));
        scaling.into_iter().collect()
    }

    /// The peers' rows in the line of `ours`.
    fn peers(&self, ours: &Row) -> Vec<&'a Row> {
        let not_peers = [OURS, MangroveC::NAME, lines::FLOOR];
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

/// The lines of an operation on memory without added latency.
fn zero(operation: &'static str) -> impl Fn(&RowKey) -> bool {
    move |k| k.medium == "zero" && k.operation == operation
}

fn zero_latency(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let hart = |operation| j.against(OPERATIONS, HART_PAPER, zero(operation));
    at_least(goals, "zero latency: insert at least 2x HART-paper", 2.0, hart("insert"));
    for rival in ["WOART", "ART+CoW", "FPTree", "P-ART"] {
        let goal = format!("zero latency: insert at least 1.5x {rival}");
        at_least(goals, &goal, 1.5, j.against(OPERATIONS, rival, zero("insert")));
    }
    at_least(goals, "zero latency, in order: update at least 4x HART-paper", 4.0, hart("update"));
    at_least(goals, "zero latency, in order: delete at least 2x HART-paper", 2.0, hart("delete"));
    let search = VOLATILE.iter().flat_map(|v| j.against(OPERATIONS, v, zero("search"))).collect();
    at_least(
        goals,
        "zero latency, in order: search within 1.15x of the fastest volatile ART (at least 0.87x)",
        1.0 / 1.15,
        search,
    );
}

fn shuffled(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let search =
        VOLATILE.iter().flat_map(|v| j.against(OPERATIONS, v, zero(lines::SEARCH_SHUFFLED))).collect();
    at_least(
        goals,
        "zero latency, shuffled: search as fast as the fastest volatile ART (at least 1x)",
        1.0,
        search,
    );
    for (operation, what, of_hart) in
        [(lines::UPDATE_SHUFFLED, "update", 3.0), (lines::DELETE_SHUFFLED, "delete", 1.6)]
    {
        let against = |rival| j.against(OPERATIONS, rival, zero(operation));
        for rival in ["P-ART", "WOART"] {
            let goal = format!("zero latency, shuffled: {what} ahead of {rival}");
            at_least(goals, &goal, 1.0, against(rival));
        }
        let goal = format!("zero latency, shuffled: {what} at least {of_hart}x HART-paper");
        at_least(goals, &goal, of_hart, against(HART_PAPER));
    }
}

fn latencies(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    for medium in ["300/100", "300/300", "600/300"] {
        for (section, what) in
            [(OPERATIONS, "all operations of all workloads, shuffled too"), (MIXES, "all three mixes")]
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
        let goal = format!("range of 100k, Sequential too: at least as fast as {rival}");
        at_least(goals, &goal, 1.0, j.against(RANGE, rival, |k| k.medium == "zero"));
    }
    let random = |k: &RowKey| k.medium == "zero" && k.workload == "Random" && k.operation == "recover";
    let rows = j.with_records(MILLION, j.ours(RECOVERY, random));
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

fn synced_puts(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let floor = j.against(PUTS, lines::FLOOR, |k| k.threads == 1 && k.operation == lines::PUT);
    at_least(goals, "file, sync, 1 thread: at least 0.9 of the disk's floor", 0.9, floor);
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
    for operation in [lines::P999, lines::LONGEST] {
        let goal = format!("file, sync, 32 threads: {operation} no longer than LevelDB's");
        let found = j.against(PUTS, "LevelDB", |k| k.operation == operation && k.threads == 32);
        at_least(goals, &goal, 1.0, found);
    }
    let batches = j.against(BATCHES, "LevelDB", |k| k.operation == lines::BATCH);
    at_least(goals, "file, synced batches of 1,000: 2x LevelDB", 2.0, batches);
}

fn unsynced_puts(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    against_best(
        j,
        goals,
        "file, interval: 3x the fastest peer's async put",
        3.0,
        j.one(BATCHES, lines::FILL, 1),
    );
    at_least(goals, "file, interval: async puts 1.7x on 2 threads", 1.7, j.scaling(BATCHES, lines::FILL));
}

/// The goals are for 10 million records; with fewer they are easier, so they say with how many this run was.
fn random_overwrites(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let records = in_short(j.report.records);
    let instead = if j.report.records == 10 * MILLION { "" } else { " instead of 10M" };
    let of = format!("random overwrites of {records} records{instead}");
    let figure = |operation: &str| j.ours(overwrites::SECTION, |k| k.operation == operation);
    let goal = format!("{of}: at most 600 bytes written a put");
    at_most(goals, &goal, 600.0, " bytes", &figure(overwrites::WRITTEN));
    at_most(goals, &format!("{of}: no pause above 20 ms"), 20.0, " ms", &figure(overwrites::LONGEST));
    let rate = j.against(overwrites::SECTION, "LevelDB", |k| k.operation == overwrites::OVERWRITE);
    at_least(goals, &format!("{of}: 3x LevelDB's puts a second"), 3.0, rate);
}

/// A number of records as people write it.
fn in_short(records: u64) -> String {
    match records {
        0 => "0".into(),
        n if n.is_multiple_of(MILLION) => format!("{}M", n / MILLION),
        n if n.is_multiple_of(1_000) => format!("{}k", n / 1_000),
        n => n.to_string(),
    }
}

fn opening(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let figure = |operation: &str| j.ours(OPEN, |k| k.operation == operation);
    for (records, limit) in OPEN_KILLED_MS {
        let goal = format!("open after SIGKILL, {} records: at most {limit} ms", in_short(records));
        let rows = j.with_records(records, figure(lines::OPEN_KILLED));
        at_most(goals, &goal, limit, " ms", &rows);
    }
    let clean = figure(lines::OPEN_CLEAN);
    at_most(goals, "open after a clean close, with the first get: at most 10 ms", 10.0, " ms", &clean);
    let get = figure(lines::FIRST_GET);
    at_most(goals, "first get after a clean close: at most 1 ms", 1.0, " ms", &get);
}

fn disk_reads(j: &Judge<'_>, goals: &mut Vec<Goal>) {
    let flips = j.ours(BITFLIP, |k| k.operation == lines::SILENT);
    at_most(goals, "one bit flipped anywhere: 0 silently wrong or missing answers", 0.0, "", &flips);
    for (section, operation, what, wanted) in [
        (GETS, lines::GET, "random gets, one thread", 2.5),
        (GETS, lines::SCAN, "ordered scan", 1.3),
        (YCSB, lines::SCANS, "YCSB E", 1.0),
    ] {
        for (door, subject) in DOORS {
            let rows = j.rows(subject, section, |k| k.operation == operation && k.threads == 1);
            let goal = format!("{what}, through {door}: {wanted}x LMDB");
            at_least(goals, &goal, wanted, j.compared(rows, "LMDB"));
        }
    }
    // Two readers and a writer need three processors.
    let crowded = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 3);
    for operation in [lines::GET, if crowded { lines::GET_PREFIX_CPU } else { lines::GET_PREFIX }] {
        let goal = format!("{operation}: 1.9x on 2 threads");
        at_least(goals, &goal, 1.9, j.scaling(GETS, operation));
    }
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
    use crate::report::report::FigureUnit;

    /// Adds the figure of a subject in a line of the medium `zero`.
    fn add(
        report: &mut BenchReport,
        (section, operation, threads): (&'static str, &str, usize),
        subject: &str,
        unit: FigureUnit,
        value: f64,
    ) {
        let key = RowKey {
            section,
            medium: "zero".into(),
            workload: String::new(),
            operation: operation.into(),
            threads,
            subject: subject.into(),
        };
        report.add(key, unit, value);
    }

    /// A report with the figures of several subjects in one line.
    fn line_of(line: (&'static str, &str, usize), unit: FigureUnit, figures: &[(&str, f64)]) -> BenchReport {
        let mut report = BenchReport::default();
        for (subject, value) in figures {
            add(&mut report, line, subject, unit, *value);
        }
        report
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
        for (subject, ns) in [(OURS, 500.0), (HART_PAPER, 1100.0), ("WOART", 600.0)] {
            add(&mut report, (OPERATIONS, "insert", 1), subject, FigureUnit::Nanoseconds, ns);
        }
        for (subject, rate) in
            [(OURS, 190_000.0), (lines::FLOOR, 16_000.0), ("LevelDB", 60_000.0), ("LMDB", 7_000.0)]
        {
            add(&mut report, (PUTS, lines::PUT, 32), subject, FigureUnit::PerSecond, rate);
        }
        let goals = judge(&report);
        assert_eq!(goal(&goals, "insert at least 2x HART-paper").met, Some(true));
        assert_eq!(goal(&goals, "insert at least 1.5x WOART").met, Some(false));
        let puts = goal(&goals, "32 threads: 3x");
        assert_eq!(puts.met, Some(true));
        assert!(puts.measured.contains("LevelDB"), "{}", puts.measured);
        assert_eq!(goal(&goals, "8 threads").met, None);
    }

    #[test]
    fn shuffled_rows_are_judged_by_themselves_and_by_the_faster_rival() {
        let line = (OPERATIONS, lines::SEARCH_SHUFFLED, 1);
        let figures = [(OURS, 450.0), (VOLATILE_ART, 540.0), (BLART, 440.0)];
        let goals = judge(&line_of(line, FigureUnit::Nanoseconds, &figures));
        let search = goal(&goals, "shuffled: search");
        assert_eq!(search.met, Some(false));
        assert!(search.measured.contains(BLART), "{}", search.measured);
        assert_eq!(goal(&goals, "in order: search").met, None);

        let line = (OPERATIONS, lines::UPDATE_SHUFFLED, 1);
        let figures = [(OURS, 700.0), (HART_PAPER, 2_100.0), ("P-ART", 690.0), ("WOART", 900.0)];
        let goals = judge(&line_of(line, FigureUnit::Nanoseconds, &figures));
        assert_eq!(goal(&goals, "shuffled: update ahead of P-ART").met, Some(false));
        assert_eq!(goal(&goals, "shuffled: update ahead of WOART").met, Some(true));
        assert_eq!(goal(&goals, "shuffled: update at least 3x HART-paper").met, Some(true));
        assert_eq!(goal(&goals, "shuffled: delete").met, None);
    }

    #[test]
    fn each_door_meets_the_goals_of_reads_by_itself() {
        let figures = [(OURS, 2_600.0), (MangroveC::NAME, 2_400.0), ("LMDB", 1_000.0)];
        let goals = judge(&line_of((GETS, lines::GET, 1), FigureUnit::PerSecond, &figures));
        assert_eq!(goal(&goals, "random gets, one thread, through Rust: 2.5x LMDB").met, Some(true));
        assert_eq!(goal(&goals, "random gets, one thread, through C: 2.5x LMDB").met, Some(false));
        let goals = judge(&line_of((YCSB, lines::SCANS, 1), FigureUnit::PerSecond, &figures[..1]));
        assert_eq!(goal(&goals, "YCSB E, through Rust: 1x LMDB").met, None);
    }

    #[test]
    fn an_opening_is_judged_by_its_number_of_records() {
        let met = |records| {
            let line = (OPEN, lines::OPEN_KILLED, 0);
            let mut report = line_of(line, FigureUnit::Milliseconds, &[(OURS, 500.0)]);
            report.records = records;
            let goals = judge(&report);
            [80, 1_000].map(|ms| goal(&goals, &format!("records: at most {ms} ms")).met)
        };
        assert_eq!(met(MILLION), [Some(false), None]);
        assert_eq!(met(10 * MILLION), [None, Some(true)]);
        assert_eq!(met(1_000), [None, None]);
    }

    #[test]
    fn async_puts_and_overwrites_are_judged() {
        let mut report = BenchReport { records: 250_000, ..BenchReport::default() };
        for (threads, rate) in [(1, 1_000.0), (2, 1_650.0)] {
            add(&mut report, (BATCHES, lines::FILL, threads), OURS, FigureUnit::PerSecond, rate);
        }
        let line = |operation| (overwrites::SECTION, operation, 1);
        add(&mut report, line(overwrites::LONGEST), OURS, FigureUnit::Milliseconds, 25.0);
        add(&mut report, line(overwrites::WRITTEN), OURS, FigureUnit::Bytes, 590.0);
        let goals = judge(&report);
        assert_eq!(goal(&goals, "async puts 1.7x on 2 threads").met, Some(false));
        assert_eq!(goal(&goals, "no pause above 20 ms").met, Some(false));
        let written = goal(&goals, "at most 600 bytes written a put");
        assert_eq!(written.met, Some(true));
        assert!(written.goal.contains("of 250k records instead of 10M"), "{}", written.goal);
        assert_eq!(goal(&goals, "3x LevelDB's puts a second").met, None);
    }
}
