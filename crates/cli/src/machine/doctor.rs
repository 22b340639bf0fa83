//! `mangrove doctor`: what this machine can promise.

use crate::machine::cpu_facts::CpuFacts;
use crate::machine::disk_floor;
use crate::terminal::exit::Exit;
use crate::terminal::size::{count, human};
use crate::terminal::{interrupt, output};
use mangrove::heap::{Executor, Heap, MediumKind, Plan};
use mangrove_sys::FlushInstruction;
use rustix::process::{Resource, getrlimit};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Report what this machine and a directory on it can promise, what Mangrove would choose, and why.
/// Writes one small file in the directory for about a second, and removes it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mangrove doctor
  mangrove doctor /mnt/disk --json

Environment: MANGROVE_DOMAIN (adr, eadr) and MANGROVE_FLUSH (clwb, clflushopt, clflush) override what
the platform says.")]
pub(crate) struct Args {
    /// Directory on the disk in question
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Milliseconds to measure durable writes for
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    measure: u64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let flush = FlushInstruction::detect();
    let available: Vec<String> =
        [FlushInstruction::Clwb, FlushInstruction::Clflushopt, FlushInstruction::Clflush]
            .iter()
            .filter(|i| i.is_available())
            .map(ToString::to_string)
            .collect();
    let domains = persistence_domains();
    let eadr = mangrove_sys::caches_are_persistent();
    let mounts = mangrove_sys::dax_mounts();
    let devices = devdax_devices();
    let (point, fs_type) = mount_of(&args.dir);
    let on_dax = mounts.iter().any(|m| Some(m) == point.as_ref());
    interrupt::catch()?;
    let Some(floor) = disk_floor::measure(&args.dir, Duration::from_millis(args.measure))? else {
        return Ok(Exit::Interrupted);
    };
    let limits = limits();
    let cpu = CpuFacts::find();
    let domain = domain_choice(eadr, flush);
    let medium = medium_choice(&args.dir, on_dax, &fs_type);
    let plan = |on_dax| Heap::options().plan(if on_dax { MediumKind::Dax } else { MediumKind::File });
    let (heap, heap_on_dax) = (plan(on_dax)?, plan(true)?);
    let automatic = Heap::options().executor(Executor::Automatic).plan(MediumKind::Dax)?;
    let plan_json = |plan: &Plan| {
        let order = plan.order.to_string();
        json!({ "executor": plan.executor, "protocol": plan.protocol, "order": order })
    };
    let rate = |r: disk_floor::Rate| {
        let (per_second, median_us, p99_us) = (r.per_second, r.median_us, r.p99_us);
        json!({ "per_second": per_second, "median_us": median_us, "p99_us": p99_us })
    };
    if args.json {
        output::json(&json!({
            "flush_instructions": available,
            "flush_instruction": flush.to_string(),
            "persistence_domains": domains,
            "caches_are_persistent": eadr,
            "dax_mounts": names(&mounts),
            "devdax_devices": names(&devices),
            "dir": args.dir.display().to_string(),
            "file_system": fs_type,
            "fdatasync": rate(floor.fdatasync),
            "direct_write": floor.direct.map(rate),
            "rtm": cpu.rtm_json(),
            "tsc": cpu.tsc_json(),
            "numa_nodes": cpu.numa_json(),
            "limits": limits.iter().map(|(k, v)| ((*k).to_owned(), v.clone().into()))
                .collect::<serde_json::Map<String, serde_json::Value>>(),
            "heap": plan_json(&heap),
            "heap_on_persistent_memory": plan_json(&heap_on_dax),
            "heap_automatic_on_persistent_memory": plan_json(&automatic),
            "choice": { "medium": medium.0, "why": medium.1, "domain": domain },
        }))?;
        return Ok(Exit::Ok);
    }
    let or_none = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let shown = |paths: &[PathBuf]| or_none(names(paths));
    let direct = floor.direct.map_or_else(|| "not possible there".to_owned(), |rate| rate.to_string());
    let mut rows = vec![
        ("flush instructions", or_none(available)),
        ("persistence domain", or_none(domains.iter().map(|(r, d)| format!("{r}: {d}")).collect())),
        ("DAX mounts", shown(&mounts)),
        ("devdax devices", shown(&devices)),
        (
            "directory",
            format!(
                "{} on {fs_type} ({})",
                args.dir.display(),
                point.map_or("?".into(), |p| p.display().to_string())
            ),
        ),
        ("write and fdatasync there", floor.fdatasync.to_string()),
        ("direct durable write", direct),
    ];
    rows.extend(limits);
    rows.extend(cpu.rows());
    rows.push(("Mangrove would use", format!("medium {}: {}", medium.0, medium.1)));
    rows.push(("", format!("on persistent memory: {domain}")));
    rows.push(("a heap would use", format!("{heap}, order {}", heap.order)));
    rows.push(("", format!("on persistent memory: {}, order {}", heap_on_dax.protocol, heap_on_dax.order)));
    rows.push(("", format!("with Executor::Automatic there: {automatic}, order {}", automatic.order)));
    output::table(&rows)?;
    Ok(Exit::Ok)
}

/// Paths as text: a path need not be any, and JSON must.
fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|p| p.display().to_string()).collect()
}

/// What each persistent memory region says its domain is.
fn persistence_domains() -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir("/sys/bus/nd/devices") else { return Vec::new() };
    let mut domains: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let domain = fs::read_to_string(entry.path().join("persistence_domain")).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), domain.trim().to_owned()))
        })
        .collect();
    domains.sort();
    domains
}

fn devdax_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/bus/dax/devices") else { return Vec::new() };
    let mut devices: Vec<_> = entries
        .flatten()
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .filter(|device| device.exists())
        .collect();
    devices.sort();
    devices
}

/// The mount point that holds `dir`, and its file system.
fn mount_of(dir: &Path) -> (Option<PathBuf>, String) {
    let unknown = (None, "an unknown file system".to_owned());
    let (Ok(dir), Ok(mounts)) = (dir.canonicalize(), fs::read_to_string("/proc/self/mounts")) else {
        return unknown;
    };
    let mut best = unknown;
    for line in mounts.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(point), Some(kind)) = (fields.nth(1), fields.next()) else { continue };
        // Spaces in mount points are written \040; such a mount is not ours to decode for a hint.
        let longer = best.0.as_ref().is_none_or(|b| point.len() >= b.as_os_str().len());
        if longer && dir.starts_with(point) {
            best = (Some(PathBuf::from(point)), kind.to_owned());
        }
    }
    best
}

fn limits() -> Vec<(&'static str, String)> {
    let overcommit = match fs::read_to_string("/proc/sys/vm/overcommit_memory").as_deref().map(str::trim) {
        Ok("0") => "heuristic (large pools can be reserved)".to_owned(),
        Ok("1") => "always".to_owned(),
        Ok("2") => "never: give pools a --capacity below the commit limit".to_owned(),
        other => format!("{other:?}"),
    };
    let limit = |resource| getrlimit(resource).current.map_or("unlimited".to_owned(), human);
    let files = getrlimit(Resource::Nofile).current.map_or("unlimited".to_owned(), count);
    vec![
        ("memory available", mangrove_sys::memory_available().map_or("?".to_owned(), human)),
        ("overcommit", overcommit),
        ("address space limit", limit(Resource::As)),
        ("file size limit", limit(Resource::Fsize)),
        ("open files limit", files),
        ("CPUs", std::thread::available_parallelism().map_or("?".to_owned(), |n| n.to_string())),
    ]
}

fn domain_choice(eadr: bool, flush: FlushInstruction) -> String {
    match std::env::var("MANGROVE_DOMAIN").as_deref() {
        Ok("eadr") => "eADR, because MANGROVE_DOMAIN says so: fences, no flushes".into(),
        Ok("adr") => format!("ADR, because MANGROVE_DOMAIN says so: {flush} and sfence"),
        _ if eadr => "eADR, because every region reports cpu_cache: fences, no flushes".into(),
        _ => format!("ADR, because no region reports that it holds the CPU caches: {flush} and sfence"),
    }
}

fn medium_choice(dir: &Path, on_dax: bool, fs_type: &str) -> (&'static str, String) {
    if on_dax {
        return (
            "dax",
            format!("{} lies on a DAX mount; MAP_SYNC decides when the pool is created", dir.display()),
        );
    }
    let warning = match fs_type {
        "tmpfs" | "ramfs" => "; beware: a tmpfs survives the process, not the machine",
        "overlay" => "; the layer below decides what an fdatasync is worth",
        _ => "",
    };
    ("file", format!("{fs_type} is no DAX file system: redo log with group commit, power-fail safe{warning}"))
}
