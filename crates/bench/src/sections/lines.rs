//! Names of the lines that goals and figures select.

pub(crate) use super::batches::{BATCH, FILL, SECTION as BATCHES};
pub(crate) use super::bitflip::{SECTION as BITFLIP, SILENT};
pub(crate) use super::floors::FLOOR;
pub(crate) use super::gets::{GET, GET_PREFIX, GET_PREFIX_CPU, SCAN, SECTION as GETS};
pub(crate) use super::killed_open::{FIRST_GET, OPEN as OPEN_KILLED, OPEN_CLEAN, SECTION as OPEN};
pub(crate) use super::memory::{DRAM, DURABLE, SECTION as MEMORY};
pub(crate) use super::mixes::SECTION as MIXES;
pub(crate) use super::operations::{
    DELETE_SHUFFLED, SEARCH_SHUFFLED, SECTION as OPERATIONS, UPDATE_SHUFFLED,
};
pub(crate) use super::persists::SECTION as PERSISTS;
pub(crate) use super::ranges::SECTION as RANGE;
pub(crate) use super::recovery::SECTION as RECOVERY;
pub(crate) use super::scale::SECTION as SCALE;
pub(crate) use super::synced_puts::{LONGEST, P999, PUT, SECTION as PUTS, WRITTEN};
pub(crate) use super::threads::SECTION as THREADS;
pub(crate) use super::ycsb::{SCANS, SECTION as YCSB};
