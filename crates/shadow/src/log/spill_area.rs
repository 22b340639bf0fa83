//! Who uses the space behind the durable copy, one thread at a time, and what lies there.

use parking_lot::Mutex;

/// The SPILL record of an atomic group whose records lie behind the durable copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spilled {
    /// CRC32C of the records.
    pub(crate) crc: u32,
    /// Where they begin in the region.
    pub(crate) start: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Their count.
    pub(crate) count: u64,
}

/// The atomic group whose records lie behind the durable copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Its number, 0 for none yet.
    pub(crate) seq: u64,
    /// Where its records end in the region.
    pub(crate) end: u64,
}

#[derive(Default)]
struct State {
    taken: bool,
    held: Held,
}

/// The space behind the durable copy. A commit, or a growing thread, takes it and gives it back.
#[derive(Default)]
pub(crate) struct SpillArea(Mutex<State>);

impl SpillArea {
    /// Takes the space, if it is free; returns what it holds.
    pub(crate) fn try_take(&self) -> Option<Held> {
        let mut state = self.0.lock();
        let free = !std::mem::replace(&mut state.taken, true);
        free.then_some(state.held)
    }

    /// Gives the space back. `holds`: what lies there now, if that has changed.
    pub(crate) fn release(&self, holds: Option<Held>) {
        let mut state = self.0.lock();
        state.taken = false;
        state.held = holds.unwrap_or(state.held);
    }
}
