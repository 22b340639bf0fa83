//! A disk with sectors of 4,096 bytes: durable writes bypass the page cache there too, and none fails first.

use mangrove_pool::{OpenHow, OsStorage, Storage, here};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small ext4 on a loop device with sectors of 4,096 bytes, unmounted when dropped.
struct Disk {
    at: PathBuf,
    device: String,
}

fn run(command: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(args).output().map_err(|e| format!("{command}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{command}: {}", text(&output.stderr)))
    }
}

impl Disk {
    fn new(dir: &Path) -> Result<Self, String> {
        let (image, at) = (dir.join("disk"), dir.join("mounted"));
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        let device = run("losetup", &["-f", "--show", "-b", "4096", image.to_str().unwrap()])?;
        let disk = Self { at, device };
        run("mkfs.ext4", &["-q", "-b", "4096", &disk.device])?;
        run("mount", &[&disk.device, disk.at.to_str().unwrap()])?;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &[self.at.to_str().unwrap()]);
        let _ = run("losetup", &["-d", &self.device]);
    }
}

#[test]
fn writes_of_512_bytes_bypass_the_page_cache_where_sectors_are_larger() {
    let dir = tempfile::tempdir().unwrap();
    let disk = match Disk::new(dir.path()) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("no disk with large sectors here ({why}): this test does nothing"),
    };
    let path = disk.at.join("log");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    let file = OsStorage.open(&path, OpenHow::Write, here()).unwrap();
    file.prepare_durable().unwrap();
    let mut expected = vec![7; 64 << 10];
    for (first, sectors) in [(0, 1), (1, 3), (4, 20), (24, 8), (127, 1)] {
        let (at, bytes) = (first * 512, vec![first as u8; sectors * 512]);
        file.write_durable(at as u64, &bytes, here()).unwrap();
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
        for page in at / 4096..=(at + bytes.len() - 1) / 4096 {
            assert!(!is_cached(&path, page), "page {page} of the write of {sectors} sectors at {first}");
        }
    }
    assert!(file.is_direct());
    assert!(std::fs::read(&path).unwrap() == expected);
}

/// True when the page cache holds this page of the file, as after a write that does not bypass it.
fn is_cached(path: &Path, page: usize) -> bool {
    let file = std::fs::File::open(path).unwrap();
    let mut resident = 0u8;
    // SAFETY: a mapping of one page of the file, which is only asked about and unmapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            (page * 4096) as libc::off_t,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, 4096, &raw mut resident), 0);
        assert_eq!(libc::munmap(at, 4096), 0);
    }
    resident & 1 == 1
}
