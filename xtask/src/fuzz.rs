//! `cargo xtask fuzz`: builds the fuzz targets with coverage counters and runs them, on stable Rust and
//! without cargo-fuzz. `--runs` calls what the targets call on changed seeds, in this process: nothing is compiled.

use anyhow::{Context, bail};
use mangrove_crashlab::fuzz::{
    damage_seeds, damaged_pool, log_parsing, log_seeds, operations, operations_seeds, pool_opening,
    pool_seeds,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

mod planted;

/// A target of fuzzing, which a program in `fuzz/targets` wraps.
struct Target {
    name: &'static str,
    /// Its committed corpus.
    seeds: fn() -> Vec<Vec<u8>>,
    call: fn(&[u8]) -> Result<(), String>,
}

const TARGETS: [Target; 4] = [
    Target { name: "pool", seeds: pool_seeds, call: pool_opening },
    Target { name: "log", seeds: log_seeds, call: log_parsing },
    Target { name: "operations", seeds: operations_seeds, call: operations },
    Target { name: "damage", seeds: damage_seeds, call: damaged_pool },
];
/// What libFuzzer reads; the compiler's own coverage pass makes it.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// One input that takes longer hangs.
const INPUT_SECONDS_MAX: u64 = 30;
/// Memory that one target may take.
const MEMORY_MB_MAX: u64 = 2048;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of fuzzing, split evenly over the targets.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Executions of each target on changed seeds, in this process and without libFuzzer, instead of a time: as much on
    /// a slow machine as on a fast one
    #[arg(long, conflicts_with = "seconds")]
    runs: Option<u64>,
    /// Only this target: pool, log, operations or damage.
    #[arg(long, value_parser = TARGETS.map(|target| target.name))]
    target: Option<String>,
    /// Run this input once (an artifact of an earlier finding); needs --target.
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// libFuzzer's own seed.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Damage unclosed pools systematically, first with all checks by which opening finds damage, then without each in
    /// turn: the search must then find a loss.
    #[arg(long)]
    planted: bool,
    /// With --planted: only without this check
    #[arg(long, requires = "planted", value_name = "CHECK")]
    without: Option<String>,
    /// With --planted: leave out one check in eight, and do not search with all checks: a test does, with a part of the
    /// damages
    #[arg(long, requires = "planted")]
    sparse: bool,
    /// Write the committed seed corpus anew.
    #[arg(long)]
    write_seeds: bool,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").canonicalize()?;
    if args.write_seeds {
        return write_seeds(&root);
    }
    if args.planted {
        return planted::run(args.without.as_deref(), args.sparse);
    }
    if let Some(runs) = args.runs {
        return change_seeds(args.target.as_deref(), runs, args.seed);
    }
    let binaries = build(&root)?;
    let targets: Vec<&str> = wanted(args.target.as_deref()).map(|target| target.name).collect();
    if let Some(input) = &args.replay {
        let status = Command::new(binaries.join(targets[0])).arg(input).status()?;
        return if status.success() { Ok(()) } else { bail!("the input still finds it: {status}") };
    }
    let share = (args.seconds / targets.len() as u64).max(1);
    let how_long = format!("-max_total_time={share}");
    let mut findings = Vec::new();
    for target in targets {
        eprintln!("fuzzing {target} for {share} s");
        let corpus = root.join("corpus").join(target);
        let result = fuzz(&root, &binaries.join(target), &corpus, &how_long, args.seed)?;
        match result.finding {
            None => println!(
                "{target:>10}: {} executions in {:.1} s, no finding",
                result.executions, result.seconds
            ),
            Some(finding) => {
                println!("{target:>10}: {} executions, FINDING: {finding}", result.executions);
                findings.push(target);
            }
        }
    }
    if !findings.is_empty() {
        bail!("findings in: {}", findings.join(", "));
    }
    println!("no finding");
    Ok(())
}

/// The target of this name; all without a name.
fn wanted(name: Option<&str>) -> impl Iterator<Item = Target> {
    TARGETS.into_iter().filter(move |target| name.is_none_or(|name| name == target.name))
}

/// Calls what a target calls on its seeds, each changed in a few places.
fn change_seeds(target: Option<&str>, runs: u64, seed: u32) -> anyhow::Result<()> {
    for Target { name, seeds, call } in wanted(target) {
        // Should it end this process, this line says what ran.
        println!("{name}: {runs} changed seeds");
        let (begun, seeds) = (Instant::now(), seeds());
        let mut rng = StdRng::seed_from_u64(u64::from(seed));
        for run in 0..runs {
            let mut data = seeds[run as usize % seeds.len()].clone();
            // The seeds themselves first.
            let changes = if run < seeds.len() as u64 { 0 } else { rng.random_range(1..6) };
            (0..changes).for_each(|_| change(&mut data, &mut rng));
            if let Err(finding) = call(&data) {
                let path = std::env::temp_dir().join(format!("mangrove-{name}-{seed}-{run}"));
                std::fs::write(&path, &data).with_context(|| format!("cannot write {}", path.display()))?;
                bail!("{finding}\n  replay: cargo xtask fuzz --target {name} --replay {}", path.display());
            }
        }
        println!("{name:>10}: {:.1} s, no finding", begun.elapsed().as_secs_f64());
    }
    println!("no finding");
    Ok(())
}

/// Changes, repeats or removes some bytes.
fn change(data: &mut Vec<u8>, rng: &mut StdRng) {
    let at = rng.random_range(0..data.len() + 1);
    let end = (at + rng.random_range(1..9)).min(data.len());
    match rng.random_range(0..4) {
        0 if at < end => data[at] ^= 1 << rng.random_range(0..8),
        1 => data[at..end].fill_with(|| rng.random()),
        2 => drop(data.drain(at..end)),
        _ => {
            let copied = data[at..end].to_vec();
            let to = rng.random_range(0..data.len() + 1);
            data.splice(to..to, copied);
        }
    }
}

/// Builds all targets; returns the directory of the binaries.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let probe = Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        bail!("libFuzzer needs a C++ compiler and \"{compiler}\" does not run; on Debian: apt install g++");
    }
    let triple = host()?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = folder.join("fuzz");
    eprintln!("building the fuzz targets with coverage counters");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // With --target the flags do not apply to build scripts and macros, which run on the host.
    let status = Command::new(cargo)
        .args(["build", "--release", "--target", &triple, "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", RUSTFLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the fuzz targets do not build");
    }
    Ok(folder.join(triple).join("release"))
}

fn host() -> anyhow::Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8(out.stdout)?;
    let line = text.lines().find_map(|l| l.strip_prefix("host: "));
    Ok(line.context("rustc does not name its host")?.to_owned())
}

struct Outcome {
    executions: u64,
    seconds: f64,
    finding: Option<String>,
}

fn fuzz(root: &Path, binary: &Path, corpus: &Path, how_long: &str, seed: u32) -> anyhow::Result<Outcome> {
    let target = binary.file_name().context("a target has a name")?.to_string_lossy();
    let artifacts = root.join("artifacts").join(&*target);
    std::fs::create_dir_all(corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let begun = Instant::now();
    let out = Command::new(binary)
        .arg(how_long)
        .arg(format!("-seed={seed}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-max_len=4096"])
        .arg(corpus)
        .arg(root.join("seeds").join(&*target))
        .output()
        .with_context(|| format!("cannot start the target {target}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let executions = said
        .lines()
        .find_map(|l| l.strip_prefix("stat::number_of_executed_units:"))
        .and_then(|n| n.trim().parse().ok())
        .unwrap_or(0);
    if out.status.success() {
        return if executions > 0 {
            Ok(Outcome { executions, seconds, finding: None })
        } else {
            bail!("{target} ran nothing:\n{said}")
        };
    }
    let panic = said
        .split("panicked at ")
        .nth(1)
        .or_else(|| said.split("ERROR: ").nth(1))
        .map_or(said.as_str(), |rest| rest.split("stack backtrace").next().unwrap_or(rest));
    let artifact = said.lines().find_map(|l| l.split("Test unit written to ").nth(1));
    let replay = artifact
        .map(|a| format!("\n  replay: cargo xtask fuzz --target {target} --replay {a}"))
        .unwrap_or_default();
    let what: String = panic.trim().chars().take(2000).collect();
    Ok(Outcome { executions, seconds, finding: Some(format!("{what}{replay}")) })
}

/// Writes the seed corpus that the repository holds.
fn write_seeds(root: &Path) -> anyhow::Result<()> {
    for target in TARGETS {
        let (folder, seeds) = (root.join("seeds").join(target.name), (target.seeds)());
        std::fs::create_dir_all(&folder)?;
        for (n, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("{n:02}")), seed)?;
        }
        println!("{}: {} seeds", folder.display(), seeds.len());
    }
    Ok(())
}
