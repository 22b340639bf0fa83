//! Reading hostile logs. The fuzzer chooses the bytes; the target may correct the checksums, so that parsing gets
//! past them.

use super::victims::{FuzzVictim, try_open, victims};
use crate::machine::disk::DiskTree;
use crate::quiet::quietly;
use arbitrary::{Arbitrary, Unstructured};
use mangrove_pool::crc32c;

const SECTOR: usize = mangrove_pool::SECTOR_BYTES;
/// Layout of a group's header (docs/format/log.md).
const MAGIC: &[u8; 4] = b"MGgr";
const HEADER_BYTES: usize = 40;
const CRC_AT: usize = 4;
const LSN_AT: usize = 8;
const PAYLOAD_AT: usize = 16;
const NONCE_AT: usize = 24;
/// Layout of the superblock (docs/format/pool.md).
const COPY_BYTES: usize = 4096;
const UUID_AT: usize = 24;

/// A group that the fuzzer writes.
#[derive(Arbitrary, Clone, Debug)]
struct Group {
    /// Keep the header that is there, and change the payload only.
    keep: bool,
    flags: u32,
    durable: u32,
    lsn_shift: i8,
    length: u16,
    payload: Vec<u8>,
}

#[derive(Arbitrary, Clone, Debug)]
struct Input {
    victim: u8,
    reseal: bool,
    groups: Vec<(u8, Group)>,
    raw: Vec<(u16, Vec<u8>)>,
}

/// Opens a pool whose log `data` has overwritten.
///
/// # Errors
/// The finding.
pub fn log_parsing(data: &[u8]) -> Result<(), String> {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(data)) else { return Ok(()) };
    let all = victims();
    let victim = &all[input.victim as usize % all.len()];
    let mut tree = victim.tree.clone();
    if let Some(log) = file(&mut tree, victim, "log") {
        for (at, group) in input.groups.iter().take(16) {
            put_group(log, *at as usize, group);
        }
        for (at, bytes) in input.raw.iter().take(16) {
            let at = *at as usize % log.len();
            let n = bytes.len().min(log.len() - at);
            log[at..at + n].copy_from_slice(&bytes[..n]);
        }
    }
    if input.reseal {
        reseal(&mut tree, victim);
    }
    quietly(|| try_open(tree, victim, false)).map(drop).map_err(|e| format!("{input:?}: {e}"))
}

fn file<'a>(tree: &'a mut DiskTree, victim: &FuzzVictim, name: &str) -> Option<&'a mut Vec<u8>> {
    let (_, number) = victim.files().into_iter().find(|(n, _)| n == name)?;
    tree.files.get_mut(&number).filter(|data| !data.is_empty())
}

fn put_group(log: &mut [u8], at: usize, group: &Group) {
    let at = (at * SECTOR) % (log.len() / SECTOR * SECTOR).max(SECTOR);
    if at + HEADER_BYTES > log.len() {
        return;
    }
    if !group.keep {
        let payload = usize::from(group.length).max(group.payload.len()) as u32;
        let lsn = (at as i64 + i64::from(group.lsn_shift) * SECTOR as i64) as u64;
        log[at..at + 4].copy_from_slice(MAGIC);
        log[at + LSN_AT..][..8].copy_from_slice(&lsn.to_le_bytes());
        log[at + PAYLOAD_AT..][..4].copy_from_slice(&payload.to_le_bytes());
        log[at + 20..][..4].copy_from_slice(&group.flags.to_le_bytes());
        log[at + 32..][..8].copy_from_slice(&u64::from(group.durable).to_le_bytes());
        if at >= SECTOR {
            // With the nonce of its neighbour a group belongs to the same log.
            let nonce: [u8; 8] = log[NONCE_AT..NONCE_AT + 8].try_into().unwrap_or([0; 8]);
            log[at + NONCE_AT..][..8].copy_from_slice(&nonce);
        }
    }
    let start = at + HEADER_BYTES;
    let n = group.payload.len().min(log.len() - start);
    log[start..start + n].copy_from_slice(&group.payload[..n]);
}

/// Corrects the checksums of the superblock's copies and of all groups of the log.
pub(super) fn reseal(tree: &mut DiskTree, victim: &FuzzVictim) {
    let mut uuid = [0; 16];
    if let Some(pool) = file(tree, victim, "pool") {
        for copy in pool.chunks_exact_mut(COPY_BYTES) {
            uuid.copy_from_slice(&copy[UUID_AT..UUID_AT + 16]);
            let crc = crc32c(0, &copy[..COPY_BYTES - 4]);
            copy[COPY_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        }
    }
    let seed = crc32c(0, &uuid);
    let Some(log) = file(tree, victim, "log") else { return };
    for at in (0..log.len().saturating_sub(HEADER_BYTES)).step_by(SECTOR) {
        if &log[at..at + 4] != MAGIC {
            continue;
        }
        let payload: [u8; 4] = log[at + PAYLOAD_AT..][..4].try_into().unwrap_or([0; 4]);
        let end = at.saturating_add(HEADER_BYTES).saturating_add(u32::from_le_bytes(payload) as usize);
        if end <= log.len() {
            let crc = crc32c(seed, &log[at + LSN_AT..end]);
            log[at + CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// Inputs to start from.
#[must_use]
pub fn log_seeds() -> Vec<Vec<u8>> {
    (0..16u64).map(|n| crate::rng::Rng::new(n ^ 991).bytes(30 + 12 * n as usize)).collect()
}
