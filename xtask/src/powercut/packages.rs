//! What this chore needs from the distribution: it installs QEMU and mkfs, and only unpacks a kernel and a shell.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::tree;

/// Programs to run here, and the packages that contain them.
const PROGRAMS: [(&str, &str); 3] =
    [("qemu-system-x86_64", "qemu-system-x86"), ("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs")];

/// Installs the missing ones of [`PROGRAMS`], and prints which.
pub(super) fn install_missing() -> anyhow::Result<()> {
    let mut missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    println!("powercut: installing {} (apt-get) ...", missing.join(" "));
    // Another apt-get may be at work: a fresh machine installs updates by itself.
    let mut install = vec!["-o", "DPkg::Lock::Timeout=600", "install", "-y", "-q", "--no-install-recommends"];
    install.extend(&missing);
    if !as_root("apt-get")
        .args(&install)
        .stdout(Stdio::null())
        .status()
        .context("cannot run apt-get")?
        .success()
    {
        // The package lists of a fresh machine are empty or old.
        tree::run(as_root("apt-get").args(["update", "-q"]).stdout(Stdio::null()))?;
        tree::run(as_root("apt-get").args(&install).stdout(Stdio::null()))?;
    }
    for (program, package) in PROGRAMS {
        ensure!(find(program).is_some(), "{package} is installed, but {program} is not found");
    }
    Ok(())
}

/// Looks a program up where distributions put programs, `sbin` included.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Downloads packages and unpacks them under `root`, installing nothing. The names are alternatives for one
/// meta-package (Debian's, Ubuntu's); the kernels and modules that it depends on are unpacked too.
pub(super) fn unpack(alternatives: &[&str], root: &Path) -> anyhow::Result<()> {
    let packages = match resolve(alternatives)? {
        Some(packages) => packages,
        None => {
            tree::run(as_root("apt-get").args(["update", "-q"]).stdout(Stdio::null()))?;
            resolve(alternatives)?.with_context(|| format!("apt knows no {}", alternatives.join(" or ")))?
        }
    };
    println!("powercut: fetching {} (unpacked under target/, not installed) ...", packages.join(" "));
    std::fs::create_dir_all(root)?;
    let downloads = root.join("downloads");
    std::fs::create_dir_all(&downloads)?;
    if !download(&packages, &downloads)?.success() {
        // An old list names versions that the mirror no longer has.
        tree::run(as_root("apt-get").args(["update", "-q"]).stdout(Stdio::null()))?;
        let packages = resolve(alternatives)?.context("the packages vanished from apt's lists")?;
        let status = download(&packages, &downloads)?;
        ensure!(status.success(), "apt-get cannot download {}", packages.join(" "));
    }
    for entry in std::fs::read_dir(&downloads)? {
        tree::run(Command::new("dpkg-deb").arg("-x").arg(entry?.path()).arg(root))?;
    }
    std::fs::remove_dir_all(&downloads)?;
    Ok(())
}

fn download(packages: &[String], folder: &Path) -> anyhow::Result<std::process::ExitStatus> {
    let mut command = Command::new("apt-get");
    command.args(["-q", "-o", "APT::Sandbox::User=root", "download"]).args(packages).current_dir(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().context("cannot run apt-get")
}

/// The real packages of the first alternative that apt knows.
fn resolve(alternatives: &[&str]) -> anyhow::Result<Option<Vec<String>>> {
    for name in alternatives {
        let mut packages: Vec<String> = Vec::new();
        let mut pending = vec![(*name).to_owned()];
        while let Some(name) = pending.pop() {
            if !has_candidate(&name)? || packages.contains(&name) {
                continue;
            }
            let output = Command::new("apt-cache").args(["depends", "--important", &name]).output()?;
            let depends = String::from_utf8_lossy(&output.stdout).into_owned();
            pending.extend(depends.lines().filter_map(|line| {
                let name = line.trim().strip_prefix("Depends: ")?;
                (name.starts_with("linux-image-") || name.starts_with("linux-modules-"))
                    .then(|| name.to_owned())
            }));
            packages.push(name);
        }
        if !packages.is_empty() {
            return Ok(Some(packages));
        }
    }
    Ok(None)
}

fn has_candidate(name: &str) -> anyhow::Result<bool> {
    let output = Command::new("apt-cache").args(["policy", name]).output().context("cannot run apt-cache")?;
    let policy = String::from_utf8_lossy(&output.stdout);
    Ok(policy.lines().any(|line| line.trim().starts_with("Candidate:") && !line.contains("(none)")))
}

/// A command that runs as root: itself for root, else through sudo.
fn as_root(program: &str) -> Command {
    let mut command = if is_root() {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg(program);
        sudo
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Root owns its own /proc entry, so this needs no call into libc.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
