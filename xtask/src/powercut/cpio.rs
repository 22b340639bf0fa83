//! Writes a `newc` cpio archive: the format in which a kernel takes its first file system.

use std::io::{self, Write};

const MODE_FOLDER: u32 = 0o040_755;
const MODE_PROGRAM: u32 = 0o100_755;

/// An archive being written.
pub(super) struct Archive<W> {
    output: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    /// Begins an archive.
    pub(super) fn new(output: W) -> Self {
        Self { output, inode: 0 }
    }

    /// Adds a directory; parents first.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, MODE_FOLDER, &[])
    }

    /// Adds a file that may be executed.
    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.entry(path, MODE_PROGRAM, bytes)
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.output)
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let len = u32::try_from(data.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let name = path.trim_start_matches('/');
        // magic, inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name's size, check
        let fields = [self.inode, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        let mut header = "070701".to_owned();
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        header.push_str(name);
        header.push('\0');
        self.output.write_all(header.as_bytes())?;
        self.pad(header.len())?;
        self.output.write_all(data)?;
        self.pad(data.len())
    }

    fn pad(&mut self, len: usize) -> io::Result<()> {
        self.output.write_all(&[0; 3][..len.next_multiple_of(4) - len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_named() {
        let mut archive = Archive::new(Vec::new());
        archive.folder("/bin").unwrap();
        archive.file("/bin/a", b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 3);
        // Directory: header 110 + "bin\0" = 114, padded to 116; the file's size is the seventh field.
        assert_eq!(&text[116..122], "070701");
        assert_eq!(&text[116 + 6 + 6 * 8..116 + 6 + 7 * 8], "00000005");
        assert!(text.contains("TRAILER!!!"));
    }
}
