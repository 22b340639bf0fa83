//! Campaigns: sweeps of the map in one domain until enough distinct images were judged, and the search
//! for the call sites that a planted bug silences.

use crate::cursor::Domain;
use crate::file_world::{FilePlan, FileWorld};
use crate::map::MapSubject;
use crate::site::{SiteKey, SiteKind, Sites};
use crate::store_world::StoreWorld;
use crate::subject::Subject;
use crate::sweep::{Limits, Sweep, Tally, Violation, Watch};
use crate::token::Token;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Small enough that a run wraps it several times.
const LOG_BYTES: u64 = 16 << 10;

/// One in so many images of the file domain is of a pool with durability by interval.
const INTERVAL_SHARE: u64 = 4;

/// A campaign on the map.
#[derive(Clone)]
pub struct Campaign {
    /// The fault model.
    pub domain: Domain,
    /// Everything follows from it.
    pub seed: u64,
    /// How much of each run is looked at, and when to stop.
    pub limits: Limits,
    /// Stop after so many runs too.
    pub runs_max: u64,
    /// Which sites are reached, and which is silenced.
    pub sites: Arc<Sites>,
    /// Tells a watchdog what is being judged.
    pub watch: Watch,
}

impl Campaign {
    /// A campaign without planted bug.
    #[must_use]
    pub fn new(domain: Domain, seed: u64, limits: Limits) -> Self {
        Self {
            domain,
            seed,
            limits,
            runs_max: u64::MAX,
            sites: Arc::new(Sites::new()),
            watch: Watch::default(),
        }
    }

    /// Sweeps until enough distinct images were judged. `progress` hears of every run.
    ///
    /// # Errors
    /// The first violation.
    pub fn sweep(&self, progress: &mut dyn FnMut(&Tally)) -> Result<Tally, Box<Violation>> {
        if self.domain != Domain::File {
            let machine = || StoreWorld::new(self.domain, MapSubject::<false>::REGION_BYTES);
            return self.sweep_in::<MapSubject<false>, _>(machine, Tally::default(), self.limits, progress);
        }
        let sync = Limits { images: self.limits.images - self.limits.images / INTERVAL_SHARE, ..self.limits };
        let tally =
            self.sweep_in::<MapSubject<false>, _>(|| file_machine(false), Tally::default(), sync, progress)?;
        self.sweep_in::<MapSubject<true>, _>(|| file_machine(true), tally, self.limits, progress)
    }

    fn sweep_in<S: Subject, W: World>(
        &self,
        machine: impl Fn() -> W,
        mut tally: Tally,
        limits: Limits,
        progress: &mut dyn FnMut(&Tally),
    ) -> Result<Tally, Box<Violation>> {
        let sweep = Sweep::new(self.domain, self.seed, limits, self.sites.clone(), machine);
        let mut sweep = sweep.watched_by(self.watch.clone());
        for run in 0..self.runs_max {
            if tally.distinct.len() as u64 >= limits.images {
                break;
            }
            sweep.run::<S>(run, &mut tally)?;
            progress(&tally);
        }
        self.watch.rest();
        Ok(tally)
    }

    /// Judges the one image that a token names; answers what it was.
    ///
    /// # Errors
    /// Its violation.
    pub fn replay(&self, token: &Token) -> Result<String, Box<Violation>> {
        let interval = token.engine == MapSubject::<true>::NAME;
        if token.domain != Domain::File {
            let machine = || StoreWorld::new(token.domain, MapSubject::<false>::REGION_BYTES);
            return self.replay_in::<MapSubject<false>, _>(machine, token);
        }
        if interval {
            self.replay_in::<MapSubject<true>, _>(|| file_machine(true), token)
        } else {
            self.replay_in::<MapSubject<false>, _>(|| file_machine(false), token)
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

/// The file machine that campaigns use.
fn file_machine(interval: bool) -> FileWorld {
    FileWorld::new(FilePlan { capacity: MapSubject::<false>::REGION_BYTES, log_bytes: LOG_BYTES, interval })
}

/// True for the sites that a planted campaign silences: those of the engine and of the pools.
#[must_use]
pub fn is_ours(site: &SiteKey) -> bool {
    ["hart/src/", "pmem/src/"].iter().any(|part| site.file.contains(part))
}

/// The domains in which silencing this kind of call can show.
#[must_use]
pub fn domains_of(kind: SiteKind) -> &'static [Domain] {
    match kind {
        SiteKind::Flush => &[Domain::Adr, Domain::File],
        SiteKind::Fence => &[Domain::Adr],
        SiteKind::Wait | SiteKind::Sync | SiteKind::DurableWrite | SiteKind::LateWrite => &[Domain::File],
    }
}

/// Every site of ours that the workloads reach, and how often, in all domains.
///
/// # Errors
/// A violation: sites are looked for in code that is right.
pub fn discover(seed: u64) -> Result<BTreeMap<SiteKey, u64>, Box<Violation>> {
    let limits = Limits { cut_images: 1, again_every: 64, again_images: 2, extra_every: 8, images: u64::MAX };
    let mut all = BTreeMap::new();
    for domain in [Domain::Adr, Domain::File] {
        let campaign = Campaign {
            runs_max: 2 * u64::from(MapSubject::<false>::scenario_count()),
            ..Campaign::new(domain, seed, limits)
        };
        campaign.sweep(&mut |_| {})?;
        for (site, count) in campaign.sites.reached() {
            if is_ours(&site) {
                *all.entry(site).or_insert(0) += count;
            }
        }
    }
    Ok(all)
}
