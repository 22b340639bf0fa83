//! Is the durable content of this shadow sound?

use crate::Result;
use crate::layout::{AT_RINGS, BLANK_HEADER, ShadowLayout};
use crate::recovery::recover::verify_all;
use mangrove_pool::{CheckReport, Create, Damage, Error, MediumKind, Pool, PoolOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Every damaged place of the pool at `path`, and of the logs in its region.
///
/// # Errors
/// When not even the superblock can be read, or a writer holds the pool.
pub(crate) fn check(path: &Path) -> Result<CheckReport> {
    let mut report = Pool::check(path)?;
    let mapped = Pool::inspect(path)?.medium != MediumKind::File;
    if mapped && report.clean {
        pass_empty_logs(path, &mut report)?;
    }
    if mapped && report.damage.is_empty() {
        let options = PoolOptions::new().create(Create::Never).read_only(true);
        let pool = options.unread_when_closed(AT_RINGS, ShadowLayout::rings).open(path)?;
        let region = pool.region();
        let usable = pool.stat().grown;
        let layout = if usable < AT_RINGS { Ok(None) } else { ShadowLayout::read(region) };
        let verified = layout.and_then(|layout| match layout {
            None if pool.info().made => {
                let damage = Damage { path: path.join("image"), offset: 0, what: BLANK_HEADER.into() };
                report.damage.push(damage);
                Ok(0)
            }
            None => {
                report.notes.push("its creation was interrupted and nothing was stored in it".into());
                Ok(0)
            }
            Some(layout) => verify_all(region, &layout, usable),
        });
        match verified {
            Ok(units) => report.groups += units,
            Err(Error::Corrupt { offset, what, .. }) => {
                report.damage.push(Damage { path: path.join("image"), offset, what });
            }
            Err(e) => return Err(e),
        }
    }
    Ok(report)
}

/// The logs of a closed shadow are empty: a page of theirs that does not match its checksum holds nothing that is ever
/// read, and is a note instead of damage. The header says where they lie, if it is whole.
fn pass_empty_logs(path: &Path, report: &mut CheckReport) -> Result<()> {
    let image = path.join("image");
    let is_header = |damage: &Damage| damage.path != image || damage.offset < AT_RINGS;
    if report.damage.is_empty() || report.damage.iter().any(is_header) {
        return Ok(());
    }
    let mut header = [0; AT_RINGS as usize];
    let file = File::open(&image).and_then(|file| file.read_exact_at(&mut header, 0));
    file.map_err(|error| Error::Io {
        path: image,
        doing: "read",
        code: error.raw_os_error(),
        message: error.to_string(),
    })?;
    let rings = ShadowLayout::rings(&header);
    let is_empty = |damage: &mut Damage| (rings.offset..rings.offset + rings.len).contains(&damage.offset);
    let passed: Vec<_> = report.damage.extract_if(.., is_empty).collect();
    report.notes.extend(passed.iter().map(|damage| {
        format!(
            "byte {} of image: {}; it lies in a log that is empty, and nothing of it is read",
            damage.offset, damage.what
        )
    }));
    Ok(())
}
