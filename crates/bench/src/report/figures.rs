//! SVG figures: bars and curves of any rows; and of the map those after the paper's Fig. 4 to 10, and of the disk
//! sections.

use crate::report::report::{BenchReport, FigureUnit, MachineInfo, Row};
use crate::sections::lines;
use anyhow::anyhow;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (900, 480);
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 95),
    RGBColor(214, 95, 14),
    RGBColor(86, 101, 178),
    RGBColor(196, 62, 126),
    RGBColor(230, 171, 2),
    RGBColor(102, 140, 48),
    RGBColor(120, 120, 120),
    RGBColor(160, 110, 70),
    RGBColor(60, 160, 200),
    RGBColor(40, 40, 40),
];

/// A figure that was drawn.
pub(crate) struct Figure {
    pub(crate) file: String,
    pub(crate) title: String,
}

/// Draws every figure for which this run has measurements into `dir`; returns the file names.
pub(crate) fn draw(report: &BenchReport, dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut done = Vec::new();
    let mut bars = |file: &str, title: &str, group: fn(&Row) -> String, pick: &dyn Fn(&Row) -> bool| {
        let rows: Vec<&Row> = report.rows.iter().filter(|r| pick(r)).collect();
        if !rows.is_empty() {
            grouped_bars(&dir.join(file), title, &rows, group, &report.machine)?;
            done.push(file.to_owned());
        }
        anyhow::Ok(())
    };
    let place = |r: &Row| format!("{} {}", r.key.workload, r.key.medium);
    for (n, operation) in [(4, "insert"), (5, "search"), (6, "update"), (7, "delete")] {
        let pick = |r: &Row| r.key.section == lines::OPERATIONS && r.key.operation == operation;
        bars(&format!("fig{n}-{operation}.svg"), &format!("{operation} (paper: Fig. {n})"), place, &pick)?;
    }
    bars("fig9-mixes.svg", "Mixed workloads (paper: Fig. 9)", place, &|r| r.key.section == lines::MIXES)?;
    bars("fig10a-range.svg", "Range of 100,000 records (paper: Fig. 10a)", place, &|r| {
        r.key.section == lines::RANGE
    })?;
    let kind = |r: &Row| format!("{} {}", r.key.workload, r.key.operation);
    bars("fig10b-memory.svg", "Memory (paper: Fig. 10b)", kind, &|r| r.key.section == lines::MEMORY)?;
    bars("fig10c-recovery.svg", "Build and recovery (paper: Fig. 10c)", kind, &|r| {
        r.key.section == lines::RECOVERY && r.key.medium == "zero"
    })?;
    let threads = |r: &Row| format!("{} {} x{}", r.key.workload, r.key.operation, r.key.threads);
    bars("fig10d-threads.svg", "Threads (paper: Fig. 10d)", threads, &|r| r.key.section == lines::THREADS)?;
    let count = |r: &Row| format!("{} threads", r.key.threads);
    bars("puts.svg", "Every put synced", count, &|r| {
        r.key.section == lines::PUTS && r.key.operation == lines::PUT
    })?;
    bars("fill.svg", lines::FILL, count, &|r| {
        r.key.section == lines::BATCHES && r.key.operation == lines::FILL
    })?;
    for (file, section, operation) in
        [("batches.svg", lines::BATCHES, lines::BATCH), ("scan.svg", lines::GETS, lines::SCAN)]
    {
        bars(file, operation, |r| r.key.operation.clone(), &|r| {
            r.key.section == section && r.key.operation == operation
        })?;
    }
    bars("gets.svg", "Random gets", threads, &|r| r.key.operation == lines::GET)?;
    for operation in ["insert", "search", "update", "delete"] {
        let rows: Vec<&Row> =
            report.select(|k| k.section == lines::SCALE && k.operation == operation).collect();
        if !rows.is_empty() {
            let file = format!("fig8-{operation}.svg");
            curves(&dir.join(&file), &format!("{operation}, Random (paper: Fig. 8)"), &rows)?;
            done.push(file);
        }
    }
    Ok(done)
}

fn subjects<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.key.subject.as_str()) {
            names.push(&row.key.subject);
        }
    }
    names
}

/// A unit that gives short labels, and what to divide by.
fn scale(rows: &[&Row]) -> (&'static str, f64) {
    match rows[0].unit {
        FigureUnit::Nanoseconds => ("microseconds per operation", 1e3),
        FigureUnit::PerSecond => ("thousands per second", 1e3),
        FigureUnit::Bytes => ("bytes", 1.0),
        FigureUnit::Microseconds => ("microseconds", 1.0),
        FigureUnit::Milliseconds => ("milliseconds", 1.0),
        FigureUnit::Count => ("count", 1.0),
    }
}

/// Groups along x, one bar for each subject, a whisker from the least to the greatest round.
pub(crate) fn grouped_bars(
    path: &Path,
    title: &str,
    rows: &[&Row],
    group: fn(&Row) -> String,
    machine: &MachineInfo,
) -> anyhow::Result<()> {
    let mut groups: Vec<String> = Vec::new();
    for row in rows {
        let name = group(row);
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    let names = subjects(rows);
    let (unit, divisor) = scale(rows);
    let top = rows.iter().map(|r| r.high / divisor).fold(0.0, f64::max).max(1e-9) * 1.1;
    let width = SIZE.0.max(140 + (groups.len() * (names.len() + 1) * 9) as u32);
    let root = SVGBackend::new(path, (width, SIZE.1)).into_drawing_area();
    root.fill(&WHITE).map_err(draw_error)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(60)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)
        .map_err(draw_error)?;
    let label = |x: &f64| {
        let at = x.floor() as usize;
        // Labels stand in the middle of their group only.
        if (x.fract() - 0.5).abs() < 1e-6 {
            groups.get(at).cloned().unwrap_or_default()
        } else {
            String::new()
        }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(groups.len() * 2 + 1)
        .x_label_formatter(&label)
        .x_desc(machine.in_short())
        .y_desc(unit)
        .draw()
        .map_err(draw_error)?;
    let bar = 0.84 / names.len() as f64;
    for (n, name) in names.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let mine = rows.iter().filter(|r| r.key.subject == *name);
        let at =
            |r: &Row| groups.iter().position(|g| *g == group(r)).unwrap_or(0) as f64 + 0.08 + bar * n as f64;
        let bars = mine.clone().map(|r| {
            let x = at(r);
            Rectangle::new([(x, 0.0), (x + bar * 0.92, r.median / divisor)], colour.filled())
        });
        chart
            .draw_series(bars)
            .map_err(draw_error)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        let whiskers = mine.map(|r| {
            let x = at(r) + bar * 0.46;
            PathElement::new([(x, r.low / divisor), (x, r.high / divisor)], BLACK.stroke_width(1))
        });
        chart.draw_series(whiskers).map_err(draw_error)?;
    }
    legend(&mut chart)?;
    root.present().map_err(draw_error)
}

/// Number of records along a logarithmic x, one curve for each subject.
fn curves(path: &Path, title: &str, rows: &[&Row]) -> anyhow::Result<()> {
    let records = |r: &Row| r.key.workload.parse::<f64>().unwrap_or(1.0);
    let (unit, divisor) = scale(rows);
    let least = rows.iter().map(|r| records(r)).fold(f64::INFINITY, f64::min);
    let most = rows.iter().map(|r| records(r)).fold(0.0, f64::max).max(least * 1.01);
    let top = rows.iter().map(|r| r.high / divisor).fold(0.0, f64::max).max(1e-9) * 1.1;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(draw_error)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d((least..most).log_scale(), 0.0..top)
        .map_err(draw_error)?;
    chart.configure_mesh().x_desc("records").y_desc(unit).draw().map_err(draw_error)?;
    for (n, name) in subjects(rows).into_iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points: Vec<_> =
            rows.iter().filter(|r| r.key.subject == name).map(|r| (records(r), r.median / divisor)).collect();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))
            .map_err(draw_error)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
    }
    legend(&mut chart)?;
    root.present().map_err(draw_error)
}

/// One curve for each name, through its points in their order; both axes begin at 0.
pub(crate) fn curves_of(
    path: &Path,
    title: &str,
    [x_desc, y_desc]: [&str; 2],
    points: &[(&str, (f64, f64))],
) -> anyhow::Result<()> {
    let most =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(|(_, at)| of(at)).fold(0.0, f64::max).max(1e-9) * 1.1;
    let (right, top) = (most(|at| at.0), most(|at| at.1));
    let mut names: Vec<&str> = points.iter().map(|(name, _)| *name).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(draw_error)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..right, 0.0..top)
        .map_err(draw_error)?;
    chart.configure_mesh().x_desc(x_desc).y_desc(y_desc).draw().map_err(draw_error)?;
    for (n, name) in names.into_iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let mine = || points.iter().filter(move |(of, _)| *of == name).map(|(_, at)| *at);
        chart
            .draw_series(LineSeries::new(mine(), colour.stroke_width(2)))
            .map_err(draw_error)?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
        chart.draw_series(mine().map(|at| Circle::new(at, 3, colour.filled()))).map_err(draw_error)?;
    }
    legend(&mut chart)?;
    root.present().map_err(draw_error)
}

fn legend<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> anyhow::Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(draw_error)
}

fn draw_error(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a figure: {e}")
}
