//! What lies in the pools that are damaged: a map, or pages as a durable application's working copy has them, which
//! only the pool itself protects.

use mangrove::Map;
use mangrove_pool::{ByteRange, Create, Durability, Latency, Medium, Pool, PoolConfig, PoolOptions, crc32c};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What a pool holds at one time: a map's records, or the pages that are not blank by their numbers.
pub(super) type Records = BTreeMap<Vec<u8>, Arc<[u8]>>;

const CAPACITY_BYTES: u64 = 16 << 20;
/// So long that no checkpoint begins by itself: it would change the files while they are copied.
const LOG_BYTES: u64 = 1 << 20;
/// A log that goes round after a few checkpoints. They are asked for: less than half of it is in use, so none begins
/// by itself.
const LOG_BYTES_SHORT: u64 = 256 << 10;
/// What a log begins with that grows.
const LOG_BYTES_FIRST: u64 = 128 << 10;
/// No write is synced in this time.
const UNSYNCED: Duration = Duration::from_secs(3600);
/// Records that are loaded without a log.
const LOADED: u32 = 2000;
const PAGE_BYTES: usize = 4096;
const PAGE_COUNT: u64 = 300;
/// Pages of an atomic group that is longer than half the log.
const SPILLED_PAGES: u64 = LOG_BYTES / 2 / PAGE_BYTES as u64 + 10;

/// The kind of a pool's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Map,
    /// A map whose log begins short and grows.
    GrowingMap,
    /// A map none of whose writes is synced while it is made: what has returned is in the file of recent writes.
    RecentMap,
    /// A map that begins with records which were loaded without a log.
    LoadedMap,
    /// A map with a short log, which goes round.
    ShortLogMap,
    Pages,
}

/// An open pool's content. All errors are messages.
pub(super) enum Object {
    Map(Box<Map>),
    Pages(Box<Pool>),
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl ObjectKind {
    /// Makes a pool.
    pub(super) fn create(self, path: &Path, is_mapped: bool) -> Object {
        let medium = if is_mapped { Medium::Emulated(Latency::default()) } else { Medium::File };
        match self {
            Self::Pages => {
                let options = PoolOptions::new().medium(medium).capacity(CAPACITY_BYTES).log_bytes(LOG_BYTES);
                let options = options.log_bytes_first(LOG_BYTES).background(false);
                let pool = options.create(Create::New).open(path).expect("a new pool");
                pool.region().grow(PAGE_COUNT * PAGE_BYTES as u64).expect("space for the pages");
                Object::Pages(Box::new(pool))
            }
            _ => {
                let log_bytes = if self == Self::ShortLogMap { LOG_BYTES_SHORT } else { LOG_BYTES };
                let first = if self == Self::GrowingMap { LOG_BYTES_FIRST } else { log_bytes };
                let config = PoolConfig { log_bytes_first: Some(first), ..PoolConfig::default() };
                let mut options = Map::options().config(config).medium(medium);
                options = options.capacity(CAPACITY_BYTES).log_bytes(log_bytes);
                if self == Self::RecentMap {
                    options = options.durability(Durability::Interval(UNSYNCED)).keeps_recent(true);
                }
                if self == Self::LoadedMap {
                    let load = |map: &Map| {
                        (0..LOADED).try_for_each(|n: u32| map.put(n.to_be_bytes(), [n as u8; 60]))
                    };
                    options.load(path, load).expect("a new map that is loaded");
                }
                Object::Map(Box::new(options.open(path).expect("a new map")))
            }
        }
    }

    /// Opens a pool for reading or writing.
    pub(super) fn open(self, path: &Path, read_only: bool) -> Result<Object, String> {
        match self {
            Self::Pages => {
                let pool = PoolOptions::new().read_only(read_only).open(path).map_err(text)?;
                if !read_only {
                    // As the owner of a region does that knows how much of it is in use.
                    pool.region().grow(PAGE_COUNT * PAGE_BYTES as u64).map_err(text)?;
                }
                Ok(Object::Pages(Box::new(pool)))
            }
            _ => {
                let map = if read_only { Map::options().read_only(true).open(path) } else { Map::open(path) };
                map.map(|map| Object::Map(Box::new(map))).map_err(text)
            }
        }
    }
}

impl Object {
    pub(super) fn records(&self) -> Result<Records, String> {
        match self {
            Self::Map(map) => {
                let records = map.iter().map_err(text)?;
                records.map(|item| item.map(|(key, value)| (key, value.into())).map_err(text)).collect()
            }
            Self::Pages(pool) => {
                let count = PAGE_COUNT.min(pool.stat().grown / PAGE_BYTES as u64);
                Ok((0..count).filter_map(|page| page_record(pool, page)).collect())
            }
        }
    }

    /// Puts a record and waits until it is durable. Returns the record as `records` has it.
    pub(super) fn put(&self, key: &[u8], value: &[u8]) -> Result<(Vec<u8>, Arc<[u8]>), String> {
        match self {
            Self::Map(map) => {
                map.put(key, value).map_err(text)?;
                Ok((key.to_vec(), value.into()))
            }
            Self::Pages(pool) => {
                let page = page_of(key);
                let mut bytes = vec![1; PAGE_BYTES];
                let len = value.len().min(PAGE_BYTES);
                bytes[..len].copy_from_slice(&value[..len]);
                write_page(pool, page, &bytes)?;
                Ok((page_key(page), bytes.into()))
            }
        }
    }

    /// Writes pages in one atomic group that needs a spill file, waits until it is durable, and returns the records.
    pub(super) fn spill(&self, byte: u8) -> Result<Records, String> {
        let Self::Pages(pool) = self else { return Err("a map spills nothing".to_owned()) };
        let region = pool.region();
        let bytes = vec![byte + 1; PAGE_BYTES];
        let range = |page| ByteRange { offset: page * PAGE_BYTES as u64, len: PAGE_BYTES as u64 };
        let ranges: Vec<ByteRange> = (0..SPILLED_PAGES).map(range).collect();
        ranges.iter().for_each(|range| region.write(range.offset, &bytes));
        let end = region.flush_unit(&ranges).map_err(text)?;
        region.wait(end).map_err(text)?;
        Ok((0..SPILLED_PAGES).map(|page| (page_key(page), bytes.as_slice().into())).collect())
    }

    /// Deletes a record and waits until that is durable. Returns the key as `records` has it.
    pub(super) fn delete(&self, key: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Map(map) => map.delete(key).map_err(text).map(|_| key.to_vec()),
            Self::Pages(pool) => {
                let page = page_of(key);
                write_page(pool, page, &[0; PAGE_BYTES])?;
                Ok(page_key(page))
            }
        }
    }

    /// Waits until the log has grown as far as it will before the next write.
    pub(super) fn wait_grown(&self) {
        let is_grown = || match self {
            Self::Map(map) => {
                let stat = map.stat();
                stat.log_bytes == LOG_BYTES || stat.log_bytes_used <= stat.log_bytes / 2
            }
            Self::Pages(_) => true,
        };
        while !is_grown() {
            std::thread::yield_now();
        }
    }

    pub(super) fn checkpoint(&self) -> Result<(), String> {
        match self {
            Self::Map(map) => map.checkpoint().map_err(text),
            Self::Pages(pool) => pool.checkpoint().map_err(text),
        }
    }

    /// Gives free space back.
    pub(super) fn compact(&self) -> Result<(), String> {
        match self {
            Self::Map(map) => map.compact().map(drop).map_err(text),
            Self::Pages(_) => Ok(()),
        }
    }

    pub(super) fn close(self) -> Result<(), String> {
        match self {
            Self::Map(map) => map.close().map_err(text),
            Self::Pages(pool) => pool.close().map_err(text),
        }
    }
}

fn page_of(key: &[u8]) -> u64 {
    u64::from(crc32c(0, key)) % PAGE_COUNT
}

fn page_key(page: u64) -> Vec<u8> {
    page.to_be_bytes().to_vec()
}

fn page_record(pool: &Pool, page: u64) -> Option<(Vec<u8>, Arc<[u8]>)> {
    // SAFETY: the page lies in the part of the region that has been grown, and this thread alone uses the pool.
    let bytes = unsafe { std::slice::from_raw_parts(pool.region().at(page * PAGE_BYTES as u64), PAGE_BYTES) };
    bytes.iter().any(|byte| *byte != 0).then(|| (page_key(page), bytes.into()))
}

fn write_page(pool: &Pool, page: u64, bytes: &[u8]) -> Result<(), String> {
    let (region, offset) = (pool.region(), page * PAGE_BYTES as u64);
    region.write(offset, bytes);
    region.flush(offset, bytes.len());
    region.drain().map_err(text)
}
