//! A backing in memory that forgets, delays and fails on request: for tests of the runtime, and of servers above it.

use crate::runtime::backing::{Backing, EnterReport};
use crate::runtime::runtime::Runtime;
use crate::{Error, Result};
use mangrove_shadow::Ticket;
use mangrove_tracker::{Explicit, WriteSet};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct FakeMedium {
    /// Committed groups: address to bytes, each.
    groups: Vec<BTreeMap<usize, Vec<u8>>>,
    durable: u64,
    failed: bool,
    /// The next commit is refused, as one that finds no space.
    refuses: bool,
    /// An error that no call met has poisoned the medium.
    poisoned: bool,
    /// Nothing becomes durable.
    held: bool,
}

/// A backing in memory. Its disk is a list of atomic groups.
#[derive(Clone, Default)]
pub struct FakeBacking {
    medium: Arc<(Mutex<FakeMedium>, Condvar)>,
    durable: Arc<AtomicU64>,
    inside: Arc<AtomicBool>,
}

impl FakeBacking {
    /// While this is on, nothing becomes durable.
    pub fn hold(&self, yes: bool) {
        self.medium.0.lock().held = yes;
        self.medium.1.notify_all();
    }

    /// From now on the medium fails.
    pub fn fail(&self) {
        self.medium.0.lock().failed = true;
        self.medium.1.notify_all();
    }

    /// The next commit finds no space.
    pub fn refuse_one(&self) {
        self.medium.0.lock().refuses = true;
    }

    /// An error that no call met poisons the medium.
    #[cfg(test)]
    pub(crate) fn poison(&self) {
        self.medium.0.lock().poisoned = true;
    }

    #[cfg(test)]
    pub(crate) fn groups(&self) -> usize {
        self.medium.0.lock().groups.len()
    }

    /// What a crash now would leave of the `u64` at `address`.
    #[cfg(test)]
    pub(crate) fn survivor(&self, address: *const u64) -> u64 {
        let medium = self.medium.0.lock();
        let mut bytes = [0; 8];
        for group in &medium.groups[..medium.durable as usize] {
            for (&at, data) in group {
                for (i, byte) in data.iter().enumerate() {
                    if let Some(slot) = (at + i).checked_sub(address.addr()).and_then(|o| bytes.get_mut(o)) {
                        *slot = *byte;
                    }
                }
            }
        }
        u64::from_ne_bytes(bytes)
    }
}

impl Backing for FakeBacking {
    unsafe fn enter(&self, _: *mut WriteSet) -> Result<EnterReport> {
        assert!(!self.inside.swap(true, Ordering::SeqCst));
        Ok(EnterReport::default())
    }

    fn leave(&self) {
        assert!(self.inside.swap(false, Ordering::SeqCst));
    }

    fn commit(&self, writes: &mut WriteSet) -> Result<Ticket> {
        let mut medium = self.medium.0.lock();
        if medium.failed {
            return Err(Error::Io {
                doing: "append".into(),
                code: Some(5),
                message: "the disk is gone".into(),
            });
        }
        if std::mem::take(&mut medium.refuses) {
            return Err(Error::Full { what: "there is no room".into() });
        }
        let group = writes
            .ranges()
            .iter()
            // SAFETY: the tests write to memory that lives as long as the process.
            .map(|&(at, len)| (at, unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec()))
            .collect();
        medium.groups.push(group);
        writes.clear();
        Ok(Ticket(medium.groups.len() as u64))
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        let mut medium = self.medium.0.lock();
        loop {
            if medium.failed {
                return Err(Error::Poisoned { first: "the disk is gone".into() });
            }
            if !medium.held {
                medium.durable = medium.durable.max(ticket.0);
                self.durable.store(medium.durable, Ordering::Release);
            }
            if medium.durable >= ticket.0 {
                return Ok(());
            }
            self.medium.1.wait(&mut medium);
        }
    }

    fn durable(&self) -> Ticket {
        Ticket(self.durable.load(Ordering::Acquire))
    }

    fn sync_to(&self, ticket: Ticket) -> Result<()> {
        self.wait(ticket)
    }

    fn sync(&self) -> Result<()> {
        let all = self.medium.0.lock().groups.len() as u64;
        self.wait(Ticket(all))
    }

    fn checkpoint(&self) -> Result<()> {
        self.sync()
    }

    fn poisoned(&self) -> Option<Error> {
        let poisoned = self.medium.0.lock().poisoned;
        poisoned.then(|| Error::Poisoned { first: "the disk went unseen".into() })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.sync()
    }
}

/// A runtime over a fake, with the explicit tracker. `gated`: results wait for durability.
///
/// # Panics
/// When there is no memory for the write set.
pub fn fake_runtime(gated: bool) -> (Arc<Runtime>, FakeBacking) {
    let fake = FakeBacking::default();
    let writes = WriteSet::new(32).expect("blocks of 32 bytes");
    (Arc::new(Runtime::over(Box::new(Explicit), Box::new(fake.clone()), writes, gated)), fake)
}
