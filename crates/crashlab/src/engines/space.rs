//! A region on disks whose parts are provided, filled and given back, as a subject of its own: the map forgives bytes
//! that come back in a part that it gave back, and this does not.

use crate::engines::subject::{Promised, Subject};
use crate::rng::Rng;
use mangrove_pool::{ByteRange, Region};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PAGE: u64 = 4096;
const PARTS: u64 = 6;
/// Two pages, so that a crash may come between their holes.
const PART_BYTES: u64 = 2 * PAGE;
const MAGIC: u64 = 0x4d47_5350_0000_0001;
/// Pieces of a part that one operation fills.
const PIECES: u64 = 5;
const PIECE_BYTES: u64 = 150;

/// One operation; each is atomic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpaceOp {
    /// Fills pieces of a part, which has space from then on.
    Fill(u64, u8),
    /// Gives a part back.
    GiveBack(u64),
    /// Asks for space for a part and does not use it.
    Provide(u64),
    /// Applies the log to the data file.
    Checkpoint,
}

impl fmt::Debug for SpaceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fill(part, seed) => write!(f, "fill part {part} with {seed}"),
            Self::GiveBack(part) => write!(f, "give part {part} back"),
            Self::Provide(part) => write!(f, "provide part {part}"),
            Self::Checkpoint => f.write_str("checkpoint"),
        }
    }
}

/// What the parts hold.
#[derive(Clone)]
pub(crate) struct SpaceModel(Arc<Vec<u8>>);

impl Default for SpaceModel {
    fn default() -> Self {
        Self(Arc::new(vec![0; (PARTS * PART_BYTES) as usize]))
    }
}

/// The region under test. `INTERVAL`: durability by interval.
pub(crate) struct SpaceSubject<const INTERVAL: bool> {
    region: Region,
    /// The parts that have space.
    provided: BTreeSet<u64>,
}

fn range_of(part: u64) -> ByteRange {
    ByteRange { offset: PAGE + part * PART_BYTES, len: PART_BYTES }
}

/// Where pieces of a part begin, from its beginning: in both of its pages, and in the middle of sectors.
fn pieces(seed: u8) -> impl Iterator<Item = u64> {
    (0..PIECES).map(move |n| (n * 1640 + u64::from(seed) * 37) % (PART_BYTES - PIECE_BYTES))
}

fn text(e: mangrove_pool::Error) -> String {
    e.to_string()
}

impl<const INTERVAL: bool> SpaceSubject<INTERVAL> {
    fn bytes(&self) -> &[u8] {
        let len = (PARTS * PART_BYTES) as usize;
        // SAFETY: inside the region; the simulator runs one operation at a time.
        unsafe { std::slice::from_raw_parts(self.region.base().add(PAGE as usize), len) }
    }

    fn provide(&mut self, part: u64) -> Result<(), String> {
        if self.provided.insert(part) { self.region.provide(range_of(part)).map_err(text) } else { Ok(()) }
    }

    fn promised() -> Promised {
        if INTERVAL { Promised::Nothing } else { Promised::All }
    }
}

impl<const INTERVAL: bool> Subject for SpaceSubject<INTERVAL> {
    type Op = SpaceOp;
    type Model = SpaceModel;

    const NAME: &'static str = if INTERVAL { "map-space-interval" } else { "map-space" };
    const REGION_BYTES: u64 = 64 << 10;

    fn create(region: Region) -> Result<Self, String> {
        region.provide(ByteRange { offset: 0, len: PAGE }).map_err(text)?;
        region.store(0, MAGIC, Ordering::Release);
        region.flush(0, 8);
        region.sync().map_err(text)?;
        Ok(Self { region, provided: BTreeSet::new() })
    }

    fn recover(region: Region) -> Result<Self, String> {
        if region.medium().grown() < 8 || region.word(0).load(Ordering::Acquire) != MAGIC {
            return Err("nothing here".to_owned());
        }
        let mut subject = Self { region, provided: BTreeSet::new() };
        for part in 0..PARTS {
            let bytes = &subject.bytes()[(part * PART_BYTES) as usize..][..PART_BYTES as usize];
            if bytes.iter().any(|&byte| byte != 0) {
                subject.provide(part)?;
            }
        }
        Ok(subject)
    }

    fn apply(&mut self, _index: u32, op: &SpaceOp, before: &SpaceModel) -> Result<Promised, String> {
        match *op {
            SpaceOp::Fill(part, seed) => {
                self.provide(part)?;
                let base = self.region.base();
                let mut ranges = Vec::new();
                for at in pieces(seed) {
                    let offset = range_of(part).offset + at;
                    // SAFETY: inside the region; the simulator runs one operation at a time.
                    unsafe { base.add(offset as usize).write_bytes(seed, PIECE_BYTES as usize) };
                    ranges.push(ByteRange { offset, len: PIECE_BYTES });
                }
                self.region.flush_unit(&ranges).map_err(text)?;
            }
            SpaceOp::GiveBack(part) => {
                if !self.provided.remove(&part) {
                    return Ok(Promised::Nothing);
                }
                // SAFETY: nothing else uses the region.
                let given = unsafe { self.region.give_back(range_of(part)) }.map_err(text)?;
                if !given {
                    return Err("the medium gave nothing back".to_owned());
                }
            }
            SpaceOp::Provide(part) => {
                self.provide(part)?;
                return Ok(Promised::Nothing);
            }
            SpaceOp::Checkpoint => {
                self.region.medium().checkpoint().map_err(text)?;
                return Ok(Promised::Nothing);
            }
        }
        let mut after = before.clone();
        Self::advance(&mut after, 0, op);
        if !self.holds(&after)? {
            return Err(self.difference(&after));
        }
        self.region.drain().map_err(text)?;
        Ok(Self::promised())
    }

    fn advance(model: &mut SpaceModel, _index: u32, op: &SpaceOp) {
        match *op {
            SpaceOp::Fill(part, seed) => {
                let bytes = Arc::make_mut(&mut model.0);
                for at in pieces(seed) {
                    bytes[(part * PART_BYTES + at) as usize..][..PIECE_BYTES as usize].fill(seed);
                }
            }
            SpaceOp::GiveBack(part) => {
                Arc::make_mut(&mut model.0)[(part * PART_BYTES) as usize..][..PART_BYTES as usize].fill(0);
            }
            SpaceOp::Provide(_) | SpaceOp::Checkpoint => {}
        }
    }

    fn rebase(_model: &mut SpaceModel) {}

    fn holds(&self, model: &SpaceModel) -> Result<bool, String> {
        Ok(self.bytes() == model.0.as_slice())
    }

    fn difference(&self, model: &SpaceModel) -> String {
        let at = self.bytes().iter().zip(model.0.iter()).position(|(found, wanted)| found != wanted);
        at.map_or("nothing differs".to_owned(), |at| {
            let (found, wanted) = (self.bytes()[at], model.0[at]);
            format!("part {} holds {found} instead of {wanted}", at as u64 / PART_BYTES)
        })
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn scenario_count() -> u32 {
        2
    }

    fn scenario_name(scenario: u32) -> &'static str {
        ["space given back", "checkpoints of nothing else"][scenario as usize]
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<SpaceOp> {
        // So many that the log grows; closing makes it short again where little is left.
        let mut ops: Vec<_> =
            (0..2 * PARTS).map(|n| SpaceOp::Fill(n % PARTS, 1 + rng.below(200) as u8)).collect();
        ops.push(SpaceOp::Checkpoint);
        if scenario == 1 {
            for part in 0..PARTS {
                ops.push(SpaceOp::GiveBack(part));
                if part % 2 == 1 {
                    ops.push(SpaceOp::Checkpoint);
                }
            }
        }
        ops.extend(follow(rng, 14));
        ops
    }

    fn follow_up(rng: &mut Rng, _recovered: &SpaceModel) -> Vec<SpaceOp> {
        follow(rng, 4)
    }
}

fn follow(rng: &mut Rng, count: u64) -> Vec<SpaceOp> {
    let op = |rng: &mut Rng| {
        let part = rng.below(PARTS);
        match rng.below(7) {
            0..=1 => SpaceOp::Fill(part, 1 + rng.below(200) as u8),
            2..=4 => SpaceOp::GiveBack(part),
            5 => SpaceOp::Provide(part),
            _ => SpaceOp::Checkpoint,
        }
    };
    (0..count).map(|_| op(rng)).collect()
}
