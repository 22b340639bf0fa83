//! Which original code is translated, and where the translation lies.

use crate::write_set::own_vec::OwnVec;

/// Which stack the program's rsp points into: two translations of the same code differ in what they record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The thread's own stack: stores based on rsp are not recorded.
    OwnStack = 0,
    /// Another stack (a coroutine's, in the heap): those stores are recorded like all others.
    ForeignStack = 1,
}

/// A translated piece of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeBlock {
    key: usize,
    /// Cache address to jump to.
    pub(crate) main: usize,
    /// Entry for indirect branches, 0 if there is none yet.
    pub(crate) entry: usize,
}

const EMPTY: CodeBlock = CodeBlock { key: 0, main: 0, entry: 0 };

/// Open addressing by original address and mode.
pub(crate) struct CodeBlocks {
    slots: OwnVec<CodeBlock>,
    count: usize,
}

fn key(pc: usize, mode: Mode) -> usize {
    pc | (mode as usize) << 63
}

impl CodeBlocks {
    pub(crate) const fn new() -> Self {
        Self { slots: OwnVec::new(), count: 0 }
    }

    fn slot(&self, key: usize) -> usize {
        let mask = self.slots.len() - 1;
        let mut idx = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & mask;
        while self.slots[idx].key != key && self.slots[idx].key != 0 {
            idx = (idx + 1) & mask;
        }
        idx
    }

    pub(crate) fn get(&self, pc: usize, mode: Mode) -> Option<CodeBlock> {
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
        self.slots[idx] = CodeBlock { key, main, entry };
    }

    fn grow(&mut self) {
        let mut old = std::mem::replace(&mut self.slots, OwnVec::new());
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
