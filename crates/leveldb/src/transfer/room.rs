//! Whether a transfer fits into memory and on the disk, found out before anything is written.

use super::outcome::{Result, TransferError};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// What a transfer needs, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) memory: u64,
    pub(super) disk: u64,
}

impl Need {
    /// Refuses when memory or the disk of `folder` have less; what cannot be found out is enough.
    pub(super) fn must_fit(self, folder: &Path) -> Result<()> {
        self.must_fit_into(memory_available().unwrap_or(u64::MAX), disk_free(folder).unwrap_or(u64::MAX))
    }

    fn must_fit_into(self, memory: u64, disk: u64) -> Result<()> {
        if self.memory <= memory && self.disk <= disk {
            return Ok(());
        }
        let of = |need: u64, there: u64| {
            let there = if there == u64::MAX { "unknown".to_owned() } else { format!("{} MiB", there / MIB) };
            format!("{} MiB, of which there are {there}", need.div_ceil(MIB))
        };
        Err(TransferError::refused(format!(
            "it will not fit: it takes about {} of memory, and on the disk about {}; make room, or try it with --force",
            of(self.memory, memory),
            of(self.disk, disk)
        )))
    }
}

/// Bytes of memory that this process can still get.
fn memory_available() -> Option<u64> {
    let machine = mangrove_sys::memory_available()?;
    Some(group_limit().map_or(machine, |group| machine.min(group)))
}

/// What the control group of this process may still take.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    left_in_group(&Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/')))
}

/// What a control group may still take. `None`: without limit, or not known.
fn left_in_group(folder: &Path) -> Option<u64> {
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let figure = |name: &str| text(name)?.trim().parse::<u64>().ok();
    // What the kernel keeps of files goes when memory is needed; in a group that reads files it soon takes the rest.
    let stat = text("memory.stat").unwrap_or_default();
    let cached = |line: &str| match line.split_once(' ')? {
        ("active_file" | "inactive_file", bytes) => bytes.parse::<u64>().ok(),
        _ => None,
    };
    let cached: u64 = stat.lines().filter_map(cached).sum();
    Some(figure("memory.max")?.saturating_sub(figure("memory.current")?.saturating_sub(cached)))
}

/// Bytes that an unprivileged process can still write to the file system of `folder`.
fn disk_free(folder: &Path) -> Option<u64> {
    let name = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut about = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a string, and space for the result, which is there when the call succeeds.
    unsafe {
        (libc::statvfs(name.as_ptr(), about.as_mut_ptr()) == 0).then(|| {
            let about = about.assume_init();
            about.f_bavail * about.f_frsize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_has_both_numbers() {
        let need = Need { memory: 300 * MIB, disk: 900 * MIB };
        need.must_fit_into(300 * MIB, 900 * MIB).unwrap();
        for (memory, disk) in [(299 * MIB, u64::MAX), (u64::MAX, 899 * MIB), (0, 0)] {
            let why = need.must_fit_into(memory, disk).unwrap_err().to_string();
            assert!(why.contains("300 MiB") && why.contains("900 MiB") && why.contains("--force"), "{why}");
        }
        assert!(memory_available().unwrap() > MIB && disk_free(Path::new("/")).unwrap() > MIB);
    }

    #[test]
    fn what_a_group_keeps_of_files_is_not_taken() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        assert_eq!(left_in_group(group.path()), None);
        write("memory.max", "1000\n");
        write("memory.current", "990\n");
        assert_eq!(left_in_group(group.path()), Some(10));
        write("memory.stat", "anon 190\nfile 800\nshmem 100\ninactive_file 500\nactive_file 200\n");
        assert_eq!(left_in_group(group.path()), Some(710));
        write("memory.max", "max\n");
        assert_eq!(left_in_group(group.path()), None);
    }
}
