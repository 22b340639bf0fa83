//! Rust files under `tests` that are no module of a test program: cargo compiles none of them, and none of their tests
//! runs.

use super::modules::{ModuleTree, folder};
use super::sources::Sources;
use std::collections::BTreeSet;

/// Every file under a package's `tests` that no root file has as a module, of this package or another one.
pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut own = BTreeSet::new();
    for (package, _) in sources.packages() {
        let files = sources.ending(&[".rs"]).map(|(name, _)| name);
        let files = files.filter(|name| name.strip_prefix(package).is_some_and(|rest| rest.starts_with('/')));
        for file in files {
            let within = &file[package.len() + 1..];
            if is_root(within) {
                reached.extend(ModuleTree::load(sources, file).all.into_iter().map(|module| module.file));
            }
            if within.starts_with("tests/") {
                own.insert(file.to_owned());
            }
        }
    }
    let told =
        |file: &String| format!("{file}: no test program has this file as a module, so its tests never run");
    own.difference(&reached).map(told).collect()
}

/// Whether cargo takes this file of a package for the root of a test program.
fn is_root(file: &str) -> bool {
    let below = folder(file);
    below == "tests" || (folder(below) == "tests" && file.ends_with("/main.rs"))
}
