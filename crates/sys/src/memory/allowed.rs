//! How much memory this process may have: what the machine has, what its control groups allow, and whether its
//! limit on address space allows it.

use super::mapping::Reservation;
use std::path::{Path, PathBuf};

/// Bytes of memory and swap space that this process may use, as the machine and its control groups say.
#[must_use]
pub fn memory_allowed() -> u64 {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    of_groups(&own, Path::new("/sys/fs/cgroup")).into_iter().fold(of_machine(&machine), u64::min)
}

/// Bytes of memory that the machine can still give to processes without swapping.
#[must_use]
pub fn memory_available() -> Option<u64> {
    bytes_of("MemAvailable:", &std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// A figure of /proc/meminfo.
fn bytes_of(name: &str, meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Memory and swap space in /proc/meminfo; without limit where it does not say.
fn of_machine(meminfo: &str) -> u64 {
    let swap = bytes_of("SwapTotal:", meminfo).unwrap_or(0);
    bytes_of("MemTotal:", meminfo).map_or(u64::MAX, |memory| memory.saturating_add(swap))
}

/// What each control group of the process, and each one above it, allows.
fn of_groups(own: &str, root: &Path) -> Vec<u64> {
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let group = group.trim_start_matches('/');
        // Version 2 has one hierarchy; of version 1 only that of the memory matters.
        let (root, is_second) = match controllers {
            "" => (root.to_owned(), true),
            names if names.split(',').any(|name| name == "memory") => (root.join("memory"), false),
            _ => continue,
        };
        let groups = Path::new(group).ancestors().map(|group| root.join(group));
        for folder in groups {
            if is_second {
                // "max" is no number: no limit.
                let swap = number(folder.join("memory.swap.max"));
                let memory = number(folder.join("memory.max"));
                limits.extend(memory.map(|memory| swap.map_or(memory, |swap| memory.saturating_add(swap))));
            } else {
                limits.extend(number(folder.join("memory.limit_in_bytes")));
            }
        }
    }
    limits
}

/// True when this process could map `bytes` more now. Only a limit on its address space (`ulimit -v`) can say no.
#[must_use]
pub fn has_address_space(bytes: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    if !known || limit.rlim_cur == libc::RLIM_INFINITY || bytes == 0 {
        return true;
    }
    usize::try_from(bytes).is_ok_and(|bytes| Reservation::anonymous(bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        assert_eq!(of_machine("MemTotal:       2048 kB\nSwapTotal:    1024 kB\n"), 3 << 20);
        assert_eq!(of_machine("MemTotal:       2048 kB\n"), 2 << 20);
        assert_eq!(of_machine(""), u64::MAX);
        let root = std::env::temp_dir().join(format!("mangrove-groups-{}", std::process::id()));
        let inner = root.join("outer/inner");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir_all(root.join("memory/old")).unwrap();
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.join("outer/memory.max"), "1000\n").unwrap();
        std::fs::write(root.join("outer/memory.swap.max"), "24\n").unwrap();
        std::fs::write(root.join("memory/old/memory.limit_in_bytes"), "77\n").unwrap();
        assert_eq!(of_groups("0::/outer/inner\n", &root), [1024]);
        assert_eq!(of_groups("4:cpu:/x\n3:memory:/old\n", &root), [77]);
        assert!(of_groups("", &root).is_empty() && of_groups("0::/\n", &root).is_empty());
        std::fs::remove_dir_all(&root).unwrap();
        assert!(memory_allowed() > 1 << 20 && has_address_space(1 << 20));
    }
}
