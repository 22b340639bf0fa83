//! LevelDB 1.23, with a block cache and a bloom filter; the write buffer is its default.

crate::lsm::lsm_store!(LevelDb, "LevelDB", "leveldb", "leveldb", tune);

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_cache_create_lru(bytes: usize) -> *mut c_void;
    fn leveldb_options_set_cache(options: *mut c_void, cache: *mut c_void);
    fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut c_void;
    fn leveldb_options_set_filter_policy(options: *mut c_void, policy: *mut c_void);
}

/// # Safety
/// `options` must be live options of LevelDB.
unsafe fn tune(options: *mut c_void) {
    // SAFETY: the caller's promise; cache and policy must outlive the database, and the process never frees them.
    unsafe {
        leveldb_options_set_cache(options, leveldb_cache_create_lru(crate::cache::CACHE_BYTES));
        leveldb_options_set_filter_policy(options, leveldb_filterpolicy_create_bloom(10));
    }
}
