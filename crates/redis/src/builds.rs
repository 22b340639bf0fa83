//! Builds of the server: a directory that has them under `builds`, each under its id, and the newest as `current`.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The environment names the directory, for tests and unusual places.
const FOLDER: &str = "MANGROVE_REDIS_BUILDS";

/// The directory of the builds.
pub(crate) struct Builds(PathBuf);

/// One of them.
pub(crate) struct Build {
    pub(crate) id: String,
    folder: PathBuf,
}

impl Builds {
    /// The directory that was named, else the nearest: beside this program, where `make install` puts it, or the
    /// data directory of the source tree.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self> {
        if let Some(folder) =
            named.map(Path::to_owned).or_else(|| std::env::var_os(FOLDER).map(PathBuf::from))
        {
            if has_build(&folder) {
                // A client of a server is started in that server's directory.
                let whole = std::path::absolute(&folder);
                return Ok(Self(whole.with_context(|| format!("cannot find {}", folder.display()))?));
            }
            bail!(
                "{} has no build of the server: name the directory that has `builds` and `current`",
                folder.display()
            );
        }
        let own = std::env::current_exe().context("cannot find the file of this program")?;
        let above = own.ancestors().skip(1);
        let candidates =
            above.flat_map(|a| [a.to_owned(), a.join("lib/mangrove-redis"), a.join("data/valkey")]);
        match candidates.into_iter().find(|folder| has_build(folder)) {
            Some(folder) => Ok(Self(folder)),
            None => bail!(
                "the server is not built yet: run `make redis` in the source tree, or name its directory by --builds"
            ),
        }
    }

    /// The newest one.
    pub(crate) fn current(&self) -> Result<Build> {
        let link = self.0.join("current");
        let folder = link.canonicalize().with_context(|| format!("{} leads nowhere", link.display()))?;
        let id = folder.file_name().and_then(|name| name.to_str()).context("a build without a name")?;
        Ok(Build { id: id.to_owned(), folder: folder.clone() })
    }

    /// The one with this id, if it is there.
    pub(crate) fn get(&self, id: &str) -> Option<Build> {
        let folder = self.0.join("builds").join(id);
        folder.join("valkey-server").exists().then(|| Build { id: id.to_owned(), folder })
    }

    /// Where they are.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Build {
    /// The server.
    pub(crate) fn server(&self) -> PathBuf {
        self.folder.join("valkey-server")
    }

    /// The client.
    pub(crate) fn cli(&self) -> PathBuf {
        self.folder.join("valkey-cli")
    }
}

fn has_build(folder: &Path) -> bool {
    folder.join("builds").is_dir() && folder.join("current/valkey-server").exists()
}

#[cfg(test)]
mod tests {
    use super::Builds;
    use std::path::PathBuf;

    #[test]
    fn the_programs_of_builds_are_found_from_any_directory() {
        let top = tempfile::tempdir().unwrap();
        let build = top.path().join("builds/00000000000000aa");
        std::fs::create_dir_all(&build).unwrap();
        std::fs::write(build.join("valkey-server"), "").unwrap();
        std::os::unix::fs::symlink(&build, top.path().join("current")).unwrap();
        let up: PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
        let relative = up.join(top.path().canonicalize().unwrap().strip_prefix("/").unwrap());
        assert!(relative.is_relative());
        let cli = Builds::find(Some(&relative)).unwrap().get("00000000000000aa").unwrap().cli();
        assert!(cli.is_absolute(), "{}", cli.display());
    }
}
