//! Campaigns: sweeps of an engine in one domain until enough distinct images were judged, and the search for the
//! call sites at which faults can be injected.

use crate::engines::collections::CollectionsSubject;
use crate::engines::durable::DurableSubject;
use crate::engines::htm_sgl::HtmSglSubject;
use crate::engines::map::{COMPACTS, GROWS, MapSubject};
use crate::engines::shadow::ShadowSubject;
use crate::engines::space::SpaceSubject;
use crate::engines::subject::Subject;
use crate::engines::txn::{
    LOCK, LOCK_FLUSH, LOCK_STAMPS, MODEL, OTHER, RECORDS, STAMPS, STAMPS_TOO, TxnSubject,
};
use crate::machine::cursor::CrashDomain;
use crate::machine::file_world::{FilePlan, FileWorld};
use crate::machine::site::{SiteKey, SiteKind, Sites};
use crate::machine::store_world::StoreWorld;
use crate::machine::world::World;
use crate::search::sweep::{Limits, Sweep, SweepWatch, Tally, Violation};
use crate::search::token::Token;
use mangrove_durable::lab;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Small enough that a run wraps it several times.
const LOG_BYTES: u64 = 16 << 10;
/// ... and what it grows to: so little that growth comes before checkpoints and does not replace them.
const LOG_BYTES_MAX: u64 = 24 << 10;

/// One in this many images of the file domain is of a pool with durability by interval.
const INTERVAL_SHARE: u64 = 4;

/// For so many images of transactions on bytes there is one of transactions on collections, which takes longer, and one
/// of each pair of executor and protocol that the large forms do not have.
const COLLECTIONS_SHARE: u64 = 10;

/// For so many images of maps there is one of maps that grow, one of maps that give space back, and on disks one of a
/// region that does.
const GROWTH_SHARE: u64 = 10;

/// What only maps that grow run.
const GROWTH: &str = "hart/src/recovery/move_directory.rs";

/// What only maps that give space back run.
const COMPACTION: [&str; 2] = ["hart/src/operations/compact.rs", "hart/src/alloc/evacuate.rs"];

/// Has call sites that only maps and regions reach that give space back; a fault there is looked for in them first.
const CHECKPOINT: &str = "pool/src/file/checkpoint.rs";

/// What only commits by time stamps run.
const BY_STAMPS: [&str; 3] =
    ["txn/src/commit/spht", "txn/src/commit/precedence.rs", "txn/src/commit/stamp_clock.rs"];

/// What only heaps run.
const IN_HEAPS: [&str; 1] = ["txn/src/heap/"];

/// What only transactions in place run.
const IN_PLACE: [&str; 2] = ["txn/src/in_place/", "txn/src/commit/htm_sgl.rs"];

/// The engine under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The map, `hart`.
    #[default]
    Map,
    /// The working copy with its redo logs, `shadow`.
    Shadow,
    /// The runtime of durable applications, `durable`, over both.
    Durable,
    /// Durable transactions, `txn`, over the working copy.
    Txn,
}

impl EngineKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Map, Self::Shadow, Self::Durable, Self::Txn];

    /// The name that the command line uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Shadow => "shadow",
            Self::Durable => "durable",
            Self::Txn => "txn",
        }
    }

    /// The names of its forms, as tokens have them.
    #[must_use]
    pub fn forms(self) -> &'static [&'static str] {
        const MAP: [&str; 8] = [
            <MapSubject<false>>::NAME,
            <MapSubject<true>>::NAME,
            MapSubject::<false, GROWS>::NAME,
            MapSubject::<true, GROWS>::NAME,
            MapSubject::<false, COMPACTS>::NAME,
            MapSubject::<true, COMPACTS>::NAME,
            SpaceSubject::<false>::NAME,
            SpaceSubject::<true>::NAME,
        ];
        const SHADOW: [&str; 2] = [ShadowSubject::<false>::NAME, ShadowSubject::<true>::NAME];
        const DURABLE: [&str; 2] = [DurableSubject::<false>::NAME, DurableSubject::<true>::NAME];
        const TXN: [&str; 12] = [
            TxnSubject::<RECORDS>::NAME,
            TxnSubject::<OTHER>::NAME,
            TxnSubject::<STAMPS>::NAME,
            TxnSubject::<STAMPS_TOO>::NAME,
            TxnSubject::<LOCK>::NAME,
            TxnSubject::<LOCK_STAMPS>::NAME,
            TxnSubject::<LOCK_FLUSH>::NAME,
            TxnSubject::<MODEL>::NAME,
            HtmSglSubject::<false>::NAME,
            HtmSglSubject::<true>::NAME,
            CollectionsSubject::<false>::NAME,
            CollectionsSubject::<true>::NAME,
        ];
        match self {
            Self::Map => &MAP,
            Self::Shadow => &SHADOW,
            Self::Durable => &DURABLE,
            Self::Txn => &TXN,
        }
    }

    /// The engine that a token names.
    #[must_use]
    pub fn of(token: &Token) -> Self {
        let named = |engine: &Self| token.engine.starts_with(engine.name());
        Self::ALL.into_iter().find(named).unwrap_or_default()
    }

    /// The domains in which `discover` looks for call sites: every domain in which a fault at some call site of
    /// these sources can show.
    fn domains(self, own: bool) -> &'static [CrashDomain] {
        match self {
            Self::Map | Self::Shadow | Self::Txn => &[CrashDomain::Adr, CrashDomain::File],
            // Reports, and the steps of giving pages back, which only disks take.
            Self::Durable if own => &[CrashDomain::Eadr, CrashDomain::File],
            Self::Durable => &CrashDomain::ALL,
        }
    }

    /// Directories of the sources at whose call sites a campaign injects faults: the engine's own first, then those
    /// below.
    #[must_use]
    pub fn sources(self) -> &'static [&'static str] {
        match self {
            Self::Map => &["hart/src/", "pool/src/"],
            Self::Shadow => &["shadow/src/", "pool/src/"],
            Self::Durable => &["durable/src/", "arena/src/", "shadow/src/", "pool/src/"],
            Self::Txn => &["txn/src/", "shadow/src/", "pool/src/"],
        }
    }

    /// The engine's own of these directories. The arena's are the durable application's: no other campaign runs it.
    #[must_use]
    pub fn own_sources(self) -> &'static [&'static str] {
        let count = if self == Self::Durable { 2 } else { 1 };
        &self.sources()[..count]
    }
}

impl std::str::FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == text);
        found.ok_or_else(|| format!("\"{text}\" is not an engine; choose map, shadow, durable or txn"))
    }
}

/// A campaign on one engine.
#[derive(Clone)]
pub struct Campaign {
    /// The engine under test.
    pub engine: EngineKind,
    /// The fault model.
    pub domain: CrashDomain,
    /// Everything follows from it.
    pub seed: u64,
    /// How much of each run is judged, and when to stop.
    pub limits: Limits,
    /// Stop after this many runs too.
    pub runs_max: u64,
    /// Only the form of the engine with this name, as tokens have it.
    pub form: Option<String>,
    /// Which call sites are reached, and which one is suppressed.
    pub sites: Arc<Sites>,
    /// Tells a watchdog what is being judged.
    pub watch: SweepWatch,
}

impl Campaign {
    /// A campaign on the map, without an injected fault.
    #[must_use]
    pub fn new(domain: CrashDomain, seed: u64, limits: Limits) -> Self {
        Self {
            engine: EngineKind::default(),
            domain,
            seed,
            limits,
            runs_max: u64::MAX,
            form: None,
            sites: Arc::new(Sites::new()),
            watch: SweepWatch::default(),
        }
    }

    /// Sweeps until enough distinct images were judged. Calls `progress` after every run.
    ///
    /// # Errors
    /// The first violation.
    pub fn sweep(&self, progress: &mut dyn FnMut(&Tally)) -> Result<Tally, Box<Violation>> {
        match self.engine {
            EngineKind::Map => self.sweep_map(progress),
            EngineKind::Shadow => self.sweep_of::<ShadowSubject<false>, ShadowSubject<true>>(true, progress),
            EngineKind::Txn => {
                let _silencer = Silencer::set(&self.sites);
                // No other form runs that code.
                let injected = self.sites.injected();
                let is_in = |parts: &[&str]| {
                    injected.as_ref().is_some_and(|site| parts.iter().any(|part| site.file.contains(part)))
                };
                if is_in(&IN_PLACE) {
                    return self.sweep_of::<HtmSglSubject<false>, HtmSglSubject<true>>(true, progress);
                }
                if is_in(&IN_HEAPS) {
                    return self
                        .sweep_of::<CollectionsSubject<false>, CollectionsSubject<true>>(true, progress);
                }
                if is_in(&BY_STAMPS) && self.domain != CrashDomain::File {
                    return self.sweep_of::<TxnSubject<STAMPS>, TxnSubject<STAMPS_TOO>>(true, progress);
                }
                let tally = self.sweep_of::<TxnSubject<RECORDS>, TxnSubject<OTHER>>(true, progress)?;
                // The forms with time stamps, and those in place: as many images again, each time.
                let tally = match self.domain {
                    CrashDomain::File => tally,
                    _ => {
                        let tally = self.sweep_from::<TxnSubject<STAMPS>, TxnSubject<STAMPS_TOO>>(
                            tally, true, progress,
                        )?;
                        self.sweep_from::<HtmSglSubject<false>, HtmSglSubject<true>>(tally, true, progress)?
                    }
                };
                let images = self.limits.images / COLLECTIONS_SHARE;
                let fewer = Self { limits: Limits { images, ..self.limits }, ..self.clone() };
                // So many images again for each other pair of executor and protocol.
                let tally = fewer.sweep_one::<TxnSubject<LOCK>>(tally, progress)?;
                let tally = match self.domain {
                    CrashDomain::Adr => tally,
                    CrashDomain::Eadr => {
                        let tally = fewer.sweep_one::<TxnSubject<LOCK_STAMPS>>(tally, progress)?;
                        fewer.sweep_one::<TxnSubject<LOCK_FLUSH>>(tally, progress)?
                    }
                    CrashDomain::File => fewer.sweep_one::<TxnSubject<MODEL>>(tally, progress)?,
                };
                fewer.sweep_from::<CollectionsSubject<false>, CollectionsSubject<true>>(tally, true, progress)
            }
            EngineKind::Durable => {
                let _silencer = Silencer::set(&self.sites);
                self.sweep_of::<DurableSubject<false>, DurableSubject<true>>(true, progress)
            }
        }
    }

    fn sweep_map(&self, progress: &mut dyn FnMut(&Tally)) -> Result<Tally, Box<Violation>> {
        let is_in = |part: &&str| self.sites.injected().is_some_and(|site| site.file.contains(part));
        if is_in(&GROWTH) {
            return self.sweep_of::<MapSubject<false, GROWS>, MapSubject<true, GROWS>>(false, progress);
        }
        if COMPACTION.iter().any(is_in) {
            return self.sweep_of::<MapSubject<false, COMPACTS>, MapSubject<true, COMPACTS>>(false, progress);
        }
        let images = self.limits.images / GROWTH_SHARE;
        let fewer = Self { limits: Limits { images, ..self.limits }, ..self.clone() };
        let sweep_space = |mut tally, progress: &mut dyn FnMut(&Tally)| {
            if self.domain == CrashDomain::File {
                tally =
                    fewer.sweep_from::<SpaceSubject<false>, SpaceSubject<true>>(tally, false, progress)?;
            }
            fewer
                .sweep_from::<MapSubject<false, COMPACTS>, MapSubject<true, COMPACTS>>(tally, false, progress)
        };
        let is_first = is_in(&CHECKPOINT);
        let mut tally = Tally::default();
        if is_first {
            tally = sweep_space(tally, progress)?;
        }
        tally = self.sweep_from::<MapSubject<false>, MapSubject<true>>(tally, false, progress)?;
        tally =
            fewer.sweep_from::<MapSubject<false, GROWS>, MapSubject<true, GROWS>>(tally, false, progress)?;
        if is_first { Ok(tally) } else { sweep_space(tally, progress) }
    }

    /// A quarter of the images goes to the engine's other form, which has durability by interval on disks. On
    /// memory only some engines have another form.
    fn sweep_of<A: Subject, B: Subject>(
        &self,
        other_on_memory: bool,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<Tally, Box<Violation>> {
        self.sweep_from::<A, B>(Tally::default(), other_on_memory, progress)
    }

    /// As `sweep_of`, with so many images beyond those of `tally`.
    fn sweep_from<A: Subject, B: Subject>(
        &self,
        mut tally: Tally,
        other_on_memory: bool,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<Tally, Box<Violation>> {
        let file = self.domain == CrashDomain::File;
        let all = Limits { images: self.limits.images.saturating_add(tally.images()), ..self.limits };
        let is_wanted = |name| self.form.as_ref().is_none_or(|form| form == name);
        let (one, both) = (is_wanted(A::NAME), (file || other_on_memory) && is_wanted(B::NAME));
        let other = match (one, both) {
            (_, false) => 0,
            (true, true) => self.limits.images / INTERVAL_SHARE,
            (false, true) => self.limits.images,
        };
        let first = Limits { images: all.images - other, ..self.limits };
        // Where a fault is injected, the runs that reach it come first: most others are judged for nothing.
        let orders: &[_] = if self.sites.inject() { &[Order::FaultFirst, Order::All] } else { &[Order::All] };
        // Where the first runs of one form reach the fault, and those of the other do not, the other is not judged
        // further. (A fault that only recovery reaches is in neither.)
        let mut reaches = [one, both];
        for &order in orders {
            let before = self.sites.injections();
            if reaches[0] {
                tally = self.sweep_form::<A>(false, A::REGION_BYTES, order, tally, first, progress)?;
            }
            let between = self.sites.injections();
            if reaches[1] {
                tally = self.sweep_form::<B>(true, A::REGION_BYTES, order, tally, all, progress)?;
            }
            let reached = [between > before, self.sites.injections() > between];
            if order == Order::FaultFirst && reached.contains(&true) {
                reaches = reached;
            }
        }
        Ok(tally)
    }

    /// As `sweep_from`, of one form alone, whose commits are waited for on disks too.
    fn sweep_one<S: Subject>(
        &self,
        mut tally: Tally,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<Tally, Box<Violation>> {
        if self.form.as_ref().is_some_and(|form| form != S::NAME) {
            return Ok(tally);
        }
        let limits = Limits { images: self.limits.images.saturating_add(tally.images()), ..self.limits };
        if self.sites.inject() {
            tally =
                self.sweep_form::<S>(false, S::REGION_BYTES, Order::FaultFirst, tally, limits, progress)?;
        }
        self.sweep_form::<S>(false, S::REGION_BYTES, Order::All, tally, limits, progress)
    }

    /// Sweeps one form on the machine of its domain; `interval`: how it is durable on disks.
    fn sweep_form<S: Subject>(
        &self,
        interval: bool,
        region_bytes: u64,
        order: Order,
        tally: Tally,
        limits: Limits,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<Tally, Box<Violation>> {
        if self.domain == CrashDomain::File {
            return self.sweep_in::<S, _>(|| file_machine::<S>(interval), order, tally, limits, progress);
        }
        let machine = || StoreWorld::new(self.domain, region_bytes);
        self.sweep_in::<S, _>(machine, order, tally, limits, progress)
    }

    fn sweep_in<S: Subject, W: World>(
        &self,
        machine: impl Fn() -> W,
        order: Order,
        mut tally: Tally,
        limits: Limits,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<Tally, Box<Violation>> {
        let sweep = Sweep::new(self.domain, self.seed, limits, self.sites.clone(), machine);
        let mut sweep = sweep.watched_by(self.watch.clone());
        let runs = match order {
            Order::All => 0..self.runs_max,
            Order::FaultFirst => 0..self.runs_max.min(2 * u64::from(S::scenario_count())),
        };
        let mut reaching = Vec::new();
        if order == Order::FaultFirst {
            for run in runs.clone() {
                if sweep.reaches_fault::<S>(run)? {
                    reaching.push(run);
                }
            }
        }
        for run in runs {
            if order == Order::FaultFirst && !reaching.contains(&run) {
                continue;
            }
            if tally.distinct.len() as u64 >= limits.images {
                break;
            }
            sweep.run::<S>(run, &mut tally)?;
            progress(&tally);
        }
        self.watch.rest();
        Ok(tally)
    }

    /// Judges the one image that a token names, and returns a description of it.
    ///
    /// # Errors
    /// Its violation.
    pub fn replay(&self, token: &Token) -> Result<String, Box<Violation>> {
        match EngineKind::of(token) {
            EngineKind::Map if token.engine.starts_with(MapSubject::<false, GROWS>::NAME) => {
                self.replay_of::<MapSubject<false, GROWS>, MapSubject<true, GROWS>>(token)
            }
            EngineKind::Map if token.engine.starts_with(MapSubject::<false, COMPACTS>::NAME) => {
                self.replay_of::<MapSubject<false, COMPACTS>, MapSubject<true, COMPACTS>>(token)
            }
            EngineKind::Map if token.engine.starts_with(SpaceSubject::<false>::NAME) => {
                self.replay_of::<SpaceSubject<false>, SpaceSubject<true>>(token)
            }
            EngineKind::Map => self.replay_of::<MapSubject<false>, MapSubject<true>>(token),
            EngineKind::Shadow => self.replay_of::<ShadowSubject<false>, ShadowSubject<true>>(token),
            EngineKind::Txn => {
                let _silencer = Silencer::set(&self.sites);
                if token.engine == HtmSglSubject::<false>::NAME || token.engine == HtmSglSubject::<true>::NAME
                {
                    return self.replay_of::<HtmSglSubject<false>, HtmSglSubject<true>>(token);
                }
                if token.engine == TxnSubject::<STAMPS>::NAME
                    || token.engine == TxnSubject::<STAMPS_TOO>::NAME
                {
                    return self.replay_of::<TxnSubject<STAMPS>, TxnSubject<STAMPS_TOO>>(token);
                }
                if token.engine == TxnSubject::<LOCK>::NAME || token.engine == TxnSubject::<MODEL>::NAME {
                    return self.replay_one::<TxnSubject<LOCK>, TxnSubject<MODEL>>(token);
                }
                if token.engine == TxnSubject::<LOCK_STAMPS>::NAME
                    || token.engine == TxnSubject::<LOCK_FLUSH>::NAME
                {
                    return self.replay_one::<TxnSubject<LOCK_STAMPS>, TxnSubject<LOCK_FLUSH>>(token);
                }
                if token.engine.starts_with(CollectionsSubject::<false>::NAME) {
                    return self.replay_of::<CollectionsSubject<false>, CollectionsSubject<true>>(token);
                }
                self.replay_of::<TxnSubject<RECORDS>, TxnSubject<OTHER>>(token)
            }
            EngineKind::Durable => {
                let _silencer = Silencer::set(&self.sites);
                self.replay_of::<DurableSubject<false>, DurableSubject<true>>(token)
            }
        }
    }

    /// The image of one of two forms whose commits are waited for on disks too.
    fn replay_one<A: Subject, B: Subject>(&self, token: &Token) -> Result<String, Box<Violation>> {
        if token.engine == B::NAME { self.replay_of::<B, A>(token) } else { self.replay_of::<A, B>(token) }
    }

    fn replay_of<A: Subject, B: Subject>(&self, token: &Token) -> Result<String, Box<Violation>> {
        let (bytes, other) = (A::REGION_BYTES, token.engine == B::NAME);
        match (token.domain, other) {
            (CrashDomain::File, false) => self.replay_in::<A, _>(|| file_machine::<A>(false), token),
            (CrashDomain::File, true) => self.replay_in::<B, _>(|| file_machine::<B>(true), token),
            (domain, false) => self.replay_in::<A, _>(|| StoreWorld::new(domain, bytes), token),
            (domain, true) => self.replay_in::<B, _>(|| StoreWorld::new(domain, bytes), token),
        }
    }

    fn replay_in<S: Subject, W: World>(
        &self,
        machine: impl Fn() -> W,
        token: &Token,
    ) -> Result<String, Box<Violation>> {
        let sweep = Sweep::new(token.domain, token.seed, self.limits, self.sites.clone(), machine);
        sweep.watched_by(self.watch.clone()).replay::<S>(token)
    }
}

/// Which runs a sweep judges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All, until there are enough images.
    All,
    /// Of the first two runs of each scenario, those that reach the call site of the injected fault, after all of them
    /// were run without a crash.
    FaultFirst,
}

/// The file machine that campaigns use.
fn file_machine<S: Subject>(interval: bool) -> FileWorld {
    FileWorld::new(FilePlan {
        capacity: S::DISK_BYTES,
        log_bytes: LOG_BYTES,
        log_bytes_max: LOG_BYTES_MAX,
        interval,
        recent: interval,
        address: S::ADDRESS,
        copy_on_write: S::COPY_ON_WRITE,
    })
}

/// While it lives, the runtime's reports and steps and the steps of transactions are noted, and suppressed where a
/// fault is injected.
pub(crate) struct Silencer;

impl Silencer {
    pub(crate) fn set(sites: &Arc<Sites>) -> Self {
        let sites = Arc::clone(sites);
        let steps = Arc::clone(&sites);
        let durable_steps = Arc::clone(&sites);
        lab::set_silencer(Some(Arc::new(move |site| sites.suppressed(SiteKind::Report, site))));
        lab::set_step_silencer(Some(Arc::new(move |site| durable_steps.suppressed(SiteKind::Step, site))));
        mangrove_txn::lab::set_silencer(Some(Arc::new(move |site| steps.suppressed(SiteKind::Step, site))));
        Self
    }
}

impl Drop for Silencer {
    fn drop(&mut self) {
        lab::set_silencer(None);
        lab::set_step_silencer(None);
        mangrove_txn::lab::set_silencer(None);
    }
}

/// The domains in which suppressing this kind of call can show.
#[must_use]
pub fn domains_of(kind: SiteKind) -> &'static [CrashDomain] {
    match kind {
        SiteKind::Flush | SiteKind::Step => &[CrashDomain::Adr, CrashDomain::File],
        SiteKind::Fence => &[CrashDomain::Adr],
        SiteKind::Report => &[CrashDomain::Eadr],
        // The map needs no zeros in what it gave back: without the record it only keeps the space.
        SiteKind::GiveBack => &[],
        SiteKind::Wait | SiteKind::Sync | SiteKind::DurableWrite | SiteKind::LateWrite => {
            &[CrashDomain::File]
        }
    }
}

/// How often the workloads reach a call site.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// In each domain in which suppressing the call can show and in which it was reached.
    in_domain: Vec<(CrashDomain, u64)>,
}

impl Calls {
    /// In all domains together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.in_domain.iter().map(|(_, calls)| calls).sum()
    }

    /// The domains, that with the most calls first.
    #[must_use]
    pub fn domains(&self) -> Vec<CrashDomain> {
        let mut busiest = self.in_domain.clone();
        busiest.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
        busiest.into_iter().map(|(domain, _)| domain).collect()
    }
}

/// Crash images of a domain that meet every call site of the map, in a sixth of the time of all. Those of transactions
/// need all.
pub const FEW_IMAGES: u64 = 4000;

/// Every call site of ours that the engine's workloads reach, and how often, in the domains where it matters.
/// `own`: only those of the engine's own sources. The search ends after `images` crash images of a domain, for
/// instance [`FEW_IMAGES`].
///
/// # Errors
/// A violation: without an injected fault there must be none.
pub fn discover(
    engine: EngineKind,
    seed: u64,
    own: bool,
    images: u64,
) -> Result<BTreeMap<SiteKey, Calls>, Box<Violation>> {
    let limits = Limits { cut_images: 1, again_every: 64, again_images: 2, extra_every: 8, images };
    let scenarios = match engine {
        EngineKind::Map => <MapSubject<false>>::scenario_count(),
        EngineKind::Shadow => ShadowSubject::<false>::scenario_count(),
        EngineKind::Durable => DurableSubject::<false>::scenario_count(),
        EngineKind::Txn => TxnSubject::<RECORDS>::scenario_count(),
    };
    let sources = if own { engine.own_sources() } else { engine.sources() };
    let mut all: BTreeMap<SiteKey, Calls> = BTreeMap::new();
    for &domain in engine.domains(own) {
        let campaign =
            Campaign { engine, runs_max: 2 * u64::from(scenarios), ..Campaign::new(domain, seed, limits) };
        campaign.sweep(&mut |_| {})?;
        for (site, count) in campaign.sites.reached() {
            let ours = sources.iter().any(|part| site.file.contains(part));
            if ours && domains_of(site.kind).contains(&domain) {
                all.entry(site).or_default().in_domain.push((domain, count));
            }
        }
    }
    Ok(all)
}
