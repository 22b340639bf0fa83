//! A small durable structure that a reader can check by eye: the simulator's own test subject.
//!
//! A cell holds one value of 24 bytes in one of two slots; the word at offset 0 names the slot and the length of
//! the history. Commit: write the free slot, flush, fence, then store the word, flush, fence.

use crate::engines::subject::{Promised, Subject};
use crate::rng::Rng;
use mangrove_pool::Region;
use std::sync::atomic::Ordering;

const MAGIC: u64 = 0x4d47_5656_0000_0001;
const SLOTS: [u64; 2] = [128, 256];

/// The step that the cell leaves out or exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellFault {
    /// Correct.
    None,
    /// The slot is not flushed before the word.
    SlotFlush,
    /// The word is not flushed.
    WordFlush,
    /// No fence orders slot and word.
    MiddleFence,
    /// No fence makes the word durable before the return.
    LastFence,
    /// The word is stored before the slot.
    WordFirst,
}

thread_local! {
    /// The injected fault. A sweep runs its cells on its own thread, and other tests sweep at the same time.
    static FAULT: std::cell::Cell<CellFault> = const { std::cell::Cell::new(CellFault::None) };
}

/// The cell. A thread injects one [`CellFault`] at a time.
pub struct Cell {
    region: Region,
}

/// The value: how many writes there were, and the last one's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellModel([u64; 3]);

impl Cell {
    /// Injects a fault into all cells of the calling thread.
    pub fn inject(fault: CellFault) {
        FAULT.set(fault);
    }

    fn fault(fault: CellFault) -> bool {
        FAULT.get() == fault
    }

    fn value(&self) -> [u64; 3] {
        let word = self.region.word(8).load(Ordering::Acquire);
        let slot = SLOTS[(word & 1) as usize];
        [0, 8, 64].map(|at| self.region.word(slot + at).load(Ordering::Acquire))
    }

    fn word(&self, word: u64) {
        self.region.store(8, word, Ordering::Release);
        if !Self::fault(CellFault::WordFlush) {
            self.region.flush(8, 8);
        }
    }

    fn set(&self, value: [u64; 3]) {
        let word = self.region.word(8).load(Ordering::Acquire) ^ 1;
        if Self::fault(CellFault::WordFirst) {
            self.word(word);
            self.region.fence();
        }
        let slot = SLOTS[(word & 1) as usize];
        // The parts lie in two cache lines.
        for (at, part) in [0, 8, 64].into_iter().zip(value) {
            self.region.store(slot + at, part, Ordering::Release);
        }
        if !Self::fault(CellFault::SlotFlush) {
            self.region.flush(slot, 72);
        }
        if !Self::fault(CellFault::MiddleFence) {
            self.region.fence();
        }
        if !Self::fault(CellFault::WordFirst) {
            self.word(word);
            if !Self::fault(CellFault::LastFence) {
                self.region.fence();
            }
        }
    }
}

impl Subject for Cell {
    type Op = [u64; 3];
    type Model = CellModel;

    const NAME: &'static str = "toy";
    const REGION_BYTES: u64 = 4096;

    fn create(region: Region) -> Result<Self, String> {
        region.grow(Self::REGION_BYTES).map_err(|e| e.to_string())?;
        region.store(0, MAGIC, Ordering::Release);
        region.flush(0, 8);
        region.fence();
        region.drain().map_err(|e| e.to_string())?;
        Ok(Self { region })
    }

    fn recover(region: Region) -> Result<Self, String> {
        if region.word(0).load(Ordering::Acquire) != MAGIC {
            return Err("no cell here".to_owned());
        }
        Ok(Self { region })
    }

    fn apply(&mut self, _index: u32, op: &[u64; 3], before: &CellModel) -> Result<Promised, String> {
        if self.value() != before.0 {
            return Err(format!("found {:x?}, expected {:x?}", self.value(), before.0));
        }
        self.set(*op);
        self.region.drain().map_err(|e| e.to_string())?;
        Ok(Promised::All)
    }

    fn advance(model: &mut CellModel, _index: u32, op: &[u64; 3]) {
        model.0 = *op;
    }

    fn rebase(_model: &mut CellModel) {}

    fn holds(&self, model: &CellModel) -> Result<bool, String> {
        Ok(self.value() == model.0)
    }

    fn difference(&self, model: &CellModel) -> String {
        format!("found {:x?} where {:x?} was expected", self.value(), model.0)
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn scenario_count() -> u32 {
        1
    }

    fn scenario_name(_scenario: u32) -> &'static str {
        "set"
    }

    fn workload(_scenario: u32, rng: &mut Rng) -> Vec<[u64; 3]> {
        (0..8).map(|_| [rng.next(), rng.next(), rng.next()]).collect()
    }

    fn follow_up(rng: &mut Rng, _recovered: &CellModel) -> Vec<[u64; 3]> {
        Self::workload(0, rng).split_off(5)
    }
}
