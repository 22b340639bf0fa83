//! Is the durable content of this shadow sound?

use crate::Result;
use crate::layout::{AT_RINGS, BLANK_HEADER, ShadowLayout};
use crate::recovery::recover::verify_all;
use mangrove_pool::{CheckReport, Create, Damage, Error, MediumKind, Pool, PoolOptions};
use std::path::Path;

/// Every damaged place of the pool at `path`, and of the logs in its region.
///
/// # Errors
/// When not even the superblock can be read, or a writer holds the pool.
pub(crate) fn check(path: &Path) -> Result<CheckReport> {
    let mut report = Pool::check(path)?;
    let mapped = Pool::inspect(path)?.medium != MediumKind::File;
    if mapped && report.damage.is_empty() {
        let pool = PoolOptions::new().create(Create::Never).read_only(true).open(path)?;
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
