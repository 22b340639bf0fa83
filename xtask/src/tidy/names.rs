//! Names of types: one stands for one thing in the workspace, unless the thing is the same.

use super::sources::Sources;
use super::types::Types;

/// Names of what every crate and every program may have one of.
const EVERYWHERE: [&str; 5] = ["Args", "Command", "Error", "Failure", "Options"];

/// Names of one thing that several floors have a type for: a facade's own, for a caller, of what a lower crate has; and
/// what a test has in its place.
const THE_SAME: [&str; 15] = [
    "AsymmetricBarrier",
    "Batch",
    "Bounds",
    "CheckReport",
    "Damage",
    "Direction",
    "EventCount",
    "Locking",
    "Map",
    "PoolInfo",
    "Range",
    "RecoveryReport",
    "Snapshot",
    "Stat",
    "Usage",
];

/// Each name of several visible structs, enums or traits, with the files that define them.
pub(super) fn check(sources: &Sources) -> Vec<String> {
    let types = Types::read(sources).types;
    let mut findings = Vec::new();
    let allowed = |name: &str| EVERYWHERE.contains(&name) || THE_SAME.contains(&name);
    for (name, found) in types.iter().filter(|(name, _)| !allowed(name)) {
        let is_type = |keyword: &str| ["struct", "enum", "trait"].contains(&keyword);
        // Tests and examples are read on their own.
        let shipped =
            |file: &str| file.contains("/src/") && !file.contains("/tests/") && !file.ends_with("tests.rs");
        let seen = found.iter().filter(|t| t.public && is_type(&t.keyword) && shipped(&t.file));
        let places: Vec<String> = seen.map(|t| format!("{} {}", t.keyword, t.file)).collect();
        if places.len() > 1 {
            findings.push(format!("{name}: {}", places.join(", ")));
        }
    }
    findings
}
