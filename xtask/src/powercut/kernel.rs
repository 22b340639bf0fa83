//! The guest's kernel: a distribution's cloud kernel, and the modules that our devices need.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::packages;

/// Debian's name first, then Ubuntu's.
const PACKAGES: [&str; 3] = ["linux-image-cloud-amd64", "linux-image-virtual", "linux-image-generic"];
const SHELL_PACKAGES: [&str; 1] = ["busybox-static"];

/// Modules for what must work in the guest: the disk, the port to the host, the network, the NVDIMM, devices on it, the
/// file system. A kernel that has one of them built in has no such module, and that is no error.
const MODULES: [&str; 10] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "virtio_net",
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "device_dax",
    "crc32c_intel",
    "ext4",
];

/// The paths of the guest's parts.
pub(super) struct Kernel {
    /// The bzImage.
    pub(super) image: PathBuf,
    /// Names and bytes of the modules, in the order in which they must be loaded.
    pub(super) modules: Vec<(String, Vec<u8>)>,
    /// A static shell.
    pub(super) busybox: PathBuf,
}

impl Kernel {
    /// Takes the kernel from `cache`, or fetches it.
    pub(super) fn obtain(cache: &Path) -> anyhow::Result<Self> {
        let root = cache.join("kernel");
        let complete = root.join("complete");
        if !complete.exists() {
            if root.exists() {
                fs::remove_dir_all(&root)?;
            }
            packages::unpack(&PACKAGES, &root)?;
            packages::unpack(&SHELL_PACKAGES, &root)?;
            fs::write(&complete, "")?;
        }
        let image = only_entry(&root.join("boot"), "vmlinuz-")?;
        let modules = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder));
        let modules =
            modules.iter().find(|folder| folder.is_dir()).context("the kernel came without modules")?;
        let modules = load_order(&only_entry(modules, "")?)?;
        let busybox = ["bin/busybox", "usr/bin/busybox"].map(|file| root.join(file));
        let busybox =
            busybox.into_iter().find(|file| file.is_file()).context("busybox-static has no busybox")?;
        Ok(Self { image, modules, busybox })
    }
}

fn only_entry(folder: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut entries: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    ensure!(entries.len() == 1, "{} should hold one {prefix}*, not {}", folder.display(), entries.len());
    Ok(entries.remove(0))
}

/// The wanted modules, after all modules that they depend on.
fn load_order(folder: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut files = HashMap::new();
    list(&folder.join("kernel"), &mut files)?;
    let mut ordered = Vec::new();
    for name in MODULES {
        require(name, &files, &mut ordered)?;
    }
    Ok(ordered)
}

fn require(
    name: &str,
    files: &HashMap<String, PathBuf>,
    ordered: &mut Vec<(String, Vec<u8>)>,
) -> anyhow::Result<()> {
    let Some(file) = files.get(name) else { return Ok(()) };
    if ordered.iter().any(|(other, _)| other == name) {
        return Ok(());
    }
    let bytes = read_module(file)?;
    for dependency in dependencies(&bytes) {
        require(&dependency, files, ordered)?;
    }
    ordered.push((name.to_owned(), bytes));
    Ok(())
}

fn list(folder: &Path, files: &mut HashMap<String, PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if let Some((name, _)) =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(".ko"))
        {
            // A module's file may be written with dashes; its name never is.
            files.insert(name.replace('-', "_"), path.clone());
        }
    }
    Ok(())
}

/// Reads a module, unpacking it if the distribution compresses modules.
fn read_module(file: &Path) -> anyhow::Result<Vec<u8>> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return Ok(fs::read(file)?),
    };
    let output = Command::new(program).arg("-dc").arg(file).output();
    let output = output.with_context(|| format!("{program} is needed to unpack {}", file.display()))?;
    ensure!(output.status.success(), "{program} cannot unpack {}", file.display());
    Ok(output.stdout)
}

/// The `depends=a,b` string of a module's `.modinfo`.
fn dependencies(module: &[u8]) -> Vec<String> {
    const MARK: &[u8] = b"\0depends=";
    let Some(start) = module.windows(MARK.len()).position(|window| window == MARK) else { return Vec::new() };
    let list = module[start + MARK.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list);
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_before_what_needs_them() {
        let folder = tempfile::tempdir().unwrap();
        let module = |name: &str, depends: &str| {
            let path = folder.path().join("kernel").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("ELF\0license=GPL\0depends={depends}\0name=x")).unwrap();
        };
        module("drivers/virtio_pci.ko", "virtio-ring,virtio");
        module("drivers/virtio_blk.ko", "virtio,virtio_ring");
        module("drivers/virtio-ring.ko", "virtio");
        module("drivers/virtio.ko", "");
        module("drivers/unwanted.ko", "");
        let names: Vec<String> =
            load_order(folder.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["virtio", "virtio_ring", "virtio_pci", "virtio_blk"]);
    }
}
