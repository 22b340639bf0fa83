//! Compaction of a tree in durable memory: what is left of it moves together, so that pages become free.
//!
//! Each step is a write command of its own. So it is atomic, for crashes as for readers, and other writes get their
//! turn between two of them.

use crate::engine::tree_cursor::TreeHolder;
use crate::engine::tree_store::{DurableMemory, TreeStore};
use crate::status::Result;
use crate::tree::compaction::{DenserMemory, MoveOutcome};
use crate::tree::tree::{Readers, RecordTree};
use mangrove_durable::route::{alloc_denser, is_sparse, survey_slabs};
use mangrove_durable::{MovePlan, SlabSurvey};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Spans of the arena that one step looks at.
const STEP_SPANS: usize = 1024;
/// How long a compaction waits, in all, for readers that keep records which should move.
const WAITS_MAX: u32 = 1_000;
const WAIT: Duration = Duration::from_millis(1);

/// The arena of the command, and what is to move there.
struct Denser<'a>(&'a mut MovePlan);

impl DenserMemory for Denser<'_> {
    fn is_sparse(&self, block: *const u8) -> bool {
        is_sparse(self.0, block)
    }

    fn alloc(&mut self, block: *const u8) -> *mut u8 {
        alloc_denser(self.0, block)
    }
}

/// Argument of a step's command.
struct StepCommand<'a> {
    store: &'a TreeStore,
    work: &'a mut dyn FnMut(&mut RecordTree<DurableMemory>, &Readers),
}

/// # Safety
/// `arg` is a `StepCommand`; runs as a command.
unsafe extern "C" fn step(arg: *mut c_void) {
    // SAFETY: by contract; a command runs alone, so nothing else uses the tree.
    let (command, tree) = unsafe {
        let command = &mut *arg.cast::<StepCommand<'_>>();
        let tree = &mut *command.store.tree.get();
        (command, tree)
    };
    let store = command.store;
    // Relaxed: readers load it inside their sections, which the runtime orders after this command.
    store.changes.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the tree.
    unsafe { &mut *store.edge.get() }.forget();
    (command.work)(tree, &store.pins.readers());
}

impl TreeStore {
    fn step(&self, work: &mut dyn FnMut(&mut RecordTree<DurableMemory>, &Readers)) -> Result<()> {
        let mut command = StepCommand { store: self, work };
        let args = [(&raw mut command).cast()];
        // SAFETY: `step` gets its argument, which lives until the call returns.
        self.with_client(|client| unsafe { client.write(step, &args).map(drop) })?;
        Ok(())
    }

    /// Merges nodes that hold little, and moves what lies in sparse slabs into others. Readers and writers go on; what
    /// they keep or use meanwhile may stay where it is.
    pub(super) fn move_together(&self) -> Result<()> {
        if self.is_import {
            return Ok(());
        }
        // With a comparator that does not order the keys a walk might never end.
        let mut steps_left = self.read(RecordTree::size)?.0 + 1_000;
        let mut next = None;
        loop {
            self.step(&mut |tree, _| next = tree.merge_nodes(next.as_deref()))?;
            steps_left -= 1;
            if next.is_none() || steps_left == 0 {
                break;
            }
        }
        let (mut survey, mut is_left) = (SlabSurvey::default(), true);
        while is_left {
            self.step(&mut |_, _| is_left = survey_slabs(&mut survey, STEP_SPANS))?;
        }
        let mut plan = survey.plan();
        let mut waits = 0;
        let mut outcome = MoveOutcome::default();
        while plan.blocks() > 0 && steps_left > 0 {
            let from = outcome.next.take();
            self.step(&mut |tree, readers| {
                let is_patient = waits < WAITS_MAX;
                outcome = tree.move_blocks(from.as_deref(), readers, &mut Denser(&mut plan), is_patient);
            })?;
            if outcome.next.is_none() {
                break;
            }
            if outcome.kept {
                waits += 1;
                std::thread::sleep(WAIT);
            } else {
                steps_left -= 1;
            }
        }
        Ok(())
    }
}
