//! Which process holds a lock on a file: for messages.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that holds a lock on the file or directory at `path`, if the system tells: not where it belongs to
/// another namespace of processes.
#[must_use]
pub fn lock_holder(path: &Path) -> Option<u32> {
    let wanted = std::fs::metadata(path).ok()?;
    // The kernel returns /proc/locks in several reads. When any process releases a lock between two of them, the next
    // read may leave out another lock.
    holder_of(&wanted).or_else(|| holder_of(&wanted))
}

fn holder_of(wanted: &std::fs::Metadata) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let has_open = |pid: &u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|file| std::fs::metadata(file.path()).ok());
        open.any(|file| (file.dev(), file.ino()) == (wanted.dev(), wanted.ino()))
    };
    // The lock of a process that has ended may be its child's by now.
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    let holders = locks.lines().filter_map(|line| holder_in(line, wanted.ino()));
    let holders: Vec<u32> = holders.filter(is_there).collect();
    // The numbers of devices differ from those of stat(2) on some file systems, and two files may share an inode
    // number. Of a process of another user the open files cannot be read.
    let sure = holders.iter().find(|pid| has_open(pid));
    sure.or(if holders.len() == 1 { holders.first() } else { None }).copied()
}

/// The process in a line of /proc/locks that tells of a lock on the inode: `1: FLOCK ADVISORY WRITE 17 08:01:4242 0
/// EOF`.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    // `->` begins the line of a process that waits.
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse::<u32>().ok().filter(|pid| *pid > 0)?;
    let place = words.next()?;
    (place.rsplit(':').next()?.parse::<u64>().ok()? == inode).then_some(pid)
}

/// The name of a process, as `ps` has it.
#[must_use]
pub fn process_name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let name: String = name.trim_end().chars().filter(|c| !c.is_control()).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_and_no_other() {
        let line = "3: FLOCK  ADVISORY  WRITE 17 08:01:4242 0 EOF";
        assert_eq!(holder_in(line, 4242), Some(17));
        assert_eq!(holder_in(line, 242), None);
        assert_eq!(holder_in("3: -> FLOCK  ADVISORY  WRITE 17 08:01:4242 0 EOF", 4242), None);
        assert_eq!(holder_in("3: POSIX  ADVISORY  WRITE 17 08:01:4242 0 EOF", 4242), None);
        assert_eq!(holder_in("3: FLOCK  ADVISORY  WRITE 0 08:01:4242 0 EOF", 4242), None);
        assert_eq!(holder_in("", 4242), None);
        let path = std::env::temp_dir().join(format!("mangrove-lock-holder-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(lock_holder(&path), None);
        assert!(crate::file::try_lock(&file, true).unwrap());
        assert_eq!(lock_holder(&path), Some(std::process::id()));
        assert!(process_name(std::process::id()).is_some());
        std::fs::remove_file(&path).unwrap();
    }
}
