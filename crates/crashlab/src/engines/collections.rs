//! The collections of the heap as a subject: a vector, a hash map, an ordered map and a queue at four roots, changed
//! together by transactions; those of std as reference.
//!
//! Strings are keys of the one map and values of the other, so that blocks come and go with entries. `Free` takes all
//! four away and finds every block that nothing points to any more; it is the last operation after each recovery.
//!
//! One scenario gives free pages back, also beside the commit that frees them.
//!
//! The other form maps its working copy from the durable copy, so that memory can be given back to it (page-out); on
//! disks it acknowledges by interval.

use crate::engines::collections_model::{CollectionChange, Contents};
use crate::engines::subject::{Promised, Subject};
use crate::machine::cursor::CrashDomain;
use crate::machine::interrupt::{during_and_told, machine_domain, window};
use crate::machine::medium::file_of;
use crate::rng::Rng;
use mangrove_pool::Region;
use mangrove_shadow::{AddressChoice, Domain, Options, Order, Shadow};
use mangrove_txn::{Cancel, Heap, HeapOptions, StmOptions, lab};
use std::fmt;
use std::sync::Arc;

/// Where the heap lies: pointers in it are addresses.
const ADDRESS: u64 = 0x3d20_0000_0000;
/// Address space of the working copy: two groups of the arena, of which one exists at first.
const CAPACITY: u64 = 8 << 20;
const RING_BYTES: u64 = 8 << 10;
/// A heap has its first line here.
const HEAP_HEADER_BYTES: usize = 64;
const LOGS: usize = 2;

/// One operation.
#[derive(Clone)]
pub(crate) enum CollectionsOp {
    /// A transaction, which aborts in the end or commits.
    Transaction(Vec<CollectionChange>, bool),
    /// A transaction with a nested one, which is undone if so said.
    Nested(Vec<CollectionChange>, Vec<CollectionChange>, bool),
    /// A transaction on the maps; at its n-th step on the medium another thread changes vector and queue in one.
    During(Vec<CollectionChange>, u32, Vec<CollectionChange>),
    /// Compares all that can be reached, by look-ups too.
    Read,
    /// Frees the collections, and looks for blocks that are left.
    Free,
    /// Applies everything to the durable copy.
    Checkpoint,
    /// Applies one batch to it.
    Replay,
    /// Gives all memory back to the file of the durable copy, where there is one.
    PageOut,
    /// Gives memory and space of free pages back.
    Compact,
    /// A transaction on the maps; at its n-th step another thread gives free pages back. The first step is the end of
    /// the body: what it freed is free in memory, and nothing of it is in the log.
    CompactDuring(Vec<CollectionChange>, u32),
}

impl fmt::Debug for CollectionsOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transaction(changes, aborts) => {
                write!(f, "transaction {changes:?}{}", if *aborts { ", aborted" } else { "" })
            }
            Self::Nested(outer, inner, undone) => {
                let end = if *undone { ", undone" } else { "" };
                write!(f, "transaction {outer:?} and nested {inner:?}{end}")
            }
            Self::During(outer, at, inner) => {
                write!(f, "transaction {outer:?} and at step {at} of it {inner:?}")
            }
            Self::Read => f.write_str("read"),
            Self::Free => f.write_str("free"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Replay => f.write_str("replay"),
            Self::PageOut => f.write_str("page out"),
            Self::Compact => f.write_str("compact"),
            Self::CompactDuring(changes, at) => {
                write!(f, "transaction {changes:?} and at step {at} of it a compaction")
            }
        }
    }
}

/// Collections under test.
pub(crate) struct CollectionsSubject<const OTHER: bool> {
    heap: Arc<Heap>,
    disk: bool,
    /// The working copy held a heap when it was opened.
    was_there: bool,
}

impl<const OTHER: bool> Drop for CollectionsSubject<OTHER> {
    fn drop(&mut self) {
        lab::set_window(None);
    }
}

impl<const OTHER: bool> CollectionsSubject<OTHER> {
    fn open(region: Region) -> Result<Self, String> {
        let disk = region.medium().capabilities().has_units;
        let options = Options::new().address(AddressChoice::At(ADDRESS)).capacity(CAPACITY);
        let options = options.log_bytes(RING_BYTES).log_count(LOGS).background(false);
        let options = match machine_domain() {
            Some(CrashDomain::Eadr) => options.domain(Domain::Eadr).order(Order::Gaps),
            _ => options,
        };
        let file = if OTHER { file_of(&region) } else { None };
        let stm =
            StmOptions { record_bits: 8, serial_after: 3, solo_after: Some(2), ..StmOptions::default() };
        // On a thread of its own: a fence orders only what its own thread flushed, and opening must not fence for
        // others.
        let opened = std::thread::scope(|scope| {
            let open = || {
                let shadow = match file {
                    Some(file) => Shadow::on_mapped_region(region, file, &options),
                    None => Shadow::on_region(region, &options),
                };
                let shadow = shadow.map_err(|e| e.to_string())?;
                // SAFETY: the usable part, which no other thread has yet.
                let bytes = unsafe { std::slice::from_raw_parts(shadow.base(), shadow.len() as usize) };
                let was_there = bytes.iter().take(HEAP_HEADER_BYTES).any(|&byte| byte != 0);
                let heap = Heap::over(shadow, &HeapOptions::new().executor(stm));
                heap.map(|heap| (heap, was_there)).map_err(|e| e.to_string())
            };
            scope.spawn(open).join()
        });
        lab::set_window(Some(window));
        let (heap, was_there) = opened.map_err(|_| "opening panicked")??;
        Ok(Self { heap: Arc::new(heap), disk, was_there })
    }

    /// By interval a commit is not waited for.
    fn promised(&self) -> Promised {
        if OTHER && self.disk { Promised::Nothing } else { Promised::All }
    }

    fn transact(heap: &Heap, changes: &[CollectionChange], aborts: bool) -> Result<(), String> {
        let answer = heap.try_transaction(|tx| -> Result<(), Cancel<()>> {
            changes.iter().try_for_each(|change| change.make(tx))?;
            if aborts { Err(Cancel::Abort(())) } else { Ok(()) }
        });
        match answer.map_err(|e| e.to_string())? {
            Err(()) if !aborts => Err("a transaction that commits was aborted".into()),
            Ok(()) if aborts => Err("a transaction that aborts has committed".into()),
            _ => Ok(()),
        }
    }

    /// Frees all four, and looks for blocks that are left.
    fn free(&self) -> Result<(), String> {
        self.heap.transaction(Contents::free).map_err(|e| e.to_string())?;
        let mut left = Vec::new();
        self.heap.for_each_block(|at, bytes| left.push((at, bytes))).map_err(|e| e.to_string())?;
        match left.first() {
            Some((at, bytes)) => {
                Err(format!("{} blocks leaked; the first has {bytes} bytes at {at:#x}", left.len()))
            }
            None => Ok(()),
        }
    }
}

impl<const OTHER: bool> Subject for CollectionsSubject<OTHER> {
    type Op = CollectionsOp;
    type Model = Contents;

    const NAME: &'static str = if OTHER { "txn-collections-other" } else { "txn-collections" };
    const REGION_BYTES: u64 = 18 << 20;
    const DISK_BYTES: u64 = CAPACITY;
    const ADDRESS: Option<u64> = Some(ADDRESS);
    const COPY_ON_WRITE: bool = OTHER;

    fn create(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn recover(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn was_there(&self) -> bool {
        self.was_there
    }

    fn apply(&mut self, _index: u32, op: &CollectionsOp, before: &Contents) -> Result<Promised, String> {
        match op {
            CollectionsOp::Transaction(changes, aborts) => Self::transact(&self.heap, changes, *aborts)?,
            CollectionsOp::Nested(outer, inner, undone) => {
                let answer = self.heap.transaction(|tx| {
                    outer.iter().try_for_each(|change| change.make(tx))?;
                    let nested = tx.nested(|tx| -> Result<(), Cancel<()>> {
                        inner.iter().try_for_each(|change| change.make(tx))?;
                        if *undone { Err(Cancel::Abort(())) } else { Ok(()) }
                    });
                    match nested {
                        Err(Cancel::Stop(stop)) => Err(stop),
                        Ok(()) | Err(Cancel::Abort(())) => Ok(()),
                    }
                });
                answer.map_err(|e| e.to_string())?;
            }
            CollectionsOp::During(outer, at, inner) => {
                // By interval nothing is promised, so that nothing could be seen too early: one after the other.
                let at = if OTHER && self.disk { u32::MAX } else { *at };
                let (heap, inner) = (Arc::clone(&self.heap), inner.clone());
                let (first, second) = during_and_told(
                    at,
                    self.promised() == Promised::All,
                    || Self::transact(&self.heap, outer, false),
                    move || Self::transact(&heap, &inner, false),
                );
                first?;
                second?;
            }
            CollectionsOp::Read => {
                if !self.holds(before)? {
                    return Err(self.difference(before));
                }
            }
            CollectionsOp::Free => self.free()?,
            CollectionsOp::Checkpoint => {
                self.heap.shadow().checkpoint().map_err(|e| e.to_string())?;
                return Ok(Promised::All);
            }
            CollectionsOp::Replay => {
                self.heap.shadow().replay();
                return Ok(Promised::Nothing);
            }
            CollectionsOp::PageOut => {
                let shadow = self.heap.shadow();
                if shadow.can_page_out().is_ok() {
                    // SAFETY: no transaction runs, and memory holds nothing that was not committed.
                    unsafe { shadow.page_out(0, shadow.len()) }.map_err(|e| e.to_string())?;
                }
                return Ok(Promised::Nothing);
            }
            CollectionsOp::Compact => {
                self.heap.compact().map_err(|e| e.to_string())?;
                // On disks it ends with a checkpoint.
                return Ok(if self.disk { Promised::All } else { Promised::Nothing });
            }
            CollectionsOp::CompactDuring(changes, at) => {
                let heap = Arc::clone(&self.heap);
                let compact = move || heap.compact().map(drop).map_err(|e| e.to_string());
                let commit = || {
                    let answer = self.heap.transaction(|tx| {
                        changes.iter().try_for_each(|change| change.make(tx))?;
                        window();
                        Ok(())
                    });
                    answer.map_err(|e| e.to_string())
                };
                let acknowledges = self.promised() == Promised::All;
                let (first, second) = during_and_told(*at, acknowledges, commit, compact);
                first?;
                second?;
            }
        }
        Ok(self.promised())
    }

    fn advance(model: &mut Contents, _index: u32, op: &CollectionsOp) {
        match op {
            CollectionsOp::Transaction(changes, false)
            | CollectionsOp::Nested(changes, _, true)
            | CollectionsOp::CompactDuring(changes, _) => {
                model.change(changes);
            }
            CollectionsOp::Nested(outer, inner, false) | CollectionsOp::During(outer, _, inner) => {
                model.change(outer);
                model.change(inner);
            }
            CollectionsOp::Free => *model = Contents::default(),
            CollectionsOp::Transaction(_, true)
            | CollectionsOp::Read
            | CollectionsOp::Checkpoint
            | CollectionsOp::Replay
            | CollectionsOp::PageOut
            | CollectionsOp::Compact => {}
        }
    }

    fn between(before: &Contents, _index: u32, op: &CollectionsOp, inner_returned: bool) -> Vec<Contents> {
        let (outer, inner) = match op {
            CollectionsOp::During(outer, _, inner) => (outer, inner),
            CollectionsOp::CompactDuring(outer, _) => {
                let mut after = before.clone();
                after.change(outer);
                return vec![before.clone(), after];
            }
            _ => return Vec::new(),
        };
        let with = |changes: &[CollectionChange], model: &Contents| {
            let mut model = model.clone();
            model.change(changes);
            model
        };
        // They change different collections: which of the two comes first is not said.
        let (first, alone) = (with(outer, before), with(inner, before));
        let both = with(inner, &first);
        if inner_returned { vec![alone, both] } else { vec![before.clone(), first, alone, both] }
    }

    fn after_outer(before: &Contents, _index: u32, op: &CollectionsOp) -> Vec<Contents> {
        let (outer, inner) = match op {
            CollectionsOp::During(outer, _, inner) => (outer, &inner[..]),
            CollectionsOp::CompactDuring(outer, _) => (outer, &[][..]),
            _ => return Vec::new(),
        };
        let mut first = before.clone();
        first.change(outer);
        let mut both = first.clone();
        both.change(inner);
        vec![first, both]
    }

    fn rebase(_model: &mut Contents) {}

    fn holds(&self, model: &Contents) -> Result<bool, String> {
        let found = self.heap.read(Contents::read).map_err(|e| e.to_string())?;
        if found != *model {
            return Ok(false);
        }
        self.heap.read(|tx| model.look_up(tx)).map_err(|e| e.to_string())?.map_or(Ok(true), Err)
    }

    fn difference(&self, model: &Contents) -> String {
        match self.heap.read(Contents::read) {
            Ok(found) => found.difference(model),
            Err(error) => error.to_string(),
        }
    }

    fn check(&self) -> Result<(), String> {
        match self.heap.check().map_err(|e| e.to_string())?.first() {
            Some(problem) => Err(problem.clone()),
            None => self.heap.shadow().poisoned().map_or(Ok(()), |e| Err(e.to_string())),
        }
    }

    fn scenario_count() -> u32 {
        5
    }

    fn scenario_name(scenario: u32) -> &'static str {
        [
            "collections",
            "collections that grow",
            "two at once on collections",
            "collections paged out",
            "collections that give space back",
        ][scenario as usize]
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<CollectionsOp> {
        let count = 10 + rng.below(6);
        if scenario == 4 {
            return given_back(rng);
        }
        (0..count).map(|_| operation(scenario, rng)).collect()
    }

    fn follow_up(rng: &mut Rng, _recovered: &Contents) -> Vec<CollectionsOp> {
        vec![operation(0, rng), CollectionsOp::Free]
    }
}

/// Entries come, most or all of them go, and then free pages are given back, at once or beside the transaction that
/// frees; what comes next lies in pages that were.
fn given_back(rng: &mut Rng) -> Vec<CollectionsOp> {
    let mut ops = Vec::new();
    for _ in 0..4 {
        for _ in 0..1 + rng.below(2) {
            let inserts = (0..20 + rng.below(40))
                .map(|_| CollectionChange::random(rng, CollectionChange::INSERTS))
                .collect();
            ops.push(CollectionsOp::Transaction(inserts, rng.one_in(6)));
        }
        if rng.one_in(3) {
            ops.push(CollectionsOp::Checkpoint);
        }
        match rng.below(4) {
            0 => ops.push(CollectionsOp::Free),
            1 => ops.push(CollectionsOp::Transaction(vec![CollectionChange::MapsClear], rng.one_in(6))),
            _ => {
                ops.push(CollectionsOp::CompactDuring(vec![CollectionChange::MapsClear], rng.below(4) as u32))
            }
        }
        if rng.one_in(2) {
            ops.push(CollectionsOp::Compact);
        }
    }
    ops
}

fn operation(scenario: u32, rng: &mut Rng) -> CollectionsOp {
    let mut changes = |most: u64, kinds: std::ops::Range<u64>| -> Vec<CollectionChange> {
        (0..1 + rng.below(most)).map(|_| CollectionChange::random(rng, kinds.clone())).collect()
    };
    match scenario {
        // Enough entries for buckets to split and nodes to fill.
        1 => CollectionsOp::Transaction(changes(60, CollectionChange::INSERTS), false),
        2 => {
            let (outer, inner) = (changes(6, CollectionChange::MAPS), changes(6, CollectionChange::LISTS));
            let step = if rng.one_in(4) { rng.below(12) } else { rng.below(3) };
            CollectionsOp::During(outer, step as u32, inner)
        }
        _ => {
            let (some, more) = (changes(8, CollectionChange::ALL), changes(6, CollectionChange::ALL));
            match rng.below(16) {
                0 => CollectionsOp::Checkpoint,
                1 => CollectionsOp::Replay,
                2 => CollectionsOp::Read,
                3 => CollectionsOp::Free,
                4..=6 => CollectionsOp::Nested(some, more, rng.one_in(2)),
                7..=10 if scenario == 3 => CollectionsOp::PageOut,
                _ => CollectionsOp::Transaction(some, rng.one_in(5)),
            }
        }
    }
}
