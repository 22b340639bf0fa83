//! RocksDB 7.8, with a block cache and a bloom filter; the rest are its defaults.

crate::lsm::lsm_store!(RocksDb, "RocksDB", "rocksdb", "rocksdb", tune);

#[link(name = "rocksdb")]
unsafe extern "C" {
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
