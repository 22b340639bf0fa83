//! Is this pool sound? The check reads everything, changes nothing and lists every damaged place.

use crate::format::page_sums::{CHECKSUM_BYTES, PAGE_BYTES, page_checksum};
use crate::format::superblock;
use crate::format::superblock::Superblock;
use crate::limits::cannot_map;
use crate::log::recent::LeftRecent;
use crate::log::scan::{closed_log, refuse_grown, refuse_hole, scan};
use crate::options::PoolOptions;
use crate::pool_files::{DataFiles, LockedPool, PoolFile, PoolFiles, hold, read_superblock_file};
use crate::stat::{CheckReport, Damage, MediumKind};
use crate::storage::traits::{OpenHow, Storage};
use crate::{Error, OsStorage, Pool, Result};
use mangrove_sys::Mirror;
use std::path::Path;

impl Pool {
    /// Reads everything in the pool at `path` and lists every damaged place, and what the medium cannot read. Takes a
    /// shared lock.
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
    pub fn check_in(storage: std::sync::Arc<dyn Storage>, directory: &Path) -> Result<CheckReport> {
        // Reports a pool that is missing or foreign.
        Self::inspect_in(&*storage, directory)?;
        let storage = hold(&storage, directory, "read")?;
        let Some(locked) = LockedPool::take(&storage, directory, OpenHow::Read, 1)? else {
            return Err(Error::busy(directory));
        };
        let path = locked.file().path().to_owned();
        let bytes = read_superblock_file(locked.file())?;
        let sb = superblock::decode(&path, &bytes)?;
        let mut report = CheckReport { clean: sb.clean, ..CheckReport::default() };
        for (offset, what) in superblock::copy_faults(&bytes) {
            if let Err(e) = locked.file().read_at(offset, &mut [0; superblock::COPY_BYTES]) {
                report.damage.push(Damage { offset, ..Damage::of(e)? });
            } else if sb.clean {
                report.damage.push(Damage { path: path.clone(), offset, what });
            } else {
                report.notes.push(format!("{what}; a crash may have torn it, the other copy is whole"));
            }
        }
        match sb.medium {
            MediumKind::File => check_file(&*storage, directory, &sb, &mut report)?,
            MediumKind::Dax | MediumKind::Emulated if sb.devdax.is_some() => {
                report.notes.push("the pages of a device are verified when the pool is opened".into());
            }
            MediumKind::Dax | MediumKind::Emulated if sb.clean => {
                check_image(&*storage, directory, &sb, &mut report)?;
            }
            MediumKind::Dax | MediumKind::Emulated => {
                let files = PoolFiles::open(&*storage, directory, &sb, true);
                if let Err(e) = files.and_then(|files| files.data.image_size(&sb)) {
                    push(&mut report, e)?;
                }
                report.notes.push("the pool was not closed, so its page sums are not current".into());
            }
        }
        drop(locked);
        // The code above finds damaged places one by one. Opening has further requirements, which are tested by
        // opening.
        if report.damage.is_empty() && sb.medium == MediumKind::File {
            match PoolOptions::new().read_only(true).away(true).storage(storage).open(directory) {
                Ok(_) => {}
                Err(e) => push(&mut report, e)?,
            }
        }
        Ok(report)
    }
}

/// Corruption is a finding, and so is what the medium cannot read; any other error ends the check.
fn push(report: &mut CheckReport, e: Error) -> Result<()> {
    report.damage.push(Damage::of(e)?);
    Ok(())
}

fn check_file(
    storage: &dyn Storage,
    directory: &Path,
    sb: &Superblock,
    report: &mut CheckReport,
) -> Result<()> {
    let log = match PoolFile::open_part(storage, directory.join("log"), true) {
        Ok(log) => log.noting_unread(),
        Err(e) => return push(report, e),
    };
    let size = log.size()?;
    if size < sb.log_bytes {
        let what = format!("the log has {size} bytes instead of {}", sb.log_bytes);
        report.damage.push(Damage { path: log.path().to_owned(), offset: size, what });
    } else if let Err(e) = refuse_grown(&log, sb, directory.join("pool")) {
        push(report, e)?;
    } else if sb.clean {
        if let Err(e) = closed_log(&log, sb, directory.join("pool")) {
            push(report, e)?;
        }
    } else {
        // It lies there twice.
        let ring = Mirror::new(sb.log_bytes as usize);
        let mut ring = ring.map_err(|e| cannot_map(directory, 2 * sb.log_bytes, &e))?;
        let recent = LeftRecent::all_in(storage, directory)?;
        log.will_read_ring(sb.tail, sb.ring());
        let scan = scan(&log, &recent, 0, sb, &mut ring)
            .and_then(|scan| refuse_hole(&log, sb, &scan).map(|()| scan));
        match scan {
            Ok(scan) => report.groups = scan.groups,
            Err(e) => push(report, e)?,
        }
    }
    report.damage.extend(log.unread());
    check_image(storage, directory, sb, report)
}

/// Compares every page with its checksum. While a checkpoint is under way, pages may be torn; then only opening,
/// which applies the log to them, can find damage.
fn check_image(
    storage: &dyn Storage,
    directory: &Path,
    sb: &Superblock,
    report: &mut CheckReport,
) -> Result<()> {
    let open = |name| PoolFile::open_part(storage, directory.join(name), true).map(PoolFile::noting_unread);
    let files = match (open("image"), open("sums")) {
        (Ok(image), Ok(sums)) => DataFiles { image, sums },
        (image, sums) => {
            for e in [image.err(), sums.err()].into_iter().flatten() {
                push(report, e)?;
            }
            return Ok(());
        }
    };
    let size = files.image.size()?;
    if size < sb.image_bytes {
        let what = format!("the data file ends here, but had {} bytes", sb.image_bytes);
        report.damage.push(Damage { path: files.image.path().to_owned(), offset: size, what });
    } else if size > sb.capacity {
        let what = format!("the data file has {size} bytes, but the capacity is {}", sb.capacity);
        report.damage.push(Damage { path: files.image.path().to_owned(), offset: sb.capacity, what });
    }
    let size = size.min(sb.capacity);
    let read = files.read_sums(sb, sb.capacity);
    let sums = match read.and_then(|sums| files.refuse_sums_beyond(sb, size, &sums).map(|()| sums)) {
        Ok(sums) => sums,
        Err(e) => return push(report, e),
    };
    let mut buffer = vec![0u8; 1 << 20];
    let mut offset = 0;
    while offset < size {
        let want = buffer.len().min((size - offset) as usize);
        files.image.read_padded(offset, &mut buffer[..want])?;
        for (i, page) in buffer[..want - want % PAGE_BYTES].chunks_exact(PAGE_BYTES).enumerate() {
            let number = offset / PAGE_BYTES as u64 + i as u64;
            report.pages += 1;
            let is_unread = || {
                files.image.is_unread(number * PAGE_BYTES as u64)
                    || files.sums.is_unread(number * CHECKSUM_BYTES as u64)
            };
            if page_checksum(page) != sums.get(number) && sb.tail == sb.target && !is_unread() {
                push(report, files.damaged_page(number))?;
            }
        }
        offset += want as u64;
    }
    report.damage.extend(files.image.unread().into_iter().chain(files.sums.unread()));
    // Each page may fit its checksum in files of an older copy, or of another pool.
    match sums.are_of(sb, size, files.sums.path()) {
        Err(e) if report.damage.is_empty() => push(report, e),
        _ => Ok(()),
    }
}
