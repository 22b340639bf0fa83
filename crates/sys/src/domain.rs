//! The platform's persistence domain and its DAX file systems.

use std::path::PathBuf;

/// True when every persistent memory region of this machine reports that its domain holds the
/// CPU caches (`persistence_domain` of the nd bus is `cpu_cache`).
#[must_use]
pub fn caches_are_persistent() -> bool {
    let Ok(entries) = std::fs::read_dir("/sys/bus/nd/devices") else { return false };
    let mut seen = false;
    for entry in entries.flatten() {
        if let Ok(domain) = std::fs::read_to_string(entry.path().join("persistence_domain")) {
            if domain.trim() != "cpu_cache" {
                return false;
            }
            seen = true;
        }
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
