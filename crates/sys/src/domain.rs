//! The platform's persistence domain and its DAX file systems.

use std::path::{Path, PathBuf};

/// True when every persistent memory region of this machine reports that its domain holds the
/// CPU caches (`persistence_domain` of the nd bus is `cpu_cache`).
#[must_use]
pub fn caches_are_persistent() -> bool {
    all_hold_caches(Path::new("/sys/bus/nd/devices"))
}

/// Whether the regions that `devices` lists report that. A region without `persistence_domain` does not know its own.
fn all_hold_caches(devices: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(devices) else { return false };
    let regions = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("region"));
    let mut seen = false;
    for region in regions {
        let read = |name: &str| std::fs::read_to_string(region.path().join(name)).ok();
        // Volatile memory has regions, too.
        if read("devtype").is_some_and(|kind| kind.trim() != "nd_pmem") {
            continue;
        }
        if read("persistence_domain").is_none_or(|domain| domain.trim() != "cpu_cache") {
            return false;
        }
        seen = true;
    }
    seen
}

/// Mount points whose options name `dax`.
#[must_use]
pub fn dax_mounts() -> Vec<PathBuf> {
    own_mounts().lines().filter_map(mount).filter(|(_, dax)| *dax).map(|(point, _)| point).collect()
}

/// True when `directory`, an absolute path without links, lies on a mount whose options name `dax`.
#[must_use]
pub fn is_on_dax_mount(directory: &Path) -> bool {
    is_on_dax(&own_mounts(), directory)
}

/// The mounts that this process sees, a line each; none if the system does not tell.
fn own_mounts() -> String {
    let mounts = std::fs::read("/proc/self/mounts").unwrap_or_default();
    String::from_utf8_lossy(&mounts).into_owned()
}

fn is_on_dax(mounts: &str, directory: &Path) -> bool {
    let above = mounts.lines().filter_map(mount).filter(|(point, _)| directory.starts_with(point));
    // The one that is nearest to it; of several at one point the last, which covers the others.
    above.max_by_key(|(point, _)| point.components().count()).is_some_and(|(_, dax)| dax)
}

/// The mount point in a line of /proc/self/mounts, and whether its options name `dax`.
fn mount(line: &str) -> Option<(PathBuf, bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (point, options) = (fields.nth(1)?, fields.nth(1)?);
    let dax = options.split(',').any(|o| matches!(o, "dax" | "dax=always" | "dax=inode"));
    // So the kernel writes what would end the field.
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let point = escapes.iter().fold(point.to_owned(), |text, (written, meant)| text.replace(written, meant));
    Some((point.into(), dax))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_nearest_mount_decides_whether_a_directory_lies_on_dax() {
        let mounts = "/dev/pmem0 / ext4 rw,dax 0 0\n\
                      /dev/sda1 /data xfs rw,relatime 0 0\n\
                      /dev/pmem1 /data/fast\\040one xfs rw,dax=always 0 0\n\
                      tmpfs /run tmpfs rw 0 0\n\
                      /dev/pmem2 /run ext4 rw,dax 0 0\n";
        let on_dax = |directory: &str| is_on_dax(mounts, Path::new(directory));
        assert!(on_dax("/") && on_dax("/home/data"));
        assert!(!on_dax("/data") && !on_dax("/data/fast"), "another mount lies above it");
        assert!(on_dax("/data/fast one/pool") && !on_dax("/data/fast ones"));
        assert!(on_dax("/run/pool"), "the last mount covers the others");
        assert!(!is_on_dax("", Path::new("/")));
    }

    #[test]
    fn one_region_whose_domain_is_not_known_decides() {
        let devices = tempfile::tempdir().unwrap();
        let holds = || all_hold_caches(devices.path());
        let region = |name: &str, kind: &str, domain: Option<&str>| {
            let folder = devices.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("devtype"), kind).unwrap();
            if let Some(domain) = domain {
                fs::write(folder.join("persistence_domain"), domain).unwrap();
            }
        };
        assert!(!holds(), "no region");
        fs::create_dir(devices.path().join("namespace0.0")).unwrap();
        region("region0", "nd_pmem\n", Some("cpu_cache\n"));
        region("region1", "nd_volatile\n", None);
        assert!(holds());
        region("region2", "nd_pmem\n", None);
        assert!(!holds(), "region2 does not say");
        region("region2", "nd_pmem\n", Some("memory_controller\n"));
        assert!(!holds());
        assert!(!all_hold_caches(&devices.path().join("nowhere")));
    }
}
