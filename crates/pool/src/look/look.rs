//! Opens a file pool read-only without keeping its writer, or a coming one, out.
//!
//! Invariants:
//! 1. What a look returns is one instant of the log: all its whole groups up to one position, applied to a data file
//!    and page checksums that no checkpoint changed while they were read. The number in the superblock, compared byte
//!    for byte with all of it, and the gate (`look/gate.rs`) prove the latter.
//! 2. Durable-order: that instant is durable before the look returns. The data file holds only groups that were
//!    durable before the checkpoint that applied them; the groups of the log are made so by a sync.
//! 3. What was acknowledged before the look began is in it: its group was in the log file then.
//! 4. Beside a writer, recent writes do not count: they are not durable. Without one they do, and if one comes
//!    meanwhile the look begins again.

use crate::Result;
use crate::damage_check::DamageCheck;
use crate::error::Error;
use crate::file::recover::{Recovered, recover};
use crate::format::superblock;
use crate::format::superblock::Superblock;
use crate::look::gate::{Entered, Reading};
use crate::options::PoolOptions;
use crate::pool_files::{LockedPool, PoolFile, PoolFiles, lock_tries, read_superblock_file};
use crate::stat::MediumKind;
use crate::storage::traits::{OpenHow, Storage};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a look is tried, besides what the caller wants to wait: longer than checkpoints take, as a rule.
const LOOK_WAIT: Duration = Duration::from_secs(10);
/// Looks that a checkpoint overtakes are tried again so often in any case.
const TRIES_MIN: u32 = 3;
/// A look beside a writer finds damage so often, in a superblock that stays as it is, before it is reported: a writer
/// changes the length of a file before it records it.
const DAMAGE_TRIES: u32 = 8;
/// If one checkpoint has kept the reader out for so long, the error names that checkpoint as the cause.
const KEPT_OUT_LONG: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// What a writer does that was stopped inside a checkpoint, or whose disk has not answered.
const STANDS_STILL: &str = "stands still inside a checkpoint (is it stopped? Repeat this once it runs)";

/// A pool read at one instant.
pub(crate) struct Look {
    pub(crate) sb: Superblock,
    pub(crate) recovered: Recovered,
}

/// How one try ended.
enum Tried {
    Done(Box<Look>),
    /// The pool must be opened with its lock: it is no file pool, no whole one, or on a storage without such locks.
    NotSo,
    /// The writer has not finished making what the pool is to hold.
    Making,
    /// A checkpoint ran meanwhile, or a writer came.
    Overtaken,
    /// A checkpoint ran and let no reader in. The superblock, as it was before the reader asked.
    KeptOut(Vec<u8>),
    /// Damage beside a writer.
    Damaged(Error),
}

/// Reads the pool in `directory` as it is at one durable instant. `None` for a pool that must be opened with its lock.
///
/// # Errors
/// Those of opening; `Busy` where the writer has not yet made what the pool is to hold, or where its checkpoints have
/// overtaken each try.
pub(crate) fn look(directory: &Path, options: &PoolOptions) -> Result<Option<Look>> {
    let (begun, mut tries, mut damaged) = (Instant::now(), 0, 0);
    let wait = options.config.busy_wait;
    let until = begun + LOOK_WAIT.saturating_add(wait).min(Duration::from_secs(u32::MAX.into()));
    let mut makes = lock_tries(wait);
    // The superblock under which a checkpoint keeps this look out, and since when. A checkpoint that ends changes it.
    let mut kept_out: Option<(Vec<u8>, Instant)> = None;
    loop {
        let tried_at = Instant::now();
        let tried = try_once(directory, options, until)?;
        match &tried {
            Tried::KeptOut(sb) if kept_out.as_ref().is_some_and(|(before, _)| before == sb) => {}
            Tried::KeptOut(sb) => kept_out = Some((sb.clone(), tried_at)),
            _ => kept_out = None,
        }
        match tried {
            Tried::Done(look) => return Ok(Some(*look)),
            Tried::NotSo => return Ok(None),
            Tried::Making => {
                makes = makes.saturating_sub(2);
                if makes == 0 {
                    return Err(Error::busy_since(directory, "is still making what it is to hold"));
                }
            }
            Tried::Overtaken | Tried::KeptOut(_) => {
                (tries, damaged) = (tries + 1, 0);
                if tries >= TRIES_MIN && Instant::now() >= until {
                    let why = match kept_out {
                        Some((_, since)) if since.elapsed() >= KEPT_OUT_LONG => STANDS_STILL,
                        _ => "applied its log again and again meanwhile",
                    };
                    return Err(Error::busy_since(directory, why));
                }
            }
            Tried::Damaged(error) => {
                damaged += 1;
                if damaged >= DAMAGE_TRIES {
                    return Err(error);
                }
            }
        }
        std::thread::sleep(PAUSE * (1 + damaged * damaged));
    }
}

/// True when no writer has the pool. Keeps none out.
fn is_free(storage: &Arc<dyn Storage>, directory: &Path) -> Result<bool> {
    Ok(LockedPool::take(storage, directory, OpenHow::Read, 1)?.is_some())
}

fn try_once(directory: &Path, options: &PoolOptions, until: Instant) -> Result<Tried> {
    let storage = &options.storage;
    let free = is_free(storage, directory)?;
    let locked = LockedPool::unlocked(storage, directory)?;
    let file = locked.file();
    let asked = read_superblock_file(file)?;
    let Ok(sb) = superblock::decode(file.path(), &asked) else {
        return Ok(Tried::NotSo);
    };
    if sb.medium != MediumKind::File {
        return Ok(Tried::NotSo);
    }
    options.refuse_other(directory, &sb)?;
    // Refuses sizes that a reader cannot give.
    options.change(directory, &mut sb.clone())?;
    let Ok(image) = PoolFile::open_part(&**storage, directory.join("image"), true) else {
        return Ok(Tried::NotSo);
    };
    let Some(fd) = image.fd() else { return Ok(Tried::NotSo) };
    image.keep_from_children();
    let reading = match Reading::enter(fd, until) {
        Entered::Reading(reading) => reading,
        Entered::Checkpoint => return Ok(Tried::KeptOut(asked)),
        Entered::NoLocks => return Ok(Tried::NotSo),
    };
    let before = read_superblock_file(file)?;
    let read = superblock::decode(file.path(), &before).and_then(|sb| read(directory, options, free, sb));
    // In this order: see invariant 1 of the gate.
    let is_same = !reading.is_running() && read_superblock_file(file)? == before;
    let is_same = is_same || !DamageCheck::LookNumber.is_on();
    drop(reading);
    let came = free && !is_free(storage, directory)?;
    match read {
        _ if !is_same || came => Ok(Tried::Overtaken),
        // A map makes its root before it may be read; other owners make what they hold in one atomic group.
        Ok(look) if !free && !look.sb.made && look.recovered.begins_blank() => Ok(Tried::Making),
        Ok(look) => {
            look.recovered.sync_for_reader(&look.sb)?;
            Ok(Tried::Done(Box::new(look)))
        }
        Err(error @ Error::Corrupt { .. }) if !free => Ok(Tried::Damaged(error)),
        // The writer is in this process: its region lies there.
        Err(Error::AddressTaken { .. }) if !free && Error::busy(directory).is_held_here() => {
            Err(Error::busy_since(directory, "has it at the address where a reader needs it, too"))
        }
        Err(error) => Err(error),
    }
}

fn read(directory: &Path, options: &PoolOptions, free: bool, sb: Superblock) -> Result<Look> {
    let options = PoolOptions { beside_writer: !free, ..options.clone() };
    let PoolFiles { data, log } = PoolFiles::open(&*options.storage, directory, &sb, true)?;
    let log = log.expect("a file pool has a log");
    let recovered = recover(&options, directory, &sb, data, log)?;
    recovered.check_for_reader(&sb, !free)?;
    Ok(Look { sb, recovered })
}
