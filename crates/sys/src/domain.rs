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
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return Vec::new() };
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (point, options) = (fields.nth(1)?, fields.nth(1)?);
            let dax = options.split(',').any(|o| matches!(o, "dax" | "dax=always" | "dax=inode"));
            dax.then(|| PathBuf::from(point))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
