//! The world of persistent memory: stores, flushes and fences, under ADR or eADR.

use crate::machine::cursor::{CrashDomain, LINE, Overlay, TraceCursor};
use crate::machine::interrupt::enter_machine;
use crate::machine::lines::ImageChoice;
use crate::machine::medium::{RecordingMedium, SimulatedMemory};
use crate::machine::site::Sites;
use crate::machine::trace::{Mark, Trace, TraceEvent};
use crate::machine::world::{Machine, World};
use crate::quiet::quietly;
use mangrove_pool::Region;
use std::rc::Rc;
use std::sync::Arc;

/// How often (in boots) the whole memory is compared with what it should hold.
const AUDIT_EVERY: u64 = 512;

/// Persistent memory of one size. One level of recoveries uses it at a time.
pub struct StoreWorld {
    domain: CrashDomain,
    memory: Arc<SimulatedMemory>,
    /// Lines of `memory` that may differ from the durable bytes of the cursor it follows.
    stale: Vec<u64>,
    /// The cursor that `memory` follows.
    follows: Option<u64>,
    boots: u64,
}

/// What a run did to persistent memory.
pub struct StoreRecording {
    trace: Trace,
    usable: u64,
}

/// A position, and which memory follows it.
pub struct StoreCursor {
    cursor: TraceCursor,
    number: u64,
    usable: u64,
}

struct StoreMachine {
    domain: CrashDomain,
    has_fault: bool,
    medium: Arc<RecordingMedium>,
    region: Region,
}

impl Machine for StoreMachine {
    fn open(&self, _fresh: bool) -> Result<Region, String> {
        let medium = Arc::clone(&self.medium);
        enter_machine(self.domain, self.has_fault, Rc::new(move |mark| medium.mark(mark)));
        Ok(self.region.clone())
    }

    fn mark(&self, mark: Mark) {
        self.medium.mark(mark);
    }

    fn close(&self) -> Result<(), String> {
        Ok(())
    }
}

impl StoreWorld {
    /// A machine with `bytes` of persistent memory.
    #[must_use]
    pub fn new(domain: CrashDomain, bytes: u64) -> Self {
        assert!(domain != CrashDomain::File);
        Self {
            domain,
            memory: SimulatedMemory::new(bytes as usize),
            stale: Vec::new(),
            follows: None,
            boots: 0,
        }
    }

    /// Makes `memory` hold the image.
    fn load(&mut self, at: &mut StoreCursor, overlay: &Overlay) {
        if self.follows != Some(at.number) {
            self.memory.put(0, at.cursor.durable());
            at.cursor.take_settled();
            self.follows = Some(at.number);
            self.stale.clear();
        }
        self.stale.extend(at.cursor.take_settled());
        self.stale.sort_unstable();
        self.stale.dedup();
        for id in self.stale.drain(..) {
            self.memory.put(id as usize * LINE, at.cursor.line(id));
        }
        self.boots += 1;
        if self.boots.is_multiple_of(AUDIT_EVERY) {
            let all = self.memory.read(0, self.memory.len());
            assert!(all == at.cursor.durable(), "a store went past the region's store functions");
        }
        for (id, bytes) in overlay {
            self.memory.put(*id as usize * LINE, bytes);
            self.stale.push(*id);
        }
    }
}

impl World for StoreWorld {
    type Recording = StoreRecording;
    type Cursor = StoreCursor;
    type Overlay = Overlay;

    fn boot<R>(
        &mut self,
        crashed: Option<(&mut StoreCursor, &Overlay)>,
        sites: &Arc<Sites>,
        body: impl FnOnce(&dyn Machine) -> Result<R, String>,
    ) -> (Result<R, String>, StoreRecording) {
        let usable = match crashed {
            Some((at, overlay)) => {
                self.load(at, overlay);
                at.usable
            }
            None => {
                self.memory = SimulatedMemory::new(self.memory.len());
                self.follows = None;
                0
            }
        };
        let (medium, region) = RecordingMedium::region(&self.memory, usable, sites);
        let machine = StoreMachine { domain: self.domain, has_fault: sites.inject(), medium, region };
        let answer = quietly(|| body(&machine));
        let (trace, usable, fault) = machine.medium.finish();
        for event in &trace.events {
            for (offset, bytes) in trace.stores(event) {
                let lines = offset / LINE as u64..(offset + bytes.len() as u64).div_ceil(LINE as u64);
                self.stale.extend(lines);
            }
        }
        let answer = match fault {
            Some(fault) => answer.and(Err(fault)),
            None => answer,
        };
        (answer, StoreRecording { trace, usable })
    }

    fn start(&self, recording: &StoreRecording, crashed: Option<(&StoreCursor, &Overlay)>) -> StoreCursor {
        static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let mut bytes = vec![0; self.memory.len()];
        if let Some((at, overlay)) = crashed {
            bytes.copy_from_slice(at.cursor.durable());
            for (id, line) in overlay {
                bytes[*id as usize * LINE..][..LINE].copy_from_slice(line);
            }
        }
        StoreCursor {
            cursor: TraceCursor::new(self.domain, bytes),
            // Relaxed: only uniqueness matters.
            number: NUMBERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            usable: recording.usable,
        }
    }

    fn event_count(recording: &StoreRecording) -> usize {
        recording.trace.events.len()
    }

    fn mark_at(recording: &StoreRecording, event: usize) -> Option<Mark> {
        match recording.trace.events.get(event) {
            Some(TraceEvent::Mark(mark)) => Some(*mark),
            _ => None,
        }
    }

    fn is_cut(at: &StoreCursor, recording: &StoreRecording, event: usize) -> bool {
        at.cursor.is_cut(&recording.trace, event)
    }

    fn combinations(at: &StoreCursor, recording: &StoreRecording, event: usize) -> u64 {
        at.cursor.combinations(&recording.trace, event)
    }

    fn pick(at: &StoreCursor, recording: &StoreRecording, event: usize, choice: ImageChoice) -> Overlay {
        at.cursor.pick(&recording.trace, event, choice)
    }

    fn identity(at: &StoreCursor, overlay: &Overlay) -> u64 {
        at.cursor.image_hash(overlay)
    }

    fn step(at: &mut StoreCursor, recording: &StoreRecording, event: usize) {
        at.cursor.step(&recording.trace, event);
    }
}
