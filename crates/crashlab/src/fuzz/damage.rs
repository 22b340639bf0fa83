//! Damaged pools that were not closed: whole files cut, blanked, removed or exchanged, and blocks blanked.
//!
//! A pool opens with every acknowledged record, and keeps them while it is used, or opening fails and names the pool.
//! What [docs/fault-model.md](../../../../docs/fault-model.md) exempts is judged by less: see [`Verdict`].

use super::object::{Object, ObjectKind, Records};
use super::unclosed::{Files, Scratch, UnclosedPool, another, unclosed_pools, write_files};
use crate::quiet::quietly;
use arbitrary::{Arbitrary, Unstructured};
use std::ops::Range;
use std::path::Path;

const BLOCK_BYTES: usize = 4096;
/// The unit of damage inside the first block: it holds words in lines of their own.
const LINE_BYTES: usize = 64;

/// What is done to one file, or to two that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Damage {
    Cut {
        file: String,
        to: usize,
    },
    Blank {
        file: String,
        bytes: Range<usize>,
    },
    Remove {
        file: String,
    },
    /// The file of a pool that has nothing to do with this one.
    Foreign {
        file: String,
    },
    /// The file as it was earlier.
    Older {
        file: String,
        copy: usize,
    },
    /// Data file and page checksums as they were earlier.
    OlderImage {
        copy: usize,
    },
    /// All files as they were earlier.
    AllOlder {
        copy: usize,
    },
}

/// What a damaged pool may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Refused, or as the process left it.
    Whole,
    /// Refused, or as it was after some acknowledged write: the log's end is gone, as a crash could have left it.
    Earlier,
    /// Refused, or anything that can be used: no checksum covers what was damaged.
    Usable,
}

impl Damage {
    fn apply(&self, pool: &UnclosedPool, files: &mut Files) {
        let older = |file: &str, copy: usize, files: &mut Files| match pool.older[copy].get(file) {
            Some(bytes) => drop(files.insert(file.to_owned(), bytes.clone())),
            None => drop(files.remove(file)),
        };
        match self {
            Self::Cut { file, to } => {
                if let Some(bytes) = files.get_mut(file) {
                    bytes.truncate(*to);
                }
            }
            Self::Blank { file, bytes: range } => {
                if let Some(bytes) = files.get_mut(file) {
                    let end = range.end.min(bytes.len());
                    bytes[range.start.min(end)..end].fill(0);
                }
            }
            Self::Remove { file } => drop(files.remove(file)),
            Self::Foreign { file } => match another(pool).get(file) {
                Some(bytes) => drop(files.insert(file.clone(), bytes.clone())),
                None => drop(files.remove(file)),
            },
            Self::Older { file, copy } => older(file, *copy, files),
            Self::OlderImage { copy } => {
                older("image", *copy, files);
                older("sums", *copy, files);
            }
            Self::AllOlder { copy } => files.clone_from(&pool.older[*copy]),
        }
    }

    fn verdict(&self, pool: &UnclosedPool) -> Verdict {
        match self {
            Self::AllOlder { .. } => Verdict::Earlier,
            // Nothing in it was promised to be durable.
            Self::Cut { file, .. }
            | Self::Blank { file, .. }
            | Self::Remove { file }
            | Self::Foreign { file }
            | Self::Older { file, .. }
                if file.starts_with("recent-") =>
            {
                Verdict::Earlier
            }
            Self::Older { file, .. } if file == "log" => Verdict::Earlier,
            Self::Blank { file, bytes } if file == "log" => {
                let last = &pool.last_write;
                let is_end = bytes.start < last.end && last.start < bytes.end;
                if is_end { Verdict::Earlier } else { Verdict::Whole }
            }
            // A closed pool has a checksum for each page, and the superblock records the checksums.
            _ if pool.is_closed => Verdict::Whole,
            Self::Older { file, .. } if file == "image" && pool.is_mapped => Verdict::Usable,
            Self::Foreign { file } if file == "image" && pool.is_mapped => Verdict::Usable,
            // Pages without checksums.
            Self::Blank { file, .. }
                if file == "image" && pool.is_mapped && pool.kind == ObjectKind::Pages =>
            {
                Verdict::Usable
            }
            // Two files that fit each other: docs/fault-model.md asks to restore the files of a pool together.
            Self::OlderImage { .. } => Verdict::Usable,
            _ => Verdict::Whole,
        }
    }
}

/// Every damage of the systematic search. `dense`: every block and every line of the first block; otherwise one block
/// in sixteen, with the first four, and one line in four.
fn damages(pool: &UnclosedPool, dense: bool) -> Vec<Damage> {
    let mut all = Vec::new();
    for (file, bytes) in &pool.files {
        let file = || file.clone();
        let len = bytes.len();
        for to in [0, 1, 512, BLOCK_BYTES, len / 2, len.saturating_sub(BLOCK_BYTES), len.saturating_sub(1)] {
            if to < len {
                all.push(Damage::Cut { file: file(), to });
            }
        }
        // Where the used part of a log ends.
        if file() == "log" && pool.last_write.start > 0 {
            all.push(Damage::Cut { file: file(), to: pool.last_write.start });
            all.push(Damage::Blank { file: file(), bytes: pool.last_write.clone() });
        }
        all.push(Damage::Blank { file: file(), bytes: 0..len });
        all.push(Damage::Remove { file: file() });
        all.push(Damage::Foreign { file: file() });
        all.extend((0..pool.older.len()).map(|copy| Damage::Older { file: file(), copy }));
        let is_used = |range: &Range<usize>| bytes[range.clone()].iter().any(|byte| *byte != 0);
        let blocks = (BLOCK_BYTES, len, 16, 4);
        let lines = (LINE_BYTES, len.min(BLOCK_BYTES), 4, 0);
        for (unit, end, one_in, first) in [blocks, lines] {
            let ranges = (0..end).step_by(unit).map(|start| start..len.min(start + unit));
            let used = ranges.filter(is_used).enumerate();
            let kept = used.filter(|(n, _)| dense || n % one_in == 0 || *n < first).map(|(_, range)| range);
            all.extend(kept.map(|bytes| Damage::Blank { file: file(), bytes }));
        }
    }
    for copy in 0..pool.older.len() {
        all.push(Damage::OlderImage { copy });
        all.push(Damage::AllOlder { copy });
    }
    all
}

/// What a pool holds; none, when reading it fails by name.
fn records(object: &Object, path: &Path) -> Result<Option<Records>, String> {
    match object.records() {
        Ok(records) => Ok(Some(records)),
        Err(message) => named(message, path).map(|_| None),
    }
}

/// The message, which names the pool or a file in it.
fn named(message: String, path: &Path) -> Result<String, String> {
    let is_named = message.contains(&*path.to_string_lossy());
    if is_named { Ok(message) } else { Err(format!("a message does not name the pool: {message}")) }
}

/// Opens the pool and judges what it holds. Returns the message of a pool that was refused.
fn judge(pool: &UnclosedPool, path: &Path, verdict: Verdict) -> Result<Option<String>, String> {
    let read_only = match pool.kind.open(path, true) {
        Ok(object) => records(&object, path)?,
        Err(message) => named(message, path).map(|_| None)?,
    };
    if let Some(found) = &read_only {
        fits(pool, found, verdict)?;
    }
    let object = match pool.kind.open(path, false) {
        Ok(object) => object,
        Err(message) => return named(message, path).map(Some),
    };
    let Some(found) = records(&object, path)? else { return Ok(Some("its records are refused".to_owned())) };
    if read_only.is_some_and(|read| read != found) {
        return Err("a reader and a writer found different records".to_owned());
    }
    fits(pool, &found, verdict)?;
    let used = use_it(object, found);
    let wanted = match used {
        Ok(wanted) => wanted,
        Err(message) => return named(message, path).map(Some),
    };
    match pool.kind.open(path, true) {
        Ok(object) => match records(&object, path)? {
            _ if verdict == Verdict::Usable => Ok(None),
            Some(found) if found == wanted => Ok(None),
            found => Err(format!(
                "after eight puts and a close it holds {:?} records instead of {}",
                found.map(|records| records.len()),
                wanted.len()
            )),
        },
        Err(message) if verdict == Verdict::Usable => named(message, path).map(|_| None),
        Err(message) => Err(format!("after eight puts and a close it does not open: {message}")),
    }
}

/// Uses the pool and closes it. Returns what it holds then: what was there must stay there.
fn use_it(object: Object, mut records: Records) -> Result<Records, String> {
    for n in 0..8usize {
        let (key, value) =
            object.put(format!("after the damage {n}").as_bytes(), &vec![n as u8; [8, 300][n % 2]])?;
        records.insert(key, value);
    }
    object.close()?;
    Ok(records)
}

fn fits(pool: &UnclosedPool, found: &Records, verdict: Verdict) -> Result<(), String> {
    let last = &pool.states[pool.states.len() - 1];
    let right = match verdict {
        Verdict::Whole => found == last,
        Verdict::Earlier => pool.states.iter().rev().any(|state| state == found),
        Verdict::Usable => true,
    };
    if right { Ok(()) } else { Err(format!("it opened with {} of {} records", found.len(), last.len())) }
}

fn attack(
    scratch: &Scratch,
    pool: &UnclosedPool,
    damages: &[Damage],
    verdict: Verdict,
) -> Result<Option<String>, String> {
    let mut files = pool.files.clone();
    for damage in damages {
        damage.apply(pool, &mut files);
    }
    let path = scratch.path().join("p");
    write_files(&path, &files);
    quietly(|| judge(pool, &path, verdict))
        .map_err(|e| format!("{}: {damages:?} ({verdict:?}): {e}", pool.name))
}

/// What a systematic search has met.
#[derive(Clone, Copy, Debug, Default)]
pub struct DamageTally {
    /// Damaged pools that were opened.
    pub tried: u64,
    /// Those that were refused.
    pub refused: u64,
}

/// Damages every pool in every way of the list, where `dense` also blanks the places that are otherwise passed over.
/// `mapped_first` only says which pools come first.
///
/// # Errors
/// The first finding.
pub fn damage_search(dense: bool, mapped_first: bool) -> Result<DamageTally, String> {
    let scratch = Scratch::new("search");
    let mut tally = DamageTally::default();
    let mut pools: Vec<&UnclosedPool> = unclosed_pools().iter().collect();
    pools.sort_by_key(|pool| pool.is_mapped != mapped_first);
    for pool in pools {
        if let Some(message) = attack(&scratch, pool, &[], Verdict::Whole)? {
            return Err(format!("{}: refused without damage: {message}", pool.name));
        }
        for damage in damages(pool, dense) {
            let verdict = damage.verdict(pool);
            tally.tried += 1;
            tally.refused += u64::from(attack(&scratch, pool, &[damage], verdict)?.is_some());
        }
    }
    Ok(tally)
}

/// The fuzzer's form of a damage.
#[derive(Arbitrary, Clone, Debug)]
enum Wanted {
    Cut { file: u8, to: u32 },
    Blank { file: u8, sector: u16, count: u8 },
    Remove { file: u8 },
    Foreign { file: u8 },
    Older { file: u8, copy: u8 },
    OlderImage { copy: u8 },
    AllOlder { copy: u8 },
}

impl Wanted {
    fn damage(&self, pool: &UnclosedPool) -> Damage {
        let nth = |file: u8| {
            let (name, bytes) = pool.files.iter().nth(file as usize % pool.files.len()).expect("a file");
            (name.clone(), bytes.len())
        };
        let copy = |copy: u8| copy as usize % pool.older.len();
        match *self {
            Self::Cut { file, to } => {
                let (file, len) = nth(file);
                Damage::Cut { to: to as usize % (len + 1), file }
            }
            Self::Blank { file, sector, count } => {
                let (file, len) = nth(file);
                let start = sector as usize * 512 % len.max(1);
                Damage::Blank { file, bytes: start..len.min(start + 512 * (1 + count as usize)) }
            }
            Self::Remove { file } => Damage::Remove { file: nth(file).0 },
            Self::Foreign { file } => Damage::Foreign { file: nth(file).0 },
            Self::Older { file, copy: n } => Damage::Older { file: nth(file).0, copy: copy(n) },
            Self::OlderImage { copy: n } => Damage::OlderImage { copy: copy(n) },
            Self::AllOlder { copy: n } => Damage::AllOlder { copy: copy(n) },
        }
    }
}

#[derive(Arbitrary, Clone, Debug)]
struct Input {
    pool: u8,
    first: Wanted,
    more: Vec<Wanted>,
}

/// Opens an unclosed pool that `data` has damaged.
///
/// # Errors
/// The finding.
pub fn damaged_pool(data: &[u8]) -> Result<(), String> {
    let Ok(input) = Input::arbitrary(&mut Unstructured::new(data)) else { return Ok(()) };
    let pools = unclosed_pools();
    let pool = &pools[input.pool as usize % pools.len()];
    let mut damages = vec![input.first.damage(pool)];
    let mut verdict = damages[0].verdict(pool);
    if !input.more.is_empty() {
        damages.extend(input.more.iter().take(3).map(|wanted| wanted.damage(pool)));
        // Files of several times together: opening must not fail otherwise than by name, and what it opens is usable.
        verdict = Verdict::Usable;
    }
    attack(&Scratch::new("fuzz"), pool, &damages, verdict).map(drop)
}

/// Inputs to start from.
#[must_use]
pub fn damage_seeds() -> Vec<Vec<u8>> {
    (0..24u64)
        .map(|n| {
            let mut bytes = crate::rng::Rng::new(n ^ 4242).bytes(24);
            bytes[0] = n as u8;
            let kind = ((n % 7) * 0x2492_4925) as u32;
            bytes[1..5].copy_from_slice(&kind.to_le_bytes());
            bytes
        })
        .collect()
}
