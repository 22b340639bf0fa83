//! HTM+SGL as a subject: bytes of durable memory, changed in place; an array as reference.
//!
//! Where caches are persistent, one form has the model of transactional hardware, whose commits are durable in one
//! step, and whose lock path flushes nothing. The other form has the lock path with flushes, and so has the first
//! where caches are volatile.

use crate::engines::subject::{Promised, Subject};
use crate::engines::txn::{
    Executes, LEN, RECORDS, TxnInner, TxnModel, TxnOp, TxnSubject, Work, difference, read, stores, transact,
    two_at_once,
};
use crate::machine::cursor::CrashDomain;
use crate::machine::interrupt::{machine_domain, window};
use crate::rng::Rng;
use mangrove_pool::{Emulated, Region};
use mangrove_txn::{
    Domain, HardwareLimits, HardwareModel, HtmSgl, InPlaceMemory, InPlaceOptions, Isolation, Sgl, lab,
};
use std::sync::Arc;

/// Writes that a transaction with the lock can make.
const UNDO_ENTRIES: u64 = 192;
/// Bytes of the undo log; the page of the header comes before it.
const UNDO_LOG: std::ops::Range<u64> = 4096..4096 + UNDO_ENTRIES * 32;

enum Executor {
    Hardware(HardwareModel<HtmSgl>),
    Lock(Sgl<HtmSgl>),
}

impl Executes for Executor {
    fn transact(&self, base: usize, work: &Work) -> Result<u8, String> {
        match self {
            Self::Hardware(model) => transact(&mut model.thread(), base, work),
            Self::Lock(sgl) => transact(&mut sgl.thread(), base, work),
        }
    }

    fn read(&self, at: usize, len: usize) -> Result<Vec<u8>, String> {
        match self {
            Self::Hardware(model) => read(&mut model.thread(), at, len),
            Self::Lock(sgl) => read(&mut sgl.thread(), at, len),
        }
    }
}

/// Memory in place under test; with the lock path, or with hardware where that is right.
pub(crate) struct HtmSglSubject<const LOCK: bool> {
    /// Dropped before the memory.
    executor: Arc<Executor>,
    memory: Arc<InPlaceMemory>,
}

impl<const LOCK: bool> Drop for HtmSglSubject<LOCK> {
    fn drop(&mut self) {
        lab::set_window(None);
    }
}

fn options(flushes: bool) -> InPlaceOptions {
    let domain = if flushes { Domain::Adr } else { Domain::Eadr };
    InPlaceOptions::new().bytes(LEN).undo_entries(UNDO_ENTRIES).domain(domain)
}

/// A log that is in use and damaged must be refused: otherwise recovery would store anything anywhere.
fn refuses_damage(region: &Region, flushes: bool) -> Result<(), String> {
    let all = |region: &Region, at: u64, len: u64| {
        // SAFETY: inside the region; no transaction runs.
        unsafe { std::slice::from_raw_parts(region.base().add(at as usize), len as usize) }.to_vec()
    };
    let copy = Emulated::region(region.len()).map_err(|e| e.to_string())?;
    copy.write(0, &all(region, 0, region.len()));
    // Of the first entry, the low byte of what was there before.
    let at = UNDO_LOG.start + 8;
    copy.write(at, &[all(region, at, 1)[0] ^ 1]);
    match options(flushes).on_region(copy) {
        Ok(_) => Err("a damaged undo entry was not noticed".into()),
        Err(_) => Ok(()),
    }
}

/// Whether the log has an entry that counts, by what a recovery of a copy clears.
fn is_in_use(region: &Region) -> bool {
    let word = |at: u64| region.word(at).load(std::sync::atomic::Ordering::Relaxed) & ((1 << 48) - 1);
    word(0) != 0 && word(UNDO_LOG.start + 24) == word(64) + 1
}

impl<const LOCK: bool> HtmSglSubject<LOCK> {
    fn open(region: Region) -> Result<Self, String> {
        let has_lock = LOCK || machine_domain() != Some(CrashDomain::Eadr);
        if is_in_use(&region) {
            refuses_damage(&region, has_lock)?;
        }
        // On a thread of its own: a fence orders only what its own thread flushed, and opening must not fence for
        // others.
        let opened = std::thread::scope(|scope| scope.spawn(|| options(has_lock).on_region(region)).join());
        lab::set_window(Some(window));
        let memory = Arc::new(opened.map_err(|_| "opening panicked")?.map_err(|e| e.to_string())?);
        let place = Arc::clone(&memory);
        let limits =
            HardwareLimits { write_sets: 2, write_ways: 2, read_lines_max: 64, spurious_per_million: 0 };
        let executor = if has_lock {
            HtmSgl::one_lock(place).map(Executor::Lock)
        } else {
            HtmSgl::modelled(place, limits).map(Executor::Hardware)
        };
        Ok(Self { executor: Arc::new(executor.map_err(|e| e.to_string())?), memory })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the data; the simulator looks between operations.
        unsafe { std::slice::from_raw_parts(self.memory.base(), LEN as usize) }
    }
}

impl<const LOCK: bool> Subject for HtmSglSubject<LOCK> {
    type Op = TxnOp;
    type Model = TxnModel;

    const NAME: &'static str = if LOCK { "txn-htm-sgl-lock" } else { "txn-htm-sgl" };
    const REGION_BYTES: u64 = 64 << 10;

    fn create(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn recover(region: Region) -> Result<Self, String> {
        Self::open(region)
    }

    fn apply(&mut self, _index: u32, op: &TxnOp, before: &TxnModel) -> Result<Promised, String> {
        let base = self.memory.base().addr();
        match op {
            TxnOp::Transaction(stores, aborts) => {
                let work = Work { counts: false, stores: stores.clone(), aborts: *aborts };
                self.executor.transact(base, &work)?;
            }
            TxnOp::Read(at, len) => {
                let (at, len) = (*at as usize, *len as usize);
                let found = self.executor.read(base + at, len)?;
                if found != before.0[at..at + len] {
                    return Err(format!("{len} bytes at {at} were read as {found:?}"));
                }
            }
            // Nothing is replayed here.
            TxnOp::Checkpoint | TxnOp::Replay => {}
            TxnOp::During(stores, at, inner) => {
                two_at_once(&self.executor, base, before, (*at, true, stores, inner), || ())?;
            }
        }
        Ok(Promised::All)
    }

    fn advance(model: &mut TxnModel, index: u32, op: &TxnOp) {
        TxnSubject::<RECORDS>::advance(model, index, op);
    }

    fn between(before: &TxnModel, index: u32, op: &TxnOp, inner_returned: bool) -> Vec<TxnModel> {
        TxnSubject::<RECORDS>::between(before, index, op, inner_returned)
    }

    fn after_outer(before: &TxnModel, index: u32, op: &TxnOp) -> Vec<TxnModel> {
        TxnSubject::<RECORDS>::after_outer(before, index, op)
    }

    fn rebase(_model: &mut TxnModel) {}

    fn holds(&self, model: &TxnModel) -> Result<bool, String> {
        Ok(*self.bytes() == **model.0)
    }

    fn difference(&self, model: &TxnModel) -> String {
        difference(self.bytes(), model)
    }

    fn check(&self) -> Result<(), String> {
        self.memory.check().map_err(|e| e.to_string())
    }

    fn scenario_count() -> u32 {
        4
    }

    fn scenario_name(scenario: u32) -> &'static str {
        ["in place", "in place, aborts", "in place, long transactions", "in place, two at once"]
            [scenario as usize]
    }

    fn workload(scenario: u32, rng: &mut Rng) -> Vec<TxnOp> {
        let count = 6 + rng.below(6);
        (0..count).map(|_| operation(scenario, rng)).collect()
    }

    fn follow_up(rng: &mut Rng, _recovered: &TxnModel) -> Vec<TxnOp> {
        (0..2).map(|_| operation(0, rng)).collect()
    }
}

fn operation(scenario: u32, rng: &mut Rng) -> TxnOp {
    // Most stores meet: the order in which they are undone shows where the same bytes were written twice.
    let near = 32 + if rng.one_in(3) { 1024 } else { 0 };
    match scenario {
        0 => match rng.below(6) {
            0 => TxnOp::Read(rng.below(near) as u32, 1 + rng.below(100) as u32),
            n => TxnOp::Transaction(stores(rng, 0, near, n, 12), false),
        },
        1 => {
            let count = 1 + rng.below(6);
            TxnOp::Transaction(stores(rng, 0, near, count, 20), !rng.one_in(3))
        }
        2 => {
            // More lines than the modelled hardware holds.
            let longest = 200 + rng.below(250);
            TxnOp::Transaction(stores(rng, 0, 4096, 3, longest), rng.one_in(4))
        }
        _ => {
            let count = 1 + rng.below(3);
            let outer = stores(rng, 0, near, count, 30);
            let inner = match rng.below(4) {
                0 => TxnInner::Look(Arc::default()),
                1 => TxnInner::Apart(stores(rng, 2048, 4096, 2, 60)),
                _ => TxnInner::Behind(stores(rng, 0, 2048, 1, 60), Arc::default()),
            };
            TxnOp::During(outer, rng.below(12) as u32, inner)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::site::{SiteKey, SiteKind, Sites};
    use crate::machine::store_world::StoreWorld;
    use crate::search::campaign::Silencer;
    use crate::search::sweep::{Limits, Sweep, Tally, Violation};

    /// Judges some runs of a form, with a fault at a site or without one.
    fn sweep<const LOCK: bool>(
        domain: CrashDomain,
        sites: &Arc<Sites>,
        runs: u64,
    ) -> Result<Tally, Box<Violation>> {
        let limits =
            Limits { cut_images: 16, again_every: 8, again_images: 8, extra_every: 1, images: 20_000 };
        let _silencer = Silencer::set(sites);
        let machine = || StoreWorld::new(domain, HtmSglSubject::<LOCK>::REGION_BYTES);
        let mut sweep = Sweep::new(domain, 1, limits, Arc::clone(sites), machine);
        let mut tally = Tally::default();
        for run in 0..runs {
            sweep.run::<HtmSglSubject<LOCK>>(run, &mut tally)?;
        }
        Ok(tally)
    }

    /// The sites of the order of undo log and data.
    fn ours(sites: &Sites) -> Vec<SiteKey> {
        let reached = sites.reached().into_keys();
        reached
            .filter(|site| site.file.contains("txn/src/in_place/") || site.file.ends_with("htm_sgl.rs"))
            .collect()
    }

    /// One test, because the injected fault is a global of the process.
    #[test]
    fn each_step_of_algorithm_1_is_needed_on_adr_and_flushes_are_not_on_eadr() {
        use CrashDomain::{Adr, Eadr};
        let sites = Arc::new(Sites::new());
        let tally = sweep::<true>(Adr, &sites, 8).unwrap_or_else(|v| panic!("{v:?}"));
        assert!(tally.images() > 2000 && tally.second > 100, "{} images", tally.images());
        let found = ours(&sites);
        // Making, entry, data, clearing and recovery flush and fence; the six steps are the orders entry and count,
        // entry and store, data and clearing (at commit, and in recovery), backwards, and the checksum.
        let count = |kind| found.iter().filter(|site| site.kind == kind).count();
        let counts = [SiteKind::Flush, SiteKind::Fence, SiteKind::Step].map(count);
        assert_eq!(counts, [5, 5, 6], "{found:#?}");
        let mut harmless = Vec::new();
        for site in found.iter().filter(|site| site.kind != SiteKind::Wait) {
            let without = || Arc::new(Sites::without(site.clone()));
            assert!(sweep::<true>(Adr, &without(), 8).is_err(), "{site} is not needed");
            if sweep::<true>(Eadr, &without(), 8).is_ok() {
                harmless.push(site);
            }
        }
        // With persistent caches no flush or fence is needed, and every order of stores but one: at the end of a
        // transaction its stores are durable before the log is cleared, however late they are flushed.
        let orders: Vec<_> = harmless.iter().filter(|site| site.kind == SiteKind::Step).collect();
        assert_eq!((harmless.len(), orders.len()), (11, 1), "{orders:?}");
        // The form without flushes: a commit in hardware, and the lock path.
        let sites = Arc::new(Sites::new());
        let tally = sweep::<false>(Eadr, &sites, 16).unwrap_or_else(|v| panic!("{v:?}"));
        assert!(tally.images() > 200, "{} images", tally.images());
        for site in ours(&sites).iter().filter(|site| site.kind == SiteKind::Step) {
            let is_caught = sweep::<false>(Eadr, &Arc::new(Sites::without(site.clone())), 16).is_err();
            assert_eq!(is_caught, !orders.iter().any(|order| **order == site), "{site}");
        }
    }
}
