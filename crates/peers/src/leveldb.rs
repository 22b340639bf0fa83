//! LevelDB 1.23, with a block cache and a bloom filter; the write buffer is its default.

crate::lsm::lsm_store!(LevelDb, "LevelDB", "leveldb", "leveldb", tune, get_one_by_one);

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

/// LevelDB has no call for several keys.
fn get_one_by_one(db: &Open, keys: &[&[u8]], len: usize) -> anyhow::Result<usize> {
    let mut value = Vec::with_capacity(len);
    let mut found = 0;
    for key in keys {
        found += usize::from(db.get(key, &mut value)? && value.len() == len);
    }
    Ok(found)
}
