//! The state in a directory. Its name tells the build that it needs: `state.ID`. What an update has not finished is
//! called otherwise, so whatever has the name is whole.
//!
//! Invariant: wherever an update is cut off, one state counts (`find`), and it is whole.

use anyhow::{Context, Result, bail};
use mangrove_sys::file::sync_dir;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "state.";
/// What an update makes, and what it removes: never counts.
const UNFINISHED: &str = ".unfinished";
/// The old state while the new one gets its name: counts as long as no state has a plain name.
const REPLACED: &str = ".replaced";

/// What a directory holds.
pub(crate) struct DirectoryState {
    /// Of the build that made it.
    pub(crate) build: String,
    pub(crate) path: PathBuf,
}

/// The place of a state of this build.
pub(crate) fn place(dir: &Path, build: &str) -> PathBuf {
    named(dir, build, "")
}

/// The place of a state that an update makes.
pub(crate) fn unfinished(dir: &Path, build: &str) -> PathBuf {
    named(dir, build, UNFINISHED)
}

fn named(dir: &Path, build: &str, suffix: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{build}{suffix}"))
}

/// The state in the directory, if there is one. After an update that was cut off both states can be there, and the
/// same: `preferred` is the build whose one counts.
pub(crate) fn find(dir: &Path, preferred: &str) -> Result<Option<DirectoryState>> {
    let names = names(dir)?;
    let mut suffix = "";
    let mut found = builds_of(&names, suffix);
    if found.is_empty() {
        suffix = REPLACED;
        found = builds_of(&names, suffix);
    }
    let build = match found.as_slice() {
        [] => return Ok(None),
        [build] => *build,
        several if several.contains(&preferred) => preferred,
        several => bail!(
            "{} has states of several builds ({}); move all but one away",
            dir.display(),
            several.join(", ")
        ),
    };
    Ok(Some(DirectoryState { build: build.to_owned(), path: named(dir, build, suffix) }))
}

/// Puts the unfinished state of the build `new`, which is whole, in the place of the old one, which is removed. Under
/// the lock of an update.
///
/// Durable-order: the old state has its other name before the new one gets its own, else a power cut could leave both
/// names, and the next build would not know which state is the newer. The new state has its name before anything of the
/// old one is removed, else a power cut could leave no whole state.
pub(crate) fn replace(dir: &Path, old: &DirectoryState, new: &str) -> Result<()> {
    replace_by(dir, old, new, sync)
}

/// As `replace`; `sync` makes the names in the directory durable.
fn replace_by(dir: &Path, old: &DirectoryState, new: &str, sync: impl Fn(&Path) -> Result<()>) -> Result<()> {
    // Nothing happens if an update that was cut off has done this.
    rename(&old.path, &named(dir, &old.build, REPLACED))?;
    sync(dir)?;
    let (made, counts) = (unfinished(dir, new), place(dir, new));
    rename(&made, &counts)?;
    sync(dir).inspect_err(|_| {
        // A server would acknowledge writes to a state whose name a power cut may take. The old state counts again.
        let _ = std::fs::rename(&counts, &made);
    })?;
    remove_leftovers(dir)
}

/// Removes what updates have left that were cut off. Under the lock of an update.
///
/// Durable-order: a replaced state has the name of an unfinished one before anything of it is removed, else what a
/// power cut leaves of it could count once the newer state is moved away.
pub(crate) fn remove_leftovers(dir: &Path) -> Result<()> {
    let names = names(dir)?;
    for build in builds_of(&names, UNFINISHED) {
        remove(&unfinished(dir, build))?;
    }
    if builds_of(&names, "").is_empty() {
        return Ok(());
    }
    for build in builds_of(&names, REPLACED) {
        rename(&named(dir, build, REPLACED), &unfinished(dir, build))?;
        sync(dir)?;
        remove(&unfinished(dir, build))?;
    }
    Ok(())
}

/// The names in the directory that begin as a state's does, without that beginning.
fn names(dir: &Path) -> Result<Vec<String>> {
    let cannot = || format!("cannot read the directory {}", dir.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_prefix(PREFIX)).map(str::to_owned));
    }
    Ok(names)
}

/// The builds of the states whose names end so.
fn builds_of<'a>(names: &'a [String], suffix: &str) -> Vec<&'a str> {
    let builds = names.iter().filter_map(|name| name.strip_suffix(suffix));
    builds.filter(|build| build.len() == 16 && build.bytes().all(|b| b.is_ascii_hexdigit())).collect()
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

fn remove(place: &Path) -> Result<()> {
    std::fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))
}

/// Makes the names in the directory durable.
pub(crate) fn sync(dir: &Path) -> Result<()> {
    let file = std::fs::File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    file.sync_all().with_context(|| format!("cannot sync {}", dir.display()))
}

/// Makes the names durable that lead to the directory, on its file system: a start may have made the directory and some
/// above it, this one or one that was killed.
pub(crate) fn sync_above(dir: &Path) -> Result<()> {
    sync_above_by(dir, sync_dir)
}

/// As `sync_above`; `sync` makes the names in a directory durable.
fn sync_above_by(dir: &Path, sync: impl Fn(&Path) -> io::Result<()>) -> Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    let may_not = |e: &io::Error| {
        matches!(e.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported)
    };
    let device = |dir: &Path| std::fs::metadata(dir).map(|metadata| metadata.dev()).ok();
    for above in dir.ancestors().skip(1).take_while(|above| device(above) == device(dir)) {
        match sync(above) {
            // The names in a directory that this user may not sync are the administrator's.
            Err(e) if may_not(&e) => {}
            synced => synced.with_context(|| format!("cannot sync {}", above.display()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "00000000000000aa";
    const NEW: &str = "00000000000000bb";
    const LATER: &str = "00000000000000cc";

    #[test]
    fn a_state_tells_its_build_and_an_unfinished_one_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        assert!(find(dir.path(), NEW).unwrap().is_none());
        std::fs::create_dir(place(dir.path(), OLD)).unwrap();
        std::fs::create_dir(unfinished(dir.path(), NEW)).unwrap();
        assert_eq!(find(dir.path(), NEW).unwrap().unwrap().build, OLD);
        std::fs::create_dir(place(dir.path(), NEW)).unwrap();
        assert_eq!(find(dir.path(), NEW).unwrap().unwrap().build, NEW);
        assert!(find(dir.path(), LATER).is_err());
    }

    #[test]
    fn the_names_that_lead_to_a_new_state_are_synced() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("made/too");
        std::fs::create_dir_all(&dir).unwrap();
        for refused in [None, Some(io::ErrorKind::PermissionDenied)] {
            let synced = std::cell::RefCell::new(Vec::new());
            let sync = |above: &Path| {
                synced.borrow_mut().push(above.to_owned());
                refused.map_or(Ok(()), |kind| Err(io::Error::from(kind)))
            };
            sync_above_by(&dir, sync).unwrap();
            assert_eq!(synced.borrow()[..2], [top.path().join("made"), top.path().to_owned()]);
        }
        let told = sync_above_by(&dir, |_| Err(io::Error::other("the disk is gone"))).unwrap_err();
        assert!(format!("{told:#}").ends_with("made: the disk is gone"), "{told:#}");
        sync_above(&dir).unwrap();
    }

    /// States with these names, each with a file that has its build's name.
    fn directory(states: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (build, suffix) in states {
            let state = named(dir.path(), build, suffix);
            std::fs::create_dir(&state).unwrap();
            std::fs::write(state.join(build), "").unwrap();
        }
        dir
    }

    /// The build that counts for a build that neither state is of.
    fn counting(dir: &Path) -> DirectoryState {
        let state = find(dir, LATER).unwrap().unwrap();
        assert!(state.path.join(&state.build).exists());
        state
    }

    fn all_names(dir: &Path) -> Vec<String> {
        let mut names = names(dir).unwrap();
        names.sort_unstable();
        names
    }

    #[test]
    fn wherever_an_update_is_cut_off_one_state_counts_and_the_next_update_leaves_one() {
        // Between the steps of `replace`, in their order.
        for (states, build) in [
            ([(OLD, ""), (NEW, UNFINISHED)], OLD),
            ([(OLD, REPLACED), (NEW, UNFINISHED)], OLD),
            ([(OLD, REPLACED), (NEW, "")], NEW),
            ([(OLD, UNFINISHED), (NEW, "")], NEW),
        ] {
            let dir = directory(&states);
            let dir = dir.path();
            assert_eq!(counting(dir).build, build, "{states:?}");
            remove_leftovers(dir).unwrap();
            assert_eq!(counting(dir).build, build, "{states:?}");
            assert_eq!(all_names(dir).len(), 1, "{states:?}");
            std::fs::create_dir(unfinished(dir, LATER)).unwrap();
            replace(dir, &counting(dir), LATER).unwrap();
            assert_eq!(all_names(dir), [LATER], "{states:?}");
        }
    }

    #[test]
    fn what_is_left_of_a_state_that_an_update_removes_counts_no_more() {
        let dir = directory(&[(OLD, ""), (NEW, UNFINISHED)]);
        replace(dir.path(), &counting(dir.path()), NEW).unwrap();
        assert_eq!(all_names(dir.path()), [NEW]);
        // Half removed, and the new state is not there.
        let dir = directory(&[(OLD, UNFINISHED)]);
        assert!(find(dir.path(), OLD).unwrap().is_none());
    }

    #[test]
    fn a_name_that_cannot_be_synced_leaves_the_old_state_counting() {
        for failing in [0, 1] {
            let dir = directory(&[(OLD, ""), (NEW, UNFINISHED)]);
            let dir = dir.path();
            let syncs = std::cell::Cell::new(0);
            let sync = |_: &Path| -> Result<()> {
                if syncs.replace(syncs.get() + 1) == failing {
                    bail!("the disk is gone");
                }
                Ok(())
            };
            replace_by(dir, &counting(dir), NEW, sync).unwrap_err();
            assert_eq!(counting(dir).build, OLD, "sync {failing}");
            replace(dir, &counting(dir), NEW).unwrap();
            assert_eq!(all_names(dir), [NEW], "sync {failing}");
        }
    }
}
