//! The machine that the figures belong to, and two counts that only the machine has: DRAM in use, and bytes that a
//! disk has written.

use crate::report::report::MachineInfo;
use mangrove_pool::FlushInstruction;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    line.split_once(':').map_or_else(String::new, |(_, v)| v.trim().to_owned())
}

/// Describes this machine and the disk of `dir`.
pub(crate) fn describe(dir: &Path) -> MachineInfo {
    let kib: u64 = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    let load = read("/proc/loadavg").split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    MachineInfo {
        cpu: field(&read("/proc/cpuinfo"), "model name"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: kib * 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        flush: FlushInstruction::detect().to_string(),
        disk: disk(dir),
        load,
    }
}

/// "ext4 on /dev/vda", from the longest mount point above `dir`.
fn disk(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = read("/proc/mounts");
    mounts
        .lines()
        .filter_map(|l| {
            let mut parts = l.split(' ');
            let (device, at, kind) = (parts.next()?, parts.next()?, parts.next()?);
            dir.starts_with(at).then(|| (at.len(), format!("{kind} on {device}")))
        })
        .max_by_key(|(len, _)| *len)
        .map_or_else(|| "unknown".into(), |(_, text)| text)
}

/// Bytes of DRAM that the program has allocated: the C library's own count over all arenas (mallinfo2), malloc's
/// headers included. Memory mapped for regions is not in it.
pub(crate) fn allocated_bytes() -> u64 {
    // SAFETY: mallinfo2 has no precondition.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Bytes of memory that this process occupies, mapped regions and files included.
pub(crate) fn resident_bytes() -> u64 {
    let kib = field(&read("/proc/self/status"), "VmRSS");
    kib.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// The block device of a directory, by its statistics.
#[derive(Clone, Debug)]
pub(crate) struct BlockDevice {
    stat: PathBuf,
}

impl BlockDevice {
    /// `None` where the directory lies on no block device (tmpfs, overlay without one).
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let device = std::fs::metadata(dir).ok()?.st_dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        stat.exists().then_some(Self { stat })
    }

    /// Bytes written to the device by all processes since it was started. (The per-process counter of /proc/self/io
    /// over-counts where a file system writes back large folios.)
    pub(crate) fn written_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(&self.stat).unwrap_or_default();
        // Documentation/block/stat.rst: the seventh field is sectors written, of 512 bytes.
        text.split_whitespace().nth(6).and_then(|s| s.parse::<u64>().ok()).unwrap_or(0) * 512
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted() {
        // Far more than concurrent tests allocate, and never touched.
        let before = allocated_bytes();
        let block = std::hint::black_box(vec![0u8; 2 << 30]);
        assert!(allocated_bytes() >= before + (block.len() / 2) as u64);
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = describe(Path::new("/"));
        assert!(machine.cpus >= 1 && machine.memory_bytes > 1 << 20);
        assert!(!machine.kernel.is_empty());
    }
}
