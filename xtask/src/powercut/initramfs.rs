//! The guest's first and only root: a shell, the modules, the program under test and its libraries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::packages;
use crate::tree;

/// Where the program under test lies in the guest.
pub(super) const PROGRAM: &str = "/program";

/// Process 1 of the guest: mounts the kernel's file systems, loads the modules, and becomes a shell
/// whose keyboard is one virtio port and whose screen is another.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read module; do insmod /modules/$module.ko || echo \"no $module\"; done < /modules/order
while set -- /dev/vport*p1 /dev/vport*p2; [ ! -c $1 ] || [ ! -c $2 ]; do sleep 0.02; done
exec sh < $2 > $1 2> /dev/console
";

/// Writes the archive to `to`.
pub(super) fn build(kernel: &Kernel, program: &Path, to: &Path) -> anyhow::Result<()> {
    let mut archive = Archive::new(Vec::new());
    let mut folders = BTreeSet::new();
    for folder in ["/bin", "/dev", "/proc", "/sys", "/mnt", "/tmp", "/modules"] {
        add_folder(&mut archive, &mut folders, Path::new(folder))?;
    }
    archive.file("/init", INIT.as_bytes())?;
    archive.file("/bin/busybox", &fs::read(&kernel.busybox)?)?;
    let mut order = String::new();
    for (name, bytes) in &kernel.modules {
        archive.file(&format!("/modules/{name}.ko"), bytes)?;
        order.push_str(name);
        order.push('\n');
    }
    archive.file("/modules/order", order.as_bytes())?;
    archive.file(PROGRAM, &stripped(program, to)?)?;
    for library in libraries(program)? {
        add_folder(&mut archive, &mut folders, library.parent().unwrap_or(Path::new("/")))?;
        archive.file(&library.to_string_lossy(), &fs::read(&library)?)?;
    }
    fs::write(to, archive.finish()?)?;
    Ok(())
}

fn add_folder(
    archive: &mut Archive<Vec<u8>>,
    folders: &mut BTreeSet<PathBuf>,
    folder: &Path,
) -> anyhow::Result<()> {
    let mut missing: Vec<&Path> = folder.ancestors().take_while(|path| *path != Path::new("/")).collect();
    missing.reverse();
    for folder in missing {
        if folders.insert(folder.to_owned()) {
            archive.folder(&folder.to_string_lossy())?;
        }
    }
    Ok(())
}

/// The program without its debug information, which a guest that boots fifty times does not need.
fn stripped(program: &Path, to: &Path) -> anyhow::Result<Vec<u8>> {
    let Some(strip) = packages::find("strip") else { return Ok(fs::read(program)?) };
    let copy = to.with_extension("program");
    tree::run(Command::new(strip).arg("-o").arg(&copy).arg(program))?;
    let bytes = fs::read(&copy)?;
    fs::remove_file(copy)?;
    Ok(bytes)
}

/// Where the program's libraries lie, for a program that looks for them beside itself.
pub(super) fn library_path(program: &Path) -> anyhow::Result<String> {
    let folders: BTreeSet<PathBuf> =
        libraries(program)?.iter().filter_map(|library| Some(library.parent()?.to_owned())).collect();
    Ok(folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":"))
}

/// The shared libraries and the loader, by the paths under which the loader looks for them.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        // ldd fails on a static program, which needs none.
        return Ok(Vec::new());
    }
    let mut libraries = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [name, "=>", "not", "found"] => {
                anyhow::bail!("{} needs {name}, which is missing", program.display())
            }
            [_, "=>", path, ..] | [path, _] if path.starts_with('/') => libraries.push(PathBuf::from(path)),
            _ => {}
        }
    }
    ensure!(!libraries.is_empty(), "ldd found no library of {}", program.display());
    Ok(libraries)
}
