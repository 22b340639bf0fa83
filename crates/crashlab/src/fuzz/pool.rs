//! Opening damaged and hostile pools.
//!
//! After a few flipped bits (CRC32C always detects up to three in a page) opening must fail, or every answer must
//! be right. After arbitrary changes opening must fail, or the map must be usable without a panic.

use super::victims::{FuzzVictim, try_open, victims};
use crate::engines::map::MapSubject;
use crate::engines::subject::Subject;
use crate::machine::medium::{RecordingMedium, SimulatedMemory};
use crate::machine::site::Sites;
use crate::quiet::quietly;
use crate::rng::Rng;
use arbitrary::{Arbitrary, Unstructured};
use std::sync::Arc;

/// One change to the files.
#[derive(Arbitrary, Clone, Debug)]
enum Edit {
    Byte { file: u8, at: u32, value: u8 },
    Bytes { file: u8, at: u32, bytes: Vec<u8> },
    Word { file: u8, at: u16, value: u64 },
    Near { file: u8, page: u16, at: u8, value: u8 },
    Truncate { file: u8, len: u32 },
    Extend { file: u8, by: u16 },
    Swap { file: u8, page: u16, with: u16 },
    Remove { file: u8 },
}

#[derive(Arbitrary, Clone, Debug)]
enum Attack {
    /// One to three bits anywhere.
    Flips { victim: u8, bits: [u32; 3], count: u8, file: u8 },
    /// Any changes to the files of a pool.
    Files { victim: u8, edits: Vec<Edit>, reseal: bool },
    /// Any changes to the region itself: what a pool without page checksums may read.
    Region { victim: u8, edits: Vec<Edit> },
}

fn nth(victim: u8) -> &'static FuzzVictim {
    let all = victims();
    &all[victim as usize % all.len()]
}

fn apply(edit: &Edit, files: &mut [&mut Vec<u8>]) {
    let count = files.len();
    let mut of = |file: u8| std::mem::take(files[file as usize % count]);
    let (file, data) = match edit {
        Edit::Byte { file, at, value } => {
            let mut data = of(*file);
            put(&mut data, *at as usize, &[*value]);
            (*file, data)
        }
        Edit::Near { file, page, at, value } => {
            let mut data = of(*file);
            put(&mut data, *page as usize * 64 + *at as usize % 64, &[*value]);
            (*file, data)
        }
        Edit::Bytes { file, at, bytes } => {
            let mut data = of(*file);
            put(&mut data, *at as usize, bytes);
            (*file, data)
        }
        Edit::Word { file, at, value } => {
            let mut data = of(*file);
            put(&mut data, *at as usize * 8, &value.to_le_bytes());
            (*file, data)
        }
        Edit::Truncate { file, len } => {
            let mut data = of(*file);
            let len = *len as usize % (data.len() + 1);
            data.truncate(len);
            (*file, data)
        }
        Edit::Extend { file, by } => {
            let mut data = of(*file);
            data.resize(data.len() + *by as usize, 0);
            (*file, data)
        }
        Edit::Swap { file, page, with } => {
            let mut data = of(*file);
            let pages = data.len() / 512;
            if pages > 0 {
                let (a, b) = (*page as usize % pages, *with as usize % pages);
                for n in 0..512 {
                    data.swap(a * 512 + n, b * 512 + n);
                }
            }
            (*file, data)
        }
        Edit::Remove { file } => (*file, Vec::new()),
    };
    *files[file as usize % count] = data;
}

/// Overwrites bytes, at a place taken modulo the length.
fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    if data.is_empty() {
        return;
    }
    let at = at % data.len();
    let n = bytes.len().min(data.len() - at);
    data[at..at + n].copy_from_slice(&bytes[..n]);
}

/// Opens the pool that `data` has changed.
///
/// # Errors
/// The finding.
pub fn pool_opening(data: &[u8]) -> Result<(), String> {
    let Ok(attack) = Attack::arbitrary(&mut Unstructured::new(data)) else { return Ok(()) };
    let answer = quietly(|| match &attack {
        Attack::Flips { victim, bits, count, file } => flips(nth(*victim), bits, *count, *file),
        Attack::Files { victim, edits, reseal } => hostile_files(nth(*victim), edits, *reseal),
        Attack::Region { victim, edits } => hostile_region(nth(*victim), edits),
    });
    answer.map_err(|e| format!("{attack:?}: {e}"))
}

fn flips(victim: &FuzzVictim, bits: &[u32; 3], count: u8, file: u8) -> Result<(), String> {
    let mut tree = victim.tree.clone();
    let files = victim.files();
    let (_, number) = files[file as usize % files.len()].clone();
    if let Some(data) = tree.files.get_mut(&number).filter(|d| !d.is_empty()) {
        for bit in &bits[..1 + count as usize % 3] {
            let at = *bit as usize % (data.len() * 8);
            data[at / 8] ^= 1 << (at % 8);
        }
    }
    try_open(tree, victim, true).map(drop)
}

fn hostile_files(victim: &FuzzVictim, edits: &[Edit], reseal: bool) -> Result<(), String> {
    let mut tree = victim.tree.clone();
    {
        let mut files: Vec<&mut Vec<u8>> = tree.files.values_mut().collect();
        for edit in edits.iter().take(32) {
            apply(edit, &mut files);
        }
    }
    if reseal {
        super::log::reseal(&mut tree, victim);
    }
    try_open(tree, victim, false).map(drop)
}

fn hostile_region(victim: &FuzzVictim, edits: &[Edit]) -> Result<(), String> {
    let image = victim.files().into_iter().find(|(name, _)| name == "image").map(|(_, n)| n);
    let mut bytes = image.and_then(|n| victim.tree.files.get(&n).cloned()).unwrap_or_default();
    bytes.resize(<MapSubject<false>>::REGION_BYTES as usize, 0);
    for edit in edits.iter().take(32).filter(|e| !matches!(e, Edit::Truncate { .. } | Edit::Extend { .. })) {
        apply(edit, &mut [&mut bytes]);
    }
    bytes.resize(<MapSubject<false>>::REGION_BYTES as usize, 0);
    let memory = SimulatedMemory::new(bytes.len());
    memory.put(0, &bytes);
    let (_, region) = RecordingMedium::region(&memory, bytes.len() as u64, &Arc::new(Sites::new()));
    let Ok(mut map) = <MapSubject<false>>::recover(region) else { return Ok(()) };
    let _ = map.check();
    let model = &victim.states[victim.states.len() - 1];
    let _ = map.holds(model);
    for (index, op) in <MapSubject<false>>::follow_up(&mut Rng::new(5), model).iter().enumerate() {
        let _ = map.apply(index as u32, op, model);
    }
    Ok(())
}

/// Inputs to start from.
#[must_use]
pub fn pool_seeds() -> Vec<Vec<u8>> {
    (0..24u64)
        .map(|n| {
            let mut bytes = Rng::new(n ^ 77).bytes(40 + 8 * n as usize);
            let kind = ((n % 3) * 0x5555_5556) as u32;
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            bytes
        })
        .collect()
}
