//! Circles of files within a crate: none of their files can be read, tested or moved without the others.
//!
//! A file depends on another file if it spells a name that the other defines, also where a third file
//! re-exports that name. Re-exports in lib.rs and mod.rs files are the crate's table of contents, and make
//! no dependence; nor does the name of a module alone, nor a method, nor what only tests compile.

use super::modules::{ModuleTree, Target, folder, is_contents};
use super::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};

/// Each file's ties: to which file, and by which names.
pub(super) type Ties = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Every circle of every crate.
pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    for root in roots(sources) {
        let modules = ModuleTree::load(sources, &root);
        let ties = ties(&modules);
        findings.extend(modules.errors.iter().cloned());
        findings.extend(circles(&ties).iter().map(|circle| told(folder(&root), circle, &ties)));
    }
    findings
}

/// The root files of what the packages ship: libraries and programs, not tests and examples.
fn roots(sources: &Sources) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for (package, manifest) in sources.packages() {
        let own = [format!("{package}/src/lib.rs"), format!("{package}/src/main.rs")];
        roots.extend(own.into_iter().filter(|root| sources.text(root).is_some()));
        let paths = manifest.lines().filter_map(|line| {
            let path = line.trim().strip_prefix("path")?.trim_start().strip_prefix('=')?.trim();
            path.trim_matches('"').strip_suffix(".rs").map(|path| format!("{package}/{path}.rs"))
        });
        let tested = [format!("{package}/tests/"), format!("{package}/examples/")];
        roots.extend(paths.filter(|path| !tested.iter().any(|folder| path.starts_with(folder))));
        let bin = format!("{package}/src/bin/");
        let bins = sources.ending(&[".rs"]).filter(|(name, _)| folder(name) == bin.trim_end_matches('/'));
        roots.extend(bins.map(|(name, _)| name.to_owned()));
    }
    roots
}

fn ties(modules: &ModuleTree) -> Ties {
    let mut ties = Ties::new();
    let macros = textual_macros(modules);
    for (at, module) in modules.all.iter().enumerate() {
        let mut tie = |target: Option<Target>| {
            if let Some(Target::Item(to, name)) = target
                && modules.all[to].file != module.file
            {
                let from = ties.entry(module.file.clone()).or_default();
                from.entry(modules.all[to].file.clone()).or_default().insert(name);
            }
        };
        for import in &module.scope.imports {
            if import.public && is_contents(&module.file) {
                continue;
            }
            if import.name == "*" {
                for word in &module.scope.words {
                    tie(through_glob(modules, at, &import.path, word));
                }
                continue;
            }
            tie(modules.resolve(at, &import.path, false));
        }
        module.scope.paths.iter().for_each(|path| tie(modules.resolve(at, path, false)));
        for call in module.scope.calls.iter().filter(|call| !module.scope.items.contains_key(*call)) {
            if let Some(to) = macros.get(call) {
                tie(Some(Target::Item(*to, format!("{call}!"))));
            }
        }
    }
    ties
}

/// What a word of the module `at` means, if it comes through a glob of `path`.
fn through_glob(modules: &ModuleTree, at: usize, path: &[String], word: &str) -> Option<Target> {
    let scope = &modules.all[at].scope;
    if scope.items.contains_key(word) || scope.imports.iter().any(|import| import.name == word) {
        return None;
    }
    match modules.resolve(at, path, true)? {
        Target::Module(of) => modules.lookup(of, word, false, &mut BTreeSet::new()),
        found => Some(found),
    }
}

/// The macros that `#[macro_use]` spreads without a path.
fn textual_macros(modules: &ModuleTree) -> BTreeMap<String, usize> {
    let spreading = modules.all.iter().enumerate().filter(|(_, module)| module.scope.is_macro_use);
    let macros = spreading.flat_map(|(at, module)| {
        let items = module.scope.items.iter().filter(|(_, item)| item.keyword == "macro");
        items.map(move |(name, _)| (name.clone(), at))
    });
    macros.collect()
}

/// The largest groups of files that all reach each other.
pub(super) fn circles(ties: &Ties) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        ties.keys().map(|from| (from, reach(ties, from))).collect();
    let mut circles = BTreeSet::new();
    for (from, there) in &reached {
        let back = |to: &&&String| reached.get(**to).is_some_and(|from_there| from_there.contains(from));
        let circle: BTreeSet<String> = there.iter().filter(back).map(|file| (*file).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reach<'a>(ties: &'a Ties, from: &'a String) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let unseen = ties.get(file).into_iter().flat_map(BTreeMap::keys).filter(|to| reached.insert(*to));
        next.extend(unseen);
    }
    reached
}

pub(super) fn told(folder: &str, circle: &BTreeSet<String>, ties: &Ties) -> String {
    let short = |file: &str| file.strip_prefix(folder).unwrap_or(file).trim_start_matches('/').to_owned();
    let files: Vec<String> = circle.iter().map(|file| short(file)).collect();
    let mut told = format!("{folder}: a circle of {} files: {}", circle.len(), files.join(", "));
    for from in circle {
        for (to, names) in ties[from].iter().filter(|(to, _)| circle.contains(*to)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            told.push_str(&format!("\n  {} -> {}: {}", short(from), short(to), names.join(", ")));
        }
    }
    told
}
