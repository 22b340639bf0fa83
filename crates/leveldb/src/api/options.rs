//! Options. Those that control LevelDB's files have no counterpart here: they are accepted, so that programs run
//! unchanged, and ignored (docs/leveldb.md lists them).

use crate::api::handles::leveldb_snapshot_t;
use crate::objects::{
    leveldb_cache_t, leveldb_comparator_t, leveldb_env_t, leveldb_filterpolicy_t, leveldb_logger_t,
};
use crate::order::NamedOrder;
use crate::status::{Failure, Result, quietly};
use mangrove_cabi::{give, set_option, take_back};
use std::ffi::c_int;

/// How to open a database.
pub struct leveldb_options_t {
    comparator: *const leveldb_comparator_t,
    create_if_missing: bool,
    error_if_exists: bool,
    paranoid_checks: bool,
}

/// The options that matter when a database is opened.
#[derive(Clone)]
pub(crate) struct OpenRequest {
    pub(crate) order: NamedOrder,
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) paranoid_checks: bool,
    /// The database is new, and filled by an import.
    pub(crate) is_import: bool,
}

impl leveldb_options_t {
    pub(crate) fn open_request(&self) -> Result<OpenRequest> {
        Ok(OpenRequest {
            order: self.order()?,
            create_if_missing: self.create_if_missing,
            error_if_exists: self.error_if_exists,
            paranoid_checks: self.paranoid_checks,
            is_import: false,
        })
    }

    pub(crate) fn order(&self) -> Result<NamedOrder> {
        // SAFETY: the API's contract: the comparator outlives its use by options and databases.
        let Some(comparator) = (unsafe { self.comparator.as_ref() }) else {
            return Ok(NamedOrder::bytewise());
        };
        let (comparator, name) = comparator.parts().ok_or_else(|| {
            Failure::invalid(
                "the comparator lacks its compare or its name function, or that returned NULL (in C++: Name() threw an \
                 exception)",
            )
        })?;
        Ok(NamedOrder { name, comparator: Some(comparator) })
    }
}

/// Creates options with their default values.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut leveldb_options_t {
    give(leveldb_options_t {
        comparator: std::ptr::null(),
        create_if_missing: false,
        error_if_exists: false,
        paranoid_checks: false,
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut leveldb_options_t) {
    // SAFETY: the API's contract.
    unsafe { take_back(options) };
}

/// The order of keys; NULL is byte by byte. The comparator must live as long as the database is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_comparator(
    options: *mut leveldb_options_t,
    comparator: *mut leveldb_comparator_t,
) {
    set_option!(quietly, options.comparator = comparator);
}

/// Creates the database when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_create_if_missing(options: *mut leveldb_options_t, yes: u8) {
    set_option!(quietly, options.create_if_missing = yes != 0);
}

/// Fails when there is a database.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_error_if_exists(options: *mut leveldb_options_t, yes: u8) {
    set_option!(quietly, options.error_if_exists = yes != 0);
}

/// Reads every record against its checksums when the database is opened, and fails on damage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_paranoid_checks(options: *mut leveldb_options_t, yes: u8) {
    set_option!(quietly, options.paranoid_checks = yes != 0);
}

/// Defines a setter of an option that is accepted and ignored.
macro_rules! set_nothing {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_options: *mut leveldb_options_t, _value: $type) {}
    };
}

set_nothing!(
    /// Accepted: no read searches a disk.
    leveldb_options_set_filter_policy,
    *mut leveldb_filterpolicy_t
);
set_nothing!(
    /// Accepted: there is one environment.
    leveldb_options_set_env,
    *mut leveldb_env_t
);
set_nothing!(
    /// Accepted: this library logs no messages.
    leveldb_options_set_info_log,
    *mut leveldb_logger_t
);
set_nothing!(
    /// Accepted: nothing is buffered before it is sorted.
    leveldb_options_set_write_buffer_size,
    usize
);
set_nothing!(
    /// Accepted: a database has few files.
    leveldb_options_set_max_open_files,
    c_int
);
set_nothing!(
    /// Accepted: all data is in memory.
    leveldb_options_set_cache,
    *mut leveldb_cache_t
);
set_nothing!(
    /// Accepted: there are no blocks.
    leveldb_options_set_block_size,
    usize
);
set_nothing!(
    /// Accepted: there are no blocks.
    leveldb_options_set_block_restart_interval,
    c_int
);
set_nothing!(
    /// Accepted: there are no tables.
    leveldb_options_set_max_file_size,
    usize
);
set_nothing!(
    /// Accepted: nothing is compressed.
    leveldb_options_set_compression,
    c_int
);

/// How to read.
pub struct leveldb_readoptions_t {
    pub(crate) snapshot: *const leveldb_snapshot_t,
}

/// Creates read options with their default values.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t {
    give(leveldb_readoptions_t { snapshot: std::ptr::null() })
}

/// Frees read options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t) {
    // SAFETY: the API's contract.
    unsafe { take_back(options) };
}

/// Accepted: checksums are always verified.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_verify_checksums(_options: *mut leveldb_readoptions_t, _yes: u8) {}

/// Accepted: all data is in memory.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_set_fill_cache(_options: *mut leveldb_readoptions_t, _yes: u8) {}

/// Reads from a snapshot; NULL means the present state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut leveldb_readoptions_t,
    snapshot: *const leveldb_snapshot_t,
) {
    set_option!(quietly, options.snapshot = snapshot);
}

/// How to write.
pub struct leveldb_writeoptions_t {
    pub(crate) sync: bool,
}

/// Creates write options with their default values: not synced.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t {
    give(leveldb_writeoptions_t { sync: false })
}

/// Frees write options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t) {
    // SAFETY: the API's contract.
    unsafe { take_back(options) };
}

/// Whether a write returns once it is durable (1), or at once (0).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(options: *mut leveldb_writeoptions_t, yes: u8) {
    set_option!(quietly, options.sync = yes != 0);
}
