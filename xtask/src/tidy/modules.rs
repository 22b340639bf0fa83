//! The modules of one crate, from its root file down, and which file a path of one of them means.

use super::scan::{Import, Scope, scan};
use super::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};

/// The modules of a crate; the first is its root.
pub(super) struct ModuleTree {
    pub(super) all: Vec<SourceModule>,
    /// What could not be read.
    pub(super) errors: Vec<String>,
}

pub(super) struct SourceModule {
    pub(super) file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    pub(super) scope: Scope,
}

/// What a name or path stands for.
#[derive(Clone)]
pub(super) enum Target {
    Module(usize),
    /// Something that this module defines.
    Item(usize, String),
    /// Something of another crate.
    Outside,
}

/// Names that are being looked up, so that a circle of re-exports ends.
type Seen = BTreeSet<(usize, String, bool)>;

impl ModuleTree {
    /// The crate whose root is the file `root`.
    pub(super) fn load(sources: &Sources, root: &str) -> Self {
        let mut modules = Self { all: Vec::new(), errors: Vec::new() };
        modules.load_file(sources, root, None, folder(root));
        modules
    }

    /// Adds a file's modules; `below` is the directory in which its children lie.
    fn load_file(
        &mut self,
        sources: &Sources,
        file: &str,
        parent: Option<usize>,
        below: &str,
    ) -> Option<usize> {
        match scan(sources.text(file)?) {
            Ok(scope) => Some(self.add(sources, file, parent, below, scope)),
            Err(error) => {
                self.errors.push(format!("{file}: {error}"));
                None
            }
        }
    }

    fn add(
        &mut self,
        sources: &Sources,
        file: &str,
        parent: Option<usize>,
        below: &str,
        mut scope: Scope,
    ) -> usize {
        let children = std::mem::take(&mut scope.children);
        let inline = parent.is_some_and(|parent| self.all[parent].file == file);
        let here = self.all.len();
        self.all.push(SourceModule { file: file.to_owned(), parent, children: BTreeMap::new(), scope });
        for mut child in children {
            let added = if let Some(inner) = child.inline.take() {
                Some(self.add(sources, file, Some(here), &format!("{below}/{}", child.name), inner))
            } else if let Some(path) = &child.path {
                // The files of its child modules lie in its own directory, as those of a mod.rs do.
                let from = if inline { below } else { folder(file) };
                let path = joined(from, path);
                self.load_file(sources, &path, Some(here), folder(&path))
            } else {
                let folder = format!("{below}/{}", child.name);
                let names = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
                names.iter().find_map(|name| self.load_file(sources, name, Some(here), &folder))
            };
            if let Some(added) = added {
                if child.macro_use {
                    self.all[added].scope.is_macro_use = true;
                }
                // The first of two that different platforms compile.
                self.all[here].children.entry(child.name).or_insert(added);
            }
        }
        here
    }

    /// What `path`, written in the module `from`, stands for; `None` where its first name is unknown here.
    /// Where a module and an item share the last name, it is the module if `module` is set.
    pub(super) fn resolve(&self, from: usize, path: &[String], module: bool) -> Option<Target> {
        self.resolve_seen(from, path, module, &mut Seen::new())
    }

    fn resolve_seen(&self, from: usize, path: &[String], module: bool, seen: &mut Seen) -> Option<Target> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (0, &path[1..]),
            "self" => (from, &path[1..]),
            "super" => (from, path),
            "Self" => return None,
            first => match self.lookup(from, first, module || path.len() > 1, seen)? {
                Target::Module(at) => (at, &path[1..]),
                found => return Some(found),
            },
        };
        while rest.first().is_some_and(|name| name == "super") {
            (at, rest) = (self.all[at].parent?, &rest[1..]);
        }
        for (i, name) in rest.iter().enumerate() {
            match self.lookup(at, name, module || i + 1 < rest.len(), seen) {
                Some(Target::Module(next)) => at = next,
                Some(found) if self.sees_through(from, at) => return Some(found),
                // What an ordinary file hands on is a name of that file, whoever defined it. And what is
                // not found, a macro has made there.
                _ => return Some(Target::Item(at, name.clone())),
            }
        }
        Some(Target::Module(at))
    }

    /// Whether names that the module `at` only hands on lead from `from` to the file that defines them: they
    /// do through a table of contents, and inside one file.
    fn sees_through(&self, from: usize, at: usize) -> bool {
        let file = &self.all[at].file;
        is_contents(file) || *file == self.all[from].file
    }

    /// What the one name `name` stands for in the module `at`.
    pub(super) fn lookup(&self, at: usize, name: &str, module: bool, seen: &mut Seen) -> Option<Target> {
        if !seen.insert((at, name.to_owned(), module)) {
            return None;
        }
        let here = &self.all[at];
        let child = here.children.get(name).copied().map(Target::Module);
        if module && child.is_some() {
            return child;
        }
        if here.scope.items.contains_key(name) {
            return Some(Target::Item(at, name.to_owned()));
        }
        let mut found = None;
        for import in here.scope.imports.iter().filter(|import| import.name == name) {
            let target = self.resolve_seen(at, &import.path, module, seen).unwrap_or(Target::Outside);
            if matches!(target, Target::Module(_)) == module {
                return Some(target);
            }
            found = found.or(Some(target));
        }
        found.or(child).or_else(|| {
            let globs = here.scope.imports.iter().filter(|import| import.name == "*");
            globs.into_iter().find_map(|glob| self.through(at, glob, name, module, seen))
        })
    }

    /// `name`, if it comes through this glob.
    fn through(&self, at: usize, glob: &Import, name: &str, module: bool, seen: &mut Seen) -> Option<Target> {
        match self.resolve_seen(at, &glob.path, true, seen)? {
            Target::Module(of) => self.lookup(of, name, module, seen),
            _ => None,
        }
    }
}

/// Whether a file is the table of contents of its directory, or of its crate.
pub(super) fn is_contents(file: &str) -> bool {
    ["/lib.rs", "/main.rs", "/mod.rs"].iter().any(|end| file.ends_with(end))
}

pub(super) fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `path`, which may begin with `..`, from `folder`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
