//! Which original code is translated, and where the translation lies.

use crate::map_vec::MapVec;

/// Which stack the program's rsp points into: two translations of the same code differ in what they record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The thread's own stack: stores based on rsp are nobody's.
    OwnStack = 0,
    /// Another one (a coroutine's, in the heap): they are recorded like all others.
    ForeignStack = 1,
}

/// A translated piece of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    key: usize,
    /// Cache address to jump to.
    pub(crate) main: usize,
    /// Entry for indirect branches, 0 if there is none yet.
    pub(crate) entry: usize,
}

const EMPTY: Block = Block { key: 0, main: 0, entry: 0 };

/// Open addressing by original address and mode.
pub(crate) struct Blocks {
    slots: MapVec<Block>,
    count: usize,
}

fn key(pc: usize, mode: Mode) -> usize {
    pc | (mode as usize) << 63
}

impl Blocks {
    pub(crate) const fn new() -> Self {
        Self { slots: MapVec::new(), count: 0 }
    }

    fn slot(&self, key: usize) -> usize {
        let mask = self.slots.len() - 1;
        let mut idx = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & mask;
        while self.slots[idx].key != key && self.slots[idx].key != 0 {
            idx = (idx + 1) & mask;
        }
        idx
    }

    pub(crate) fn get(&self, pc: usize, mode: Mode) -> Option<Block> {
        if self.slots.is_empty() {
            return None;
        }
        Some(self.slots[self.slot(key(pc, mode))]).filter(|block| block.key != 0)
    }

    /// Adds or replaces.
    pub(crate) fn set(&mut self, pc: usize, mode: Mode, main: usize, entry: usize) {
        if self.count * 2 >= self.slots.len() {
            self.grow();
        }
        let key = key(pc, mode);
        let idx = self.slot(key);
        self.count += usize::from(self.slots[idx].key == 0);
        self.slots[idx] = Block { key, main, entry };
    }

    fn grow(&mut self) {
        let mut old = std::mem::replace(&mut self.slots, MapVec::new());
        self.slots.resize((old.len() * 2).max(1 << 12), EMPTY);
        for block in old.iter_mut().filter(|block| block.key != 0) {
            let idx = self.slot(block.key);
            self.slots[idx] = *block;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots.fill(EMPTY);
        self.count = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }
}
