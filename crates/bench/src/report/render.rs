//! The report as text and as Markdown.

use crate::report::report::{BenchReport, FigureUnit, OURS, Row};
use std::fmt::Write;

/// How a table is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Markdown,
}

/// The title of a report, and its sections: their names and their captions.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    pub(crate) sections: &'a [(&'a str, &'a str)],
}

/// A report for a terminal, or as a page of the documentation.
pub(crate) fn page(page: &Page<'_>, report: &BenchReport, markdown: bool) -> String {
    render(page.title, page.sections, report, if markdown { Form::Markdown } else { Form::Text })
}

fn render(name: &str, sections: &[(&str, &str)], report: &BenchReport, form: Form) -> String {
    let mut out = String::new();
    let title = |out: &mut String, level: usize, text: &str| {
        let _ = match form {
            Form::Markdown => writeln!(out, "{} {text}\n", "#".repeat(level)),
            Form::Text => writeln!(out, "{text}\n{}", "-".repeat(text.chars().count())),
        };
    };
    title(&mut out, 1, name);
    head(report, &mut out);
    if !report.goals.is_empty() {
        title(&mut out, 2, "Goals");
        table(&mut out, form, &["goal", "measured", "met"], &goal_rows(report));
    }
    for (section, caption) in sections {
        let rows: Vec<&Row> = report.select(|k| k.section == *section).collect();
        if rows.is_empty() {
            continue;
        }
        title(&mut out, 2, caption);
        let (header, lines) = matrix(&rows);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        table(&mut out, form, &header, &lines);
    }
    if !report.notes.is_empty() {
        title(&mut out, 2, "Notes");
        for note in &report.notes {
            let _ = writeln!(out, "- {note}");
        }
    }
    out
}

fn head(report: &BenchReport, out: &mut String) {
    let m = &report.machine;
    let _ = writeln!(
        out,
        "{}, {} CPUs, {:.0} GiB, Linux {}; {} + sfence; {}. Load average at the start: {:.2}.\n",
        m.cpu,
        m.cpus,
        m.memory_bytes as f64 / f64::from(1 << 30),
        m.kernel,
        m.flush,
        m.disk,
        m.load
    );
    let _ = writeln!(
        out,
        "Command: `{}`. Median of {} interleaved rounds (every subject once a round); in brackets how many times \
         better Mangrove is in the same line; last, the widest half-range of the line's rounds.\n",
        report.command, report.rounds
    );
    if report.quick {
        let _ = writeln!(out, "SMOKE TEST on tiny input: the figures mean nothing.\n");
    }
}

fn goal_rows(report: &BenchReport) -> Vec<Vec<String>> {
    let met = |m: Option<bool>| match m {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "-",
    };
    report.goals.iter().map(|g| vec![g.goal.clone(), g.measured.clone(), met(g.met).into()]).collect()
}

/// One line for each (medium, workload, operation, threads), one column for each subject.
fn matrix(rows: &[&Row]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut subjects: Vec<&str> = Vec::new();
    let mut heads: Vec<&Row> = Vec::new();
    for row in rows {
        if !subjects.contains(&row.key.subject.as_str()) {
            subjects.push(&row.key.subject);
        }
        if !heads.iter().any(|h| h.key.same_line(&row.key)) {
            heads.push(row);
        }
    }
    let mut header = vec!["medium".to_owned(), "what".into(), "threads".into(), "unit".into()];
    header.extend(subjects.iter().map(|s| (*s).to_owned()));
    header.push("+-".into());
    let lines = heads
        .iter()
        .map(|head| {
            let of =
                |subject: &str| rows.iter().find(|r| r.key.same_line(&head.key) && r.key.subject == subject);
            let ours = of(OURS);
            let what = [head.key.workload.as_str(), head.key.operation.as_str()];
            let what = what.iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(", ");
            let threads = if head.key.threads == 0 { String::new() } else { head.key.threads.to_string() };
            let mut line = vec![head.key.medium.clone(), what, threads, head.unit.name().to_owned()];
            let mut spread = f64::NEG_INFINITY;
            for subject in &subjects {
                line.push(match of(subject) {
                    None => String::new(),
                    Some(row) => {
                        // One sample has no spread.
                        if row.samples.len() > 1 {
                            spread = spread.max(row.samples.spread());
                        }
                        match ours {
                            Some(o) if *subject != OURS && row.median > 0.0 && o.median > 0.0 => {
                                format!("{} ({:.2}x)", number(row.median, row.unit), o.times_better(row))
                            }
                            _ => number(row.median, row.unit),
                        }
                    }
                });
            }
            line.push(if spread.is_finite() { format!("{:.0} %", spread * 100.0) } else { String::new() });
            line
        })
        .collect();
    (header, lines)
}

fn number(value: f64, unit: FigureUnit) -> String {
    match unit {
        FigureUnit::PerSecond if value >= 1e7 => format!("{:.1}M", value / 1e6),
        FigureUnit::PerSecond if value >= 1e6 => format!("{:.2}M", value / 1e6),
        FigureUnit::PerSecond | FigureUnit::Bytes if value >= 1e4 => format!("{:.1}k", value / 1e3),
        FigureUnit::Count => format!("{value:.2}"),
        FigureUnit::Milliseconds if value < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn table(out: &mut String, form: Form, header: &[&str], lines: &[Vec<String>]) {
    let width = |i: usize| {
        let cells = lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count());
        cells.chain([header[i].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut row = |cells: &[&str]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
        let _ = match form {
            Form::Markdown => writeln!(out, "| {} |", padded.join(" | ")),
            Form::Text => writeln!(out, "{}", padded.join("  ").trim_end()),
        };
    };
    row(header);
    let rule: Vec<String> = widths.iter().map(|w| "-".repeat((*w).max(3))).collect();
    row(&rule.iter().map(String::as_str).collect::<Vec<_>>());
    for line in lines {
        row(&line.iter().map(String::as_str).collect::<Vec<_>>());
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::report::RowKey;

    #[test]
    fn a_line_has_every_subject_and_its_ratio_to_ours() {
        let mut report = BenchReport::default();
        for (subject, value) in [(OURS, 100.0), ("WOART", 250.0), (OURS, 120.0), ("WOART", 250.0)] {
            let key = RowKey {
                section: "operations",
                medium: "zero".into(),
                workload: "Random".into(),
                operation: "insert".into(),
                threads: 1,
                subject: subject.into(),
            };
            report.add(key, FigureUnit::Nanoseconds, value);
        }
        let of = Page { title: "A test", sections: &[("operations", "Operations")] };
        let page = super::page(&of, &report, true);
        assert!(
            page.contains("| zero   | Random, insert | 1       | ns/op | 110      | 250 (2.27x) | 9 % |"),
            "{page}"
        );
        assert!(super::page(&of, &report, false).contains("250 (2.27x)"));
    }
}
