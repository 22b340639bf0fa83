//! A small executor that is right, and can be made wrong in every way that the checker of histories must notice.

use crate::api::{Answer, Halt, Interrupted, Isolation, TxAccess, TxCounts, TxError, TxMemory, TxThread};
use crate::sync::Mutex;
use std::collections::HashMap;
use std::convert::Infallible;

/// What is wrong with a [`Toy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToyFault {
    /// Nothing.
    None,
    /// Writes go to memory at once, and reads take them.
    Dirty,
    /// A commit checks nothing.
    LostUpdate,
    /// A commit checks only the words that it writes.
    WriteSkew,
    /// Reads are checked by commits only.
    Zombie,
    /// Some transactions that only read see an older state, though a consistent one.
    Stale,
}

#[derive(Clone, Default)]
struct State {
    clock: u64,
    /// Value and commit by address; words that are not here are as memory has them.
    words: HashMap<usize, (u64, u64)>,
}

/// Versions of words behind one lock, which each access takes for itself.
pub(crate) struct Toy {
    memory: TxMemory,
    fault: ToyFault,
    state: Mutex<State>,
    /// The state one commit ago.
    before: Mutex<State>,
}

impl Toy {
    /// An executor with that fault.
    pub(crate) fn new(memory: TxMemory, fault: ToyFault) -> Self {
        Self { memory, fault, state: Mutex::new(State::default()), before: Mutex::new(State::default()) }
    }
}

impl Isolation for Toy {
    type Thread<'toy> = ToyThread<'toy>;

    fn thread(&self) -> ToyThread<'_> {
        ToyThread {
            tx: ToyTx {
                toy: self,
                snapshot: 0,
                old: None,
                reads: Vec::new(),
                writes: Vec::new(),
                nested: Vec::new(),
            },
        }
    }
}

/// One thread's handle.
pub(crate) struct ToyThread<'toy> {
    tx: ToyTx<'toy>,
}

/// A transaction.
pub(crate) struct ToyTx<'toy> {
    toy: &'toy Toy,
    snapshot: u64,
    old: Option<State>,
    reads: Vec<usize>,
    writes: Vec<(usize, u64)>,
    nested: Vec<usize>,
}

impl ToyTx<'_> {
    fn word(&self, state: &State, address: usize) -> (u64, u64) {
        state.words.get(&address).copied().unwrap_or_else(|| {
            let at = std::ptr::with_exposed_provenance::<u64>(address);
            assert!(address >= self.toy.memory.base());
            // SAFETY: a word of the test; the toy never writes memory itself.
            (unsafe { at.read() }, 0)
        })
    }

    fn commit(&mut self) -> bool {
        let mut state = self.toy.state.lock();
        let fault = self.toy.fault;
        let is_written = |address: &usize| self.writes.iter().any(|write| write.0 == *address);
        let fresh = self.reads.iter().all(|address| {
            let skipped = fault == ToyFault::WriteSkew && !is_written(address);
            skipped || self.word(&state, *address).1 <= self.snapshot
        });
        if !fresh && ![ToyFault::LostUpdate, ToyFault::Dirty].contains(&fault) && !self.writes.is_empty() {
            return false;
        }
        if !self.writes.is_empty() {
            *self.toy.before.lock() = state.clone();
            state.clock += 1;
            let clock = state.clock;
            let written = self.writes.iter().map(|&(address, value)| (address, (value, clock)));
            state.words.extend(written);
        }
        true
    }
}

impl TxAccess for ToyTx<'_> {
    fn read_piece(&mut self, address: usize, size: usize) -> Result<u64, Interrupted> {
        assert_eq!(size, 8, "the toy knows words only");
        shuttle::thread::yield_now();
        if let Some(own) = self.writes.iter().rev().find(|write| write.0 == address) {
            return Ok(own.1);
        }
        let (value, commit) = match &self.old {
            Some(old) => self.word(old, address),
            None => self.word(&self.toy.state.lock(), address),
        };
        let unchecked = [ToyFault::Zombie, ToyFault::LostUpdate, ToyFault::Dirty];
        if commit > self.snapshot && !unchecked.contains(&self.toy.fault) {
            return Err(Interrupted(()));
        }
        self.reads.push(address);
        Ok(value)
    }

    fn write_piece(&mut self, address: usize, size: usize, value: u64) -> Result<(), Interrupted> {
        assert_eq!(size, 8, "the toy knows words only");
        shuttle::thread::yield_now();
        if self.toy.fault == ToyFault::Dirty {
            let mut state = self.toy.state.lock();
            let clock = state.clock;
            state.words.insert(address, (value, clock));
        }
        self.writes.push((address, value));
        Ok(())
    }

    fn privatise(&mut self) {}

    fn begin_nested(&mut self) {
        self.nested.push(self.writes.len());
    }

    fn end_nested(&mut self, keeps: bool) {
        let from = self.nested.pop().expect("nested transactions begin before they end");
        if !keeps {
            self.writes.truncate(from);
        }
    }
}

impl<'toy> TxThread for ToyThread<'toy> {
    type Tx = ToyTx<'toy>;
    type SinkError = Infallible;

    fn run<T, E>(&mut self, mut body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>) -> Answer<T, E, Self> {
        loop {
            let tx = &mut self.tx;
            (tx.reads, tx.writes, tx.old) = (Vec::new(), Vec::new(), None);
            tx.snapshot = tx.toy.state.lock().clock;
            match body(tx) {
                Ok(answer) if tx.commit() => return Ok(answer),
                Err(Halt::Abort(value)) => return Err(TxError::Aborted(value)),
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn read<T, E>(
        &mut self,
        mut body: impl FnMut(&mut Self::Tx) -> Result<T, Halt<E>>,
    ) -> Answer<T, E, Self> {
        loop {
            let tx = &mut self.tx;
            (tx.reads, tx.writes, tx.old) = (Vec::new(), Vec::new(), None);
            tx.snapshot = tx.toy.state.lock().clock;
            if tx.toy.fault == ToyFault::Stale {
                tx.old = Some(tx.toy.before.lock().clone());
            }
            match body(tx) {
                Ok(answer) => return Ok(answer),
                Err(Halt::Abort(value)) => return Err(TxError::Aborted(value)),
                Err(_) => {}
            }
        }
    }

    fn irrevocable<T>(
        &mut self,
        _body: impl FnOnce(&mut Self::Tx) -> Result<T, Interrupted>,
    ) -> Answer<T, Infallible, Self> {
        panic!("a toy knows no irrevocable transactions, and plans for it have none")
    }

    fn settle_all(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn counts(&self) -> TxCounts {
        TxCounts::default()
    }
}
