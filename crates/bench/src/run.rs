//! Runs the chosen sections and writes the report.

use crate::harness::clock;
use crate::harness::context::MapBench;
use crate::harness::run_args::list;
use crate::harness::store::StoreKind;
use crate::report::render::Page;
use crate::report::save::save;
use crate::report::{figures, goals, render, say};
use crate::subjects::{MangroveC, MangroveStore};
use crate::{MapArgs, sections};
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::path::Path;

/// `mangrove bench map`, with Mangrove and the baselines only.
///
/// # Errors
/// Missing input data, a bad argument, or the first error of a store that is measured.
pub fn run(args: MapArgs) -> anyhow::Result<()> {
    run_with(args, &[])
}

/// The same, with peers in the sections on a disk.
///
/// # Errors
/// As for [`run`].
pub fn run_with(args: MapArgs, peers: &[Box<dyn StoreKind>]) -> anyhow::Result<()> {
    let args = if args.run.quick { quick(args) } else { args };
    let mut stores: Vec<&dyn StoreKind> = vec![&MangroveStore];
    stores.extend(peers.iter().map(|p| &**p));
    if let Some(task) = args.child.clone() {
        return sections::run_child(&MapBench::new(args, stores)?, &task);
    }
    let names: Vec<_> = sections::ALL.iter().map(|s| (s.name, s.title)).collect();
    if args.run.lists() {
        return say::answer(&list(&names));
    }
    let wanted = wanted(&args)?;
    clock::use_cpu_time(args.cpu_time);
    let c_door = MangroveC::load();
    let mut c = MapBench::new(args, stores)?;
    c.child = child_prefix();
    std::fs::create_dir_all(&c.args.dir).with_context(|| format!("cannot make {}", c.args.dir.display()))?;
    c.report = c.args.run.report(&c.args.dir);
    c.report.records = c.args.records;
    if c.args.cpu_time {
        c.report.note(
            "Sections with one thread on emulated memory were timed by processor time, not by the wall.",
        );
    }
    match &c_door {
        Ok(door) if c.wants_subject(MangroveC::NAME) => c.c_door = Some(door),
        Ok(_) => {}
        Err(why) => c.report.note(format!("The C API was not timed: {why:#}.")),
    }
    if peers.is_empty() {
        c.report.note("This build has no peers: build with the feature `peers` to compare on the disk.");
    }
    let page = Page { title: "The map, measured", sections: &names };
    for section in wanted {
        if section.on_disk && !c.measures_disk() {
            continue;
        }
        (section.run)(&mut c).with_context(|| format!("section '{}'", section.name))?;
        // After every section, so that an interrupted run leaves what it has measured.
        if c.args.run.goals {
            c.report.goals = goals::judge(&c.report);
        }
        save(&c.report, &page, "report", &c.args.run)?;
        figures::draw(&c.report, &c.args.run.out)?;
    }
    say::answer(&format!(
        "{}Written to {}.\n",
        render::page(&page, &c.report, false),
        c.args.run.out.display()
    ))
}

fn wanted(args: &MapArgs) -> anyhow::Result<Vec<&'static sections::Section>> {
    if args.run.only.is_empty() && !args.all && !args.run.quick {
        bail!("say what to measure: --all, --quick, or --only SECTION,... (--only list names the sections)");
    }
    args.run.check_names(&sections::ALL.each_ref().map(|s| s.name))?;
    Ok(sections::ALL.iter().filter(|s| args.run.wants(s.name)).collect())
}

/// Tiny inputs: every section runs, but its figures mean nothing.
fn quick(args: MapArgs) -> MapArgs {
    let workloads = if Path::new(crate::harness::workload::DICTIONARY_PATH).exists() {
        args.workloads
    } else {
        args.workloads.into_iter().filter(|w| !w.trim().eq_ignore_ascii_case("dictionary")).collect()
    };
    MapArgs { run: args.run.limited(), records: args.records.min(1_000), workloads, ..args }
}

/// The arguments before this bench's own, which a child process needs too: `map` for `mangrove-bench`,
/// nothing for a binary that is the bench alone.
fn child_prefix() -> Option<Vec<OsString>> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if cfg!(test) {
        return None;
    }
    let end = args.iter().position(|a| a == "map").map_or(0, |at| at + 1);
    Some(args[..end].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MapArgs,
    }

    fn parse(words: &[&str]) -> MapArgs {
        Cli::parse_from(std::iter::once("bench").chain(words.iter().copied())).args
    }

    #[test]
    fn asking_for_nothing_or_nonsense_is_refused_with_a_hint() {
        assert!(wanted(&parse(&[])).is_err_and(|e| e.to_string().contains("--all")));
        assert!(wanted(&parse(&["--only", "tea"])).is_err_and(|e| e.to_string().contains("operations")));
        assert_eq!(wanted(&parse(&["--only", "mixes,range"])).map(|w| w.len()).ok(), Some(2));
    }

    /// Everything but what needs a child process, on tiny input.
    #[test]
    fn a_smoke_test_writes_a_whole_report() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-bench-{}", std::process::id()));
        let (out, pools) = (dir.join("out"), dir.join("pools"));
        let subjects = "Mangrove,Mangrove (lock per tree),\
            HART-paper,WOART,ART+CoW,FPTree,P-ART,ART (volatile),blart (volatile),BTreeMap,SkipMap";
        let page = dir.join("map.md");
        let mut args =
            parse(&["--quick", "--goals", "--media", "zero,file", "--workloads", "sequential,random"]);
        args.subjects = subjects.split(',').map(str::to_owned).collect();
        args.run.out.clone_from(&out);
        args.dir = pools;
        args.run.markdown = Some(page.clone());
        run(args)?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("report.json"))?)?;
        let rows = json["rows"].as_array().map_or(0, Vec::len);
        assert!(rows > 100, "{rows} rows");
        let sections_of = |subject: &str| -> std::collections::BTreeSet<String> {
            let rows = json["rows"].as_array().into_iter().flatten().filter(|row| row["subject"] == subject);
            rows.filter_map(|row| Some(row["section"].as_str()?.to_owned())).collect()
        };
        assert_eq!(sections_of("Mangrove (lock per tree)").into_iter().collect::<Vec<_>>(), ["threads"]);
        assert!(sections_of("Mangrove").len() > 10);
        let has = |operation: &str, threads: usize| {
            let mut rows = json["rows"].as_array().into_iter().flatten();
            rows.any(|row| row["operation"] == operation && row["threads"] == threads)
        };
        assert!(has("unsynced put", 1) && has("unsynced put", 2));
        assert!(has("p99.9 of a synced put", 4) && has("longest synced put", 4));
        assert!(has("disk, all deleted, compacted and opened again", 1));
        assert!(json["goals"].as_array().is_some_and(|g| g.len() > 20));
        for figure in ["fig4-insert.svg", "fig8-search.svg", "fig9-mixes.svg", "fig10d-threads.svg"] {
            assert!(std::fs::read_to_string(out.join(figure))?.contains("<svg"), "{figure}");
        }
        assert!(std::fs::read_to_string(page)?.contains("## Goals"));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }

    #[test]
    fn goals_are_judged_only_on_request() -> anyhow::Result<()> {
        let dir = std::env::temp_dir().join(format!("mangrove-bench-no-goals-{}", std::process::id()));
        let mut args =
            parse(&["--quick", "--only", "persists", "--media", "zero", "--workloads", "sequential"]);
        (args.run.out, args.dir, args.run.markdown) =
            (dir.join("out"), dir.join("pools"), Some(dir.join("map.md")));
        run(args)?;
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("out/report.json"))?)?;
        assert_eq!(json["goals"].as_array().map(Vec::len), Some(0));
        assert!(!std::fs::read_to_string(dir.join("map.md"))?.contains("## Goals"));
        std::fs::remove_dir_all(dir)?;
        Ok(())
    }
}
