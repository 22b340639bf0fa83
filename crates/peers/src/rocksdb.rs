//! RocksDB 7.8, with a block cache and a bloom filter; the rest are its defaults.

crate::lsm::lsm_store!(RocksDb, "RocksDB", "rocksdb", "rocksdb", tune, multi_get);

#[link(name = "rocksdb")]
unsafe extern "C" {
    fn rocksdb_multi_get(
        db: *mut c_void,
        options: *const c_void,
        count: usize,
        keys: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut c_char,
        value_lens: *mut usize,
        errors: *mut *mut c_char,
    );
    fn rocksdb_cache_create_lru(bytes: usize) -> *mut c_void;
    fn rocksdb_block_based_options_create() -> *mut c_void;
    fn rocksdb_block_based_options_destroy(options: *mut c_void);
    fn rocksdb_block_based_options_set_block_cache(options: *mut c_void, cache: *mut c_void);
    fn rocksdb_filterpolicy_create_bloom(bits: f64) -> *mut c_void;
    fn rocksdb_block_based_options_set_filter_policy(options: *mut c_void, policy: *mut c_void);
    fn rocksdb_options_set_block_based_table_factory(options: *mut c_void, table: *mut c_void);
    fn rocksdb_options_set_info_log_level(options: *mut c_void, level: c_int);
}

/// RocksDB's level for fatal errors only: its information log is not part of the comparison.
const FATAL: c_int = 4;

/// # Safety
/// `options` must be live options of RocksDB.
unsafe fn tune(options: *mut c_void) {
    // SAFETY: the caller's; the table options are copied by the factory, which shares the cache and
    // takes over the policy.
    unsafe {
        let table = rocksdb_block_based_options_create();
        rocksdb_block_based_options_set_block_cache(
            table,
            rocksdb_cache_create_lru(crate::cache::CACHE_BYTES),
        );
        rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10.0));
        rocksdb_options_set_block_based_table_factory(options, table);
        rocksdb_block_based_options_destroy(table);
        rocksdb_options_set_info_log_level(options, FATAL);
    }
}

/// By its call for several keys, which copies each value into memory of its own.
fn multi_get(db: &Open, keys: &[&[u8]], len: usize) -> anyhow::Result<usize> {
    let starts: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr().cast()).collect();
    let lens: Vec<usize> = keys.iter().map(|key| key.len()).collect();
    let mut values = vec![ptr::null_mut::<c_char>(); keys.len()];
    let mut value_lens = vec![0; keys.len()];
    let mut errors = vec![ptr::null_mut::<c_char>(); keys.len()];
    // SAFETY: an open database; each list has an entry for each key.
    unsafe {
        rocksdb_multi_get(
            db.db.as_ptr(),
            db.reads,
            keys.len(),
            starts.as_ptr(),
            lens.as_ptr(),
            values.as_mut_ptr(),
            value_lens.as_mut_ptr(),
            errors.as_mut_ptr(),
        );
    }
    let mut found = 0;
    for (value, value_len) in values.into_iter().zip(value_lens).filter(|(value, _)| !value.is_null()) {
        found += usize::from(value_len == len);
        // SAFETY: the library returned it to this call, which frees it once.
        unsafe { free(value.cast()) };
    }
    errors.into_iter().try_for_each(check)?;
    Ok(found)
}
