//! Which NUMA node memory lies on, and where a thread runs.
//!
//! Sources: mbind(2); Linux, Documentation/ABI/testing/sysfs-bus-nvdimm and sysfs-bus-dax (`numa_node`).

use rustix::fs::{FileType, fstat, major, minor};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Nodes that a mask names: as many as Linux can be built for.
const NODE_COUNT_MAX: usize = 1024;
/// Of mbind(2): another node when the wanted one is full. (Linux, include/uapi/linux/mempolicy.h.)
const MPOL_PREFERRED: libc::c_int = 1;
/// Of mbind(2): moves the pages that no other process has mapped.
const MPOL_MF_MOVE: libc::c_uint = 1 << 1;

/// The node that the device of `file` is attached to: that of the persistent memory which a file system lies on, or of
/// a devdax device. `None` where the system does not say, as for a disk of a virtual machine, or for several devices.
#[must_use]
pub fn node_of_device(file: BorrowedFd<'_>) -> Option<usize> {
    let stat = fstat(file).ok()?;
    let (kind, device) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => ("char", stat.st_rdev),
        _ => ("block", stat.st_dev),
    };
    node_in(Path::new("/sys"), kind, (major(device), minor(device)))
}

/// The `numa_node` of a device, or of the nearest above it that has one, below the directory `sys`.
fn node_in(sys: &Path, kind: &str, (major, minor): (u32, u32)) -> Option<usize> {
    let device = fs::canonicalize(sys.join(format!("dev/{kind}/{major}:{minor}"))).ok()?;
    let devices = fs::canonicalize(sys.join("devices")).ok()?;
    let above = device.ancestors().take_while(|folder| *folder != devices);
    // -1, or no file: the system does not know.
    above.filter_map(|folder| fs::read_to_string(folder.join("numa_node")).ok()?.trim().parse().ok()).next()
}

/// Asks the system for pages of `node` in `len` bytes from `address` on, a page boundary. It moves the pages that this
/// process alone has mapped. A page that is not there yet comes from the node in private memory and on tmpfs; in the
/// cache of a disk's file it comes from the node of the thread that touches it first. Pages of persistent memory stay
/// where the device is.
///
/// # Errors
/// Those of mbind(2).
pub fn prefer_node(address: usize, len: usize, node: usize) -> io::Result<()> {
    let mut mask = [0u64; NODE_COUNT_MAX / 64];
    let word = mask.get_mut(node / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (node % 64);
    // SAFETY: the mask has so many bits. The call moves pages, and changes neither addresses nor bytes.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            len,
            MPOL_PREFERRED,
            mask.as_ptr(),
            NODE_COUNT_MAX,
            MPOL_MF_MOVE,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPU that runs this thread, as it was a moment ago.
#[must_use]
pub fn current_cpu() -> usize {
    sched_getcpu()
}

/// Lets this thread run only on those of `cpus` that it may use now. False, and nothing has changed, when there are
/// none, or the system refuses.
pub fn run_on(cpus: &[usize]) -> bool {
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    let mut only = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU && allowed.is_set(cpu)) {
        only.set(cpu);
    }
    only.count() > 0 && sched_setaffinity(None, &only).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reservation, Topology};
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_devices_node_is_its_own_or_that_of_the_bus_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        let device = |kind: &str, number: &str, path: &str| {
            fs::create_dir_all(sys.join(path)).unwrap();
            fs::create_dir_all(sys.join("dev").join(kind)).unwrap();
            symlink(sys.join(path), sys.join("dev").join(kind).join(number)).unwrap();
        };
        device("block", "259:0", "devices/ndbus0/region0/namespace0.0/block/pmem0");
        device("block", "259:1", "devices/ndbus0/region1/namespace1.0/block/pmem1/pmem1p1");
        device("char", "252:1", "devices/ndbus0/region1/dax1.0/dax1.0");
        device("block", "254:0", "devices/virtual/block/dm-0");
        device("block", "8:0", "devices/pci0/block/sda");
        for (path, node) in [
            ("devices/ndbus0/region0/namespace0.0", "1\n"),
            ("devices/ndbus0/region0", "7\n"),
            ("devices/ndbus0/region1", "2\n"),
            ("devices/pci0", "-1\n"),
            ("", "5\n"),
        ] {
            fs::write(sys.join(path).join("numa_node"), node).unwrap();
        }
        for (kind, number, node) in [
            ("block", (259, 0), Some(1)),
            ("block", (259, 1), Some(2)),
            ("char", (252, 1), Some(2)),
            ("block", (254, 0), None),
            ("block", (8, 0), None),
            ("block", (1, 1), None),
        ] {
            assert_eq!(node_in(sys, kind, number), node, "{kind} {number:?}");
        }
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(node_of_device(file.as_fd()), None, "/proc lies on no device");
    }

    #[test]
    fn a_thread_runs_where_it_was_put_and_memory_keeps_its_bytes() {
        let topology = Topology::detect();
        let node = topology.nodes().iter().find(|node| node.cpus.contains(&current_cpu())).unwrap();
        let memory = Reservation::anonymous(64 << 10).unwrap();
        // SAFETY: in the mapping, which no other thread uses.
        unsafe { memory.base().as_ptr().add(4096).write_bytes(7, 4096) };
        match prefer_node(memory.base().as_ptr().addr(), memory.len(), node.id) {
            // Some containers refuse the call, and some kernels do not have it.
            Err(error) => eprintln!("mbind is not there: {error}"),
            // SAFETY: as above.
            Ok(()) => assert_eq!(unsafe { memory.base().as_ptr().add(8191).read() }, 7),
        }
        assert!(prefer_node(memory.base().as_ptr().addr(), memory.len(), NODE_COUNT_MAX).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!run_on(&[]) && !run_on(&[CpuSet::MAX_CPU + 1]));
                assert!(run_on(&[current_cpu()]));
                let here = current_cpu();
                assert!((0..1000).all(|_| current_cpu() == here));
                // What it may not use any more is not taken back.
                let others: Vec<_> = node.cpus.iter().copied().filter(|&cpu| cpu != here).collect();
                assert!(!run_on(&others) && current_cpu() == here);
            });
        });
    }
}
