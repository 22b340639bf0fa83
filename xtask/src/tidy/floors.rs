//! The table "Floors" of ARCHITECTURE.md: each crate uses only crates on floors below its own.

use super::sources::Sources;
use std::collections::BTreeMap;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// Crates that the table does not place, and those that use what is not below them.
pub(super) fn check(sources: &Sources) -> Vec<String> {
    let text = sources.text(DOCUMENT).unwrap_or_default();
    let floors = table(text);
    if floors.is_empty() {
        return vec![format!("{DOCUMENT}: has no table under \"Floors\" with rows like | 0 | `sys` | .. |")];
    }
    let crates = crates(sources);
    let mut findings = Vec::new();
    for (name, manifest) in &crates {
        let Some(floor) = floors.get(*name) else {
            findings.push(format!("{DOCUMENT}: the table \"Floors\" does not name crates/{name}"));
            continue;
        };
        // Chores and tests stand on no floor, and may use whatever they like.
        let Some(floor) = floor else { continue };
        for used in dependencies(manifest).iter().filter(|used| crates.contains_key(used.as_str())) {
            let problem = match floors.get(used) {
                Some(Some(below)) if below < floor => continue,
                Some(Some(other)) => format!("which is on floor {other}"),
                _ => "which is on no floor".into(),
            };
            findings.push(format!(
                "crates/{name}/Cargo.toml: `{name}`, on floor {floor}, uses `{used}`, {problem}"
            ));
        }
    }
    let gone = floors.iter().filter(|(name, floor)| floor.is_some() && !crates.contains_key(name.as_str()));
    findings.extend(
        gone.map(|(name, _)| format!("{DOCUMENT}: the table \"Floors\" names `{name}`, which is no crate")),
    );
    findings
}

/// Each crate of the table, with its floor; none where the row has a dash.
fn table(text: &str) -> BTreeMap<String, Option<u32>> {
    let mut floors = BTreeMap::new();
    let section = text.lines().skip_while(|line| !is_heading(line, "Floors")).skip(1);
    for line in section.take_while(|line| !line.starts_with('#')) {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(floor), Some(names)) = (cells.next(), cells.next()) else { continue };
        let floor = match floor.parse() {
            Ok(floor) => Some(floor),
            Err(_) if matches!(floor, "-" | "–" | "—") => None,
            Err(_) => continue,
        };
        // The names are in backticks: every other piece.
        floors.extend(names.split('`').skip(1).step_by(2).map(|name| (name.to_owned(), floor)));
    }
    floors
}

fn is_heading(line: &str, title: &str) -> bool {
    line.starts_with('#') && line.trim_start_matches('#').trim() == title
}

/// The crates by the name of their directory, with their manifests.
fn crates(sources: &Sources) -> BTreeMap<&str, &str> {
    let packages = sources.packages();
    packages.filter_map(|(folder, text)| Some((folder.strip_prefix("crates/")?, text))).collect()
}

/// The crates of this workspace that a manifest's normal dependencies name, by their directory's name.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut used = Vec::new();
    let mut inside = false;
    for line in manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            // `[target.'cfg(..)'.dependencies]` and `[dependencies.NAME]` count like `[dependencies]`.
            let (before, name) = section.split_once("dependencies").unwrap_or((section, "-"));
            inside =
                (before.is_empty() || before.ends_with('.')) && (name.is_empty() || name.starts_with('.'));
            used.extend(name.strip_prefix('.').filter(|_| inside).and_then(ours));
        } else if inside && !line.is_empty() {
            let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let package = line.split("package").nth(1).and_then(|rest| rest.split('"').nth(1));
            used.extend(ours(package.unwrap_or(key)));
        }
    }
    used
}

/// A package's directory, if it is one of ours: `mangrove-NAME` lies in `crates/NAME`, the facade `mangrove-db`
/// in `crates/mangrove`, the command `mangrove-db-cli` in `crates/cli`.
fn ours(package: &str) -> Option<String> {
    match package {
        "mangrove" | "mangrove-db" => Some("mangrove".into()),
        "mangrove-db-cli" => Some("cli".into()),
        _ => package.strip_prefix("mangrove-").map(str::to_owned),
    }
}
