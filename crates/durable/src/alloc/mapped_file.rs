//! Files that a command maps: which of them libc maps for itself, and the content of the others.
//!
//! libc keeps what it maps (character sets, locales, name services) in its own variables, which are not part of any
//! state, so such mappings stay the process's. A file of libc's that is not known here costs the state the space of a
//! copy, and nothing else. Nothing here allocates.

use crate::image::modules::is_libcs_own;
use std::io::Write as _;

/// A file of a mapping.
pub(super) struct MappedFile {
    pub(super) fd: i32,
    pub(super) offset: usize,
}

/// What the file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePurpose {
    /// No file that can be mapped, or no open file.
    None,
    /// A library that libc loads for itself.
    LibcsLibrary,
    /// Data that libc looks things up in.
    LibcsData,
    /// /dev/zero: a mapping of it is anonymous memory.
    Zero,
    /// Another device.
    Device,
    /// Any other file: what counts is its content.
    Content,
}

impl MappedFile {
    pub(super) fn purpose(&self) -> FilePurpose {
        let mut link = [0u8; 32];
        let mut path = [0u8; libc::PATH_MAX as usize];
        if write!(&mut link[..31], "/proc/self/fd/{}", self.fd).is_ok() {
            // SAFETY: a name that ends with zero, and space for the result.
            let len = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
            let path = usize::try_from(len).ok().and_then(|len| std::str::from_utf8(&path[..len]).ok());
            match path {
                Some(path) if is_libcs_data(path) => return FilePurpose::LibcsData,
                Some(path) if is_libcs_own(path) => return FilePurpose::LibcsLibrary,
                Some("/dev/zero") => return FilePurpose::Zero,
                _ => {}
            }
        }
        match self.stat().map(|stat| stat.st_mode & libc::S_IFMT) {
            Some(libc::S_IFREG) => FilePurpose::Content,
            Some(libc::S_IFCHR | libc::S_IFBLK) => FilePurpose::Device,
            _ => FilePurpose::None,
        }
    }

    fn stat(&self) -> Option<libc::stat> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the call fills the struct if it returns 0.
        unsafe { (libc::fstat(self.fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
    }

    pub(super) fn is_readable(&self) -> bool {
        // SAFETY: only asks.
        let flags = unsafe { libc::fcntl(self.fd, libc::F_GETFL) };
        flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Reads up to `len` bytes, as many as the file has from the offset on, and returns how many; or the system's
    /// error number.
    ///
    /// # Safety
    /// `to` has space for `len` bytes, which no other code uses.
    pub(super) unsafe fn read_to(&self, to: *mut u8, len: usize) -> Result<usize, i32> {
        let mut got = 0;
        while got < len {
            // SAFETY: the rest of the caller's bytes.
            let more = unsafe {
                libc::syscall(libc::SYS_pread64, self.fd, to.wrapping_add(got), len - got, self.offset + got)
            };
            match usize::try_from(more) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => {}
                    code => return Err(code.unwrap_or(libc::EIO)),
                },
            }
        }
        Ok(got)
    }
}

/// Files of a locale, each a category; that of messages has a folder of its own.
const LOCALE_CATEGORIES: [&str; 11] = [
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// Whether libc maps this file to look something up: locales, translations, character sets, the list of libraries,
/// answers of name service daemons.
fn is_libcs_data(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = folder.rsplit('/').next().unwrap_or(folder);
    ["locale-archive", "gconv-modules.cache", "ld.so.cache", "SYS_LC_MESSAGES"].contains(&name)
        || ["LC_MESSAGES", "nscd"].contains(&parent)
        || LOCALE_CATEGORIES.contains(&name)
        || folder.ends_with("/sss/mc")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    fn purpose(file: &File) -> FilePurpose {
        MappedFile { fd: file.as_raw_fd(), offset: 0 }.purpose()
    }

    #[test]
    fn libcs_files_are_known_by_their_names_and_others_by_their_kind() {
        let folder = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("locale/locale-archive", FilePurpose::LibcsData),
            ("locale/de/LC_CTYPE", FilePurpose::LibcsData),
            ("locale/de/LC_MESSAGES/program.mo", FilePurpose::LibcsData),
            ("gconv/gconv-modules.cache", FilePurpose::LibcsData),
            ("gconv/ISO8859-15.so", FilePurpose::LibcsLibrary),
            ("lib/libnss_dns.so.2", FilePurpose::LibcsLibrary),
            ("locale/data", FilePurpose::Content),
            ("data/LC_2026.bin", FilePurpose::Content),
            ("lib/libz.so.1", FilePurpose::Content),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            assert_eq!(purpose(&File::create(&path).unwrap()), expected, "{name}");
        }
        assert_eq!(purpose(&File::open("/dev/zero").unwrap()), FilePurpose::Zero);
        assert_eq!(purpose(&File::open("/dev/null").unwrap()), FilePurpose::Device);
        assert_eq!(purpose(&File::open("/").unwrap()), FilePurpose::None);
        assert_eq!(MappedFile { fd: -1, offset: 0 }.purpose(), FilePurpose::None);
    }

    #[test]
    fn content_is_read_from_the_offset_to_the_end_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, [[1; 4096], [2; 4096]].concat()).unwrap();
        let (file, only_written) =
            (File::open(&path).unwrap(), File::options().write(true).open(&path).unwrap());
        let mut bytes = vec![0; 8192];
        let mapped = MappedFile { fd: file.as_raw_fd(), offset: 4096 };
        // SAFETY: the vector's own bytes.
        assert_eq!(unsafe { mapped.read_to(bytes.as_mut_ptr(), bytes.len()) }, Ok(4096));
        assert_eq!((bytes[0], bytes[4095], bytes[4096]), (2, 2, 0));
        let mapped = MappedFile { fd: only_written.as_raw_fd(), offset: 0 };
        // SAFETY: as above.
        assert_eq!(unsafe { mapped.read_to(bytes.as_mut_ptr(), 1) }, Err(libc::EBADF));
        assert!(!mapped.is_readable());
    }
}
