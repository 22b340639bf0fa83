//! The files that the checks read: those that git tracks or would track, so that neither build outputs
//! nor data count, and a new file counts before it is committed.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Git, without the variables that name another work tree and its index inside a hook.
fn git() -> Command {
    let mut git = Command::new("git");
    git.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
    git
}

/// Every file's path from the root, and its text; "" for what is no text.
pub(super) struct Sources {
    files: BTreeMap<String, String>,
}

impl Sources {
    /// The files of a checkout, or of an unpacked archive, which has no repository.
    pub(super) fn tracked(root: &Path) -> Result<Self> {
        // In an empty repository every file of an archive is one that git would track.
        let archive = !root.join(".git").exists();
        let empty = if archive { Some(tree::RunFolder::of(None, "tidy-run")?) } else { None };
        let repository = match &empty {
            Some(folder) => {
                tree::run(git().args(["init", "--quiet"]).arg(&folder.path))?;
                folder.path.join(".git")
            }
            None => root.join(".git"),
        };
        let mut git = git();
        // Git refuses a repository of another user, as it often is in a container, unless it is named.
        git.arg("--git-dir").arg(repository).arg("--work-tree").arg(root).current_dir(root);
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output = git.output().context("cannot start git, which says what is tracked")?;
        if !output.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let list = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
        let names = list.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file());
        Self::read(root, names)
    }

    /// These files under `root`.
    pub(super) fn read<'a>(root: &Path, names: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut files = BTreeMap::new();
        for name in names {
            let bytes = std::fs::read(root.join(name)).with_context(|| format!("cannot read {name}"))?;
            files.insert(name.to_owned(), String::from_utf8(bytes).unwrap_or_default());
        }
        Ok(Self { files })
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The files whose names end with one of these.
    pub(super) fn ending<'a>(&'a self, ends: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let wanted = move |name: &str| ends.iter().any(|end| name.ends_with(end));
        self.files
            .iter()
            .filter(move |(name, _)| wanted(name))
            .map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The directories of our packages: whatever holds a Cargo.toml with a `[package]`.
    pub(super) fn packages(&self) -> impl Iterator<Item = (&str, &str)> {
        let package = |text: &str| text.lines().any(|line| line.trim() == "[package]");
        self.files.iter().filter_map(move |(name, text)| {
            let folder = name.strip_suffix("/Cargo.toml")?;
            package(text).then_some((folder, text.as_str()))
        })
    }
}
