//! `cargo xtask debian`: builds the Debian packages, has lintian look at them, installs them in an empty Debian, uses
//! them there, and removes them without a trace. It needs root, debootstrap and lintian, which it installs. With
//! `--unpacked` it packs test builds, and uses what the packages hold where it has unpacked them.

use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages, in the order in which they are installed.
const PACKAGES: [&str; 4] = ["libmangrove0", "libmangrove-dev", "mangrove", "mangrove-leveldb"];

/// What the system's own tools change when any package comes or goes.
const OF_THE_SYSTEM: [&str; 4] = ["proc", "var/cache/ldconfig", "var/lib/dpkg", "var/log"];

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Pack what the tests have compiled, unpack it in a directory, and use it there: in half a minute, and not as root
    #[arg(long)]
    unpacked: bool,
}

/// Runs the chore.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.unpacked {
        return unpacked();
    }
    let out = tree::target().join("deb");
    let archives = build("release", &out)?;
    tree::run(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(["lintian", "debootstrap"]),
    )?;
    // As a user, if there is one: lintian warns of root.
    let changes = files(&out, "changes")?;
    tree::run(Command::new("lintian").args(["--allow-root", "--fail-on", "error"]).args(changes))?;

    let root = empty_debian()?;
    let system = System { root: &root };
    let before = system.names()?;
    for archive in &archives {
        let name = archive.file_name().context("a package without a name")?;
        std::fs::copy(archive, root.join("root").join(name)).context("cannot copy a package")?;
    }
    system.run("dpkg --install /root/*.deb && rm /root/*.deb")?;
    system.use_them()?;
    system.run(&format!("dpkg --purge {}", PACKAGES.join(" ")))?;
    let left: Vec<_> = system.names()?.symmetric_difference(&before).cloned().collect();
    ensure!(left.is_empty(), "removed packages leave {left:?}");
    println!("{} packages: installed in an empty Debian, used, removed without a trace", archives.len());
    Ok(())
}

/// Builds the packages into `out`, and returns their files.
fn build(profile: &str, out: &Path) -> Result<Vec<PathBuf>> {
    let mut deb = Command::new(tree::root().join("scripts/deb"));
    deb.arg(out).env("PROFILE", profile);
    if profile == "test" {
        // To compress them takes longer than all else, and they are unpacked at once.
        deb.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    }
    tree::run(&mut deb)?;
    let archives = files(out, "deb")?;
    ensure!(archives.len() == PACKAGES.len(), "{} packages: {archives:?}", archives.len());
    Ok(archives)
}

/// The files in a directory whose names end so.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == ending)).collect())
}

/// Packs test builds, unpacks them, and uses the command where it then lies.
fn unpacked() -> Result<()> {
    let out = tree::target().join("deb-unpacked");
    tree::run(Command::new("rm").arg("-rf").arg(&out))?;
    let archives = build("test", &out)?;
    let root = out.join("root");
    for archive in &archives {
        tree::run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&root))?;
    }
    all_there(&root)?;
    let (command, pool) = (root.join("usr/bin/mangrove"), out.join("words.pool"));
    tree::run(Command::new(&command).args(["map", "put"]).arg(&pool).args(["mangrove", "a tree"]))?;
    let got = Command::new(&command).args(["map", "get"]).arg(&pool).arg("mangrove").output()?;
    ensure!(got.stdout == b"a tree\n", "the command returns {}", String::from_utf8_lossy(&got.stdout));
    println!("{} packages of test builds: unpacked, complete, the command runs", archives.len());
    Ok(())
}

/// That the packages, installed below `root`, have brought the files for shells, `man` and compilers.
fn all_there(root: &Path) -> Result<()> {
    for name in [
        "include/mangrove.h",
        "include/mangrove_leveldb/leveldb/db.h",
        "lib/libmangrove.a",
        "lib/libmangrove.so.0",
        "lib/libmangrove_app.so.0",
        "lib/mangrove_leveldb/libleveldb.so.1d",
        "lib/pkgconfig/mangrove.pc",
        "share/bash-completion/completions/mangrove",
        "share/doc/mangrove/copyright",
        "share/fish/vendor_completions.d/mangrove.fish",
        "share/man/man1/mangrove-map-put.1.gz",
        "share/zsh/vendor-completions/_mangrove",
    ] {
        let path = root.join("usr").join(name);
        ensure!(path.exists(), "/usr/{name} is not there");
        // The shared libraries' names are links to each other.
        ensure!(path.metadata()?.len() > 0, "/usr/{name} is empty");
    }
    Ok(())
}

/// The root of a Debian that has what every Debian has.
fn empty_debian() -> Result<PathBuf> {
    let (fresh, root) = (tree::target().join("debian-fresh"), tree::target().join("debian-root"));
    if !fresh.join("etc/debian_version").exists() {
        let release = std::fs::read_to_string("/etc/os-release").context("no /etc/os-release")?;
        let codename = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .context("/etc/os-release has no VERSION_CODENAME")?;
        let part = fresh.with_extension("partial");
        tree::run(Command::new("rm").arg("-rf").arg(&part))?;
        tree::run(Command::new("debootstrap").args(["--variant=minbase", codename]).arg(&part))?;
        std::fs::rename(&part, &fresh).context("cannot rename the fresh system")?;
    }
    tree::run(Command::new("rm").arg("-rf").arg(&root))?;
    tree::run(Command::new("cp").arg("-a").arg(&fresh).arg(&root))?;
    Ok(root)
}

/// An empty Debian in a directory.
struct System<'a> {
    root: &'a Path,
}

impl System<'_> {
    /// What a shell there prints.
    fn run(&self, script: &str) -> Result<String> {
        let root = self.root.display();
        let enter = format!("mount -t proc proc '{root}/proc' && exec chroot '{root}' /bin/sh -ec \"$0\"");
        let output =
            Command::new("unshare").args(["--mount", "--", "/bin/sh", "-ec", &enter, script]).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            bail!("{script}: {}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
        }
        Ok(text(&output.stdout))
    }

    /// The command, the libraries and the other files.
    fn use_them(&self) -> Result<()> {
        self.run("mangrove map put /root/words.pool mangrove 'a tree'")?;
        let got = self.run("mangrove map get /root/words.pool mangrove; rm -r /root/words.pool")?;
        ensure!(got == "a tree", "the command returns {got}");
        let libraries = self.run("/sbin/ldconfig -p")?;
        for name in ["libmangrove.so.0", "libmangrove_app.so.0", "libmangrove_leveldb.so.0"] {
            ensure!(libraries.contains(name), "the system's linker does not find {name}");
        }
        ensure!(!libraries.contains("libleveldb"), "LevelDB's name is visible to every program");
        all_there(self.root)
    }

    /// The names of all files, but for those that the system's own tools keep.
    fn names(&self) -> Result<BTreeSet<String>> {
        let listed =
            Command::new("find").args([".", "-xdev", "-printf", "%P\\n"]).current_dir(self.root).output()?;
        ensure!(listed.status.success(), "find: {}", String::from_utf8_lossy(&listed.stderr));
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let kept = |name: &&str| !OF_THE_SYSTEM.iter().any(|of| name.starts_with(of));
        Ok(names.lines().filter(kept).map(str::to_owned).collect())
    }
}
