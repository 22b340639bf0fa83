//! Is this pool sound? Reads everything, changes nothing, lists every damaged place.

use crate::checkpoint::ImageFiles;
use crate::log_scan::{refuse_hole, scan};
use crate::options::PoolOptions;
use crate::pool::read_superblock_file;
use crate::recover::{open_part, read_sums};
use crate::stat::{CheckReport, Damage, MediumKind};
use crate::storage::{LockKind, OpenHow, Storage, here};
use crate::sums::{PAGE_BYTES, page_sum};
use crate::superblock::{self, Superblock};
use crate::{Error, OsStorage, Pool, Result};
use mangrove_sys::Mirror;
use std::path::Path;

impl Pool {
    /// Reads everything in the pool at `path` and lists every damaged place. Takes a shared lock.
    ///
    /// # Errors
    /// When not even the superblock can be read, or a writer holds the pool.
    pub fn check(path: impl AsRef<Path>) -> Result<CheckReport> {
        Self::check_in(std::sync::Arc::new(OsStorage), path.as_ref())
    }

    /// As [`Pool::check`], on another storage.
    ///
    /// # Errors
    /// As `check`.
    pub fn check_in(storage: std::sync::Arc<dyn Storage>, folder: &Path) -> Result<CheckReport> {
        // What is missing or foreign gets its sentence here.
        Self::inspect_in(&*storage, folder)?;
        let path = folder.join("pool");
        let file = storage
            .open(&path, OpenHow::Read, here())
            .map_err(|e| Error::from_io(path.clone(), "open", &e))?;
        if !file.lock(LockKind::Shared).map_err(|e| Error::from_io(path.clone(), "lock", &e))? {
            return Err(Error::Busy { path: folder.to_owned() });
        }
        let bytes = read_superblock_file(&*file, &path)?;
        let sb = superblock::decode(&path, &bytes)?;
        let mut report = CheckReport { clean: sb.clean, ..CheckReport::default() };
        for (offset, what) in superblock::copy_faults(&bytes) {
            if sb.clean {
                report.damage.push(Damage { path: path.clone(), offset, what });
            } else {
                report.notes.push(format!("{what}; a crash may have torn it, the other copy is whole"));
            }
        }
        match sb.medium {
            MediumKind::File => check_file(&*storage, folder, &sb, &mut report)?,
            MediumKind::Dax | MediumKind::Emulated if sb.devdax.is_some() => {
                report.notes.push("the pages of a device are verified when the pool is opened".into());
            }
            MediumKind::Dax | MediumKind::Emulated if sb.clean => {
                check_image(&*storage, folder, &sb, &mut report)?;
            }
            MediumKind::Dax | MediumKind::Emulated => {
                report.notes.push("the pool was not closed, so its page sums are not current".into());
            }
        }
        drop(file);
        // The places above are found one by one; what opening needs besides is tried as it is.
        if report.damage.is_empty() && sb.medium == MediumKind::File {
            match PoolOptions::new().read_only(true).storage(storage).open(folder) {
                Ok(_) => {}
                Err(e) => push(&mut report, e)?,
            }
        }
        Ok(report)
    }
}

/// Corruption is a finding; any other error ends the check.
fn push(report: &mut CheckReport, e: Error) -> Result<()> {
    match e {
        Error::Corrupt { path, offset, what } => {
            report.damage.push(Damage { path, offset, what });
            Ok(())
        }
        other => Err(other),
    }
}

fn check_file(storage: &dyn Storage, folder: &Path, sb: &Superblock, report: &mut CheckReport) -> Result<()> {
    let path = folder.join("log");
    let log = match open_part(storage, &path, true) {
        Ok(log) => log,
        Err(e) => return push(report, e),
    };
    let size = log.size().map_err(|e| Error::from_io(path.clone(), "read", &e))?;
    if size != sb.log_bytes {
        let what = format!("the log has {size} bytes instead of {}", sb.log_bytes);
        report.damage.push(Damage { path, offset: size.min(sb.log_bytes), what });
    } else if !sb.clean {
        let mut ring = Mirror::new(sb.log_bytes as usize).map_err(|e| Error::Unsupported {
            what: format!("cannot map {} bytes for the log: {e}", sb.log_bytes),
        })?;
        let scan = scan(&*log, &path, sb, &mut ring)
            .and_then(|scan| refuse_hole(&*log, &path, sb, &scan).map(|()| scan));
        match scan {
            Ok(scan) => report.groups = scan.groups,
            Err(e) => push(report, e)?,
        }
    }
    check_image(storage, folder, sb, report)
}

/// Every page against its sum. While a checkpoint is under way, pages may be torn: opening, which
/// applies the log to them, is the judge then.
fn check_image(
    storage: &dyn Storage,
    folder: &Path,
    sb: &Superblock,
    report: &mut CheckReport,
) -> Result<()> {
    let (image_path, sums_path) = (folder.join("image"), folder.join("sums"));
    let (image, sums) = match (open_part(storage, &image_path, true), open_part(storage, &sums_path, true)) {
        (Ok(image), Ok(sums)) => (image, sums),
        (image, sums) => {
            for e in [image.err(), sums.err()].into_iter().flatten() {
                push(report, e)?;
            }
            return Ok(());
        }
    };
    let files = ImageFiles { image, image_path, sums, sums_path };
    let size = files.image.size().map_err(|e| Error::from_io(files.image_path.clone(), "read", &e))?;
    if size < sb.image_bytes {
        let what = format!("the image ends here, but had {} bytes", sb.image_bytes);
        report.damage.push(Damage { path: files.image_path.clone(), offset: size, what });
    }
    let size = size.min(sb.capacity);
    let sums = match read_sums(&files, sb, size, sb.capacity) {
        Ok(sums) => sums,
        Err(e) => return push(report, e),
    };
    let mut buffer = vec![0u8; 1 << 20];
    let mut offset = 0;
    while offset < size {
        let want = buffer.len().min((size - offset) as usize);
        let n = files
            .image
            .read_at(offset, &mut buffer[..want])
            .map_err(|e| Error::from_io(files.image_path.clone(), "read", &e))?;
        buffer[n..want].fill(0);
        for (i, page) in buffer[..want - want % PAGE_BYTES].chunks_exact(PAGE_BYTES).enumerate() {
            let number = offset / PAGE_BYTES as u64 + i as u64;
            report.pages += 1;
            if page_sum(page) != sums.get(number) && sb.tail == sb.target {
                report.damage.push(Damage {
                    path: files.image_path.clone(),
                    offset: number * PAGE_BYTES as u64,
                    what: "the page does not match its checksum".into(),
                });
            }
        }
        offset += want as u64;
    }
    Ok(())
}
