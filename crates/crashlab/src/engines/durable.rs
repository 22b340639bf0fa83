//! The runtime of durable applications as a subject: commands over blocks, a list, mappings and variables.
//!
//! It has two forms. In one the program announces what it writes, so that each report of the runtime itself can be
//! suppressed. In the other the recompiler tracks the writes, the working copy is mapped copy on write, memory has
//! the paper's two fences, and disks are synced by interval.
//!
//! Every opening stands for a process that has just started: a variable that no command wrote holds the number of
//! the opening.

use crate::engines::durable_state::{Call, Making, difference, fresh_variables, make, run_call};
use crate::engines::durable_workload as workload;
use crate::engines::durable_workload::{DurableInner, DurableModel, DurableOp};
use crate::engines::subject::{Promised, Subject};
use crate::machine::cursor::CrashDomain;
use crate::machine::interrupt::{during, has_fault, machine_domain};
use crate::machine::medium::file_of;
use crate::rng::Rng;
use mangrove_durable::{Client, Durability, Options, Runtime, TrackerChoice, lab};
use mangrove_pool::Region;
use mangrove_shadow::{AddressChoice, Shadow, Ticket};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the state lies, in every process.
const ADDRESS: u64 = 0x3d00_0000_0000;
/// Address space of the working copy: three groups of the arena, of which one exists at first.
const CAPACITY: u64 = 12 << 20;
const RING_BYTES: u64 = 16 << 10;

/// The durable application under test.
pub struct DurableSubject<const OTHER: bool> {
    /// Dropped before the runtime.
    client: Option<Client>,
    runtime: Arc<Runtime>,
    by_hand: bool,
    /// Answers wait for durability.
    gated: bool,
    run: u64,
}

/// The roots, for another thread.
#[derive(Clone, Copy)]
struct Roots(*mut usize);

// SAFETY: an address of the state, which only commands and reads dereference.
unsafe impl Send for Roots {}

impl Roots {
    fn get(self) -> *mut usize {
        self.0
    }
}

/// Runs commands as one batch.
fn batch(
    client: &mut Client,
    commands: &[workload::DurableCommand],
    roots: *mut usize,
    by_hand: bool,
) -> Result<Ticket, String> {
    let mut calls: Vec<Call<'_>> =
        commands.iter().map(|command| Call::new(command, roots, by_hand)).collect();
    let args: Vec<*mut c_void> = calls.iter_mut().map(|call| std::ptr::from_mut(call).cast()).collect();
    // SAFETY: the arguments are calls on this runtime's state, alive until the answer.
    let ticket = unsafe { client.write(run_call, &args) }.map_err(|e| format!("command: {e}"))?;
    calls.into_iter().try_for_each(Call::finish)?;
    Ok(ticket)
}

impl<const OTHER: bool> DurableSubject<OTHER> {
    fn open(region: Region) -> Result<Self, String> {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let disk = region.medium().capabilities().has_units;
        let durability = if OTHER && disk { Durability::interval_ms(1) } else { Durability::Sync };
        let by_hand = !OTHER || !cfg!(all(target_arch = "x86_64", target_os = "linux"));
        let tracker = if by_hand { TrackerChoice::Explicit } else { TrackerChoice::Recompiler };
        // The smallest blocks, so that few reports are covered by a neighbour's.
        let options = Options::new().durability(durability).tracker(tracker);
        let options = if by_hand { options.block_bytes(16) } else { options };
        // Relaxed: only uniqueness matters.
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        fresh_variables(run);
        let shadow = shadow(region, OTHER)?;
        let mut making = Making { by_hand, roots: null_mut() };
        let making = &raw mut making;
        // SAFETY: the initialisation gets what it asks for; the roots are noted before it runs.
        let runtime = unsafe {
            lab::open(shadow, &options, Some((make, making.cast())), |roots| (*making).roots = roots)
        };
        let runtime = runtime.map_err(|e| e.to_string())?;
        let client = runtime.client().map_err(|e| e.to_string())?;
        Ok(Self { client: Some(client), runtime, by_hand, gated: durability == Durability::Sync, run })
    }

    fn batch(&mut self, commands: &[workload::DurableCommand]) -> Result<Ticket, String> {
        let client = self.client.as_mut().ok_or("the client is gone")?;
        batch(client, commands, self.runtime.roots(), self.by_hand)
    }

    /// Runs commands into a batch of this thread.
    fn fill_open(&self, commands: &[workload::DurableCommand]) -> Result<(), String> {
        for command in commands {
            let mut call = Call::new(command, self.runtime.roots(), self.by_hand);
            // SAFETY: a call on this runtime's state.
            unsafe { self.runtime.batch_call(run_call, (&raw mut call).cast()) }
                .map_err(|e| format!("call of a batch: {e}"))?;
            // Frees what the command leaves to its caller, between two calls.
            call.finish()?;
        }
        Ok(())
    }

    /// Runs commands into a batch of this thread, and commits it.
    fn fill(&self, commands: &[workload::DurableCommand]) -> Result<Ticket, String> {
        self.fill_open(commands)?;
        self.runtime.batch_commit().map_err(|e| format!("commit of a batch: {e}"))
    }

    /// What an answer promises that the client waited for.
    fn promised(&self) -> Promised {
        if self.gated { Promised::All } else { Promised::Nothing }
    }

    fn differs(&self, model: &DurableModel) -> Option<String> {
        // SAFETY: the runtime's roots; the simulator runs one operation at a time.
        if let Some(how) = unsafe { difference(self.runtime.roots(), &model.0, self.run) } {
            return Some(how);
        }
        let (stat, _) = lab::examine(&self.runtime);
        let pages: u64 = model.0.maps.iter().flatten().map(|map| map.pages).sum();
        if stat.arena.mapped_bytes != pages * 4096 {
            return Some(format!("{} bytes are mapped, not {}", stat.arena.mapped_bytes, pages * 4096));
        }
        // Blocks of the runtime itself: the table of modules, our own table, and each page of variables.
        let slots = model.0.slots.iter().flatten().count() as u64;
        let least = 2 + stat.variable_pages + slots + model.0.list.len() as u64;
        let most = least + model.0.freed_outside;
        if !(least..=most).contains(&stat.arena.blocks) {
            return Some(format!(
                "{} blocks are in use, where {least} to {most} were expected",
                stat.arena.blocks
            ));
        }
        None
    }
}

fn shadow(region: Region, other: bool) -> Result<Shadow, String> {
    let options = mangrove_shadow::Options::new()
        .address(AddressChoice::At(ADDRESS))
        .capacity(CAPACITY)
        .log_bytes(RING_BYTES)
        .background(false);
    let file = if other { file_of(&region) } else { None };
    let shadow = match file {
        Some(file) => Shadow::on_mapped_region(region, file, &options),
        None => Shadow::on_region(region, &options),
    };
    shadow.map_err(|e| e.to_string())
}

impl<const OTHER: bool> Subject for DurableSubject<OTHER> {
    type Op = DurableOp;
    type Model = DurableModel;

    const NAME: &'static str = if OTHER { "durable-other" } else { "durable" };
    const REGION_BYTES: u64 = 28 << 20;
    const DISK_BYTES: u64 = CAPACITY;
    const ADDRESS: Option<u64> = Some(ADDRESS);
    const COPY_ON_WRITE: bool = OTHER;

    fn create(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn recover(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn apply(&mut self, _index: u32, op: &DurableOp, before: &DurableModel) -> Result<Promised, String> {
        let words = |e: mangrove_durable::Error| e.to_string();
        match op {
            DurableOp::Batch(commands, wait) => {
                let ticket = self.batch(commands)?;
                if !*wait {
                    return Ok(Promised::Nothing);
                }
                self.runtime.wait(ticket).map_err(words)?;
                Ok(self.promised())
            }
            DurableOp::Filled(commands, wait) => {
                let ticket = self.fill(commands)?;
                if !*wait {
                    return Ok(Promised::Nothing);
                }
                self.runtime.batch_wait(ticket).map_err(words)?;
                Ok(self.promised())
            }
            DurableOp::Read => {
                let (roots, run) = (self.runtime.roots(), self.run);
                let client = self.client.as_mut().ok_or("the client is gone")?;
                // SAFETY: inside a read.
                let wrong = client.read_durable(|| unsafe { difference(roots, &before.0, run) });
                match wrong.map_err(words)? {
                    Some(how) => Err(how),
                    None => Ok(self.promised()),
                }
            }
            DurableOp::Sync => {
                self.runtime.sync().map_err(words)?;
                Ok(Promised::All)
            }
            DurableOp::Checkpoint => {
                self.runtime.checkpoint().map_err(words)?;
                Ok(Promised::All)
            }
            DurableOp::Compact => {
                self.runtime.compact().map_err(words)?;
                Ok(Promised::All)
            }
            DurableOp::FilledCompact(commands) => {
                self.fill_open(commands)?;
                match self.runtime.compact() {
                    Err(mangrove_durable::Error::Batch { .. }) => {}
                    // A fault lets it release pages that only this batch has freed: a crash is to show that.
                    _ if has_fault() => {}
                    other => return Err(format!("a compaction with a batch open returned {other:?}")),
                }
                let ticket = self.runtime.batch_commit().map_err(|e| format!("commit of a batch: {e}"))?;
                self.runtime.batch_wait(ticket).map_err(words)?;
                Ok(self.promised())
            }
            DurableOp::During(outer, at, inner) => {
                let mut other = self.runtime.client().map_err(words)?;
                let (roots, by_hand, run) = (Roots(self.runtime.roots()), self.by_hand, self.run);
                let (inner, before) = (inner.clone(), before.clone());
                let after = outer.clone();
                let work = move || match inner {
                    DurableInner::Command(command) => {
                        let ticket = batch(&mut other, &[command], roots.get(), by_hand)?;
                        other.runtime().wait(ticket).map_err(words)
                    }
                    DurableInner::Read => {
                        // The read waits while the other command runs, and sees its effects.
                        let mut state = (*before.0).clone();
                        state.run(&after);
                        // SAFETY: inside a read.
                        let wrong = other.read_durable(|| unsafe { difference(roots.get(), &state, run) });
                        wrong.map_err(words)?.map_or(Ok(()), Err)
                    }
                };
                let (first, second) = during(*at, || self.batch(std::slice::from_ref(outer)), work);
                let ticket = first?;
                second.map_err(|e| format!("the other client: {e}"))?;
                self.runtime.wait(ticket).map_err(words)?;
                Ok(self.promised())
            }
        }
    }

    fn advance(model: &mut DurableModel, _index: u32, op: &DurableOp) {
        let state = Arc::make_mut(&mut model.0);
        match op {
            DurableOp::Batch(commands, _) => commands.iter().for_each(|command| state.run(command)),
            DurableOp::Filled(commands, _) | DurableOp::FilledCompact(commands) => state.run_filled(commands),
            DurableOp::During(outer, _, inner) => {
                state.run(outer);
                if let DurableInner::Command(command) = inner {
                    state.run(command);
                }
            }
            DurableOp::Read | DurableOp::Sync | DurableOp::Checkpoint | DurableOp::Compact => {}
        }
    }

    fn between(before: &DurableModel, _index: u32, op: &DurableOp, inner: bool) -> Vec<DurableModel> {
        let DurableOp::During(outer, _, other) = op else { return Vec::new() };
        let mut first = before.clone();
        Arc::make_mut(&mut first.0).run(outer);
        let mut both = first.clone();
        if let DurableInner::Command(command) = other {
            Arc::make_mut(&mut both.0).run(command);
        }
        match (inner, OTHER) {
            (false, _) => vec![first],
            // The other client's answer depends on both; by interval, which only disks have, on nothing durable.
            (true, true) if machine_domain() == Some(CrashDomain::File) => vec![before.clone(), first, both],
            (true, _) => vec![both],
        }
    }

    fn rebase(_model: &mut DurableModel) {}

    fn holds(&self, model: &DurableModel) -> Result<bool, String> {
        Ok(self.differs(model).is_none())
    }

    fn difference(&self, model: &DurableModel) -> String {
        self.differs(model).unwrap_or_else(|| "the same".to_owned())
    }

    fn check(&self) -> Result<(), String> {
        let (_, wrong) = lab::examine(&self.runtime);
        if let Some(first) = wrong.first() {
            return Err(format!("{first} ({} findings)", wrong.len()));
        }
        self.runtime.failure().map_or(Ok(()), |e| Err(e.to_string()))
    }

    fn scenario_count() -> u32 {
        workload::scenario_count()
    }

    fn scenario_name(scenario: u32) -> &'static str {
        workload::scenario_name(scenario)
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<DurableOp> {
        workload::workload(scenario, rng)
    }

    fn follow_up(rng: &mut Rng, _recovered: &DurableModel) -> Vec<DurableOp> {
        workload::follow_up(rng)
    }
}
