//! What import and export have in common before they begin: their options, and how they open this library's database.

use super::outcome::Result;
use crate::api::db::{leveldb_t, open_database};
use crate::api::options::OpenRequest;
use crate::order::NamedOrder;
use mangrove_cabi::on_own_thread;
use std::path::{Path, PathBuf};

/// Bytes of the records of a batch, at which it is written.
pub(super) const BATCH_BYTES: usize = 1 << 20;

/// How to import or to export.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransferOptions {
    /// LevelDB's library; the one that the dynamic linker finds if there is none here.
    pub library: Option<PathBuf>,
    /// Begin even if it will probably not fit.
    pub force: bool,
}

/// Opens this library's database in `directory`: a new one, or one that is there, with every check.
pub(super) fn open_ours(directory: &Path, is_new: bool) -> Result<leveldb_t> {
    let request = OpenRequest {
        order: NamedOrder::bytewise(),
        create_if_missing: is_new,
        error_if_exists: is_new,
        paranoid_checks: !is_new,
        is_import: is_new,
    };
    let directory = directory.to_owned();
    Ok(on_own_thread(move || open_database(&directory, &request))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An import writes its source again if the process dies, so it writes nothing that serves only that.
    #[test]
    fn an_import_keeps_no_recent_writes() {
        let above = tempfile::tempdir().unwrap();
        let recent = |name: &str| {
            let files = std::fs::read_dir(above.path().join(name).join("pool")).unwrap();
            files
                .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("recent-"))
                .count()
        };
        let (order, ours) = (NamedOrder::bytewise(), above.path().join("ours"));
        let request = OpenRequest {
            order,
            create_if_missing: true,
            error_if_exists: true,
            paranoid_checks: false,
            is_import: false,
        };
        let db = open_database(&ours, &request).unwrap();
        assert_eq!(recent("ours"), 1);
        drop(db);
        let imported = open_ours(&above.path().join("imported"), true).unwrap();
        assert_eq!(recent("imported"), 0);
        drop(imported);
        let opened = open_ours(&above.path().join("imported"), false).unwrap();
        assert_eq!(recent("imported"), 1);
        drop(opened);
    }
}
